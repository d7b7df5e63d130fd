"""Stacks of this process, by py-spy in a process of its own: no code of ours runs for it, and no thread waits for it.

It reads our memory with the rights of our own user. Where the kernel lets only parents look at their children (Yama's
ptrace_scope 1, the default of many distributions), we name it as one that may look at us.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import sysconfig
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from hetspec.telemetry.profile import Sampler, Stack

RATE_HZ = 100
_START_S, _END_S = 10.0, 20.0  # for it to begin, and to be done after its time
_SET_PTRACER, _ANYBODY, _NOBODY = 0x59616D61, ctypes.c_ulong(-1), 0
_FRAME = r";[^;\x00-\x1f\x7f]+ \([^;\x00-\x1f\x7f]*\)"
_STACK = re.compile(rf"thread \(\w+\)(?:: )?([^\x00-\x1f\x7f]*?)((?:{_FRAME})+) (\d+)")


class PySpyError(Exception):
    """It cannot look; one line."""


class PySpy:
    """Made by `start`; `finish` gives the stacks once it is done, `kill` ends it before."""

    def __init__(self, process: Process, output: Path) -> None:
        self.sampler = Sampler("py-spy", RATE_HZ)
        self._process = process
        self._output = output

    @classmethod
    async def start(cls, seconds: int) -> PySpy:
        """Returns when it looks. Raises PySpyError."""
        program = Path(sysconfig.get_path("scripts")) / "py-spy"
        if not program.exists():
            raise PySpyError("py-spy is not installed")
        output = _new_file()
        try:
            spy = cls(await _launch(program, output, seconds), output)
        except OSError as error:
            _remove(output)
            raise PySpyError(f"{program}: {error.strerror}") from error
        try:
            await spy._begin()
        except BaseException:
            await spy.kill()
            raise
        return spy

    async def finish(self) -> tuple[Stack, ...]:
        """Raises PySpyError."""
        try:
            async with asyncio.timeout(_END_S):
                if await self._process.wait():
                    raise PySpyError(await self._last_word())
            return parse(self._output.read_text())
        except TimeoutError:
            raise PySpyError(f"py-spy was not done {_END_S:g} s after its time") from None
        finally:
            await self.kill()

    async def kill(self) -> None:
        _allow(_NOBODY)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        _remove(self._output)

    async def _begin(self) -> None:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                while b"Sampling process" not in (line := await self._process.stdout.readline()):
                    if not line:
                        raise PySpyError(await self._last_word())
        except TimeoutError:
            raise PySpyError(f"py-spy did not begin within {_START_S:g} s") from None

    async def _last_word(self) -> str:
        """Why it ended."""
        assert self._process.stderr is not None
        lines = (await self._process.stderr.read()).decode(errors="replace").splitlines()
        status = await self._process.wait()
        return next((line.strip() for line in lines if line.strip()), f"py-spy ended with status {status}")


def _new_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="hetspec-profile-")
    os.close(handle)
    return Path(name)


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)


async def _launch(program: Path, output: Path, seconds: int) -> Process:
    """Raises OSError."""
    arguments = ["record", "--pid", str(os.getpid()), "--output", str(output), "--duration", str(seconds)]
    # Nobody is paused: what is looked at goes on. A stack that changes while it is read is left out.
    looks = ["--nonblocking", "--rate", str(RATE_HZ), "--threads", "--function", "--format", "raw"]
    _allow(_ANYBODY)  # its id is not known before it runs
    process = await asyncio.create_subprocess_exec(program, *arguments, *looks, stdout=PIPE, stderr=PIPE)
    _allow(process.pid)
    return process


def _allow(tracer: object) -> None:
    """Refused where there is no Yama, and then not needed."""
    ctypes.CDLL(None).prctl(_SET_PTRACER, tracer, 0, 0, 0)


def parse(folded: str) -> tuple[Stack, ...]:
    """py-spy's raw format: a line a stack, "thread (id): name;function (file:line);... count".

    What changed while it was read may have any bytes for names, line breaks among them: such stacks are left out.
    """
    lines = (_STACK.fullmatch(line) for line in folded.split("\n"))
    return tuple(Stack(line[1], tuple(line[2].split(";")[1:]), int(line[3])) for line in lines if line)
