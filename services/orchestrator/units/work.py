"""What a pass did, for the emulated world to price: from what was asked and what the unit says it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetspec.hardware.platform import Role
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work
from hetspec.rpc.messages import VerifyItem, WalkItem, WorkTrace


def work_of(role: Role, items: Sequence[Any], trace: WorkTrace) -> Work:
    """items: those that were not refused, in order."""
    match role:
        case Role.VERIFIER:
            return _verify_work(items, trace)
        case Role.DRAFTER:
            kv_len = ItemRows(trace.kv_len_by_row)  # rows of several items take turns in a step
            return DraftWork((kv_len,) if kv_len.rows else (), trace.draft_step_rows, trace.head_rows)
        case Role.SAMPLER:
            return _walk_work(items, trace)


def _verify_work(items: Sequence[VerifyItem], trace: WorkTrace) -> VerifyWork:
    parts, first = [], 0
    for item in items:
        rows = len(item.update.append) + len(item.tree)
        parts.append(ItemRows(trace.kv_len_by_row[first : first + rows]))
        first += rows
    return VerifyWork(tuple(parts), trace.rows_by_layer, all(_is_rebuilding(item) for item in items))


def _is_rebuilding(item: VerifyItem) -> bool:
    """Reads again what a verifier that was lost had read."""
    return item.update.epoch > 1 and not item.tree and len(item.update.append) > 1


def _walk_work(items: Sequence[WalkItem], trace: WorkTrace) -> WalkWork:
    rows = sum(1 + len(item.tree) for item in items)
    return WalkWork(rows, trace.head_rows, lazy=not any(item.eager for item in items))
