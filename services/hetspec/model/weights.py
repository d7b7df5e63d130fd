"""The units' side of the weight store: the manifest, and a pack read where it lies or over the wire."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from hetspec.model.acceptance_artefact import AcceptanceArtefact
from hetspec.model.cut import NEVER, Cut
from hetspec.model.early_exit_artefact import EarlyExitArtefact
from hetspec.model.fingerprint import identity_of
from hetspec.model.lease import (
    Backoff,
    LeaseKeeper,
    ReadCutError,
    RoleMissingError,
    WeightsChangedError,
    WeightsError,
    WeightsUnavailableError,
)
from hetspec.model.manifest import Manifest
from hetspec.model.pack import HEADER_BYTES, PackError, PackFile, PackLayout, open_pack, parse_header
from hetspec.rpc.tls import RpcTls
from hetspec.v1 import weight_store_pb2 as pb

__all__ = [
    "RoleMissingError",
    "WeightSource",
    "WeightsChangedError",
    "WeightsError",
    "WeightsUnavailableError",
    "read_acceptance",
    "read_early_exit",
    "read_manifest",
]

_DIRECT_ALIGN = 4096
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
Bytes = NDArray[np.uint8]
_Answer = TypeVar("_Answer")


class _Reader(Protocol):
    def map(self) -> Bytes | None: ...
    def read_into(self, offset: int, buffer: memoryview, cut: Cut) -> None: ...
    def close(self) -> None: ...


class WeightSource:
    """A leased pack. Thread-safe; everything blocks, at most about `timeout_s` at a time. Raises WeightsError.

    Same host: the pack is mapped or read where it lies. Another host: chunks over gRPC, retried.
    bytes_read, reads: by `read_into`, since the start.
    """

    def __init__(self, manifest: Manifest, pack: PackFile, keeper: LeaseKeeper, reader: _Reader) -> None:
        self.manifest = manifest
        self.layout: PackLayout = pack.layout
        self.pack_hash = pack.hash
        self.bytes_read = self.reads = 0
        self._keeper = keeper
        self._reader = reader
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        address: str,
        role: str,
        precision: str,
        timeout_s: float,
        *,
        direct: bool = False,
        remote: bool = False,
        tls: RpcTls | None = None,
    ) -> WeightSource:
        """Waits up to `timeout_s` for the store at `address` (host:port), and as long again for the pack to be made.

        direct: reads bypass the page cache. remote: over the wire even on the same host.
        """
        keeper = LeaseKeeper(address, role, precision, tls)
        try:
            manifest = _fetch_manifest(keeper, role, timeout_s)
            keeper.start()
            grant = keeper.grant(timeout_s)
            local = None if remote else _open_local(grant)
            over_wire = _RemoteReader(keeper, timeout_s)
            pack = local or over_wire.open(grant)
            if pack.fingerprint != manifest.fingerprint or pack.layout.precision != precision:
                raise WeightsChangedError(f"weight store {address}: the pack is not {role}'s in {precision}")
            reader: _Reader = over_wire if local is None else _LocalReader(local, keeper, direct)
            return cls(manifest, pack, keeper, reader)
        except BaseException:
            keeper.close()
            raise

    def map(self) -> Bytes | None:
        """The whole pack as read-only bytes; None when it is not on this host, or is read directly."""
        self._keeper.check()
        return self._reader.map()

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        """Fills `buffer` with the pack's bytes from `offset`. `cut` ends it early, in ReadCutError.

        Raises ValueError beyond the end, WeightsError.
        """
        buffer = buffer.cast("B")
        if not 0 <= offset <= self.layout.bytes - len(buffer):
            raise ValueError(f"offset {offset} + {len(buffer)} bytes, must be within [0, {self.layout.bytes}]")
        self._keeper.check()
        self._reader.read_into(offset, buffer, cut)
        with self._lock:
            self.bytes_read += len(buffer)
            self.reads += 1

    def check(self) -> None:
        """Raises WeightsError when the lease has been given up, above all because the pack has changed."""
        self._keeper.check()

    def close(self) -> None:
        """Gives the lease back. What `map` returned stays readable."""
        self._keeper.close()
        self._reader.close()


def read_manifest(address: str, role: str, timeout_s: float, tls: RpcTls | None = None) -> Manifest:
    """Without a lease on the pack. Raises WeightsError."""
    keeper = LeaseKeeper(address, role, "", tls)
    try:
        return _fetch_manifest(keeper, role, timeout_s)
    finally:
        keeper.close()


def read_early_exit(address: str, timeout_s: float, tls: RpcTls | None = None) -> EarlyExitArtefact | None:
    """None: the store has none. Raises WeightsError."""
    keeper = LeaseKeeper(address, "", "", tls)

    def ask(left_s: float) -> EarlyExitArtefact:
        return EarlyExitArtefact.from_pb(keeper.stub.GetEarlyExit(pb.GetEarlyExitRequest(), timeout=left_s))

    try:
        return _asked(keeper, "early exit", timeout_s, ask)
    except RoleMissingError:
        return None
    finally:
        keeper.close()


def read_acceptance(address: str, timeout_s: float, tls: RpcTls | None = None) -> AcceptanceArtefact | None:
    """None: the store has none. Raises WeightsError."""
    keeper = LeaseKeeper(address, "", "", tls)

    def ask(left_s: float) -> AcceptanceArtefact:
        return AcceptanceArtefact.from_pb(keeper.stub.GetAcceptance(pb.GetAcceptanceRequest(), timeout=left_s))

    try:
        return _asked(keeper, "acceptance head", timeout_s, ask)
    except RoleMissingError:
        return None
    finally:
        keeper.close()


def _fetch_manifest(keeper: LeaseKeeper, role: str, timeout_s: float) -> Manifest:
    def ask(left_s: float) -> Manifest:
        return Manifest.from_pb(keeper.stub.GetManifest(pb.GetManifestRequest(role=role), timeout=left_s))

    return _asked(keeper, "manifest", timeout_s, ask)


def _asked(keeper: LeaseKeeper, what: str, timeout_s: float, ask: Callable[[float], _Answer]) -> _Answer:
    """ask: given the seconds that are left; may raise ValueError for an answer that makes no sense."""
    backoff = Backoff(timeout_s, f"weight store {keeper.address}: no answer")
    while True:
        try:
            return ask(max(backoff.left_s, 0.1))
        except grpc.RpcError as error:
            if error.code() not in _RETRIED:
                missing = error.code() == grpc.StatusCode.NOT_FOUND
                kind = RoleMissingError if missing else WeightsUnavailableError
                raise kind(f"weight store {keeper.address}: {error.details()}") from error
            backoff.wait(error.details())
        except ValueError as error:
            raise WeightsUnavailableError(f"weight store {keeper.address}: {what}: {error}") from error


def _open_local(grant: pb.LeaseGrant) -> PackFile | None:
    """The granted pack where it lies, if that is on this host."""
    try:
        pack = open_pack(Path(grant.path))
    except (OSError, PackError):
        return None
    return pack if pack.hash == grant.pack_hash else None


class _LocalReader:
    """Reads the pack's file. A file written to under the lease is refused by its hash."""

    def __init__(self, pack: PackFile, keeper: LeaseKeeper, direct: bool) -> None:
        self._pack = pack
        self._keeper = keeper
        self._direct = direct
        try:
            self._file = os.open(pack.path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        except OSError as error:
            raise WeightsUnavailableError(f"{pack.path}: cannot be opened: {error.strerror}") from error
        self._identity = identity_of(os.fstat(self._file))
        self._mapped: Bytes | None = None if direct else np.memmap(pack.path, np.uint8, "r")

    def map(self) -> Bytes | None:
        return self._mapped

    def read_into(self, offset: int, buffer: memoryview, cut: Cut) -> None:
        if self._direct and (offset % _DIRECT_ALIGN or len(buffer) % _DIRECT_ALIGN):
            raise ValueError(f"direct read of {len(buffer)} bytes at {offset}: must be multiples of {_DIRECT_ALIGN}")
        self._check_identity()
        done = 0
        while done < len(buffer):
            if cut.told:
                raise ReadCutError("cut")
            count = self._read_some(offset + done, buffer[done:])
            if not count:
                raise WeightsChangedError(f"{self._pack.path}: changed under its lease: ends at byte {offset + done}")
            done += count

    def _read_some(self, offset: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._file, [buffer], offset)
        except OSError as error:
            raise WeightsUnavailableError(f"{self._pack.path}: at byte {offset}: {error.strerror}") from error

    def _check_identity(self) -> None:
        identity = identity_of(os.fstat(self._file))
        if identity == self._identity:
            return
        try:
            self._pack.verify()
        except (PackError, OSError) as error:
            raise WeightsChangedError(f"{self._pack.path}: changed under its lease: {error}") from error
        self._identity = identity

    def close(self) -> None:
        os.close(self._file)


class _RemoteReader:
    """Reads over the wire, from where it was broken off when the store comes back in time."""

    def __init__(self, keeper: LeaseKeeper, timeout_s: float) -> None:
        self._keeper = keeper
        self._timeout_s = timeout_s

    def map(self) -> None:
        return None

    def open(self, grant: pb.LeaseGrant) -> PackFile:
        head = bytearray(HEADER_BYTES)
        self.read_into(0, memoryview(head), NEVER)
        try:
            pack = parse_header(bytes(head), Path(grant.path), grant.bytes)
        except PackError as error:
            raise WeightsUnavailableError(f"weight store {self._keeper.address}: {error}") from error
        if pack.hash != grant.pack_hash:
            raise WeightsChangedError(f"{pack.path}: header has hash {pack.hash}, the lease says {grant.pack_hash}")
        return pack

    def read_into(self, offset: int, buffer: memoryview, cut: Cut) -> None:
        done = 0
        backoff = Backoff(self._timeout_s, f"weight store {self._keeper.address}: reads broken off")
        while done < len(buffer):
            grant = self._keeper.grant(backoff.left_s, cut)
            request = pb.ReadRequest(lease=grant.lease, offset=offset + done, length=len(buffer) - done)
            call = self._keeper.stub.Read(request, timeout=self._timeout_s)
            try:
                with cut.ends(call.cancel):
                    for chunk in call:
                        buffer[done : done + len(chunk.data)] = chunk.data
                        done += len(chunk.data)
            except grpc.RpcError as error:
                self._after(error, grant)
                backoff.wait(error.details(), cut)

    def _after(self, error: grpc.RpcError, grant: pb.LeaseGrant) -> None:
        if error.code() == grpc.StatusCode.NOT_FOUND:
            self._keeper.lost(grant)
        elif error.code() == grpc.StatusCode.FAILED_PRECONDITION:
            raise WeightsChangedError(f"weight store {self._keeper.address}: {error.details()}") from error
        elif error.code() not in _RETRIED:
            raise WeightsUnavailableError(f"weight store {self._keeper.address}: {error.details()}") from error

    def close(self) -> None:
        pass
