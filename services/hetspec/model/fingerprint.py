"""Names contents by their hash, and remembers the hash of a file for as long as the file keeps its identity."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CHUNK_BYTES = 1 << 22
_DIGEST_BYTES = 16


def fingerprint(files: Mapping[str, Path], cache_dir: Path | None = None) -> str:
    """32 hexadecimal digits over the labels and contents of `files`. Raises OSError."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for label, file in sorted(files.items()):
        hasher.update(f"{label}\0{_file_digest(file, cache_dir)}\n".encode())
    return hasher.hexdigest()


def file_identity(path: Path) -> tuple[int, int, int]:
    """(size, mtime in ns, inode): a file that was written to or replaced has another."""
    return identity_of(path.stat())


def identity_of(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def write_atomically(path: Path, data: bytes) -> None:
    """All or nothing, also under concurrent writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def _file_digest(path: Path, cache_dir: Path | None) -> str:
    if cache_dir is None:
        return _digest(path)
    identity = [str(path.resolve()), *file_identity(path)]
    key = hashlib.blake2b(json.dumps(identity).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    entry = cache_dir / "digests" / key
    if entry.is_file() and len(known := entry.read_text()) == 2 * _DIGEST_BYTES:
        return known
    digest = _digest(path)
    write_atomically(entry, digest.encode())
    return digest


def _digest(path: Path) -> str:
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()
