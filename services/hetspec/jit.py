"""How kernels are compiled, and kept: on disk, under a name that changes with the sources of all of them.

numba looks only at the file of the function it keeps; a kernel is made of more than one file. Where there is no place
to keep them, kernels are compiled anew at every start. HETSPEC_KERNELS names a folder of kernels made elsewhere, like
ours, to begin with: an image's. Those made for another kind of processor are passed over.

Processes keep and load one after another. Of two that keep at once, numba would let both number their code the same,
and a third would then run the one's code on the other's types.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba import njit, void
from numba.core.caching import FunctionCache

_SOURCES = (
    *("decoding/filters.py", "decoding/noise.py"),
    *(f"model/{name}.py" for name in ("forward", "lanes", "operators", "panels", "pack")),
)


def _place() -> str:
    """A folder that can be written to; "" when there is none. NUMBA_CACHE_DIR names another than the default."""
    try:
        if named := numba.config.CACHE_DIR:
            folder = Path(named)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            folder = caches / "hetspec" / "kernels" / _digest()
            if not folder.exists():
                _begin(folder)
    except (OSError, RuntimeError):  # no home, or not ours to write to
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def _begin(folder: Path) -> None:
    """Makes the folder, whole from the start."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as making:
        whole = Path(making) / folder.name
        made = os.environ.get("HETSPEC_KERNELS")
        if made and (source := Path(made) / folder.name).is_dir():
            shutil.copytree(source, whole)
        whole.mkdir(exist_ok=True)
        try:
            whole.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise


def _digest() -> str:
    package = Path(__file__).parent
    sources = b"".join((package / name).read_bytes() for name in _SOURCES)
    return hashlib.blake2b(sources, digest_size=8).hexdigest()


numba.config.CACHE_DIR = _place()
_KEPT = bool(numba.config.CACHE_DIR)


class _Kept(FunctionCache):  # type: ignore[misc]
    """A function's compiled code, by the types of its arguments, in files that processes share."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with _locked():
            return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        with _locked():
            super().save_overload(sig, data)


@contextmanager
def _locked() -> Iterator[None]:
    with (Path(numba.config.CACHE_DIR) / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def part(function: Callable[..., Any]) -> Any:
    """A function that kernels call, or Python with arrays of one kind: compiled at its first call."""
    compiled = njit(nogil=True)(function)
    if _KEPT:
        compiled._cache = _Kept(function)
    return compiled


def kernel(*arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function that Python calls, without the interpreter's lock; compiled when its module is imported."""

    def compile_now(function: Callable[..., Any]) -> Any:
        compiled = part(function)
        compiled.compile(void(*arguments))
        compiled.disable_compile()
        return compiled

    return compile_now
