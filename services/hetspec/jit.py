"""How kernels are compiled, and kept: on disk, under a name that changes with the sources of all of them.

numba looks only at the file of the function it keeps; a kernel is made of more than one file. Where there is no place
to keep them, kernels are compiled anew at every start. HETSPEC_KERNELS names a folder of kernels made elsewhere, like
ours, to begin with: an image's. Those made for another kind of processor are passed over.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit, void

_SOURCES = (
    *("decoding/filters.py", "decoding/noise.py"),
    *(f"model/{name}.py" for name in ("forward", "lanes", "operators", "panels", "pack")),
)


def _place() -> str:
    """A folder that can be written to; "" when there is none. NUMBA_CACHE_DIR names another than the default."""
    if numba.config.CACHE_DIR:
        return str(numba.config.CACHE_DIR)
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = caches / "hetspec" / "kernels" / _digest()
        if not folder.exists():
            _begin(folder)
    except (OSError, RuntimeError):  # no home, or not ours to write to
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def _begin(folder: Path) -> None:
    made = os.environ.get("HETSPEC_KERNELS")
    if made and (source := Path(made) / folder.name).is_dir():
        shutil.copytree(source, folder, dirs_exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def _digest() -> str:
    package = Path(__file__).parent
    sources = b"".join((package / name).read_bytes() for name in _SOURCES)
    return hashlib.blake2b(sources, digest_size=8).hexdigest()


numba.config.CACHE_DIR = _place()
_KEPT = bool(numba.config.CACHE_DIR)


def part(function: Callable[..., Any]) -> Any:
    """A function that kernels call, or Python with arrays of one kind: compiled at its first call."""
    return njit(nogil=True, cache=_KEPT)(function)


def kernel(*arguments: Any) -> Any:
    """A function that Python calls, without the interpreter's lock; compiled when its module is imported."""
    return njit(void(*arguments), nogil=True, cache=_KEPT)
