"""What decides a token besides the logits: sampling parameters and the name of the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_CHANGE = 1e6
"""No penalty and no bias is larger: logits, and what is made of them, stay far from float32's limits."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0 is argmax; top_k 0, top_p 1, min_p 0, repetition_penalty 1 and the other penalties 0 are off.

    bias: (token id, what is added to its logit), ascending ids.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature = {self.temperature}, must be >= 0")
        if self.top_k < 0:
            raise ValueError(f"top_k = {self.top_k}, must be >= 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}, must be in (0, 1]")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p = {self.min_p}, must be in [0, 1]")
        if not 1 / MAX_CHANGE <= self.repetition_penalty <= MAX_CHANGE:
            bounds = f"[{1 / MAX_CHANGE}, {MAX_CHANGE}]"
            raise ValueError(f"repetition_penalty = {self.repetition_penalty}, must be in {bounds}")
        for name in ("frequency_penalty", "presence_penalty"):
            if not abs(getattr(self, name)) <= MAX_CHANGE:
                raise ValueError(f"{name} = {getattr(self, name)}, must be in [-{MAX_CHANGE}, {MAX_CHANGE}]")
        self._check_bias()

    def _check_bias(self) -> None:
        last = -1
        for token, bias in self.bias:
            if token <= last:
                raise ValueError(f"bias: id {token} after {last}, ids must ascend")
            if not abs(bias) <= MAX_CHANGE:
                raise ValueError(f"bias: {bias} of id {token}, must be in [-{MAX_CHANGE}, {MAX_CHANGE}]")
            last = token

    @property
    def penalises(self) -> bool:
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names the noise of one choice. `seed` is taken modulo 2**64."""

    seed: int
    prompt_index: int = 0
    choice_index: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", self.seed % 2**64)
        for name, index in (("prompt_index", self.prompt_index), ("choice_index", self.choice_index)):
            if not 0 <= index < 2**32:
                raise ValueError(f"{name} = {index}, must be in [0, 2**32)")
