"""What a fit reads of the target besides its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Tables:
    """Float32: embedding and head [vocab, h], the same where they are tied; final_norm [h]."""

    embedding: NDArray[np.float32]
    head: NDArray[np.float32]
    final_norm: NDArray[np.float32]
    rms_eps: float

    @classmethod
    def of(cls, target: Checkpoint) -> Tables:
        config = target.config
        embedding = target.tensor("embed")
        head = embedding if config.tied_head else target.tensor("head")
        return cls(embedding, head, target.tensor("final_norm"), config.rms_eps)
