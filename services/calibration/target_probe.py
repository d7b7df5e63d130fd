"""Passes of the target, as the verifier at hand runs them."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.sample import Sample
from calibration.text import Text
from calibration.unit_stream import UnitStream
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.hardware.work import ItemRows, VerifyWork
from hetspec.rpc.messages import HiddenRows, HiddenStates, SessionUpdate, VerifyItem

_WIDTH = 8  # of a tree


class TargetProbe:
    """Sessions of stated lengths, all of them forks of one that was read once."""

    def __init__(self, verifier: UnitStream[VerifyItem, HiddenStates]) -> None:
        self._verifier = verifier
        self._vocab_size = verifier.description.vocab_size
        self._deep = Text("calibrate", self._vocab_size)
        self._levels: list[Text] = []

    def read(self, tokens: int, chunk: int) -> list[Sample]:
        """Has `tokens` read, in chunks: the longest context that there is from now on."""
        return [self._pass(self._deep.move(chunk)) for _ in range(0, tokens, chunk)]

    def branch(self, contexts: Sequence[int]) -> None:
        """Drafted trees hang below these many tokens, and a few more with every pass."""
        self._verifier.release([text.session for text in self._levels])
        self._levels = [self._fork(f"level-{context}", context) for context in contexts]

    def tree(self, level: int, rows: int) -> Sample:
        """A pass over a token and a tree below it, chains side by side."""
        parents = tuple(node - _WIDTH if node >= _WIDTH else ROOT for node in range(rows - 1))
        tree = TokenTree(tuple(node % _WIDTH for node in range(rows - 1)), parents)
        return self._pass(self._levels[level].move(1), tree)

    def chunk(self, context: int, rows: int) -> Sample:
        """A chunk of a prompt behind `context` tokens."""
        text = self._fork("chunk", context)
        sample = self._pass(text.move(rows))
        self._verifier.release([text.session])
        return sample

    def _fork(self, name: str, context: int) -> Text:
        return Text(name, self._vocab_size, self._deep if context else None, context)

    def _pass(self, update: SessionUpdate, tree: TokenTree | None = None) -> Sample:
        hidden = HiddenRows.ALL if tree is None else HiddenRows.LAST
        done = self._verifier.ask(VerifyItem(update, tree or TokenTree(), hidden))
        return Sample(VerifyWork((ItemRows(done.trace.kv_len_by_row),), done.trace.rows_by_layer), done.compute_ns)
