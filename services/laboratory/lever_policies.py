"""What `hetspec bench lever` compares: plain decoding, conventional speculation, lever, and lever less each part."""

from __future__ import annotations

from dataclasses import replace

from hetspec.hardware.profile import Described
from laboratory.policy import Change, Policy, unchanged
from orchestrator.policies.drafting import STATIC_DEPTH, STATIC_NODES
from orchestrator.policies.mode import Mode, Part

PLAIN = "plain"
SERIAL = "plain, reads in turn"
CHAIN = "chain of 5"
SERVER = "server tree"
LEVER = "lever"
SMALL_LEVER = "lever of 63 nodes"
_NODES, _DEPTH = 255, 16  # of lever, at most: a graph of 256 rows; what the API allows
_LENGTHS = (2, 3, 5, 8)
_TREES = ((15, 4), (31, 6), (63, 6), (63, 10))
"""Nodes, which with the last token fill a graph of 16, 32 and 64 rows, and depth."""


def chains() -> list[Policy]:
    return [Policy(f"chain of {length}", Mode.CHAIN, length, length) for length in _LENGTHS]


def trees() -> list[Policy]:
    """Static ones, of 64 nodes at most."""
    return [Policy(f"tree of {nodes}, {depth} deep", Mode.TREE, nodes, depth) for nodes, depth in _TREES]


def server_tree() -> Policy:
    """128 nodes, 10 deep: what Sequoia (arXiv 2402.12374, table 1) takes for a 7B target on an A100."""
    return Policy(SERVER, Mode.TREE, 128, 10)


def lever(name: str = LEVER, without: frozenset[Part] = frozenset(), hardware: Change = unchanged) -> Policy:
    """As large as pays; without its tree, as a request is served then."""
    nodes, depth = (_NODES, _DEPTH) if Part.COST_TREE not in without else (STATIC_NODES, STATIC_DEPTH)
    return Policy(name, Mode.LEVER, nodes, depth, without, hardware=hardware)


def small_lever() -> Policy:
    """Of no more nodes than the static trees."""
    return Policy(SMALL_LEVER, Mode.LEVER, _TREES[-1][0], _DEPTH)


def parts_left_out() -> list[Policy]:
    """Of lever: the draft grown as in mode tree, chances taken at the draft's word, no rest for a draft that does not
    pay, all rows through the head, one graph shape alone, and no read ahead between passes."""
    parts = (Part.COST_TREE, Part.CALIBRATION, Part.NO_DRAFT, Part.LAZY_HEAD)
    return [
        *(lever(without_name(part.value.replace("_", " ")), frozenset({part})) for part in parts),
        lever(without_name("buckets"), hardware=one_bucket),
        replace(lever(without_name("read-ahead"), hardware=no_read_ahead), is_seen=False),
    ]


def without_name(part: str) -> str:
    return f"{LEVER} without {part}"


def one_bucket(hardware: Described) -> Described:
    """The verifier's device has one graph, for the largest tree that may be asked of it."""
    name = hardware.placement.verifier
    device = hardware.devices[name]
    if device.buckets is None:
        return hardware
    changed = device.model_copy(update={"buckets": device.buckets.model_copy(update={"rows": [_NODES + 1]})})
    return hardware.model_copy(update={"devices": {**hardware.devices, name: changed}})


def no_read_ahead(hardware: Described) -> Described:
    if hardware.flash is None:
        return hardware
    return hardware.model_copy(update={"flash": hardware.flash.model_copy(update={"reads_ahead": False})})


def serial_reads(hardware: Described) -> Described:
    """Each layer is read, then computed, as simple systems do."""
    if hardware.flash is None:
        return hardware
    flash = hardware.flash.model_copy(update={"reads": "serial", "reads_ahead": False})
    return hardware.model_copy(update={"flash": flash})


def all_policies() -> list[Policy]:
    plain = [Policy(PLAIN, Mode.PLAIN), Policy(SERIAL, Mode.PLAIN, hardware=serial_reads)]
    return [*plain, *chains(), *trees(), server_tree(), lever(), small_lever(), *parts_left_out()]
