"""A target and its draft model, loaded for speculation in this process."""

from __future__ import annotations

from hetspec.model.head import Head
from hetspec.model.transformer import Transformer
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.speculation.speculator import Speculator
from hetspec.training.target import Target

_PASS_ROWS = 256
_SLACK = 64  # a page that a tree begins


def open_speculator(target: Target, draft: OpenDraft, *, threads: int, max_context: int, max_nodes: int) -> Speculator:
    """max_context: tokens of a prompt with its answer. max_nodes: of a tree."""
    rows = max(_PASS_ROWS, max_nodes + 1)
    kv_tokens = max_context + 2 * max_nodes + _SLACK
    parts = DraftParts(draft, threads=threads, max_rows=rows, max_context=max_context, kv_tokens=kv_tokens)
    return Speculator(
        Transformer(target.pack, threads=threads, max_rows=rows, max_context=max_context, kv_capacity_tokens=kv_tokens),
        Head(target.pack, threads=threads),
        missing=target.text.vocabulary.missing(target.checkpoint.config.vocab_size),
        end_ids=frozenset(target.text.spec.end_ids),
        draft=parts.model(draft.barred),
    )
