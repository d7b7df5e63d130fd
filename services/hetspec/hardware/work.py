"""What is priced: a pass as the orchestrator knows it, made of its unit's work trace and of what it asked for."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.hardware.platform import Role

ROWS_TOGETHER = 4  # rows of a walk that this project's sampler takes through the head in one pass over its weights


@dataclass(frozen=True, slots=True)
class ItemRows:
    """One session's part of a pass. kv_len: positions each of its rows attends to, itself included."""

    kv_len: tuple[int, ...]

    @property
    def rows(self) -> int:
        return len(self.kv_len)


@dataclass(frozen=True, slots=True)
class VerifyWork:
    """A pass of the target. rows_by_layer: rows that entered each layer of the model that ran, fewer where branches
    left early; of the first layers alone where the pass was cut. rebuilt: whether the pass only brings back what a unit
    has lost. role: the verifier, or the pre-verifier, which is the drafter."""

    items: tuple[ItemRows, ...]
    rows_by_layer: tuple[int, ...]
    rebuilt: bool = False
    role: Role = Role.VERIFIER


@dataclass(frozen=True, slots=True)
class DraftWork:
    """A pass of the draft model: its steps one after another. step_rows: fed in each, the first of which reads what was
    committed; none where lookup alone drafted. head_rows: of all steps. takes_features: whether the target's rows are
    handed over for it, where the draft model reads them."""

    items: tuple[ItemRows, ...]
    step_rows: tuple[int, ...]
    head_rows: int
    takes_features: bool = True


@dataclass(frozen=True, slots=True)
class WalkWork:
    """Rows that went through the target's LM head: along the accepted paths (lazy), or all at once.

    rows: hidden rows that were handed over, of all items. head_rows: projected and of use. role: the sampler, or the
    pre-sampler, which is the drafter and has the rows itself.
    """

    rows: int
    head_rows: int
    lazy: bool = True
    role: Role = Role.SAMPLER


Work = VerifyWork | DraftWork | WalkWork
