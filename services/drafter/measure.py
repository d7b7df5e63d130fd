"""What a step of the draft model takes on this machine, by the rows it feeds."""

from __future__ import annotations

import time
from functools import partial
from itertools import accumulate, count

import numpy as np

from drafter.engine import DrafterEngine
from hetspec.decoding.history import History
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.costs import CostCurve
from hetspec.model.measure import measured_curve
from hetspec.rpc.messages import DraftItem, DraftPolicy, SessionUpdate, rows_to_bytes
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL

STEP_ROWS = (1, 2, 3, 4, 6, 8)
_STEPS = 2  # that feed a tree's rows
_PROMPT = (0, 1)


def step_curve(engine: DrafterEngine, feature_size: int) -> CostCurve:
    """A step with all that belongs to it: the pass, the head, the proposals. Leaves no trace.

    feature_size: of a row of the target that the model reads; 0: it reads none.
    """
    names = count()
    hidden = rows_to_bytes(np.zeros((len(_PROMPT) - 1, feature_size), np.float32))

    def draft_ns(rows: int, depth: int) -> int:
        """Of a tree that takes `depth` steps, of which the first reads the prompt."""
        update = SessionUpdate(f"measure-{next(names)}", 1, 0, History().hash, append=_PROMPT)
        policy = DraftPolicy(rows * depth, depth, rows, (DRAFT_SOURCE_MODEL,))
        item = DraftItem(update, policy, Sampling(0), NoiseKey(0), hidden)
        start_ns = time.perf_counter_ns()
        engine.run([item], lambda: False)
        taken_ns = time.perf_counter_ns() - start_ns
        engine.release([update.session])
        return taken_ns

    short, long = (measured_curve(STEP_ROWS, partial(draft_ns, depth=depth)) for depth in (1, 1 + _STEPS))
    steps = (max(1, round((long(rows) - short(rows)) / _STEPS)) for rows in STEP_ROWS)
    return CostCurve(tuple(zip(STEP_ROWS, accumulate(steps, max), strict=True)))
