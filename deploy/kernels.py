"""Compiles every kernel and keeps it, so that units which find them there compile none: for the build of an image."""

from __future__ import annotations

import numpy as np

from hetspec.decoding.choose import choose, perturbed
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.self_check import check_integer_sums  # its import compiles those of the model

if __name__ == "__main__":
    check_integer_sums()
    logits = np.linspace(-8, 8, 4096, dtype=np.float32)
    for sampling in (Sampling(0), Sampling(1.0), Sampling(0.8, top_p=0.9), Sampling(1.3, top_k=40, min_p=0.01)):
        choose(logits, sampling, NoiseKey(seed=1), position=0)
        perturbed(logits, sampling, NoiseKey(seed=1), position=0, count=8)
