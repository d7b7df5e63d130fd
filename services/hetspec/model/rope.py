"""Rope angles as tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig


def rope_tables(config: ModelConfig, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin, float32 [positions, head_dim / 2], of the float32 product position * inv_freq (as transformers)."""
    angles = np.arange(positions, dtype=np.float32)[:, None] * config.inv_freq()[None, :]
    wide = angles.astype(np.float64)
    return np.cos(wide).astype(np.float32), np.sin(wide).astype(np.float32)
