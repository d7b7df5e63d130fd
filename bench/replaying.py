"""What the target says to prompts, recorded, and decoded again without it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.corpus.prompts import NO_CATEGORY, Prompt
from hetspec.training.target import Target
from laboratory.outcome import Outcome
from laboratory.policy import Policy
from laboratory.record import Record
from laboratory.recording import Asking, Recorder
from laboratory.setup import Setup, hardware_named, pairs_of
from laboratory.study import Study
from weight_store import shipped

_CACHE = DEFAULT_CACHE.expanduser()


class Replay:
    """Of the packaged model's answers, with its own draft model, priced as one machine and model."""

    def __init__(self, file: Path, hardware: str, cost_as: str, policies: Sequence[Policy]) -> None:
        self._record, self._draft = Setup(file, embedded_model(), shipped.DRAFT, _CACHE).open()
        (pair,) = pairs_of(hardware_named(hardware), [cost_as])
        self._runs = {policy.name: (pair, policy) for policy in policies}
        self._study = Study(self._record, self._draft, list(self._runs.values()))

    @property
    def record(self) -> Record:
        return self._record

    def run(self, place: int, name: str) -> tuple[float, Outcome]:
        """Seconds of this answer by this policy, drafting included, and what it came to."""
        start = time.perf_counter()
        (outcome,) = self._study.answer(place, [self._runs[name]])
        return time.perf_counter() - start, outcome

    def close(self) -> None:
        self._study.close()


@contextmanager
def replaying(
    prompts: Sequence[Sequence[int]], max_tokens: int, hardware: str, cost_as: str, policies: Sequence[Policy]
) -> Iterator[Replay]:
    """prompts: token ids, answered greedily."""
    with TemporaryDirectory() as folder:
        file, longest = Path(folder) / "record.npz", max(map(len, prompts)) + max_tokens
        target = Target.open(embedded_model(), _CACHE)
        with closing(
            Recorder(target, Asking(max_tokens), Path(folder) / "work", threads=1, max_context=longest)
        ) as one:
            one.record([Prompt(tuple(ids), NO_CATEGORY) for ids in prompts], file, lambda _: None)
        with closing(Replay(file, hardware, cost_as, policies)) as replay:
            yield replay
