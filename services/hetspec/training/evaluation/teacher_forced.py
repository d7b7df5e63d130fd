"""Agreement of a draft model with its target by draft step, along texts of the target's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from hetspec.model.head import Head
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.evaluation.agreement import Agreement, AgreementCount, softmax
from hetspec.training.evaluation.follow import Follower
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target


class TeacherForced:
    """Guesses at answered tokens, each behind the text's own tokens, with the kernels that serve."""

    def __init__(self, target: Target, draft: OpenDraft, *, threads: int, max_tokens: int) -> None:
        """max_tokens: of a text."""
        config = target.checkpoint.config
        self._head = Head(target.pack, threads=threads)
        self._missing = target.text.vocabulary.missing(config.vocab_size)
        self._follower = Follower(draft, threads=threads, max_tokens=max_tokens)
        is_trimmed = bool(draft.checkpoint.config.head_vocab_size)
        self._head_ids = draft.checkpoint.head_ids().astype(np.intp) if is_trimmed else None

    def measure(self, texts: Iterable[Said], steps: int, on_text: Callable[[], None] = lambda: None) -> list[Agreement]:
        """One a draft step."""
        counts = [AgreementCount() for _ in range(steps)]
        for one in texts:
            self._add(one, counts)
            on_text()
        return [count.result() for count in counts]

    def close(self) -> None:
        self._head.close()
        self._follower.close()

    def _add(self, one: Said, counts: list[AgreementCount]) -> None:
        answered = np.flatnonzero(one.origins_after == ANSWERED)
        shares = self._target_shares(one, answered)
        for followed in self._follower.follow(one, answered.tolist(), len(counts)):
            places = np.searchsorted(answered, followed.rows)
            inside = np.isin(followed.rows, answered)
            if inside.any():
                counts[followed.step].add(followed.logits[inside], self._head_ids, shares[places[inside]])

    def _target_shares(self, one: Said, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        logits = self._head.logits(one.hidden[rows].astype(np.float32))
        logits[:, self._missing] = -np.inf
        return softmax(logits[:, : self._head.vocab_size])
