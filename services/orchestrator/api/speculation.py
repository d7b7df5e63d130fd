"""How a request is to be decoded: what it says, and what holds where it says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.api.errors import invalid
from orchestrator.api.schemas import MAX_DEPTH, MAX_NODES, HetspecOptions
from orchestrator.policies.drafting import STATIC_DEPTH, STATIC_NODES
from orchestrator.policies.drafting_algorithm import ADAPTIVE_TOKENS, Drafting
from orchestrator.policies.mode import Mode, Objective, Part, grows_chains, parts_of


@dataclass(frozen=True, slots=True)
class Speculation:
    """As `GenerationRequest` has it."""

    mode: Mode
    disabled: frozenset[Part]
    objective: Objective
    max_nodes: int
    max_depth: int
    min_gain: float
    drafting: Drafting
    outcomes: int
    shares_edc: bool
    fits_tvc: bool


def speculation_of(options: HetspecOptions, mode: Mode, min_gain: float) -> Speculation:
    """mode, min_gain: the server's. A tree that its costs size is bounded by what the request says, and else by nothing
    but the API. Raises ApiError."""
    mode = Mode(options.mode) if options.mode else mode
    parts = parts_of(mode)
    disabled = frozenset(Part(name) for name in options.disable or ())
    for part in sorted(disabled - parts):
        raise invalid("hetspec.disable", f"hetspec.disable: mode {mode} has no {part} that could be disabled")
    sized = Part.COST_TREE in parts - disabled
    if options.objective is not None and not (sized or {Part.LOOK_AHEAD, Part.BATCH_LENGTH} <= parts - disabled):
        reason = "is for cost_tree, or look_ahead with batch_length, which"
        raise invalid("hetspec.objective", f"hetspec.objective: {reason} mode {mode} is without")
    drafting = _drafting(options, mode)
    for name, part in (("outcomes", Part.LOOK_AHEAD), ("edc", Part.EDC), ("tvc", Part.TVC)):
        if getattr(options, name) is not None and part not in parts - disabled:
            raise invalid(f"hetspec.{name}", f"hetspec.{name}: is for {part}, which mode {mode} is without")
    nodes, depth, gain = (MAX_NODES, MAX_DEPTH, 0.0) if sized else (STATIC_NODES, STATIC_DEPTH, min_gain)
    if drafting is not Drafting.FIXED:
        depth = ADAPTIVE_TOKENS
    return Speculation(
        mode,
        disabled,
        Objective(options.objective) if options.objective else Objective.LATENCY,
        options.max_nodes or nodes,
        options.max_depth or depth,
        gain if options.min_gain is None else options.min_gain,
        drafting,
        options.outcomes or 1,
        options.edc == "shared",
        options.tvc == "fitted",
    )


def _drafting(options: HetspecOptions, mode: Mode) -> Drafting:
    if options.drafting is None:
        return Drafting.FIXED
    if not grows_chains(mode):
        raise invalid("hetspec.drafting", f"hetspec.drafting: is for modes chain and ahasd; this is mode {mode}")
    return Drafting(options.drafting)
