"""Where packs are kept."""

from __future__ import annotations

from pathlib import Path

DEFAULT_CACHE = Path("~/.cache/hetspec")  # the weight store's own: one pack serves both
