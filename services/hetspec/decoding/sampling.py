"""What decides a token besides the logits: sampling parameters and the name of the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise ValueError(f"repetition_penalty = {self.repetition_penalty}, must be > 0")
        for name in ("frequency_penalty", "presence_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)}, must be finite")
        ids = [token for token, _ in self.bias]
        if ids != sorted(set(ids)):
            raise ValueError(f"bias: ids {ids} must ascend")
        if not all(math.isfinite(bias) for _, bias in self.bias):
            raise ValueError("bias: every value must be finite")

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
