"""Small weights by name, of which a file must hold those that its config tells, and no others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile


def read_weights(
    file: SafetensorsFile, shapes: Mapping[str, tuple[int, ...]], told_by: str
) -> dict[str, NDArray[np.float32]]:
    """told_by: the file that tells the shapes. Raises CheckpointError."""
    found = file.tensors.keys()
    for problem, names in (("is missing", shapes.keys() - found), ("is not known here", found - shapes.keys())):
        if names:
            raise CheckpointError(f"{file.path}: tensor {min(names)} {problem}")
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        file.check_shape(name, shape, told_by)
        weights[name] = file.rows(name, 0, shape[0])
        if not np.isfinite(weights[name]).all():
            raise CheckpointError(f"{file.path}: tensor {name} holds a value that is no number")
    return weights
