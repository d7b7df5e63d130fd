"""All five services in this event loop, where every task may be late and any service is killed and begun anew."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hetspec.rpc.server import Server, ServerSettings, Service
from hetspec.rpc.unit import LoadedUnit
from tests.faults.proxy import HOST, Proxy
from tests.faults.tardy import Tardy
from tests.system import UNITS, Addresses, Requests, Setup, unit_service, until, weight_store


@dataclass(eq=False)
class InLoop:
    """A service behind its proxy. make: a new one. late_s: how late every piece is that passes the proxy."""

    kind: str
    make: Callable[[], Service]
    late_s: float = 0.0
    proxy: Proxy = field(default_factory=Proxy)
    server: Server | None = None

    @property
    def name(self) -> str:
        return self.kind

    async def start(self) -> None:
        if self.server is not None:
            await self.server.stop_without_drain()
        self.server = Server(self.make(), ServerSettings(HOST))
        await self.server.start()
        self.proxy.target_port = self.server.port
        self.proxy.heal()
        self.proxy.slow(self.late_s)

    def kill(self) -> None:
        """As the others see it: every connection is reset, and refused until it is started again."""
        self.proxy.break_off(refuse=True)

    async def close(self) -> None:
        await self.proxy.close()
        if self.server is not None:
            await self.server.stop_without_drain()


class Unsteady(Requests):
    """most_s: how late each unit may begin a task, and answer it; the weight store answers in pieces that are as late.
    seed: of all that chance decides. An async context manager."""

    def __init__(self, setup: Setup, seed: int, most_s: float) -> None:
        self._setup = setup
        self._draw = random.Random(seed)
        self._most_s = most_s
        self._starting: set[asyncio.Task[None]] = set()
        self.members = {kind: InLoop(kind, lambda kind=kind: self._unit(kind)) for kind in UNITS}
        self.store = InLoop("weight_store", lambda: weight_store(setup), most_s)
        self.members["weight_store"] = self.store

    async def __aenter__(self) -> Unsteady:
        try:
            for member in (self.store, *(self.members[kind] for kind in UNITS)):
                await member.proxy.start()
                await member.start()
            self.addresses = Addresses(*(self.members[name].proxy.address for name in ("weight_store", *UNITS)))
            await self._start_engine(self._setup)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if hasattr(self, "engine"):
                await self.engine.close()
        finally:
            for task in self._starting:
                task.cancel()
            await asyncio.gather(*self._starting, return_exceptions=True)
            for member in self.members.values():
                await member.close()

    def start(self, name: str) -> None:
        """Anew, beside the test."""
        task = asyncio.create_task(self.members[name].start())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def until_found(self, member: InLoop) -> None:
        """The engine knows nothing of the weight store after its start."""
        await until(lambda: not self._starting)
        if member.kind in UNITS:
            await until(lambda: self.has_found(member.kind, member.proxy.address))

    def _unit(self, kind: str) -> Service:
        def around(loaded: LoadedUnit) -> LoadedUnit:
            return replace(loaded, engine=Tardy(loaded.engine, random.Random(self._draw.random()), self._most_s))

        return unit_service(kind, self._setup, self.store.proxy.address, around)
