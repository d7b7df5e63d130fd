"""hetspec train early-exit and hetspec eval early-exit, on a tiny target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetspec.model.checkpoint import CheckpointError
from hetspec.model.checkpoint.early_exit_folder import open_early_exit
from hetspec.training.commands.evaluate import app as eval_app
from hetspec.training.commands.train import app as train_app
from hetspec.training.target import Target
from hetspec_client.errors import InvalidInput
from tests.draft_artefact import make_draft
from tests.models import make_checkpoint

TREES = ("--nodes", "12", "--depth", "3", "--tokens", "12", "--threads", "1", "--json")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target of four layers, drafts, a prompt file and a cache."""
    folder = tmp_path_factory.mktemp("early-exit")
    target = make_checkpoint(folder / "target", "smollm", num_hidden_layers=4)
    make_checkpoint(folder / "other", "smollm", seed=1, num_hidden_layers=4)
    make_draft(folder / "draft", target)
    lines = [{"category": "ab"[i % 2], "turns": [f"the {word} of it"]} for i, word in enumerate("abcdefgh")]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {name: folder / name for name in ("target", "other", "draft", "prompts.jsonl", "cache", "out", "alone")}


def call(app: Any, places: dict[str, Path], *arguments: object) -> Any:
    given = ["--target", places["target"], "--cache-dir", places["cache"], *arguments]
    return CliRunner().invoke(app, ["early-exit", *map(str, given)], catch_exceptions=False)


@pytest.fixture(scope="module")
def trained(places: dict[str, Path]) -> dict[str, Any]:
    result = call(
        train_app, places, "--draft", places["target"], "--out", places["out"], "--prompts", places["prompts.jsonl"],
        "--recall", 0.6, *TREES,
    )  # fmt: skip
    assert result.exit_code == 0
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_what_is_written_opens_and_is_what_is_reported(places: dict[str, Path], trained: dict[str, Any]) -> None:
    target = Target.open(places["target"], places["cache"])
    folder = open_early_exit(places["out"], target.fingerprint)
    assert folder.config.draft.fingerprint == target.fingerprint  # the target drafted for itself
    assert (trained["layer"], trained["threshold"]) == (folder.config.layer, folder.config.threshold)
    assert json.loads((places["out"] / "report.json").read_text()) == trained
    with pytest.raises(CheckpointError, match="made for"):
        open_early_exit(places["out"], Target.open(places["other"], places["cache"]).fingerprint)


def test_the_recall_asked_for_holds_on_what_was_held_out(trained: dict[str, Any]) -> None:
    assert trained["groups"]["overall"]["recall"] >= 0.6
    assert [one["layer"] for one in trained["candidates"]] == [1, 2]
    saved = {one["layer"]: one["pruned"] * (4 - one["layer"]) for one in trained["candidates"]}
    assert saved[trained["layer"]] == max(saved.values())
    assert trained["candidates"][trained["layer"] - 1]["cut"] == trained["groups"]["overall"]["cut"]


def test_an_evaluation_counts_every_node_once_in_each_kind_of_group(places: dict[str, Path], trained: Any) -> None:
    result = call(
        eval_app, places, "--draft", places["draft"], "--predictor", places["out"], "--prompts",
        places["prompts.jsonl"], *TREES,
    )  # fmt: skip
    assert result.exit_code == 0
    groups = json.loads(result.stdout)["groups"]
    assert set(groups) == {"overall", "temperature 0", "temperature 0.8", "a", "b"}

    def summed(names: Sequence[str]) -> list[int]:
        return [sum(groups[n]["cut"][key] for n in names) for key in ("accepted", "lost", "others", "dropped")]

    assert summed(["overall"]) == summed(["temperature 0", "temperature 0.8"]) == summed(["a", "b"])
    for one in groups.values():
        assert one["alone"]["lost"] <= one["cut"]["lost"]
        assert 1 <= one["accept_length"][1] <= one["accept_length"][0] <= 4


def test_with_too_few_nodes_to_promise_a_recall_nothing_is_dropped(places: dict[str, Path]) -> None:
    """By user turns that the target writes itself."""
    result = call(
        train_app, places, "--draft", places["draft"], "--out", places["alone"], "--rounds", 20, "--layers", 2, *TREES
    )
    report = json.loads(result.stdout)
    assert report["threshold"] is None
    assert (report["layer"], report["groups"]["overall"]["pruned"]) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", 4), r"layers: 4, must be in \[1, 3\]"),
        (("--draft", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(places: dict[str, Path], arguments: Any, message: str) -> None:
    given = ("--draft", places["draft"], "--out", places["alone"], "--prompts", places["prompts.jsonl"], *arguments)
    with pytest.raises(InvalidInput, match=message):
        call(train_app, places, *given, *TREES)
