"""How much to draft in a round."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.drafting.costs import LAST_STRETCH, DraftCosts
from hetspec.rpc.messages import DraftPolicy
from hetspec.v1 import drafter_pb2
from orchestrator.policies.mode import Mode

MAX_WIDTH = 8
STATIC_NODES, STATIC_DEPTH = 32, 5  # of a tree that nothing but its bounds sizes, where a request names none
STEP_ROWS = max(MAX_WIDTH, LAST_STRETCH)  # of the draft model, at most


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """What bounds a draft.

    max_nodes, max_depth, min_gain: what the request wants.

    left: tokens that may still be emitted. The round's last one is the bonus: nodes deeper than left - 1 are useless.
    """

    max_nodes: int
    max_depth: int
    min_gain: float
    left: int
    context: int  # positions free behind the session's tokens
    rows: int  # of a target pass, for nodes
    drafter: drafter_pb2.DrafterDescription
    drafter_context: int


def draft_policy(mode: Mode, room: DraftRoom, costs: DraftCosts | None = None) -> DraftPolicy | None:
    """None: this round goes without a draft. costs: of mode lever; its tree is a static one where none are known."""
    if mode is Mode.PLAIN:
        return None
    drafter = room.drafter
    depth = min(room.max_depth, room.left - 1, room.context, room.drafter_context, drafter.max_depth)
    nodes = min(room.max_nodes, room.context, room.drafter_context, room.rows, drafter.max_nodes)
    if depth < 1 or nodes < 1:
        return None
    sources = tuple(int(source) for source in drafter.sources)
    if mode in (Mode.LEVER, Mode.FULL) and costs is not None:
        nodes = min(nodes, costs.verify.max_rows - 1)
        return DraftPolicy(nodes, depth, min(MAX_WIDTH, nodes), sources, room.min_gain, costs) if nodes else None
    if mode in (Mode.LEVER, Mode.FULL):
        nodes, depth = min(nodes, STATIC_NODES), min(depth, STATIC_DEPTH)
    if mode in (Mode.CHAIN, Mode.AHASD):
        length = min(depth, nodes)
        return DraftPolicy(length, length, width=1, sources=sources, min_gain=room.min_gain)
    width = max(1, min(MAX_WIDTH, nodes // 4))
    return DraftPolicy(nodes, depth, width, sources, room.min_gain)
