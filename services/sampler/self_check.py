"""What a sampler finds out about itself at start: that rows are independent, and a digest of what it computes."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.choose import choose, logprobs_of
from hetspec.decoding.noise import gumbel
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.self_check import SelfCheckError
from hetspec.rpc.messages import Rows
from sampler.engine import Head

_KEY = NoiseKey(seed=0x5EED)
_SAMPLINGS = (Sampling(0), Sampling(1.0), Sampling(0.8, top_p=0.9), Sampling(1.3, top_k=40, min_p=0.01))
_HEIGHTS = (2, 3, 5, 8, 16, 19)


def self_check(head: Head) -> str:
    """The digest of probe outputs: equal where two samplers give equal bits. Raises SelfCheckError."""
    rows = probe_rows(max(_HEIGHTS), head.hidden_size)
    alone = np.concatenate([head.logits(row[None]) for row in rows])
    for height in _HEIGHTS:
        for shift in (0, 7):
            order = (np.arange(height) + shift) % len(rows)
            if head.logits(rows[order]).tobytes() != alone[order].tobytes():
                raise SelfCheckError(f"self-check: logits of a row alone differ from those among {height} rows")
    if not np.isfinite(alone).all():
        raise SelfCheckError("self-check: logits of a finite row are not finite")
    return _digest(alone)


def probe_rows(count: int, hidden_size: int) -> Rows:
    """Fixed pseudo-random rows, every fourth one extreme: tiny, huge, all at the quantiser's limits, one spike."""
    noise = [gumbel(np.arange(hidden_size), _KEY, position) for position in range(count)]
    rows = np.stack(noise).astype(np.float32)
    rows[1::16] *= np.float32(1e-12)
    rows[5::16] *= np.float32(1e6)
    rows[9::16] = np.where(rows[9::16] > 0, np.float32(127), np.float32(-127))
    rows[13::16, hidden_size // 2] = 1e5
    return rows


def _digest(logits: NDArray[np.float32]) -> str:
    digest = hashlib.sha256(logits.tobytes())
    digest.update(version("llguidance").encode())  # where an answer has a grammar, it decides too
    for position, row in enumerate(logits):
        chosen = [choose(row, sampling, _KEY, position) for sampling in _SAMPLINGS]
        digest.update(np.array(chosen, "<i8").tobytes())
        digest.update(np.array(logprobs_of(row, chosen[0], 5).top_logprobs, "<f8").tobytes())
    return digest.hexdigest()
