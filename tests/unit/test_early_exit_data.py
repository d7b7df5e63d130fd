"""Recorded trees say what became of each node, and the cut of a set of prompts is what these prompts gave."""

from __future__ import annotations

import numpy as np
import pytest

from hetspec.decoding.choose import choose
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.early_exit.data import NO_CHOICE, TreeRecorder, Trees
from hetspec.training.speculation.rounds import Round, Task
from tests.unit.test_speculation import LOOKUP, MISSING, MODEL, speculator

TREE = DraftPolicy(10, 4, 3, (LOOKUP, MODEL))
TASKS = [
    Task((3, 1, 4, 1, 5), TREE, 14, Sampling(temperature), NoiseKey(number))
    for number, temperature in enumerate([0.0, 0.8, 0.8, 0.0])
]


def record(numbers: list[int]) -> Trees:
    recorder = TreeRecorder(speculator(1), layers=(1, 2))
    for number in numbers:
        recorder.record(number, TASKS[number])
    return recorder.trees()


def rounds_of(task: Task) -> list[tuple[int, int, Round]]:
    """Of those with a tree: the root's token, the position of what follows it, and the round."""
    found: list[tuple[int, int, Round]] = []
    ids = list(task.prompt)
    for one in speculator(1).rounds(task, (1, 2)):
        if len(one.draft.tree):
            found.append((ids[-1], len(ids), one))
        ids += one.emitted
    return found


@pytest.mark.parametrize("number", range(len(TASKS)))
def test_every_row_is_labelled_as_the_walk_and_the_target_have_it(number: int) -> None:
    task, trees, models = TASKS[number], record([number]), speculator(1)
    rounds = rounds_of(task)
    assert len(trees) == len(rounds)
    first = 0
    for last, position, one in rounds:
        tree, drafted = one.draft.tree, trees.drafted
        rows = slice(first, first + 1 + len(tree))
        assert drafted.tokens[rows].tolist() == [last, *tree.tokens]
        assert drafted.parents[rows].tolist() == [-1, *(first + 1 + parent for parent in tree.parents)]
        np.testing.assert_allclose(np.exp(drafted.log_probabilities[rows][1:]), one.draft.probabilities, rtol=1e-5)
        assert drafted.sources[rows].tolist() == [0, *one.draft.sources]
        assert set(np.flatnonzero(trees.accepted[rows]) - 1) == {ROOT, *one.accepted}
        for node in range(ROOT, len(tree)):
            logits = models.head.logits(one.rows[[1 + node]])[0]
            logits[MISSING] = -np.inf
            chosen = choose(logits, task.sampling, task.noise, position + len(tree.path(node)))
            assert trees.choices[first + 1 + node] == (chosen if node in tree.parents else NO_CHOICE)
        for layer, shown in (*one.looked.items(), (models.target.config.n_layers, one.rows)):
            assert np.array_equal(trees.hidden[layer][rows], shown.astype(np.float16))
        first = rows.stop
    assert first == len(trees.prompts)


def test_a_node_is_accepted_where_its_parent_is_and_chose_it() -> None:
    trees = record([0, 1, 2, 3])
    parents = trees.drafted.parents
    for row in trees.drafted.nodes.tolist():
        chosen = trees.choices[parents[row]] == trees.drafted.tokens[row]
        assert trees.accepted[row] == (trees.accepted[parents[row]] and chosen)


@pytest.mark.parametrize("wanted", [[0], [3], [1, 2], [0, 1, 2, 3]])
def test_the_trees_of_some_prompts_are_those_that_they_give_alone(wanted: list[int]) -> None:
    found, alone = record([0, 1, 2, 3]).only(wanted), record(wanted)
    for name in ("parents", "tokens", "log_probabilities", "sources"):
        assert np.array_equal(getattr(found.drafted, name), getattr(alone.drafted, name))
    for name in ("prompts", "choices", "accepted"):
        assert np.array_equal(getattr(found, name), getattr(alone, name))
    assert all(np.array_equal(found.hidden[layer], alone.hidden[layer]) for layer in alone.hidden)
