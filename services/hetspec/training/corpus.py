"""Conversations on disk: shards of some tens of thousands of rows, each whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetspec.training.generation import Said

ROWS_A_SHARD = 50_000
_FIELDS = ("tokens", "origins", "hidden", "top_ids", "top_logprobs")


@dataclass(frozen=True, slots=True)
class Corpus:
    folder: Path

    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz"))

    def rows(self) -> int:
        return sum(int(path.stem.rpartition("-")[2]) for path in self.shards())

    def add(self, name: str, said: Sequence[Said]) -> None:
        """Written beside its place and moved there: a shard that can be seen is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = sum(map(len, said))
        joined = {field: np.concatenate([getattr(one, field) for one in said]) for field in _FIELDS}
        temporary = self.folder / f".{name}.tmp"
        with temporary.open("wb") as file:
            np.savez(
                file,
                lengths=np.array([len(one) for one in said]),
                temperatures=np.array([one.temperature for one in said], np.float32),
                **joined,
            )
        os.replace(temporary, self.folder / f"{name}-{rows}.npz")

    def read(self, path: Path) -> Iterator[Said]:
        with np.load(path) as shard:
            arrays = [shard[field] for field in _FIELDS]
            ends = np.cumsum(shard["lengths"])
            for end, length, temperature in zip(ends, shard["lengths"], shard["temperatures"], strict=True):
                yield Said(*(array[end - length : end] for array in arrays), float(temperature))
