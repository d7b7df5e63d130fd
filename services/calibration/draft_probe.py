"""Drafts of the draft model, as the drafter at hand makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibration.sample import Sample
from calibration.text import Text
from calibration.unit_stream import UnitStream
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.hardware.work import DraftWork, ItemRows
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL

_GREEDY, _NOISE = Sampling(0), NoiseKey(0)
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class DraftShape:
    """read: committed tokens that the first step reads. steps: further ones, each of `width` rows."""

    read: int
    width: int = 1
    steps: int = 0


class DraftProbe:
    def __init__(self, drafter: UnitStream[DraftItem, Draft], vocab_size: int, hidden_size: int) -> None:
        """hidden_size: of the target's rows, in case that the draft model reads them."""
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._row_bytes = hidden_size * _FLOAT_BYTES if drafter.description.reads_features else 0
        self._deep = Text("calibrate", vocab_size)
        self._levels: list[Text] = []

    @property
    def has_model(self) -> bool:
        return DRAFT_SOURCE_MODEL in self._drafter.description.sources

    def read(self, tokens: int) -> Sample:
        return self._draft(self._deep, DraftShape(tokens))

    def branch(self, contexts: Sequence[int]) -> None:
        """Drafts hang below these many tokens, and a few more with every draft that reads few."""
        self._drafter.release([text.session for text in self._levels])
        self._levels = [Text(f"level-{at}", self._vocab_size, self._deep, at) for at in contexts]

    def draft(self, level: int, shape: DraftShape) -> Sample:
        text = self._levels[level]
        if shape.read <= LAST_STRETCH:
            sample = self._draft(text, shape)
            if shape.steps:  # to free a tree of so many candidates takes longer than the next draft itself
                self._draft(text, DraftShape(1))
            return sample
        long = Text("long", self._vocab_size, text, len(text))
        sample = self._draft(long, shape)
        self._drafter.release([long.session])
        return sample

    def _draft(self, text: Text, shape: DraftShape) -> Sample:
        rows = min(shape.read, len(text) + shape.read - 1)  # a session's first token has none
        depth = 1 + shape.steps
        policy = DraftPolicy(shape.width * depth, depth, shape.width, (DRAFT_SOURCE_MODEL,))
        hidden = bytes(rows * self._row_bytes)
        done = self._drafter.ask(DraftItem(text.move(shape.read), policy, _GREEDY, _NOISE, hidden))
        trace = done.trace
        return Sample(
            DraftWork((ItemRows(trace.kv_len_by_row),), trace.draft_step_rows, trace.head_rows), done.compute_ns
        )
