"""How long a unit's task will take, learned from those it has done: as AHASD's tables tell it, and as a fit of them."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Protocol

TABLE = 4  # ratios that a table holds
_FORGETS = 0.98  # of a task's weight, a task later
_RIDGE = 1e-6  # weight of the coefficients' squares
_SUBSETS = ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,))
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
    """A time with a fixed part, a part by tokens and a part by positions, none of them negative: no task is shorter for
    more of either. Least squares, each task weighing less than the next, with a little ridge for what tasks do not tell
    apart."""

    def __init__(self) -> None:
        self._weights = [0.0, 0.0, 0.0]
        self._squares = [[0.0] * 3 for _ in range(3)]  # of features, and below with times, both weighted
        self._products = [0.0, 0.0, 0.0]
        self.is_ready = False

    def learn(self, duration_ns: int, tokens: int, kv_len: int) -> None:
        x, y = _features(tokens, kv_len), duration_ns / _NS_SCALE
        self._squares = [[_FORGETS * self._squares[i][j] + x[i] * x[j] for j in range(3)] for i in range(3)]
        self._products = [_FORGETS * self._products[i] + x[i] * y for i in range(3)]
        self._weights = self._least()
        self.is_ready = True

    def _least(self) -> list[float]:
        """The one point where every coefficient is positive and makes no error less by being changed, or is 0 and would
        have to be negative for that (Karush, Kuhn and Tucker)."""
        squares = [[entry + _RIDGE * (i == j) for j, entry in enumerate(row)] for i, row in enumerate(self._squares)]
        for parts in _SUBSETS:
            found = _solved([[squares[i][j] for j in parts] for i in parts], [self._products[i] for i in parts])
            weights = [0.0, 0.0, 0.0]
            for part, weight in zip(parts, found, strict=True):
                weights[part] = weight
            slopes = [_dot(row, weights) - product for row, product in zip(squares, self._products, strict=True)]
            if min(weights) >= 0 and all(slopes[i] >= 0 for i in range(3) if i not in parts):
                return weights
        return self._weights  # rounding alone leads here

    def estimate_ns(self, tokens: int, kv_len: int) -> int:
        return round(_dot(self._weights, _features(tokens, kv_len)) * _NS_SCALE)

    def tokens_within(self, budget_ns: int, kv_len: int, most: int) -> int:
        return next((n for n in range(most) if self.estimate_ns(n + 1, kv_len) > budget_ns), most)


def _features(tokens: int, kv_len: int) -> list[float]:
    return [1.0, tokens / _TOKEN_SCALE, kv_len / _KV_SCALE]


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Of a symmetric, positive definite matrix: Gauss elimination needs no pivots."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(n):
        for k in range(i + 1, n):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [below - factor * above for below, above in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * n
    for i in reversed(range(n)):
        found[i] = (rows[i][n] - sum(rows[i][j] * found[j] for j in range(i + 1, n))) / rows[i][i]
    return found


def _dot(a: list[float], b: list[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
