"""The checkpoints and their packs: what is served, and whether it is still what was granted."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hetspec.model.acceptance_artefact import AcceptanceArtefact
from hetspec.model.checkpoint import Checkpoint, CheckpointError, open_checkpoint, open_draft
from hetspec.model.checkpoint.acceptance_folder import open_acceptance
from hetspec.model.checkpoint.early_exit_folder import open_early_exit
from hetspec.model.early_exit_artefact import EarlyExitArtefact
from hetspec.model.fingerprint import file_identity, identity_of
from hetspec.model.manifest import ROLES, Manifest
from hetspec.model.pack import PackError, PackFile, open_pack
from hetspec.model.pack_writer import write_pack

_Identity = tuple[int, int, int]


class ChangedError(Exception):
    """A file is no longer what it was when it was opened or granted."""


class LeaseEndedError(Exception):
    """The lease is not in force any more."""


class Source:
    """One checkpoint, as it was when it was opened. Thread-safe; its methods block."""

    def __init__(self, role: str, checkpoint: Checkpoint, cache_dir: Path) -> None:
        """Raises CheckpointError."""
        self._checkpoint = checkpoint
        self._identities = self._identify()
        self._cache_dir = cache_dir
        fingerprint = checkpoint.fingerprint(cache_dir)
        self.manifest = Manifest(role, fingerprint, checkpoint.config, checkpoint.text)
        self._packs: dict[str, tuple[PackFile, _Identity]] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises ChangedError when the files' contents are no longer those of the manifest."""
        identities = self._identify()
        if identities == self._identities:
            return
        if self._checkpoint.fingerprint(self._cache_dir) != self.manifest.fingerprint:
            raise ChangedError(f"{self._checkpoint.path}: changed since it was opened; start the weight store again")
        self._identities = identities

    def pack(self, precision: str) -> PackFile:
        """Made when first asked for, and again when it was damaged. Raises ChangedError, CheckpointError, OSError."""
        with self._lock:
            self.check()
            known = self._packs.get(precision)
            if known and known[0].path.exists() and file_identity(known[0].path) == known[1]:
                return known[0]
            pack = open_pack(write_pack(self._checkpoint, precision, self._cache_dir))
            try:
                self.check()
            except ChangedError:  # perhaps while it was being read: the pack may be of neither version
                pack.path.unlink(missing_ok=True)
                raise
            self._packs[precision] = pack, file_identity(pack.path)
            return pack

    def _identify(self) -> dict[str, _Identity]:
        try:
            return {label: file_identity(file) for label, file in self._checkpoint.files().items()}
        except OSError as error:
            raise ChangedError(f"{error.filename}: {error.strerror}") from error


@dataclass(slots=True)
class PackLease:
    """A granted pack, held open: what is read is what was granted, whatever happens to its name. Thread-safe."""

    source: Source
    pack: PackFile
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _file: int = field(init=False)
    _identity: _Identity = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # no read on a descriptor that is being closed

    def __post_init__(self) -> None:
        self._file = os.open(self.pack.path, os.O_RDONLY)
        self._identity = identity_of(os.fstat(self._file))

    @property
    def size_bytes(self) -> int:
        return self.pack.layout.bytes

    def check(self) -> None:
        """Raises ChangedError when the pack or the checkpoint is no longer what was granted."""
        self.source.check()
        with self._lock:
            identity = identity_of(os.fstat(self._descriptor()))
        if identity != self._identity:
            try:
                self.pack.verify()
            except (PackError, OSError) as error:
                raise ChangedError(f"{self.pack.path}: changed under its lease: {error}") from error
            self._identity = identity

    def read(self, offset: int, length: int) -> bytes:
        """Raises ChangedError when the file has become shorter, LeaseEndedError."""
        with self._lock:
            data = os.pread(self._descriptor(), length, offset)
        if len(data) < length:
            raise ChangedError(f"{self.pack.path}: changed under its lease: ends at byte {offset + len(data)}")
        return data

    def close(self) -> None:
        with self._lock:
            os.close(self._descriptor())
            self._file = -1

    def _descriptor(self) -> int:
        if self._file < 0:
            raise LeaseEndedError(f"lease {self.id} is not in force")
        return self._file


class Store:
    """Sources by role, an early-exit predictor of the target, an acceptance head of the draft, and the leases in force.
    Methods block."""

    def __init__(
        self,
        paths: Mapping[str, Path],
        cache_dir: Path,
        early_exit: Path | None = None,
        acceptance: Path | None = None,
    ) -> None:
        self._paths = paths
        self._cache_dir = cache_dir
        self._early_exit = early_exit
        self.early_exit: EarlyExitArtefact | None = None
        self._acceptance = acceptance
        self.acceptance: AcceptanceArtefact | None = None
        self.sources: dict[str, Source] = {}
        self.leases: dict[str, PackLease] = {}

    def open(self) -> None:
        """Opens and checks every checkpoint. Raises CheckpointError, OSError."""
        self._cache_dir.mkdir(parents=True, exist_ok=True)
        try:
            opened = self._open_checkpoints()
            self.sources = {role: Source(role, checkpoint, self._cache_dir) for role, checkpoint in opened.items()}
            if self._early_exit is not None:
                self.early_exit = _open_early_exit(self._early_exit, self.sources["target"].manifest)
            if self._acceptance is not None:
                self.acceptance = _open_acceptance(self._acceptance, self.sources)
        except ChangedError as error:
            raise CheckpointError(str(error)) from error

    def _open_checkpoints(self) -> dict[str, Checkpoint]:
        """The target first: a draft may have been made for it, and share its embedding."""
        opened: dict[str, Checkpoint] = {}
        for role in (role for role in ROLES if role in self._paths):
            path, target = self._paths[role], opened.get("target")
            opened[role] = open_draft(path, target, self._cache_dir) if target else open_checkpoint(path)
        return opened

    def lease(self, role: str, precision: str) -> PackLease:
        """Raises KeyError for a role that is not served; else as `Source.pack`."""
        source = self.sources[role]
        lease = PackLease(source, source.pack(precision))
        self.leases[lease.id] = lease
        return lease

    def release(self, lease: PackLease) -> None:
        if self.leases.pop(lease.id, None) is not None:
            lease.close()


def _open_early_exit(folder: Path, target: Manifest) -> EarlyExitArtefact:
    """Read whole, so that what is served later is what was checked. Raises CheckpointError."""
    found = open_early_exit(folder, target.fingerprint)
    config, layers = found.config, target.config.n_layers
    if not config.layer < layers:
        raise CheckpointError(f"{folder}: layer = {config.layer}, must be below the target's {layers}")
    if config.hidden_size != target.config.hidden_size:
        raise CheckpointError(f"{folder}: hidden_size = {config.hidden_size}, must be {target.config.hidden_size}")
    return found


def _open_acceptance(folder: Path, sources: Mapping[str, Source]) -> AcceptanceArtefact:
    """Likewise."""
    if "draft" not in sources:
        raise CheckpointError(f"{folder}: an acceptance head is for a draft, and none is served")
    target, draft = sources["target"].manifest, sources["draft"].manifest
    found = open_acceptance(folder, target.fingerprint, draft.fingerprint)
    if found.config.hidden_size != draft.config.hidden_size:
        raise CheckpointError(f"{folder}: hidden_size = {found.config.hidden_size}, must be {draft.config.hidden_size}")
    return found
