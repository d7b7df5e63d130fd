"""A weight store and several units of each kind as processes, each behind a network of its own, and an engine here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetspec.rpc.channel import KeepAlive, open_channel
from hetspec.v1 import common_pb2
from orchestrator.engine.engine import Engine
from tests.faults.proxy import HOST, Proxy
from tests.faults.puppet import DELAY
from tests.ports import free_ports
from tests.system import UNITS, Addresses, Requests, Setup, engine_settings, until, until_async

PATIENCE_S = 3.0  # of the engine with a unit that says nothing
_START_S = 120.0


@dataclass(eq=False)
class Member:
    """A service on its port, behind its proxy. `environ`: what it has of its own."""

    name: str
    kind: str
    port: int
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    proxy: Proxy = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.proxy = Proxy(self.port)

    def start(self, environ: Mapping[str, str], **own: str) -> None:
        assert self.process is None
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HETSPEC_")}
        environ = inherited | {"PYTHONPATH": "services:."} | dict(environ) | dict(self.environ) | own
        environ |= {"HETSPEC_PORT": str(self.port)}
        program = [self.kind] if self.kind == "weight_store" else ["tests.faults.puppet", self.kind]
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", *program]
            self.process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> None:
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, 30.0)
        self._forget(process)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget(self.process)

    def lie(self, what: str) -> None:
        """Until it is told to lie about nothing."""
        self._tell(what)

    def delay(self, most_s: float) -> None:
        """Every task begins and is answered up to so much later, until it is told to be in time again."""
        self._tell(f"{DELAY}{most_s}")

    def handles(self) -> Counter[str]:
        assert self.process is not None
        return open_handles(self.process.pid)

    def _tell(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        self.process = None


def open_handles(pid: int) -> Counter[str]:
    """Connections, and every file by its path."""
    handles: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists
            handles[str(entry.readlink()).partition(":[")[0]] += 1
    return handles


class Cluster(Requests):
    """counts: of each kind of unit. remote: names of verifiers that read their weights over the wire, under `setup`'s
    budget; the others have no budget. drain_s: of units. An async context manager: no process outlives it.
    """

    def __init__(
        self,
        setup: Setup,
        log_dir: Path,
        counts: Mapping[str, int],
        remote: Sequence[str] = (),
        drain_s: float = 3.0,
    ) -> None:
        self._setup = setup
        self._environ = setup.environ() | {"HETSPEC_DRAIN_S": str(drain_s)}
        names = [f"{kind} {number}" for kind, count in counts.items() for number in range(1, count + 1)]
        names.append("weight_store 1")
        self.members: dict[str, Member] = {}
        for name, port in zip(names, free_ports(len(names)), strict=True):
            kind = name.split()[0]
            budget = {"HETSPEC_DRAM_BUDGET": setup.dram_budget if name in remote else "0"}
            own = budget | {"PUPPET_REMOTE": "1"} if name in remote else budget
            self.members[name] = Member(name, kind, port, log_dir / f"{name}.log", own)

    @property
    def units(self) -> list[Member]:
        return [member for member in self.members.values() if member.kind in UNITS]

    @property
    def store(self) -> Member:
        return self.members["weight_store 1"]

    async def __aenter__(self) -> Cluster:
        try:
            for member in self.members.values():
                await member.proxy.start()
            for name in self.members:
                self.start(name)
            self.addresses = Addresses(self.store.proxy.address, *(self._addresses(kind) for kind in UNITS))
            patience = KeepAlive(int(PATIENCE_S * 500), int(PATIENCE_S * 500))
            self.engine = Engine(self.addresses, engine_settings(self._setup.chunk_tokens, patience))
            await self.engine.start()
            await self.until_whole()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if hasattr(self, "engine"):
                await self.engine.close()
        finally:
            for member in self.members.values():
                member.kill()
                await member.proxy.close()

    def start(self, name: str, **own: str) -> None:
        """own: variables of this process alone."""
        self.members[name].start(self._environ | {"HETSPEC_WEIGHT_STORE": self.store.proxy.address}, **own)

    async def until_whole(self) -> None:
        """Until the engine has found every unit, over the one connection to it, and every unit the weight store."""
        await until(lambda: all(self.engine.ready().values()) and self.engine.replicas() == self._counts(), _START_S)
        await until(lambda: all(member.proxy.carries >= self._connections(member) for member in self.members.values()))

    async def until_found(self, member: Member) -> None:
        """The engine knows nothing of the weight store after its start."""
        if member.kind in UNITS:
            await until(lambda: self.has_found(member.kind, member.proxy.address), _START_S)

    async def until_nothing_is_held(self) -> None:
        """KV and sessions, by the units' own word."""
        await until_async(self._nothing_is_held)

    async def describe_member(self, name: str) -> Any:
        """Past its proxy."""
        member = self.members[name]
        async with open_channel(f"{HOST}:{member.port}") as channel:
            return await UNITS[member.kind].stub(channel).Describe(common_pb2.DescribeRequest())

    async def _nothing_is_held(self) -> bool:
        told = [await self.describe_member(member.name) for member in self.units if member.kind != "sampler"]
        return all(unit.sessions == 0 and unit.kv_held_tokens == 0 for unit in told)

    def _addresses(self, kind: str) -> str:
        return ",".join(member.proxy.address for member in self.units if member.kind == kind)

    def _connections(self, member: Member) -> int:
        """Of a whole cluster."""
        return len(self.units) if member is self.store else 1

    def _counts(self) -> dict[str, int]:
        return {kind: sum(member.kind == kind for member in self.units) for kind in UNITS}
