"""How a request is decoded. No mode changes a token."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    PLAIN = "plain"
    CHAIN = "chain"
    TREE = "tree"
    LEVER = "lever"
    AHASD = "ahasd"
    FULL = "full"


class Part(StrEnum):
    """What a mode is made of, and may be switched off alone."""

    EARLY_EXIT = "early_exit"  # branches that will not be accepted leave the target's pass
    COST_TREE = "cost_tree"  # the tree is as large as pays; without it, it is as in mode tree
    LAZY_HEAD = "lazy_head"  # rows go through the target's head along the accepted path alone
    NO_DRAFT = "no_draft"  # where the draft model does not pay, it rests
    CALIBRATION = "calibration"  # the draft's probabilities are learned to be what they say
    LOOK_AHEAD = "look_ahead"  # the drafter runs on while its drafts are verified
    EDC = "edc"  # entropy and history say whether it runs on
    BATCH_LENGTH = "batch_length"  # survival says how long a chain is, and whether anything is drafted ahead of a check
    TVC = "tvc"  # where they say no, it checks its drafts itself, if there is time


_LEVER = {Part.EARLY_EXIT, Part.COST_TREE, Part.LAZY_HEAD, Part.NO_DRAFT, Part.CALIBRATION}
_AHASD = {Part.LOOK_AHEAD, Part.EDC, Part.TVC, Part.BATCH_LENGTH}
_PARTS = {Mode.LEVER: _LEVER, Mode.AHASD: _AHASD, Mode.FULL: _LEVER | _AHASD}


def parts_of(mode: Mode) -> frozenset[Part]:
    return frozenset(_PARTS.get(mode, ()))


def grows_chains(mode: Mode) -> bool:
    """Whether it drafts chains, whose length a drafting algorithm may choose."""
    return mode in (Mode.CHAIN, Mode.AHASD)


class Objective(StrEnum):
    """What a token should take little of."""

    LATENCY = "latency"
    ENERGY = "energy"
