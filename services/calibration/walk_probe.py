"""Rows through the target's head, as the sampler at hand projects them."""

from __future__ import annotations

from calibration.sample import Sample
from calibration.unit_stream import UnitStream
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.hardware.work import WalkWork
from hetspec.rpc.messages import Walk, WalkItem

_FLOAT_BYTES = 4


class WalkProbe:
    def __init__(self, sampler: UnitStream[WalkItem, Walk], hidden_size: int) -> None:
        self._sampler = sampler
        self._row_bytes = hidden_size * _FLOAT_BYTES
        self._choice = self._ask(TokenTree(), eager=True)[1].tokens[0]  # of every row: all are zeros

    def path(self, rows: int) -> Sample:
        """A chain that is accepted: one row after another."""
        return self._ask(TokenTree.chain([self._choice] * (rows - 1)), eager=False)[0]

    def at_once(self, rows: int) -> Sample:
        """A tree of which nothing is accepted."""
        tokens = (token for token in range(rows) if token != self._choice)
        return self._ask(TokenTree(tuple(tokens)[: rows - 1], (ROOT,) * (rows - 1)), eager=True)[0]

    def _ask(self, tree: TokenTree, eager: bool) -> tuple[Sample, Walk]:
        rows = 1 + len(tree)
        item = WalkItem(
            "calibrate", bytes(rows * self._row_bytes), tree, Sampling(0), NoiseKey(0), 0, rows, eager=eager
        )
        done = self._sampler.ask(item)
        return Sample(WalkWork(rows, done.trace.head_rows, lazy=not eager), done.compute_ns), done.result
