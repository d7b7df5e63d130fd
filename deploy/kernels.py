"""Compiles every kernel and keeps it, so that units which find them there compile none: for the build of an image."""

from __future__ import annotations

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import choose
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.candidates import Place, Proposer
from hetspec.model.self_check import check_integer_sums  # its import compiles those of the model

if __name__ == "__main__":
    check_integer_sums()
    logits = np.linspace(-8, 8, 4096, dtype=np.float32)
    proposer = Proposer(len(logits), None, np.array([], np.intp))
    for sampling in (Sampling(0), Sampling(1.0), Sampling(0.8, top_p=0.9), Sampling(1.3, top_k=40, min_p=0.01)):
        choose(logits, sampling, NoiseKey(seed=1), position=0)
        place = Place(sampling, NoiseKey(seed=1), Adjuster(sampling, Constraint(), Past()), 0, (), 8)
        proposer.propose(logits[None].copy(), [place])
