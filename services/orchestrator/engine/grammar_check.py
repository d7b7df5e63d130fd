"""Whether a request's grammar can be used, before any unit works for it: tried in a process that may die of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from hetspec.decoding.constraint import Grammar
from hetspec.decoding.grammar import GrammarError
from hetspec.text.text_spec import TextSpec

_MAX_S = 30.0  # on a machine so busy that half a second of computing takes long
_VERDICTS = 1024  # kept

_TOO_LONG = "takes too long to compile"
_TOO_LARGE = "too complex: it overwhelms the compiler"


class GrammarCheck:
    """Of one model. Grammars are tried one after another; verdicts are kept."""

    def __init__(self, text: TextSpec, vocab_size: int) -> None:
        self._text = text
        self._vocab_size = vocab_size
        self._verdicts: OrderedDict[bytes, str | None] = OrderedDict()
        self._trial = asyncio.Lock()
        self._process: Process | None = None

    async def check(self, grammar: Grammar) -> None:
        """Raises GrammarError."""
        key = hashlib.sha256(f"{grammar.kind} {grammar.source}".encode()).digest()
        async with self._trial:
            if key not in self._verdicts:
                self._keep(key, await self._try(grammar))
        if (refusal := self._verdicts[key]) is not None:
            raise GrammarError(refusal)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def _keep(self, key: bytes, refusal: str | None) -> None:
        self._verdicts[key] = refusal
        if len(self._verdicts) > _VERDICTS:
            self._verdicts.popitem(last=False)

    async def _try(self, grammar: Grammar) -> str | None:
        try:
            return await self._ask(grammar)
        except ConnectionError:  # the process has ended since it was asked last: another one takes its place
            return await self._ask(grammar)

    async def _ask(self, grammar: Grammar) -> str | None:
        try:
            process = self._process or await self._begin()
            await _tell(process, {"kind": grammar.kind, "source": grammar.source})
            answer = await _read(process)
        except TimeoutError:
            await self.close()
            return _TOO_LONG
        except BaseException:  # what is asked no longer waits for the answer, which would be the next one's
            await self.close()
            raise
        if answer:
            refusal: str | None = json.loads(answer)
            return refusal
        code = await process.wait()
        await self.close()
        return _TOO_LONG if code == -signal.SIGPROF else _TOO_LARGE

    async def _begin(self) -> Process:
        """Raises RuntimeError where it does not start: the server's own fault."""
        environ = dict(os.environ) | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = (sys.executable, "-m", "hetspec.decoding.grammar_trial")
        self._process = process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environ)
        text = self._text
        vocabulary = {"tokenizer_json": text.tokenizer_json, "end_ids": text.end_ids, "vocab_size": self._vocab_size}
        await _tell(process, vocabulary)
        if not await _read(process):
            raise RuntimeError(f"the trial of grammars ended with code {await process.wait()} at its start")
        return process


async def _tell(process: Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()


async def _read(process: Process) -> bytes:
    """A line; nothing where the process has ended."""
    assert process.stdout is not None
    async with asyncio.timeout(_MAX_S):
        return await process.stdout.readline()
