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
        case Role.PRE_VERIFIER:
            return _check_work(items, trace)
        case Role.DRAFTER:
            kv_len = ItemRows(trace.kv_len_by_row)  # rows of several items take turns in a step
            known = (kv_len,) if kv_len.rows else ()
            takes_features = any(item.look_ahead is None for item in items)
            return DraftWork(known, trace.draft_step_rows, trace.head_rows, takes_features)
        case Role.SAMPLER | Role.PRE_SAMPLER:
            return _walk_work(items, trace, role)


def charged_rows(role: Role, item: Any, rows: int) -> int:
    """Of an item's rows, those that work comes of: see `work_of`."""
    return _checked_rows(item) if role is Role.PRE_VERIFIER else rows


def head_rows_of(work: Work) -> int:
    return 0 if isinstance(work, VerifyWork) else work.head_rows


def _check_work(items: Sequence[VerifyItem], trace: WorkTrace) -> Work:
    """The rows that decide about drafted tokens. What those attend to besides, the verifier has computed: the drafter's
    device finds it in the memory that they share, and only its host here computes it again."""
    parts, end = [], 0
    for item in items:
        end += len(item.update.append) + len(item.tree)
        parts.append(ItemRows(trace.kv_len_by_row[end - _checked_rows(item) : end]))
    if not (rows := sum(part.rows for part in parts)):
        return DraftWork((), (), 0)  # a task of the device that takes nothing
    checked = tuple(part for part in parts if part.rows)
    return VerifyWork(checked, (rows,) * len(trace.rows_by_layer), role=Role.PRE_VERIFIER)


def _checked_rows(item: VerifyItem) -> int:
    """The last token's and those of the drafted ones behind it."""
    return 1 + len(item.tree) if item.tree else 0


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


def _walk_work(items: Sequence[WalkItem], trace: WorkTrace, role: Role) -> WalkWork:
    rows = sum(1 + len(item.tree) for item in items)
    return WalkWork(rows, trace.head_rows, lazy=not any(item.eager for item in items), role=role)
