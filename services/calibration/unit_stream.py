"""One unit, asked for one task after another over a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc

from calibration.errors import CalibrationError
from hetspec.rpc.channel import open_blocking_channel
from hetspec.rpc.contracts import Contract
from hetspec.rpc.messages import Timing, WorkTrace
from hetspec.rpc.tls import RpcTls
from hetspec.v1 import common_pb2

Item = TypeVar("Item")
Result = TypeVar("Result")

_TIMEOUT_S = 5.0  # to be found
_TASK_TIMEOUT_NS = 120 * 10**9


@dataclass(frozen=True, slots=True)
class Answered(Generic[Result]):
    """compute_ns: of the task on its unit, beginning to end."""

    result: Result
    trace: WorkTrace
    compute_ns: int


class UnitStream(Generic[Item, Result]):
    """Blocks. Its sessions end with it. Everything raises CalibrationError."""

    def __init__(self, contract: Contract[Item, Result], address: str, tls: RpcTls | None = None) -> None:
        self._contract = contract
        self._address = address
        self._ids = count(1)
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._channel = open_blocking_channel(address, peer=contract.peer, tls=tls)
        try:
            grpc.channel_ready_future(self._channel).result(_TIMEOUT_S)
            stub = contract.stub(self._channel)
            self.description = stub.Describe(common_pb2.DescribeRequest(), timeout=_TIMEOUT_S)
            self._responses = stub.Work(iter(self._requests.get, None))
            self._next()  # its credits
        except grpc.FutureTimeoutError as error:
            self._channel.close()
            raise CalibrationError(f"no {contract.unit} at {address}: `make up` starts one") from error
        except grpc.RpcError as error:
            self._channel.close()
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._requests.put(None)
        self._channel.close()

    def ask(self, item: Item) -> Answered[Result]:
        """A task of this item alone."""
        request = self._contract.request()
        request.task.task_id = next(self._ids)
        request.task.timeout_ns = _TASK_TIMEOUT_NS
        request.task.items.append(self._contract.item_to_pb(item))
        self._requests.put(request)
        try:
            result = self._next().result
        except grpc.RpcError as error:
            raise self._failed(error) from error
        for answer in (result, *result.items):
            if answer.HasField("error"):
                raise CalibrationError(f"{self._contract.unit} at {self._address}: {answer.error.message}")
        value = self._contract.result_from_pb(result.items[0])
        return Answered(value, WorkTrace.from_pb(result.trace), Timing.from_pb(result.timing).compute_ns)

    def release(self, sessions: Sequence[str]) -> None:
        self._requests.put(self._contract.request(release=common_pb2.Release(sessions=sessions)))

    def check_idle(self) -> None:
        """What others compute meanwhile would be measured, too."""
        load = self.description.load
        if load.running or load.queued:
            raise CalibrationError(
                f"the {self._contract.unit} at {self._address} is at work: calibrate when it is idle"
            )

    def _next(self) -> Any:
        response = next(self._responses, None)
        if response is None or response.WhichOneof("message") == "draining":
            raise CalibrationError(f"the {self._contract.unit} at {self._address} is about to end")
        return response

    def _failed(self, error: grpc.RpcError) -> CalibrationError:
        return CalibrationError(f"{self._contract.unit} at {self._address}: {error.details()}")
