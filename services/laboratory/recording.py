"""Has a target answer prompts by plain decoding, and keeps what it said. Ended half way, it goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.head import Head
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.speculation.rounds import PLAIN, Task
from hetspec.training.speculation.speculator import Speculator
from hetspec.training.target import Target
from laboratory.errors import StudyError
from laboratory.record import About, Answer, Record, read_record, write_record

_PASS_ROWS = 256
_SLACK = 64  # a page that a pass begins


@dataclass(frozen=True, slots=True)
class Asking:
    """dtype: of the hidden rows that are kept; None: none are."""

    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    dtype: type[np.floating[Any]] | None = np.float32


class Recorder:
    """Of one target. `work` holds an answer a file until all are there."""

    def __init__(self, target: Target, asking: Asking, work: Path, *, threads: int, max_context: int) -> None:
        """max_context: tokens of a prompt with its answer, at most."""
        self._asking = asking
        self._work = work
        self._about = _about(target, asking)
        kv_tokens = max_context + _SLACK
        parts = Transformer(
            target.pack, threads=threads, max_rows=_PASS_ROWS, max_context=max_context, kv_capacity_tokens=kv_tokens
        )
        missing = target.text.vocabulary.missing(target.checkpoint.config.vocab_size)
        ends = frozenset(target.text.spec.end_ids)
        self._speculator = Speculator(parts, Head(target.pack, threads=threads), missing=missing, end_ids=ends)

    def record(self, prompts: Sequence[Prompt], out: Path, on_answer: Callable[[int], object]) -> Record:
        """on_answer: called with the number of tokens of each. Raises StudyError, OSError."""
        self._work.mkdir(parents=True, exist_ok=True)
        answers = []
        for place, prompt in enumerate(prompts):
            answers.append(self._known(place, prompt) or self._ask(place, prompt))
            on_answer(len(answers[-1].tokens))
        record = Record(replace(self._about, categories=[answer.category for answer in answers]), tuple(answers))
        write_record(out, record)
        shutil.rmtree(self._work)
        return record

    def close(self) -> None:
        self._speculator.close()

    def _known(self, place: int, prompt: Prompt) -> Answer | None:
        """Recorded before. Raises StudyError where the work is of something else."""
        path = self._path(place)
        if not path.exists():
            return None
        found = read_record(path)
        if (found.about, found.answers[0].prompt) != (self._of(prompt), prompt.ids):
            raise StudyError(f"{path}: was recorded of another target, prompt or sampling; remove {self._work}")
        return found.answers[0]

    def _ask(self, place: int, prompt: Prompt) -> Answer:
        asking = self._asking
        sampling, noise = Sampling(temperature=asking.temperature), NoiseKey(asking.seed + place)
        tokens = self._speculator.plain(Task(prompt.ids, PLAIN, asking.max_tokens, sampling, noise))
        rows = None
        if asking.dtype is not None:
            rows = hidden_rows(self._speculator.target, [*prompt.ids, *tokens]).astype(asking.dtype)
        answer = Answer(prompt.ids, tuple(tokens), prompt.category, rows)
        write_record(self._path(place), Record(self._of(prompt), (answer,)))
        return answer

    def _path(self, place: int) -> Path:
        return self._work / f"{place:05}.npz"

    def _of(self, prompt: Prompt) -> About:
        return replace(self._about, categories=[prompt.category])


def hidden_rows(target: Transformer, tokens: Sequence[int]) -> Rows:
    """[tokens, hidden]. A row does not depend on the pass that it comes from: these are the decoding's own."""
    cache = target.new_cache()
    try:
        chunks = [tokens[first : first + target.max_rows] for first in range(0, len(tokens), target.max_rows)]
        return np.concatenate([target.run([Span(cache, chunk)])[0] for chunk in chunks])
    finally:
        cache.release()


def _about(target: Target, asking: Asking) -> About:
    config = target.checkpoint.config
    return About(
        target=config.name,
        fingerprint=target.fingerprint,
        precision=target.pack.layout.precision,
        config=config.to_json(),
        end_ids=list(target.text.spec.end_ids),
        max_tokens=asking.max_tokens,
        temperature=asking.temperature,
        seed=asking.seed,
        categories=[],
    )
