"""One `Work` stream to one unit, from its opening to its end. What the unit held ends with it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio

from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import Contract
from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import ErrorCode, Timing, UnitError, WorkTrace
from hetspec.rpc.tls import RpcTls
from hetspec.v1 import common_pb2
from orchestrator.units.errors import Nonsense, UnitLost
from orchestrator.units.settings import LinkSettings

Item = TypeVar("Item")
Result = TypeVar("Result")
_Item = TypeVar("_Item", covariant=True)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Result]):
    """What a task came to, as this side sees it: one entry an item."""

    items: tuple[Result | UnitError | Nonsense, ...]
    timing: Timing
    trace: WorkTrace = WorkTrace()


class Passes(Protocol[_Item, _Result]):
    """Where a link's tasks come from and their outcomes go. One task at a time is wanted."""

    def next_pass(self) -> Sequence[_Item]:
        """Called when the unit takes a task; empty: there is none now."""

    def traceparents(self) -> Sequence[str]:
        """Of the pass handed out last, one an item (hetspec.telemetry.tracing); empty: it is not traced."""

    def deliver(self, outcome: Outcome[_Result] | UnitError | Nonsense) -> None:
        """The outcome of the pass handed out last."""

    def lose(self, lost: UnitLost) -> None:
        """The link has ended."""


@dataclass(slots=True)
class _Sent:
    """A task under way. Nobody waits for a cancelled one any more."""

    items: int
    watch: asyncio.TimerHandle
    cancelled: bool = False


