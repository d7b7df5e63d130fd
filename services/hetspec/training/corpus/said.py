"""What a target said, with all that a student learns from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Said:
    """A conversation with what the target thought of it.

    tokens: uint32 [n]. origins: uint8 [n] (`talk.GIVEN`, ...). hidden: float32 [n, hidden_size], before the final norm;
    float16 where it was kept on disk. top_ids, top_logprobs: of the token that follows row i, [n, choosing.TOP];
    logprob -inf where the target was not asked.
    """

    tokens: NDArray[np.uint32]
    origins: NDArray[np.uint8]
    hidden: NDArray[np.floating]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float16]
    temperature: float

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def origins_after(self) -> NDArray[np.uint8]:
        """Of the token that follows each row; behind the last row comes what ended the conversation, of the same
        origin."""
        return np.append(self.origins[1:], self.origins[-1:])
