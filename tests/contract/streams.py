"""A unit as a process would serve it, beside a weight store, and a bare client of its `Work` stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import Contract
from hetspec.rpc.messages import SessionUpdate
from hetspec.rpc.server import Server, ServerSettings
from hetspec.v1 import common_pb2
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

NO_TREE = TokenTree()


@asynccontextmanager
async def serving(service: Any) -> AsyncIterator[grpc.aio.Channel]:
    server = Server(service, ServerSettings(grace_s=2))
    try:
        await server.start()
        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop()


@asynccontextmanager
async def weight_store(cache: Path, **checkpoints: Path) -> AsyncIterator[str]:
    """Its address. checkpoints: by role."""
    server = Server(WeightStoreService(Store(checkpoints, cache)), ServerSettings(grace_s=2))
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


class WorkStream:
    """Sends items as tasks, one at a time, and gives their results."""

    def __init__(self, contract: Contract[Any, Any], channel: grpc.aio.Channel) -> None:
        self._contract = contract
        self._call = contract.stub(channel).Work()
        self._task_id = 0

    async def open(self) -> WorkStream:
        assert (await self._call.read()).credits.tasks > 0
        return self

    async def task(self, *items: Any, timeout_ns: int = 0) -> Any:
        """The protobuf result."""
        self._task_id += 1
        pbs = [self._contract.item_to_pb(item) for item in items]
        task = self._contract.task(task_id=self._task_id, timeout_ns=timeout_ns, items=pbs)
        await self._call.write(self._contract.request(task=task))
        async with asyncio.timeout(20):
            result = (await self._call.read()).result
        assert result.task_id == self._task_id
        return result

    async def release(self, *sessions: str) -> None:
        await self._call.write(self._contract.request(release=common_pb2.Release(sessions=sessions)))

    async def end(self) -> None:
        await self._call.done_writing()
        assert await self._call.read() is grpc.aio.EOF


def update(
    session: str, ids: Sequence[int], append: Sequence[int], commit: Sequence[int] = (), tree: TokenTree = NO_TREE,
    *, epoch: int = 1, fork_of: str = "",
) -> SessionUpdate:  # fmt: skip
    """Of a session that holds `ids` and then commits these nodes of `tree`."""
    committed = [*ids, *(tree.tokens[node] for node in commit)]
    digest = History(committed).hash
    return SessionUpdate(session, epoch, len(committed), digest, tuple(commit), tuple(append), fork_of)
