"""What `hetspec bench ahasd` compares: baselines in turn, the asynchronous pipeline part by part, and what decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetspec.hardware.profile import Described, ProfileError, load_profile
from laboratory.errors import StudyError
from laboratory.policy import Policy
from orchestrator.policies.drafting_algorithm import ADAPTIVE_TOKENS, Drafting
from orchestrator.policies.mode import Mode, Objective, Part

PLAIN = "plain on the NPU"
DRAM_CHAIN = "NPU + LPDDR5 in turn, 5"
PIM_PLAIN = "plain on the PIM"
CHAINS = (
    "NPU + LPDDR5 in turn", "NPU + PIM in turn", "operators wait", "operators wait without AAU", "operators split",
    "GPU in turn",
)  # fmt: skip
ASYNC_NO_AAU, ASYNC, WITH_EDC, WITH_TVC, WITH_OUTCOMES = (
    "async without AAU", "async", "+ EDC", "+ TVC", "+ 4 outcomes",
)  # fmt: skip
EDC_SHARED, EDC_SHARED_ALONE, TVC_FITTED = "ahasd, EDC shared", "ahasd without tvc, EDC shared", "ahasd, TVC fitted"
_LENGTH = 5
_LENGTHS = (2, 3, 5, 8)
_ALL_AHEAD = {Part.EDC, Part.TVC, Part.BATCH_LENGTH}


@dataclass(frozen=True, slots=True)
class Changed:
    """Hardware with other values at these paths."""

    changes: tuple[tuple[str, object], ...]

    def __call__(self, hardware: Described) -> Described:
        try:
            return hardware.with_(dict(self.changes))
        except ProfileError as error:
            raise StudyError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Other:
    """Other hardware altogether."""

    name: str

    def __call__(self, hardware: Described) -> Described:
        profile = load_profile(self.name)
        assert isinstance(profile, Described)
        return profile


_DRAM, _GPU = Other("npu-lpddr5"), Other("rtx5090-laptop")
_ROOM = Changed((("memories.pim-ranks.capacity", "76 GiB"),))  # for the target, too
_NO_AAU = Changed((("devices.pim.nonlinear.by", "in_turn"),))
_ON_PIM = Changed(
    (("memories.pim-ranks.capacity", "76 GiB"), ("placement.verifier", "pim"), ("placement.sampler", "pim"))
)
_WAITING = Changed((("schedule", "operators_wait"),))
_NO_CUT = Changed((("devices.pim.preemptible", False), ("memories.pim-ranks.capacity", "76 GiB")))
_APART = Changed((("contention", False), ("memories.pim-ranks.capacity", "76 GiB")))


def _chain(name: str, length: int, hardware: Other | Changed | None = None) -> Policy:
    policy = Policy(name, Mode.CHAIN, length, length)
    return policy if hardware is None else replace(policy, hardware=hardware)


def _chains(name: str, hardware: Other | Changed | None = None) -> list[Policy]:
    return [_chain(f"{name}, {length}", length, hardware) for length in _LENGTHS]


def _plain(name: str, hardware: Other | Changed | None = None) -> Policy:
    policy = Policy(name, Mode.PLAIN)
    return policy if hardware is None else replace(policy, hardware=hardware)


def baselines() -> list[Policy]:
    return [
        _plain(PLAIN),
        *_chains(CHAINS[0], _DRAM),
        *_chains(CHAINS[1]),
        *_chains(CHAINS[2], _WAITING),
        *_chains(CHAINS[3], Changed((*_WAITING.changes, *_NO_AAU.changes))),
        *_chains(CHAINS[4], Changed((("schedule", "operators_split"),))),
        _plain("plain on the GPU", _GPU),
        *_chains(CHAINS[5], _GPU),
        _plain(PIM_PLAIN, _ON_PIM),
    ]


def ahasd(name: str, without: frozenset[Part] = frozenset(), outcomes: int = 1, **fields: object) -> Policy:
    """With chains of 5 at most; the drafter's ranks have room for the target, so that it can check."""
    policy = Policy(name, Mode.AHASD, _LENGTH, _LENGTH, without, outcomes=outcomes, hardware=_ROOM)
    return replace(policy, **fields)  # type: ignore[arg-type]


