"""Writes the weights of what was trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file


def save_weights(weights: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Raises OSError."""
    save_file({name: np.ascontiguousarray(values) for name, values in weights.items()}, path)
    path.chmod(0o644)  # the library makes it ours alone
