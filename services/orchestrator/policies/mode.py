"""How a request is decoded. No mode changes a token."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    PLAIN = "plain"
    CHAIN = "chain"
    TREE = "tree"
    LEVER = "lever"


class Part(StrEnum):
    """What a mode is made of, and may be switched off alone."""

    EARLY_EXIT = "early_exit"  # branches that will not be accepted leave the target's pass
    COST_TREE = "cost_tree"  # the tree is as large as pays; without it, it is as in mode tree
    LAZY_HEAD = "lazy_head"  # rows go through the target's head along the accepted path alone
    NO_DRAFT = "no_draft"  # where the draft model does not pay, it rests
    CALIBRATION = "calibration"  # the draft's probabilities are learned to be what they say


def parts_of(mode: Mode) -> frozenset[Part]:
    return frozenset(Part) if mode is Mode.LEVER else frozenset()


class Objective(StrEnum):
    """What a token should take little of."""

    LATENCY = "latency"
    ENERGY = "energy"
