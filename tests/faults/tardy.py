"""A unit whose tasks take longer than they need, by as much as chance has it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from hetspec.rpc.messages import PassResult
from hetspec.rpc.work import ShouldStop

_LOOK_EVERY_S = 0.002


class Tardy:
    """Around a unit's engine. most_s: how late a pass may begin, and its answer come; 0: it is in time."""

    def __init__(self, engine: Any, draw: random.Random, most_s: float = 0.0) -> None:
        self._engine = engine
        self._draw = draw
        self.most_s = most_s

    def run(self, items: Sequence[Any], should_stop: ShouldStop) -> PassResult[Any]:
        self._dawdle(should_stop)
        result: PassResult[Any] = self._engine.run(items, should_stop)
        self._dawdle(should_stop)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _dawdle(self, should_stop: ShouldStop) -> None:
        """What is told to stop does."""
        over = time.monotonic() + self._draw.uniform(0, self.most_s)
        while (left_s := over - time.monotonic()) > 0 and not should_stop():
            time.sleep(min(left_s, _LOOK_EVERY_S))
