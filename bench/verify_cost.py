"""What verifying n nodes costs against one token, in the verifier's own pass."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from hetspec.decoding.tree import TokenTree
from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.pack import open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.model.transformer import Span, Transformer
from weight_store.config import embedded_model

NODES = (1, 4, 8, 16, 32, 64)
REPEATS = 15
CONTEXT = 128


def measure(threads: int) -> dict[int, float]:
    """Milliseconds by rows of the pass, medians; sizes take turns."""
    with tempfile.TemporaryDirectory() as folder:
        model = Transformer(
            open_pack(write_pack(open_checkpoint(embedded_model()), "int8", Path(folder))),
            threads=threads,
            max_rows=512,
            max_context=1024,
            kv_capacity_tokens=1024,
        )
        cache = model.new_cache()
        model.run([Span(cache, list(range(100, 100 + CONTEXT)))])
        times: dict[int, list[float]] = {n: [] for n in NODES}
        for _ in range(REPEATS):
            for n in NODES:
                start = time.perf_counter()
                model.run([Span(cache, [7], TokenTree.chain(range(8, 7 + n)))])
                times[n].append((time.perf_counter() - start) * 1e3)
                cache.length = CONTEXT
        model.close()
    return {n: median(values) for n, values in times.items()}


def table(by_threads: dict[int, dict[int, float]]) -> str:
    lines = ["| rows of a pass | " + " | ".join(str(n) for n in NODES) + " |", "|" + "---|" * (len(NODES) + 1)]
    for threads, times in by_threads.items():
        label = f"{threads} thread{'s' if threads > 1 else ''}"
        lines.append(f"| ms, {label} | " + " | ".join(f"{times[n]:.1f}" for n in NODES) + " |")
        lines.append(f"| against one row, {label} | " + " | ".join(f"{times[n] / times[1]:.1f}x" for n in NODES) + " |")
    return "\n".join(lines)