def ladder() -> list[Policy]:
    """Part after part, at a fixed length."""
    fixed = Part.BATCH_LENGTH
    return [
        ahasd(ASYNC_NO_AAU, frozenset(_ALL_AHEAD), hardware=_NO_AAU),
        ahasd(ASYNC, frozenset(_ALL_AHEAD)),
        ahasd(WITH_EDC, frozenset({Part.TVC, fixed})),
        ahasd(WITH_TVC, frozenset({fixed})),
        ahasd(WITH_OUTCOMES, frozenset({fixed}), 4),
    ]


def left_out() -> list[Policy]:
    parts = (Part.LOOK_AHEAD, Part.EDC, Part.TVC, Part.BATCH_LENGTH)
    return [
        ahasd("ahasd"),
        *(ahasd(f"ahasd without {part.value.replace('_', ' ')}", frozenset({part})) for part in parts),
        ahasd("ahasd without AAU", hardware=Changed((*_NO_AAU.changes, *_ROOM.changes))),
        ahasd("ahasd, not preemptible", hardware=_NO_CUT),
        ahasd("ahasd without contention", hardware=_APART),
        ahasd("ahasd, no room for checks", hardware=Changed(())),
    ]


def learning() -> list[Policy]:
    """Where drafting control learns, and what check control foretells times by."""
    return [
        ahasd(EDC_SHARED, shares_edc=True),
        ahasd(EDC_SHARED_ALONE, frozenset({Part.TVC}), shares_edc=True),
        ahasd(TVC_FITTED, fits_tvc=True),
    ]


def thrifty() -> list[Policy]:
    """Chains and trees for little energy instead of little time."""
    svip = ahasd("", max_nodes=ADAPTIVE_TOKENS, max_depth=ADAPTIVE_TOKENS, drafting=Drafting.SVIP)
    return [
        replace(policy, name=f"{name}, for energy", objective=Objective.ENERGY)
        for name, policy in (("ahasd", ahasd("")), ("ahasd, svip", svip))
    ]


def algorithms() -> list[Policy]:
    """Each with all of ahasd, and in turn on the same hardware."""
    names = [name for name in Drafting if name is not Drafting.FIXED]
    return [
        policy
        for name in names
        for policy in (
            ahasd(f"ahasd, {name}", max_nodes=ADAPTIVE_TOKENS, max_depth=ADAPTIVE_TOKENS, drafting=name),
            Policy(f"in turn, {name}", Mode.CHAIN, ADAPTIVE_TOKENS, ADAPTIVE_TOKENS, drafting=name),
        )
    ]


def trees() -> list[Policy]:
    full = Policy("full", Mode.FULL, 63, 16, hardware=_ROOM)
    unchecked = replace(full, name="full without tvc", disabled=frozenset({Part.TVC}))
    lever = Policy("lever", Mode.LEVER, 63, 16)
    return [
        lever,
        replace(lever, name="lever, for energy", objective=Objective.ENERGY),
        full,
        replace(full, name="full, 4 outcomes", outcomes=4),
        unchecked,
        replace(full, name="full, for energy", objective=Objective.ENERGY),
    ]


def _bandwidth(memory: str, device: str, value: str) -> tuple[tuple[str, str], ...]:
    return ((f"memories.{memory}.bandwidth", value), (f"devices.{device}.bandwidth", value))


_DECIDING = (
    ("PIM at half the bandwidth", _bandwidth("pim-ranks", "pim", "128 GB/s")),
    ("PIM at twice the bandwidth", _bandwidth("pim-ranks", "pim", "512 GB/s")),
    ("NPU at twice the bandwidth", _bandwidth("lpddr5", "npu", "102.4 GB/s")),
    ("hand-overs of 100 us", (("handover.latency", "100 us"),)),
)


def sensitivity() -> list[Policy]:
    """AHASD and a chain in turn where one of the numbers that decide is another."""
    return [
        policy
        for name, changes in _DECIDING
        for policy in (
            ahasd(f"ahasd, {name}", hardware=Changed((*_ROOM.changes, *changes))),
            _chain(f"in turn, {name}", _LENGTH, Changed(changes)),
        )
    ]


def all_policies() -> list[Policy]:
    return [*baselines(), *ladder(), *left_out(), *learning(), *thrifty(), *algorithms(), *trees(), *sensitivity()]


def best_of(names: Sequence[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(f"{prefix}, ")]
