"""A lease on a pack, kept by a thread: taken again when the store restarts, given up when the pack has changed."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc

from hetspec.model.cut import NEVER, Cut
from hetspec.rpc.channel import open_blocking_channel
from hetspec.rpc.tls import RpcTls
from hetspec.v1 import weight_store_pb2 as pb
from hetspec.v1 import weight_store_pb2_grpc

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


class WeightsError(Exception):
    """The weights cannot be had."""


class WeightsUnavailableError(WeightsError):
    """The store does not answer, or refuses for good."""


class RoleMissingError(WeightsUnavailableError):
    """The store serves no checkpoint in this role."""


class WeightsChangedError(WeightsError):
    """The pack or its checkpoint is no longer what was granted; whatever was read of it is not to be trusted."""


class Backoff:
    """Waits that double, until a deadline."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._wait_s = _FIRST_WAIT_S
        self._what = f"{what} for {timeout_s:g} s"

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def wait(self, reason: object, cut: Cut = NEVER) -> None:
        """Raises WeightsUnavailableError when the time is over."""
        if not self.left_s:
            raise WeightsUnavailableError(f"{self._what}: {reason}")
        cut.wait(min(self._wait_s, self.left_s))
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


class ReadCutError(WeightsError):
    """Nobody waits for the read any more."""


class LeaseKeeper:
    """Owns the connection to the store. Thread-safe."""

    def __init__(self, address: str, role: str, precision: str, tls: RpcTls | None = None) -> None:
        self.address = address
        self._request = pb.LeaseRequest(role=role, precision=precision)
        self._channel = open_blocking_channel(address, peer="weight_store", tls=tls)
        self.stub: weight_store_pb2_grpc.WeightStoreStub = weight_store_pb2_grpc.WeightStoreStub(self._channel)
        self._state = threading.Condition()
        self._grant: pb.LeaseGrant | None = None  # None: not in force
        self._pack_hash = ""  # of the first grant
        self._error: WeightsError | None = None  # final
        self._call: Any = None
        self._closed = False
        self._thread = threading.Thread(target=self._keep, name="weights-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raises WeightsChangedError or WeightsUnavailableError when the lease has been given up."""
        if self._error is not None:
            raise self._error

    def grant(self, timeout_s: float, cut: Cut = NEVER) -> pb.LeaseGrant:
        """The lease in force; waits for one.

        Raises as `check`, WeightsUnavailableError when the time is over, ReadCutError.
        """
        with cut.ends(self._look_again), self._state:
            self._state.wait_for(lambda: cut.told or self._grant is not None or self._error is not None, timeout_s)
            self.check()
            if cut.told:
                raise ReadCutError("cut")
            if self._grant is None:
                raise WeightsUnavailableError(f"weight store {self.address}: no lease within {timeout_s:g} s")
            return self._grant

    def lost(self, grant: pb.LeaseGrant) -> None:
        """The store does not know this lease any more: another must be taken."""
        with self._state:
            if self._grant is grant:
                self._grant = None
                if self._call is not None:
                    self._call.cancel()

    def _look_again(self) -> None:
        with self._state:
            self._state.notify_all()

    def close(self) -> None:
        with self._state:
            self._closed = True
            if self._call is not None:
                self._call.cancel()
            self._state.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._channel.close()

    def _keep(self) -> None:
        wait_s = _FIRST_WAIT_S
        while self._error is None and not self._closed:
            held = self._hold_once()
            wait_s = _FIRST_WAIT_S if held else min(2 * wait_s, _LONGEST_WAIT_S)
            with self._state:
                self._state.wait_for(lambda: self._closed, wait_s)

    def _hold_once(self) -> bool:
        """Takes the lease and holds it until it ends; whether it was in force at all."""
        held = False
        with self._state:
            if self._closed:
                return held
            self._call = self.stub.Lease(self._request)
        try:
            for grant in self._call:
                self._accept(grant)
                held = True
        except grpc.RpcError as error:
            self._ended(error)
        with self._state:
            self._grant = None
        return held

    def _accept(self, grant: pb.LeaseGrant) -> None:
        with self._state:
            self._pack_hash = self._pack_hash or grant.pack_hash
            if grant.pack_hash != self._pack_hash:
                self._error = WeightsChangedError(
                    f"weight store {self.address}: pack {grant.pack_hash}, was {self._pack_hash} when first leased"
                )
                self._call.cancel()
            else:
                self._grant = grant
            self._state.notify_all()

    def _ended(self, error: Any) -> None:
        code, details = error.code(), f"weight store {self.address}: {error.details()}"
        if code in _PASSING:
            return
        with self._state:
            if self._error is None:
                changed = code == grpc.StatusCode.FAILED_PRECONDITION
                self._error = WeightsChangedError(details) if changed else WeightsUnavailableError(details)
            self._state.notify_all()
