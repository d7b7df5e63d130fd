"""Trees as the target saw them: what a predictor of accepted nodes is fitted to and measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.choose import choose
from hetspec.model.early_exit import DraftedRows, Rows
from hetspec.training.speculation.rounds import Round, Task
from hetspec.training.speculation.speculator import Speculator

NO_CHOICE = -1


@dataclass(frozen=True, slots=True)
class Trees:
    """Many drafted trees with what became of them; arrays of [rows] as `drafted` has them.

    prompts: int64, the number of the prompt. choices: int64, what the target would choose to follow the row; NO_CHOICE
    where no node hangs below. accepted: bool, whether on the accepted path; true for a root. hidden: float16
    [rows, hidden_size] by the number of layers; after all of them, before the final norm, is always there.
    """

    drafted: DraftedRows
    prompts: NDArray[np.int64]
    choices: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    hidden: Mapping[int, NDArray[np.float16]]

    def __len__(self) -> int:
        return int(np.count_nonzero(self.drafted.parents < 0))

    def only(self, prompts: Iterable[int]) -> Trees:
        """The trees of these prompts."""
        kept = np.flatnonzero(np.isin(self.prompts, list(prompts)))
        place = np.full(len(self.prompts) + 1, -1)  # the last for the roots' parents
        place[kept] = np.arange(len(kept))
        old = self.drafted
        drafted = DraftedRows(
            place[old.parents[kept]], old.tokens[kept], old.log_probabilities[kept], old.sources[kept]
        )
        hidden = {layer: rows[kept] for layer, rows in self.hidden.items()}
        return Trees(drafted, self.prompts[kept], self.choices[kept], self.accepted[kept], hidden)


class TreeRecorder:
    """Runs prompts through a speculator and notes every drafted tree."""

    def __init__(self, speculator: Speculator, layers: Sequence[int]) -> None:
        """layers: whose rows are kept, beside the last one's."""
        self._speculator = speculator
        self._layers = layers
        self._parts: list[Trees] = []

    def record(self, prompt: int, task: Task) -> int:
        """The number of trees it gave."""
        position, last, trees = len(task.prompt), task.prompt[-1], 0
        for one in self._speculator.rounds(task, self._layers):
            if len(one.draft.tree):
                self._parts.append(self._tree(prompt, task, one, last, position))
                trees += 1
            position += len(one.emitted)
            last = one.emitted[-1]
        return trees

    def trees(self) -> Trees:
        """All that was recorded; at least one tree must have been."""
        counts = [len(part.prompts) for part in self._parts]
        first = np.repeat(np.cumsum([0, *counts[:-1]]), counts)

        def joined(field: Callable[[Trees], NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([field(part) for part in self._parts])

        parents = joined(lambda part: part.drafted.parents)
        drafted = DraftedRows(
            np.where(parents < 0, -1, parents + first),
            joined(lambda part: part.drafted.tokens),
            joined(lambda part: part.drafted.log_probabilities),
            joined(lambda part: part.drafted.sources),
        )
        layers = self._parts[0].hidden.keys()
        return Trees(
            drafted,
            joined(lambda part: part.prompts),
            joined(lambda part: part.choices),
            joined(lambda part: part.accepted),
            {layer: np.concatenate([part.hidden[layer] for part in self._parts]) for layer in layers},
        )

    def _tree(self, prompt: int, task: Task, one: Round, last: int, position: int) -> Trees:
        """position: of the first token that follows the root, whose own is `last`."""
        draft, rows = one.draft, 1 + len(one.draft.tree)
        accepted = np.zeros(rows, np.bool_)
        accepted[[0, *(1 + node for node in one.accepted)]] = True
        all_layers = self._speculator.target.config.n_layers
        return Trees(
            DraftedRows.of(last, draft.tree, draft.probabilities, draft.sources),
            np.full(rows, prompt),
            self._choices(task, one, position),
            accepted,
            {layer: _stored(shown) for layer, shown in (*one.looked.items(), (all_layers, one.rows))},
        )

    def _choices(self, task: Task, one: Round, position: int) -> NDArray[np.int64]:
        """Also behind nodes that were not accepted: what would have followed, had they been."""
        tree = one.draft.tree
        parents = sorted({*tree.parents})
        logits = self._speculator.head.logits(one.rows[[1 + parent for parent in parents]])
        logits[:, self._speculator.missing] = -np.inf
        depths = [0, *tree.depths()]
        choices = np.full(1 + len(tree), NO_CHOICE)
        for parent, row in zip(parents, logits, strict=True):
            choices[1 + parent] = choose(row, task.sampling, task.noise, position + depths[1 + parent])
        return choices


def _stored(rows: Rows) -> NDArray[np.float16]:
    """A few entries of some targets' rows are beyond float16."""
    largest = np.finfo(np.float16).max
    return np.clip(rows, -largest, largest).astype(np.float16)
