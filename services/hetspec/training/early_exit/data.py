"""Trees as the target saw them: what a predictor of accepted nodes is fitted to and measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hetspec.model.early_exit import DraftedRows, Rows
from hetspec.training.speculation.replay import ReplayedRound

NO_CHOICE = -1
Stored = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class SeenTree:
    """What the target says of a tree below the token `last`. rows: of `last` and the nodes, by the number of layers.
    choices: what follows each of these. noise: of each node's token."""

    last: int
    rows: Mapping[int, Rows]
    choices: Sequence[int]
    noise: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trees:
    """Many drafted trees with what became of them; arrays of [rows] as `drafted` has them.

    prompts: int64, the number of the prompt. choices: int64, what the target chooses to follow the row, on the accepted
    path or not; NO_CHOICE behind what ends an answer. accepted: bool, whether on the accepted path; true for a root.
    hidden: float16 [rows, hidden_size] by the number of layers.
    """

    drafted: DraftedRows
    prompts: NDArray[np.int64]
    choices: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    hidden: Mapping[int, Stored]

    def __len__(self) -> int:
        return int(np.count_nonzero(self.drafted.parents < 0))

    @classmethod
    def of(cls, prompt: int, one: ReplayedRound, seen: SeenTree) -> Self:
        """A round's tree."""
        draft, accepted = one.draft, np.zeros(1 + len(one.draft.tree), np.bool_)
        accepted[[0, *(1 + node for node in one.accepted)]] = True
        drafted = DraftedRows.of(seen.last, draft.tree, draft.probabilities, draft.sources, seen.noise)
        hidden = {layer: stored(found) for layer, found in seen.rows.items()}
        return cls(drafted, np.full(len(accepted), prompt), np.array(seen.choices), accepted, hidden)

    @classmethod
    def joined(cls, parts: Sequence[Trees]) -> Self:
        """At least one."""
        counts = [len(part.prompts) for part in parts]
        first = np.repeat(np.cumsum([0, *counts[:-1]]), counts)

        def all_of(field: Callable[[Trees], NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([field(part) for part in parts])

        parents = all_of(lambda part: part.drafted.parents)
        drafted = DraftedRows(
            np.where(parents < 0, -1, parents + first),
            all_of(lambda part: part.drafted.tokens),
            all_of(lambda part: part.drafted.log_probabilities),
            all_of(lambda part: part.drafted.sources),
            all_of(lambda part: part.drafted.noise),
        )
        return cls(
            drafted,
            all_of(lambda part: part.prompts),
            all_of(lambda part: part.choices),
            all_of(lambda part: part.accepted),
            {layer: np.concatenate([part.hidden[layer] for part in parts]) for layer in parts[0].hidden},
        )

    def only(self, prompts: Iterable[int]) -> Trees:
        """The trees of these prompts."""
        return self._rows(np.isin(self.prompts, list(prompts)))

    def on_path(self) -> Trees:
        """Without the nodes that do not hang below an accepted one."""
        parents = self.drafted.parents
        return self._rows((parents < 0) | self.accepted[parents])

    def _rows(self, wanted: NDArray[np.bool_]) -> Trees:
        """wanted: [rows], with a row its parent."""
        kept = np.flatnonzero(wanted)
        place = np.full(len(wanted) + 1, -1)  # the last for the roots' parents
        place[kept] = np.arange(len(kept))
        old = self.drafted
        logs, sources, noise = old.log_probabilities[kept], old.sources[kept], old.noise[kept]
        drafted = DraftedRows(place[old.parents[kept]], old.tokens[kept], logs, sources, noise)
        hidden = {layer: rows[kept] for layer, rows in self.hidden.items()}
        return Trees(drafted, self.prompts[kept], self.choices[kept], self.accepted[kept], hidden)


@dataclass(frozen=True, slots=True)
class Texts:
    """Prompts with their answers, token by token, as the target read them. tokens: int64 [rows]. hidden: float16
    [rows, hidden_size] by the number of layers; `final` after all of them, before the final norm."""

    tokens: NDArray[np.int64]
    hidden: Mapping[int, Stored]
    final: Stored

    @classmethod
    def of(cls, tokens: Sequence[int], rows: Mapping[int, Rows], final: NDArray[np.floating]) -> Self:
        return cls(np.array(tokens), {layer: stored(found) for layer, found in rows.items()}, stored(final))

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Self:
        """At least one."""
        hidden = {layer: np.concatenate([part.hidden[layer] for part in parts]) for layer in parts[0].hidden}
        return cls(
            np.concatenate([part.tokens for part in parts]), hidden, np.concatenate([part.final for part in parts])
        )


def stored(rows: NDArray[np.floating]) -> Stored:
    """A few entries of some targets' rows are beyond float16."""
    largest = np.finfo(np.float16).max
    kept: Stored = np.clip(rows, -largest, largest).astype(np.float16)
    return kept
