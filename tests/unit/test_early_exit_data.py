"""Trees grown along answers are those of speculation, row for row; what is left out of them is what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from hetspec.decoding.choose import choose
from hetspec.decoding.noise import tree_noise
from hetspec.model.head import Head
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.training.corpus.prompts import NO_CATEGORY, Prompt
from hetspec.training.early_exit.data import NO_CHOICE, Trees
from hetspec.training.early_exit.gather import Growing, TreeGatherer
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.speculation.rounds import Round, Task
from hetspec.training.speculation.speculator import Speculator
from hetspec.training.target import Target
from tests.models import make_checkpoint

GROWING = Growing(nodes=10, depth=4, max_tokens=14)
PROMPTS = [Prompt((3, 1, 4, 1, 5 + number), NO_CATEGORY) for number in range(4)]
LAYERS = (1, 2)
CONTEXT, ROOM = 64, 256


@dataclass
class Opened:
    target: Target
    draft: OpenDraft

    def gathered(self, prompts: list[Prompt], keeps_text: bool = False) -> TreeGatherer:
        with TreeGatherer(self.target, self.draft, GROWING, LAYERS, lambda _: keeps_text) as gatherer:
            gatherer.gather(iter(prompts), None, lambda _: None)
            return gatherer

    def speculated(self, number: int) -> Iterator[tuple[int, int, Round, NDArray[np.float32]]]:
        """The reference: rounds with a tree, verified by all layers; each with the token that it hangs below, the
        position of that, and the logits of its rows."""
        parts = DraftParts(self.draft, threads=1, max_rows=CONTEXT, max_context=CONTEXT, kv_tokens=ROOM)
        pack, text = self.target.pack, self.target.text
        models = Speculator(
            Transformer(pack, threads=1, max_rows=CONTEXT, max_context=CONTEXT, kv_capacity_tokens=ROOM),
            Head(pack, threads=1),
            missing=text.vocabulary.missing(self.target.checkpoint.config.vocab_size),
            end_ids=frozenset(text.spec.end_ids),
            draft=parts.model(self.draft.barred),
        )
        asked = GROWING.question(number, PROMPTS[number])
        last, position = asked.prompt[-1], len(asked.prompt) - 1
        task = Task(asked.prompt, GROWING.policy, asked.max_tokens, asked.sampling, asked.noise)
        for one in models.rounds(task, LAYERS):
            if one.draft.tree:
                logits = models.head.logits(one.rows)
                logits[:, models.missing] = -np.inf
                yield last, position, one, logits
            last, position = one.emitted[-1], position + len(one.emitted)
        models.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("trees")
    make_checkpoint(folder / "target", "smollm", num_hidden_layers=3)
    target = Target.open(folder / "target", folder)
    return Opened(target, OpenDraft.open(folder / "target", target, folder))


@pytest.fixture(scope="module")
def whole(opened: Opened) -> Trees:
    return opened.gathered(PROMPTS).trees()


def assert_same(found: Trees, wanted: Trees) -> None:
    for name in ("parents", "tokens", "log_probabilities", "sources", "noise"):
        assert np.array_equal(getattr(found.drafted, name), getattr(wanted.drafted, name)), name
    for name in ("prompts", "choices", "accepted"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    assert found.hidden.keys() == wanted.hidden.keys()
    assert all(np.array_equal(found.hidden[layer], wanted.hidden[layer]) for layer in found.hidden)


@pytest.mark.parametrize("number", [0, 2])  # greedy, and drawn
def test_trees_along_an_answer_are_those_that_speculation_verifies(opened: Opened, whole: Trees, number: int) -> None:
    found, first = whole.only([number]), 0
    asked, ends = GROWING.question(number, PROMPTS[number]), opened.target.text.spec.end_ids
    for last, position, one, logits in opened.speculated(number):
        tree, rows = one.draft.tree, slice(first, first + 1 + len(one.draft.tree))
        assert found.drafted.tokens[rows].tolist() == [last, *tree.tokens]
        assert found.drafted.parents[rows].tolist() == [-1, *(first + 1 + parent for parent in tree.parents)]
        probabilities = np.exp(found.drafted.log_probabilities[rows][1:])
        np.testing.assert_allclose(probabilities, one.draft.probabilities, rtol=1e-5)
        assert found.drafted.sources[rows].tolist() == [0, *one.draft.sources]
        path = [0, *(1 + node for node in one.accepted)]
        assert np.flatnonzero(found.accepted[rows]).tolist() == path
        for row, (token, depth) in enumerate(zip([last, *tree.tokens], [0, *tree.depths()], strict=True)):
            behind = position + 1 + depth
            chosen = NO_CHOICE if token in ends else choose(logits[row].copy(), asked.sampling, asked.noise, behind)
            assert found.choices[rows][row] == chosen
        assert found.choices[rows][path].tolist()[: len(one.emitted)] == list(one.emitted)[: len(path)]
        noise = tree_noise(tree, asked.sampling.temperature, asked.noise, position + 1)
        np.testing.assert_allclose(found.drafted.noise[rows], [0.0, *noise], rtol=1e-6)
        for layer in LAYERS:
            assert np.array_equal(found.hidden[layer][rows], one.looked[layer].astype(np.float16))
        first = rows.stop
    assert first == len(found.prompts) > 0


def test_a_node_is_accepted_where_its_parent_is_and_chose_it(whole: Trees) -> None:
    parents = whole.drafted.parents
    for row in whole.drafted.nodes.tolist():
        chosen = whole.choices[parents[row]] == whole.drafted.tokens[row]
        assert whole.accepted[row] == (whole.accepted[parents[row]] and chosen)


def test_what_is_on_the_path_are_the_nodes_below_accepted_ones(whole: Trees) -> None:
    found, parents = whole.on_path(), whole.drafted.parents
    kept = [row for row, parent in enumerate(parents.tolist()) if parent < 0 or whole.accepted[parent]]
    for name in ("tokens", "log_probabilities", "sources", "noise"):
        assert np.array_equal(getattr(found.drafted, name), getattr(whole.drafted, name)[kept]), name
    assert [kept[parent] if parent >= 0 else -1 for parent in found.drafted.parents] == parents[kept].tolist()
    assert np.array_equal(found.choices, whole.choices[kept])
    assert np.array_equal(found.hidden[1], whole.hidden[1][kept])


def test_texts_are_what_the_whole_target_read(opened: Opened) -> None:
    texts = opened.gathered(PROMPTS[:1], keeps_text=True).texts()
    model = Transformer(opened.target.pack, threads=1, max_rows=CONTEXT, max_context=CONTEXT, kv_capacity_tokens=ROOM)
    shown: dict[int, Rows] = {}

    def look(rows: Rows) -> None:
        shown[1] = rows.copy()

    final, _ = model.run([Span(model.new_cache(), texts.tokens.tolist())], looks={1: look})
    model.close()
    assert texts.tokens[: len(PROMPTS[0].ids)].tolist() == list(PROMPTS[0].ids)
    assert np.array_equal(texts.final, final.astype(np.float16))
    assert np.array_equal(texts.hidden[1], shown[1].astype(np.float16))


@pytest.mark.parametrize("wanted", [[0], [3], [1, 2], [0, 1, 2, 3]])
def test_the_trees_of_some_prompts_are_those_of_each_alone(whole: Trees, wanted: list[int]) -> None:
    assert_same(whole.only(wanted), Trees.joined([whole.only([number]) for number in wanted]))
