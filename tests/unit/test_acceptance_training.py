"""hetspec train acceptance and hetspec eval acceptance, on a tiny target; what they judge by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.checkpoint.acceptance_folder import open_acceptance
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.acceptance.data import judged_of
from hetspec.training.commands.evaluate import app as eval_app
from hetspec.training.commands.train import app as train_app
from hetspec.training.speculation.replay import replay
from hetspec.training.speculation.rounds import Task
from hetspec.training.target import Target
from hetspec_client.errors import InvalidInput
from tests.models import make_checkpoint
from tests.unit.test_speculation import MODEL, known_answer, rows_of, speculator

SHAPE = ("--length", "4", "--tokens", "12", "--threads", "1", "--json")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, another model that drafts for it, a prompt file and a cache."""
    folder = tmp_path_factory.mktemp("acceptance")
    make_checkpoint(folder / "target", "smollm", num_hidden_layers=2)
    make_checkpoint(folder / "draft", "smollm", seed=1, num_hidden_layers=1)
    lines = [{"turns": [f"the {word} of it"]} for word in "abcdefghijkl"]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {name: folder / name for name in ("target", "draft", "prompts.jsonl", "cache", "out")}


def call(app: Any, places: dict[str, Path], *arguments: object) -> Any:
    given = ["--target", places["target"], "--draft", places["draft"], "--cache-dir", places["cache"], *arguments]
    return CliRunner().invoke(app, ["acceptance", *map(str, given), *SHAPE], catch_exceptions=False)


def test_written_head_opens_and_is_what_is_reported_and_measured_again(places: dict[str, Path]) -> None:
    result = call(train_app, places, "--out", places["out"], "--prompts", places["prompts.jsonl"])
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert json.loads((places["out"] / "report.json").read_text()) == told
    target, draft = (Target.open(places[name], places["cache"]) for name in ("target", "draft"))
    made = open_acceptance(places["out"], target.fingerprint, draft.fingerprint)
    assert (made.config.blocks, made.config.rejection_weight) == (1, 1.0)
    assert made.config.hidden_size == draft.checkpoint.config.hidden_size
    measured = call(eval_app, places, "--head", places["out"], "--prompts", places["prompts.jsonl"])
    again = json.loads(measured.stdout)
    assert again["tokens"] > told["tokens"]  # all prompts, not those alone that were held out
    assert (again["target"], again["draft"]) == (told["target"], told["draft"])


def test_head_of_another_draft_is_refused_in_one_line(places: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"config.json"):
        call(eval_app, places, "--head", tmp_path, "--prompts", places["prompts.jsonl"])


@pytest.mark.parametrize("draft_seed", [0, 3])
def test_judged_are_the_accepted_tokens_and_the_first_rejected_one_with_the_outputs_behind_them(
    draft_seed: int,
) -> None:
    """draft_seed 0: the target drafts for itself, and its outputs are its rows."""
    policy = DraftPolicy(5, 5, 1, (MODEL,))
    answer = known_answer(Task((3, 5, 8, 9, 4), policy, 24, Sampling(0.8), NoiseKey(2)))
    judged_any, ids = False, [*answer.question.prompt, answer.tokens[0]]
    for one in replay(answer, policy, speculator(draft_seed).draft):
        if not one.outputs:
            continue
        judged, chain = judged_of(one, 7), len(one.draft.tree)
        expected = [True] * len(one.accepted) + [False] * (len(one.accepted) < chain)
        assert judged.accepted.tolist() == expected[: chain - 1]  # the last of a chain was not fed
        assert judged.probabilities.tolist() == pytest.approx(one.draft.probabilities[: len(judged)])
        assert set(judged.prompts.tolist()) == {7}
        if draft_seed == 0:
            path = one.draft.tree.tokens[: len(judged)]
            np.testing.assert_array_equal(judged.rows, rows_of([*ids, *path])[len(ids) :])
        ids += one.emitted
        judged_any = True
    assert judged_any
