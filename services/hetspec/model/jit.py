"""How kernels are compiled, and kept: on disk, under a name that changes with the sources of all of them.

numba looks only at the file of the function it keeps; a kernel is made of more than one file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit, void

_SOURCES = ("forward.py", "lanes.py", "pack.py")


def _kept_in() -> Path:
    folder = Path(__file__).parent
    digest = hashlib.blake2b(b"".join((folder / name).read_bytes() for name in _SOURCES), digest_size=8)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "hetspec" / "kernels" / digest.hexdigest()


if not numba.config.CACHE_DIR:  # NUMBA_CACHE_DIR names another place
    numba.config.CACHE_DIR = str(_kept_in())


def part(function: Callable[..., Any]) -> Any:
    """A function that kernels call."""
    return njit(nogil=True, cache=True)(function)


def kernel(*arguments: Any) -> Any:
    """A function that Python calls, without the interpreter's lock; compiled when its module is imported."""
    return njit(void(*arguments), nogil=True, cache=True)
