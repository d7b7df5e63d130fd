"""How long a unit's task will take, learned from those it has done: as AHASD's tables tell it, and as a fit of them."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Protocol

TABLE = 4  # ratios that a table holds
_FORGETS = 0.98  # of a task's weight, a task later
_PRIOR_VARIANCE = 1e6  # of each coefficient, around 0
_KV_SCALE, _TOKEN_SCALE, _NS_SCALE = 1024.0, 16.0, 1e6  # so that features and times are about 1


class LatencyModel(Protocol):
    """Of one kind of task. tokens: that it feeds; kv_len: positions that they attend to."""

    @property
    def is_ready(self) -> bool: ...

    def learn(self, duration_ns: int, tokens: int, kv_len: int) -> None: ...

    def estimate_ns(self, tokens: int, kv_len: int) -> int:
        """Of a model that is ready."""

    def tokens_within(self, budget_ns: int, kv_len: int, most: int) -> int:
        """How many a task of budget_ns may feed; of a model that is ready."""


class Per(StrEnum):
    """What a time is proportional to."""

    TOKEN = "token"
    KV = "kv"


class RatioTable:
    """The mean of the last four ratios of time to tokens, or to positions attended to (AHASD, arXiv 2604.25326)."""

    __slots__ = ("_per", "_ratios")

    def __init__(self, per: Per) -> None:
        self._per = per
        self._ratios: deque[float] = deque(maxlen=TABLE)

    @property
    def is_ready(self) -> bool:
        return bool(self._ratios)

    def learn(self, duration_ns: int, tokens: int, kv_len: int) -> None:
        self._ratios.append(duration_ns / self._size(tokens, kv_len))

    def estimate_ns(self, tokens: int, kv_len: int) -> int:
        return round(self._mean * self._size(tokens, kv_len))

    def tokens_within(self, budget_ns: int, kv_len: int, most: int) -> int:
        assert self._per is Per.TOKEN
        return most if self._mean * most <= budget_ns else max(0, int(budget_ns / self._mean))

    @property
    def _mean(self) -> float:
        return sum(self._ratios) / len(self._ratios)

    def _size(self, tokens: int, kv_len: int) -> int:
        return tokens if self._per is Per.TOKEN else kv_len


class FittedLatency:
    """A time with a fixed part, a part by tokens and a part by positions: recursive least squares with forgetting
    (Ljung, System Identification, 2nd ed., section 11.2). It minimises the sum of weighted squared errors, and of
    squared coefficients over a prior variance that is forgotten alike."""

    def __init__(self) -> None:
        self._weights = [0.0, 0.0, 0.0]
        self._variance = [[_PRIOR_VARIANCE if i == j else 0.0 for j in range(3)] for i in range(3)]
        self.is_ready = False

    def learn(self, duration_ns: int, tokens: int, kv_len: int) -> None:
        x = _features(tokens, kv_len)
        spread = [_dot(row, x) for row in self._variance]
        scale = _FORGETS + _dot(x, spread)
        error = duration_ns / _NS_SCALE - _dot(self._weights, x)
        self._weights = [w + s * error / scale for w, s in zip(self._weights, spread, strict=True)]
        self._variance = [
            [(self._variance[i][j] - spread[i] * spread[j] / scale) / _FORGETS for j in range(3)] for i in range(3)
        ]
        self.is_ready = True

    def estimate_ns(self, tokens: int, kv_len: int) -> int:
        return max(0, round(_dot(self._weights, _features(tokens, kv_len)) * _NS_SCALE))

    def tokens_within(self, budget_ns: int, kv_len: int, most: int) -> int:
        """The longest run from one token on of which none takes longer."""
        return next((n for n in range(most) if self.estimate_ns(n + 1, kv_len) > budget_ns), most)


def _features(tokens: int, kv_len: int) -> list[float]:
    return [1.0, tokens / _TOKEN_SCALE, kv_len / _KV_SCALE]


def _dot(a: list[float], b: list[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
