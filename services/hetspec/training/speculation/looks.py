"""Looks that keep what they see of a pass."""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.model.transformer import Look, Rows


def keeping(found: dict[int, Rows], layers: Sequence[int]) -> dict[int, Look]:
    """For `Transformer.run`: the rows after each of these layers come to be in `found`, by their number."""
    return {layer: _keep_in(found, layer) for layer in layers}


def _keep_in(found: dict[int, Rows], layer: int) -> Look:
    def look(rows: Rows) -> None:
        found[layer] = rows.copy()

    return look
