"""Stacks of this process, by a thread of it: what a profile falls back to where py-spy cannot look.

It needs the interpreter's lock for every look, and so sees Python between two of its steps only; native code that has
let go of the lock is seen at the call. A thread is given as many samples as it had ticks of processor time, so threads
that wait have none.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from hetspec.telemetry.profile import Sampler, Stack

RATE_HZ = 100
_ROOTS = sorted((str(Path(place)) + "/" for place in sys.path if place), key=len, reverse=True)


class FrameSampler:
    """Looks from its making until `finish` or `kill`. note: why it is needed."""

    def __init__(self, note: str) -> None:
        self.sampler = Sampler("in-process", RATE_HZ, note)
        self._stacks: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._ticks: dict[int, float] = {}  # by thread: its processor time when last looked at
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frame-sampler", daemon=True)
        self._thread.start()

    async def finish(self) -> tuple[Stack, ...]:
        await self.kill()
        return tuple(Stack(thread, frames, samples) for (thread, frames), samples in self._stacks.items())

    async def kill(self) -> None:
        self._over.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        self._look()
        while not self._over.wait(1 / RATE_HZ):
            self._look()
        self._look()

    def _look(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread is self._thread or thread.ident not in frames or thread.native_id is None:
                continue
            if samples := self._new_samples(thread.native_id):
                self._stacks[thread.name, _names(frames[thread.ident])] += samples

    def _new_samples(self, native_id: int) -> int:
        """Whole ticks of processor time since it was last looked at; what is left over counts the next time."""
        try:
            ticks = time.clock_gettime(_processor_clock(native_id)) * RATE_HZ
        except OSError:  # it has ended since
            return 0
        known = self._ticks.setdefault(native_id, ticks)
        samples = int(ticks - known)
        self._ticks[native_id] = known + samples
        return samples


def _processor_clock(native_id: int) -> int:
    """Linux's clock of a thread's processor time. pthread_getcpuclockid makes the same, and crashes if it has ended."""
    return ~native_id << 3 | 6


def _names(frame: FrameType | None) -> tuple[str, ...]:
    """Outermost first, as py-spy writes them."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{code.co_name} ({_short(code.co_filename)}:{code.co_firstlineno})")
        frame = frame.f_back
    return tuple(reversed(names))


def _short(filename: str) -> str:
    """Below the place that it is imported from."""
    return next((filename.removeprefix(root) for root in _ROOTS if filename.startswith(root)), filename)
