"""A second target goes through `hetspec train` and `hetspec eval`, as a person would have it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hetspec.model.checkpoint import CheckpointError, open_checkpoint, open_draft
from hetspec.training.draft.folder import write_draft
from hetspec.training.draft.initial import new_student
from hetspec.training.target import Target
from hetspec_client import cli
from tests.models import make_checkpoint
from tests.second_target import make_second_target, questions

ROOT = Path(__file__).parents[2]
SMALL = ("--threads", "1", "--rows", "8000", "--vocab", "150", "--batch", "512", "--epochs", "3", "--steps", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("second")


@pytest.fixture(scope="module")
def target(folder: Path) -> Path:
    return make_second_target(folder / "target")


@pytest.fixture(scope="module")
def prompts(folder: Path) -> Path:
    lines = [json.dumps({"turns": [question], "category": "qa"}) for question in questions()[::9]]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    return folder / "prompts.jsonl"


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip leaves it, with the project's own entry points: whether or not it is installed."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["hetspec.commands"]
    info = tmp_path_factory.mktemp("verbs") / "verbs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verbs\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {where}" for name, where in found.items())
    (info / "entry_points.txt").write_text(f"[hetspec.commands]\n{lines}\n")
    return info.parent


@pytest.fixture
def hetspec(verbs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.syspath_prepend(str(verbs))
    monkeypatch.setenv("HETSPEC_CACHE_DIR", str(folder / "packs"))

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([*map(str, arguments)])
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def train(hetspec: Callable[..., Any], target: Path) -> Callable[..., dict[str, Any]]:
    def run(out: Path, *options: object) -> dict[str, Any]:
        code, told, wrong = hetspec("train", "draft", "--target", target, "--out", out, "--json", *SMALL, *options)
        assert code == 0, wrong
        return json.loads(told)

    return run


def untrained(folder: Path, target: Path, cache: Path) -> Path:
    """A draft folder of a student as it begins."""
    opened = Target.open(target, cache)
    config = open_draft(folder / "draft", opened.checkpoint).config
    head_ids = open_draft(folder / "draft", opened.checkpoint).head_ids().astype(np.int64)
    write_draft(folder / "untrained", new_student(config, opened.checkpoint, head_ids, 1.0, seed=0), head_ids, opened)
    return folder / "untrained"


def test_trained_draft_is_accepted_far_more_often_than_an_untrained_one(hetspec, train, target, prompts, folder):
    told = train(folder / "draft")
    assert told["kind"] == "features"
    assert told == json.loads((folder / "draft" / "report.json").read_text())

    def accepted(draft: Path) -> float:
        code, report, wrong = hetspec(
            "eval", "draft", "--target", target, "--draft", draft, "--prompts", prompts,
            "--tokens", 24, "--threads", 1, "--json",
        )  # fmt: skip
        assert code == 0, wrong
        measured = json.loads(report)
        assert {"overall", "qa"} == set(measured["acceptance"])
        assert measured["steps"][0]["guesses"] > 0
        return float(measured["acceptance"]["overall"]["chain"]["accept_length"])

    assert accepted(folder / "draft") > accepted(untrained(folder, target, folder / "packs")) + 0.5


def test_training_that_is_called_again_comes_to_the_same_draft(train, folder, target):
    """From its corpus with the weights begun anew, and from a checkpoint that is finished already."""
    if not (folder / "draft").exists():
        train(folder / "draft")
    (folder / "draft.work" / "student.pt").rename(folder / "student.pt")
    train(folder / "again", "--work", folder / "draft.work")
    first, again = (open_draft(folder / name, open_checkpoint(target)) for name in ("draft", "again"))
    for name in ("embed", "feature_mix", "layers.0.down", "head"):
        assert np.array_equal(first.tensor(name), again.tensor(name))
    (folder / "student.pt").replace(folder / "draft.work" / "student.pt")
    train(folder / "draft", "--work", folder / "draft.work")
    weights = torch.load(folder / "draft.work" / "student.pt", weights_only=True)["student"]
    assert np.array_equal(weights["head.weight"].half().float().numpy(), first.tensor("head"))


def test_draft_of_another_target_is_refused(train, folder, target):
    if not (folder / "draft").exists():
        train(folder / "draft")
    other = open_checkpoint(make_checkpoint(folder / "other", "llama3"))
    with pytest.raises(CheckpointError, match="fingerprint"):
        open_draft(folder / "draft", other)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--layers", 7), "layers = 7, must be in [1, 2]"),
        (("--vocab", 2), "head tokens = 2, must be 0 or at least"),
        (("--rows", 0), "there is nothing to learn from"),
        (("--prompts", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_line(options, problem, hetspec, target, folder):
    code, out, told = hetspec("train", "draft", "--target", target, "--out", folder / "x", "--threads", 1, *options)
    assert code != 0
    assert out == ""
    assert told.startswith("hetspec: ")
    assert told.count("\n") == 1
    assert problem in told
