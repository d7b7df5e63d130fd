"""The server side of `Work`: a unit's queue, the same for every unit.

Requests are read as they arrive, so that Cancel and Release overtake the tasks that wait. Tasks of all streams, of
whatever contract, run on the unit's one engine thread, in order of arrival. Each is answered exactly once, in order,
with its credit; a task sent without a credit is refused at once (OUT_OF_CREDITS) and gives none back. Sessions belong
to the stream that opened them: the engine sees their names with a prefix of the stream's own.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import grpc.aio

from hetspec.rpc.contracts import Contract
from hetspec.rpc.engine_thread import EngineThread
from hetspec.rpc.logs import log_event, log_fields
from hetspec.rpc.messages import ErrorCode, PassResult, Timing, UnitError, WorkTrace
from hetspec.telemetry.counters import Counters
from hetspec.telemetry.task_log import TaskLog
from hetspec.telemetry.task_record import OK, TaskRecord
from hetspec.telemetry.tracing import Traces
from hetspec.telemetry.unit_metrics import UnitMetrics
from hetspec.v1 import common_pb2

Item = TypeVar("Item")
Result = TypeVar("Result")
_Item = TypeVar("_Item", contravariant=True)
_Result = TypeVar("_Result", covariant=True)
ShouldStop = Callable[[], bool]

_LOAD = _BUSY, _TASKS, _ROWS = "hetspec_unit_busy_seconds_total", "hetspec_tasks_total", "hetspec_task_rows_sum"


class Stopped(Exception):
    """Raised by an engine that stopped because `should_stop` told it to."""


class UnitEngine(Protocol[_Item, _Result]):
    """What a unit does, always on its engine thread.

    `run` gives one result or UnitError an item, in order; it raises UnitError when the whole task failed, and Stopped
    soon after `should_stop()` turns true (ask at every layer or step). `release` frees sessions, known or not.
    """

    def run(self, items: Sequence[_Item], should_stop: ShouldStop) -> PassResult[Any]: ...

    def release(self, sessions: Sequence[str]) -> None: ...


class WorkQueue:
    """A unit's queue over all its streams. A servicer's `Work` awaits `serve`."""

    def __init__(
        self,
        unit: str,
        thread: EngineThread,
        credits: int = 4,
        metrics: UnitMetrics | None = None,
        log: TaskLog | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.thread = thread
        self.credits = credits
        self.metrics = metrics or UnitMetrics(unit)
        self.log = log or TaskLog()
        self.traces = traces
        # Each is counted by one thread alone: arrivals by the event loop, the others by the engine's.
        self.arrived = self.started = self.ended = 0
        self.metrics.watch_queue(
            running=lambda: self.started - self.ended, queued=lambda: max(0, self.arrived - self.started)
        )
        self._since_s = time.monotonic()
        self._numbers = itertools.count(1)
        self._streams: set[_Stream[Any, Any]] = set()
        self._draining = False

    def load(self) -> common_pb2.UnitLoad:
        counted = Counters(self.metrics.registry, _LOAD)
        return common_pb2.UnitLoad(
            uptime_seconds=time.monotonic() - self._since_s,
            busy_seconds=counted.total(_BUSY),
            tasks=int(counted.total(_TASKS)),
            rows=int(counted.total(_ROWS)),
            running=self.started - self.ended,
            queued=max(0, self.arrived - self.started),
        )

    async def serve(
        self,
        contract: Contract[Item, Result],
        engine: UnitEngine[Item, Result],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        """Serves one stream until its end, then frees what it opened."""
        stream = _Stream(self, contract, engine, context, prefix=f"{next(self._numbers)}/")
        self._streams.add(stream)
        try:
            if not self._draining:
                await stream.serve()
        finally:
            self._streams.discard(stream)
            stream.abandon()

    async def drain(self) -> None:
        """Tells every stream that the unit is to end; returns when their orchestrators have ended them."""
        self._draining = True
        await asyncio.gather(*(stream.drain() for stream in list(self._streams)))


class _Task(Generic[Item]):
    """One task between arrival and answer."""

    __slots__ = (
        "arrival_ns",
        "bytes_in",
        "cancelled",
        "deadline_ns",
        "dropped",
        "items",
        "names",
        "sessions",
        "task_id",
        "traceparents",
    )

    def __init__(self, pb: Any, items: list[Item | UnitError], sessions: list[str], bytes_in: int) -> None:
        self.task_id: int = pb.task_id
        self.bytes_in = bytes_in
        self.items = items
        self.sessions = sessions  # of each item, where the unit holds sessions
        self.names = sessions or [item.session for item in pb.items]  # for logs; they hold the requests' ids
        self.traceparents = tuple(pb.traceparents)
        self.arrival_ns = time.monotonic_ns()
        self.deadline_ns = self.arrival_ns + pb.timeout_ns if pb.timeout_ns else None
        self.cancelled = False
        self.dropped: set[str] = set()  # sessions released after this task arrived and before it ran

    def should_stop(self) -> bool:
        return self.cancelled or (self.deadline_ns is not None and time.monotonic_ns() >= self.deadline_ns)

    def why_stopped(self) -> UnitError:
        if self.cancelled:
            return UnitError(ErrorCode.CANCELLED, "cancelled")
        return UnitError(ErrorCode.DEADLINE_EXCEEDED, "the task's timeout has passed")

    def refuse_dropped(self) -> None:
        """Items of released sessions must not open them again."""
        if self.dropped:
            gone = UnitError(ErrorCode.CANCELLED, "the session was released")
            self.items = [
                gone if session in self.dropped else item
                for item, session in zip(self.items, self.sessions, strict=True)
            ]


class _Answer(NamedTuple):
    task_id: int | None  # None: of a task that was never taken
    response: Any


class _Stream(Generic[Item, Result]):
    """One orchestrator's stream. Lives on the event loop, save for `_run`."""

    def __init__(
        self,
        queue: WorkQueue,
        contract: Contract[Item, Result],
        engine: UnitEngine[Item, Result],
        context: grpc.aio.ServicerContext[Any, Any],
        prefix: str,
    ) -> None:
        self._queue = queue
        self._contract = contract
        self._engine = engine
        self._context = context
        self._prefix = prefix
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, _Task[Item]] = {}  # unanswered, in order of arrival
        self._sessions: set[str] = set()  # with the prefix
        self._answers: asyncio.Queue[_Answer | None] = asyncio.Queue()  # None ends the stream
        self._closing = False
        self._over = asyncio.Event()

    async def serve(self) -> None:
        credits = common_pb2.Credits(tasks=self._queue.credits)
        await self._context.write(self._contract.response(credits=credits))
        reader = asyncio.create_task(self._read())
        try:
            while (answer := await self._answers.get()) is not None:
                await self._give(answer)
        finally:
            reader.cancel()

    async def _give(self, answer: _Answer) -> None:
        # The credit counts as given back before the write: the next task may be here before the write returns.
        if answer.task_id is not None:
            del self._tasks[answer.task_id]
        await self._context.write(answer.response)
        self._end_if_idle()

    async def drain(self) -> None:
        self._answers.put_nowait(_Answer(None, self._contract.response(draining=common_pb2.Draining())))
        await self._over.wait()

    def abandon(self) -> None:
        """Nobody listens any more: stops what runs, drops what waits, frees every session."""
        for task in self._tasks.values():
            task.cancelled = True
        self._release(set(self._sessions))
        self._over.set()

    async def _read(self) -> None:
        """Reads eagerly: a message is handled when it arrives, whatever the engine does."""
        try:
            while (request := await self._context.read()) is not grpc.aio.EOF:
                match request.WhichOneof("message"):
                    case "task":
                        self._accept(request.task)
                    case "cancel":
                        self._cancel(request.cancel.task_id)
                    case "release":
                        self._release({self._prefix + name for name in request.release.sessions})
        except grpc.aio.BaseError as error:
            log_event("stream broke", level=logging.WARNING, error=str(error))
        self._finish()

    def _finish(self) -> None:
        """Takes no more tasks; the stream ends once those under way are answered."""
        if not self._closing:
            self._closing = True
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closing and not self._tasks:
            self._answers.put_nowait(None)

    def _accept(self, pb: Any) -> None:
        if self._closing:
            return
        if pb.task_id in self._tasks:
            self._refuse(pb.task_id, UnitError(ErrorCode.INVALID, f"task_id: {pb.task_id} is under way already"))
        elif len(self._tasks) >= self._queue.credits:
            self._refuse(pb.task_id, UnitError(ErrorCode.OUT_OF_CREDITS, f"{self._queue.credits} tasks are under way"))
        else:
            task = self._parse(pb)
            self._tasks[task.task_id] = task
            self._sessions.update(task.sessions)
            self._queue.arrived += 1
            self._queue.thread.submit(lambda: self._run(task))

    def _parse(self, pb: Any) -> _Task[Item]:
        bytes_in = pb.ByteSize()  # as it was sent: names get a prefix below
        sessions: list[str] = []
        if self._contract.stateful:
            for item in pb.items:
                update = item.update
                update.session = self._prefix + update.session
                if update.fork_of:
                    update.fork_of = self._prefix + update.fork_of
                sessions.append(update.session)
        return _Task(pb, [self._parse_item(item) for item in pb.items], sessions, bytes_in)

    def _parse_item(self, pb: Any) -> Item | UnitError:
        try:
            return self._contract.item_from_pb(pb)
        except ValueError as error:
            return UnitError(ErrorCode.INVALID, str(error))

    def _refuse(self, task_id: int, error: UnitError) -> None:
        self._queue.metrics.refused(_name(error))
        result = self._contract.result(task_id=task_id, error=error.to_pb())
        self._answers.put_nowait(_Answer(None, self._contract.response(result=result)))

    def _cancel(self, task_id: int) -> None:
        if (task := self._tasks.get(task_id)) is not None:
            task.cancelled = True

    def _release(self, sessions: set[str]) -> None:
        """Waiting items of these sessions are dropped first, so that none opens them again once they are free."""
        sessions &= self._sessions
        if sessions:
            self._sessions -= sessions
            for task in self._tasks.values():
                task.dropped |= sessions
            self._queue.thread.submit_urgent(lambda: self._engine.release(sorted(sessions)))

    def _run(self, task: _Task[Item]) -> None:
        """On the engine thread. What was done is recorded before it is told: counters never lag behind answers."""
        queue = self._queue
        queue.started += 1
        start_ns = time.monotonic_ns()
        with log_fields(sessions=task.names):
            outcome = _run_safely(self._engine, task)
        timing = Timing(start_ns - task.arrival_ns, time.monotonic_ns() - start_ns)
        end_ns = time.time_ns()
        result = _result_to_pb(self._contract, task.task_id, outcome, timing)
        record = _record(self._contract, task, outcome, timing, result.ByteSize())
        queue.metrics.task_ended(record)
        queue.log.add(start_ns, record)
        queue.ended += 1
        answer = _Answer(task.task_id, self._contract.response(result=result))
        self._loop.call_soon_threadsafe(self._answers.put_nowait, answer)
        if queue.traces is not None and task.traceparents:
            queue.traces.task(self._contract.unit, record, task.traceparents, f"{self._prefix}{task.task_id}", end_ns)


