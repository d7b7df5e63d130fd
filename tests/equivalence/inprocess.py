"""Models as the units compute them, without the services around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.head import Head
from hetspec.model.pack import open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.model.transformer import Span, Transformer


@dataclass(frozen=True)
class Model:
    """A target as verifier and sampler have it together."""

    transformer: Transformer
    head: Head

    def logits(self, ids: Sequence[int], chunk_tokens: int = 256) -> NDArray[np.float32]:
        """After each of these tokens: float32 [len(ids), vocab_size]."""
        cache = self.transformer.new_cache()
        chunks = [ids[i : i + chunk_tokens] for i in range(0, len(ids), chunk_tokens)]
        rows = [self.transformer.run([Span(cache, chunk)])[0] for chunk in chunks]
        cache.release()
        return self.head.logits(np.concatenate(rows))


@contextmanager
def open_model(checkpoint: Path, precision: str, cache_dir: Path, max_context: int = 4096) -> Iterator[Model]:
    reader = open_pack(write_pack(open_checkpoint(checkpoint), precision, cache_dir))
    transformer = Transformer(reader, threads=1, max_rows=512, max_context=max_context, kv_capacity_tokens=max_context)
    try:
        yield Model(transformer, Head(reader, threads=1))
    finally:
        transformer.close()
