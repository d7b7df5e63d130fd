"""Conversations on disk: shards, each whole or not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetspec.training.corpus.said import Said
from hetspec.training.errors import TrainingError

_FIELDS = ("tokens", "origins", "hidden", "top_ids", "top_logprobs")


@dataclass(frozen=True, slots=True)
class Shard:
    """A file named after what is in it and the number of its rows, so that a folder's rows are counted unread."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem.rpartition("-")[0]

    @property
    def rows(self) -> int:
        return int(self.path.stem.rpartition("-")[2])

    def read(self) -> Iterator[Said]:
        """hidden is float16. A conversation holds no memory but its own. Raises TrainingError for a file that is no
        shard."""
        try:
            with np.load(self.path) as arrays:
                fields = [arrays[field] for field in _FIELDS]
                lengths, temperatures = arrays["lengths"], arrays["temperatures"]
        except (KeyError, ValueError, OSError) as error:
            raise TrainingError(f"{self.path}: not a shard of a corpus: {error}") from error
        ends = np.cumsum(lengths)
        for end, length, temperature in zip(ends, lengths, temperatures, strict=True):
            tokens, origins, hidden, top_ids, top_logprobs = (field[end - length : end].copy() for field in fields)
            yield Said(tokens, origins, hidden, top_ids, top_logprobs, float(temperature))


@dataclass(frozen=True, slots=True)
class Corpus:
    folder: Path

    def shards(self) -> list[Shard]:
        """By name."""
        return [Shard(path) for path in sorted(self.folder.glob("*-*.npz"))]

    def add(self, name: str, said: Sequence[Said]) -> Shard:
        """Written beside its place and moved there: a shard that can be seen is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = sum(map(len, said))
        arrays = {field: np.concatenate([getattr(one, field) for one in said]) for field in _FIELDS}
        arrays["hidden"] = arrays["hidden"].astype(np.float16)
        arrays["lengths"] = np.array([len(one) for one in said])
        arrays["temperatures"] = np.array([one.temperature for one in said], np.float32)
        temporary = self.folder / f".{name}.tmp"
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        path = self.folder / f"{name}-{rows}.npz"
        temporary.replace(path)
        return Shard(path)