class Link(Generic[Item, Result]):
    """Made by `open`; `run` carries it until it ends.

    The writer asks for a pass whenever it may send one, so that nothing lies between an item's arrival and the wire.
    """

    def __init__(
        self,
        contract: Contract[Item, Result],
        settings: LinkSettings,
        channel: grpc.aio.Channel,
        call: Any,
        description: Any,
        credits: int,
    ) -> None:
        self.description = description
        self._contract = contract
        self._settings = settings
        self._channel = channel
        self._call = call
        self._credits = credits
        self._ids = itertools.count(1)
        self._sent: dict[int, _Sent] = {}  # unanswered, oldest first
        self._controls: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._passes: Passes[Item, Result]
        self._is_needed: Callable[[], bool]
        self._lost: UnitLost | None = None
        self._said_all = False
        self.draining = False
        """The unit is to end: nothing that may go elsewhere should go there."""
        self.distrusted = False
        """It was given up because it broke the contract."""

    @classmethod
    async def open(
        cls, contract: Contract[Item, Result], address: str, settings: LinkSettings, tls: RpcTls | None = None
    ) -> Link[Item, Result]:
        """Raises UnitLost when nobody ready is there."""
        try:
            channel = open_channel(address, settings.keep_alive, peer=contract.peer, tls=tls)
        except OSError as error:
            raise UnitLost(f"{contract.unit} at {address}: {error}") from error
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                stub = contract.stub(channel)
                description = await stub.Describe(common_pb2.DescribeRequest())
                call = stub.Work()
                first = await call.read()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            await channel.close()
            raise UnitLost(f"{contract.unit} at {address}: {_reason(error)}") from error
        except BaseException:
            await channel.close()
            raise
        if first is grpc.aio.EOF or first.WhichOneof("message") != "credits":
            await channel.close()
            raise UnitLost(f"{contract.unit} at {address}: its stream did not open with credits")
        return cls(contract, settings, channel, call, description, first.credits.tasks)

    @property
    def alive(self) -> bool:
        return self._lost is None and not self._said_all

    async def run(self, passes: Passes[Item, Result], is_needed: Callable[[], bool]) -> UnitLost:
        """Reads and writes until the stream ends; returns why. A draining unit is left once it is not needed."""
        self._passes = passes
        self._is_needed = is_needed
        writer = asyncio.create_task(self._write())
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._receive(response)
            self.end("was drained" if self._said_all else "ended its stream")
        except grpc.aio.AioRpcError as error:
            broke = error.code() is grpc.StatusCode.UNAVAILABLE
            self.end(_reason(error), self.description.identity.instance if broke else "")
        except asyncio.CancelledError:
            # Raised by `read` after `end` too, which cancels the call.
            if self._lost is None or _is_cancelled():
                self.end("was left")
                raise
        except Exception as error:  # a fault of this side: else whoever asked would wait for ever
            log_event(
                "an answer could not be handled", unit=self._contract.unit, level=logging.ERROR, reason=repr(error)
            )
            self.end(f"answered what could not be handled: {error}")
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await self._channel.close()
            # A call keeps its connection open for as long as anything refers to it.
            del self._call, self._passes, self._is_needed
        assert self._lost is not None
        return self._lost

    async def close(self) -> None:
        """Of a link that is never run."""
        await self._channel.close()
        del self._call

    def end(self, reason: str, instance: str = "") -> None:
        """Gives the unit up, and ends `run`. instance: as in UnitLost."""
        if self._lost is None:
            self._lost = UnitLost(f"{self._contract.unit} {reason}", instance=instance)
            for sent in self._sent.values():
                sent.watch.cancel()
            self._passes.lose(self._lost)
            self._call.cancel()

    def distrust(self, reason: str) -> None:
        """Gives up a unit that broke the contract: what else it said may be as wrong."""
        self.distrusted = True
        self.end(reason)

    def wake(self) -> None:
        """There may be a pass to send."""
        self._wake.set()

    def cancel(self) -> None:
        """Tells the unit to drop the pass handed out last, whose outcome nobody wants any more."""
        task_id, sent = next(reversed(self._sent.items()))
        sent.cancelled = True
        self._control(self._contract.request(cancel=common_pb2.Cancel(task_id=task_id)))

    def release(self, sessions: Sequence[str]) -> None:
        self._control(self._contract.request(release=common_pb2.Release(sessions=sessions)))

    def _control(self, request: Any) -> None:
        if self.alive:
            self._controls.append(request)
            self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (request := self._next_request()) is not None:
                    await self._call.write(request)
                if self.draining and not self._is_needed():
                    self._said_all = True
                    await self._call.done_writing()
                    return
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended, and the reader learns why
        except Exception as error:  # an item that cannot be put into a message: else its sender would wait for ever
            self.end(f"cannot be sent a task: {error}")

    def _next_request(self) -> Any | None:
        if self._controls:
            return self._controls.popleft()
        items = self._passes.next_pass() if self._credits else ()
        return self._task_of(items) if items else None

    def _task_of(self, items: Sequence[Item]) -> Any:
        """A request; spends a credit. A unit that stays silent for longer than any task may take is given up."""
        self._credits -= 1
        task_id = next(self._ids)
        timeout_s = self._settings.task_timeout_s
        watch = asyncio.get_running_loop().call_later(timeout_s + self._settings.slack_s, self.end, "answers no task")
        self._sent[task_id] = _Sent(len(items), watch)
        request = self._contract.request()
        pb = request.task
        pb.task_id = task_id
        pb.timeout_ns = int(timeout_s * 1e9)
        pb.items.extend([self._contract.item_to_pb(item) for item in items])
        pb.traceparents.extend(self._passes.traceparents())
        return request

    def _receive(self, response: Any) -> None:
        match response.WhichOneof("message"):
            case "result":
                self._receive_result(response.result)
            case "draining":
                self.draining = True
                self._wake.set()
            case kind:
                self.distrust(f"sent {kind or 'nothing that is known'} in the middle of its stream")

    def _receive_result(self, pb: Any) -> None:
        sent = self._sent.pop(pb.task_id, None)
        if sent is None:
            self.distrust(f"answered task {pb.task_id}, which is not under way")
            return
        sent.watch.cancel()
        self._credits += 1
        if not sent.cancelled:
            self._passes.deliver(self._outcome(pb, sent.items))
        self._wake.set()

    def _outcome(self, pb: Any, items: int) -> Outcome[Result] | UnitError | Nonsense:
        if pb.HasField("error"):
            return _refusal(pb.error)
        if len(pb.items) != items:
            return Nonsense(f"{self._contract.unit}: {len(pb.items)} results for {items} items")
        results = tuple([self._item_outcome(item) for item in pb.items])
        return Outcome(results, Timing.from_pb(pb.timing), WorkTrace.from_pb(pb.trace))

    def _item_outcome(self, pb: Any) -> Result | UnitError | Nonsense:
        try:
            return _refusal(pb.error) if pb.HasField("error") else self._contract.result_from_pb(pb)
        except ValueError as error:
            return Nonsense(f"{self._contract.unit}: {error}")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _refusal(pb: common_pb2.Error) -> UnitError:
    try:
        return UnitError.from_pb(pb)
    except ValueError:
        return UnitError(ErrorCode.INTERNAL, f"error code {pb.code}, which is not known: {pb.message}")


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return "no answer in time"