def _record(
    contract: Contract[Item, Result],
    task: _Task[Item],
    outcome: PassResult[Any] | UnitError,
    timing: Timing,
    bytes_out: int,
) -> TaskRecord:
    if isinstance(outcome, UnitError):
        trace, code, errors = WorkTrace(), _name(outcome), [outcome]
    else:
        trace, code, errors = outcome.trace, OK, [item for item in outcome.items if isinstance(item, UnitError)]
    return TaskRecord(
        kind=contract.kind([item for item in task.items if not isinstance(item, UnitError)]),
        items=len(task.items),
        rows=trace.rows,
        queue_ns=timing.queue_ns,
        compute_ns=timing.compute_ns,
        trace=trace,
        bytes_in=task.bytes_in,
        bytes_out=bytes_out,
        outcome=code,
        refusals=tuple([_name(error) for error in errors]),
    )


def _name(error: UnitError) -> str:
    return error.code.name.lower()


def _run_safely(engine: UnitEngine[Item, Result], task: _Task[Item]) -> PassResult[Any] | UnitError:
    if task.should_stop():
        return task.why_stopped()
    task.refuse_dropped()
    try:
        return _run_sound_items(engine, task)
    except Stopped:
        return task.why_stopped()
    except UnitError as error:
        return error
    except Exception as error:  # whatever the engine did, the task is answered and the unit lives on
        logging.getLogger("hetspec").exception("engine failed")
        return UnitError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}")


def _run_sound_items(engine: UnitEngine[Item, Result], task: _Task[Item]) -> PassResult[Any]:
    """Runs the items that can be; the others keep their refusals, at their places."""
    sound = [item for item in task.items if not isinstance(item, UnitError)]
    if not sound:
        return PassResult(tuple(item for item in task.items if isinstance(item, UnitError)))
    result = engine.run(sound, task.should_stop)
    if len(result.items) != len(sound):
        raise RuntimeError(f"the engine gave {len(result.items)} results for {len(sound)} items")
    if len(sound) == len(task.items):
        return result
    results = iter(result.items)
    return replace(result, items=tuple(i if isinstance(i, UnitError) else next(results) for i in task.items))


def _result_to_pb(
    contract: Contract[Item, Result], task_id: int, outcome: PassResult[Any] | UnitError, timing: Timing
) -> Any:
    if isinstance(outcome, UnitError):
        return contract.result(task_id=task_id, error=outcome.to_pb(), timing=timing.to_pb())
    items = [
        contract.item_result(error=item.to_pb()) if isinstance(item, UnitError) else contract.result_to_pb(item)
        for item in outcome.items
    ]
    return contract.result(task_id=task_id, items=items, trace=outcome.trace.to_pb(), timing=timing.to_pb())
