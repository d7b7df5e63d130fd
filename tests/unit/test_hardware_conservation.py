"""Whatever is priced: time and energy are those of a straightforward reckoning, and nothing is lost in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Component, Cost, split
from hetspec.hardware.cost_as import CostAs, RealShapes, parse_cost_as
from hetspec.hardware.flash import ReadAhead
from hetspec.hardware.platform import Role
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import Described, load_profile
from hetspec.hardware.shapes import SHAPES
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work

REAL = RealShapes(SHAPES["llama3.2-1b"], SHAPES["qwen2.5-0.5b"], SHAPES["qwen2.5-0.5b"].vocab)
DEPTH = REAL.target.n_layers
PROFILES = ("npu-lpddr5", "npu-lpddr5-pim", "oneplus12", "phone-flash-pim", "rtx5090-laptop")
MODELS = ("opt-6.7b:int8+opt-1.3b:int8", "llama2-7b:int4+llama3.2-1b:int4", "palm-8b:int8+qwen2.5-0.5b:int8")


def _load(name: str) -> Described:
    profile = load_profile(name)
    assert isinstance(profile, Described)
    return profile


World = tuple[Described, CostAs, Pricing]


def _world(profile: Described, models: str) -> World:
    cost_as = parse_cost_as(models)
    return profile, cost_as, Pricing(profile, cost_as.target, cost_as.draft, REAL)


WORLDS = [_world(_load(name), models) for name in PROFILES for models in MODELS]
CHANGES: list[dict[str, object]] = [
    {"devices.pim.nonlinear.by": "in_turn"},
    {"schedule": "operators_wait", "devices.pim.nonlinear.by": "vector_unit"},
    {"schedule": "operators_split"},
]
VARIANTS = [_world(_load("npu-lpddr5-pim").with_(change), models) for change in CHANGES for models in MODELS]


@st.composite
def items(draw: st.DrawFn, max_rows: int = 40) -> tuple[ItemRows, ...]:
    lengths = st.lists(st.integers(1, 4000), min_size=1, max_size=max_rows)
    return tuple(ItemRows(tuple(draw(lengths))) for _ in range(draw(st.integers(1, 4))))


@st.composite
def verifying(draw: st.DrawFn) -> VerifyWork:
    sessions = draw(items())
    rows, layers = sum(item.rows for item in sessions), draw(st.integers(1, DEPTH))
    left = sorted(draw(st.lists(st.integers(1, rows), min_size=layers - 1, max_size=layers - 1)), reverse=True)
    return VerifyWork(sessions, (rows, *left), draw(st.booleans()))


@st.composite
def drafting(draw: st.DrawFn) -> DraftWork:
    steps = tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=6)))
    return DraftWork(draw(items()), steps, draw(st.integers(0, sum(steps))))


walks = st.builds(WalkWork, st.integers(0, 300), st.integers(0, 70), st.booleans())
anything = st.one_of(verifying(), drafting(), walks)
worlds = st.sampled_from(WORLDS)
any_worlds = st.sampled_from(WORLDS + VARIANTS)
besides = st.builds(
    Beside,
    st.dictionaries(st.sampled_from(["lpddr5", "dram", "pim-ranks"]), st.fractions(0, 1)),
    st.dictionaries(st.just("npu"), st.integers(0, 10**6)),
)


def padded(rows: int, buckets: list[int]) -> list[int]:
    """By trial: the largest bucket while it is filled, then the least that holds the rest."""
    runs = []
    while rows > buckets[-1]:
        runs.append(buckets[-1])
        rows -= buckets[-1]
    return [*runs, min(bucket for bucket in buckets if bucket >= rows)]


@settings(max_examples=150)
@given(worlds, verifying(), st.integers(0, 10**9))
def test_a_pass_takes_and_draws_what_its_layers_reckoned_one_by_one_do(
    world: World, work: VerifyWork, idle: int
) -> None:
    profile, models, pricing = world
    cost, target = pricing.price(work, ReadAhead(idle)), models.target
    npu = profile.devices[profile.placement.verifier]
    memory = profile.memories[npu.memory]
    arithmetic = npu.arithmetic[npu.operand_of(target.datatype) or npu.arithmetic.popitem()[0]]
    attention = npu.arithmetic[npu.attention or npu.arithmetic.popitem()[0]]
    rows, positions = sum(item.rows for item in work.items), sum(sum(item.kv_len) for item in work.items)
    held = sum(max(item.kv_len) for item in work.items)
    clock = flash_free = reads = Fraction(0)
    begun: list[Fraction] = []
    energy: Counter[str] = Counter()
    before: list[int] | None = None
    for layer in range(target.n_layers):
        real = layer * DEPTH // target.n_layers
        if real >= len(work.rows_by_layer):
            break
        here = work.rows_by_layer[real]
        runs = padded(here, npu.buckets.rows) if npu.buckets else [here]
        ops = 2 * target.shape.layer_weights * sum(runs)
        attending = 4 * target.shape.heads * target.shape.head_dim * (positions * sum(runs) // rows)
        moved = len(runs) * target.layer_bytes + (held + sum(runs)) * target.kv_row_bytes
        compute = Fraction(ops, arithmetic.rate.base) + Fraction(attending, attention.rate.base)
        busy = max(compute, Fraction(moved, npu.bandwidth.base)) * 10**9
        if profile.flash or runs != before:
            busy += len(runs) * npu.launch.base
        before = runs
        if profile.flash:
            flash_rate = min(4_200_000_000, 32 * 2**19 * 10**4)
            read = Fraction(target.layer_bytes * 10**9, flash_rate) + (0 if begun else profile.flash.latency.base)
            reads += read
            ahead = min(Fraction(idle), read) if not begun else Fraction(0)
            flash_free = max(flash_free, begun[-1] if begun else Fraction(0)) + read - ahead
            clock = max(clock, flash_free)
            begun.append(clock)
            energy["flash"] += target.layer_bytes * profile.flash.energy.base
            energy[npu.memory] += target.layer_bytes * memory.energy.base
        clock += busy
        energy[profile.placement.verifier] += ops * arithmetic.energy.base + attending * attention.energy.base
        energy[npu.memory] += moved * memory.energy.base
    rounding_ns = 5 * target.n_layers
    assert abs(cost.duration_ns - clock) <= rounding_ns
    assert abs(cost.flash_busy_ns - reads) <= rounding_ns
    assert 0 <= cost.flash_ready_ns <= cost.duration_ns
    drawn: Counter[str] = Counter()
    for use in cost.uses:
        drawn[use.device] += use.energy_pj
    assert drawn.keys() == energy.keys()
    assert all(abs(drawn[device] - Fraction(energy[device], 10**6)) <= 2 for device in drawn)


@settings(max_examples=150)
@given(any_worlds, anything, st.integers(0, 10**9), besides)
def test_the_numbers_behind_a_cost_explain_all_of_it(world: World, work: Work, idle: int, beside: Beside) -> None:
    """No component has time without a number behind it, and none would have taken less than what it held up. The
    energy of a device is that of the numbers of it."""
    profile, _, pricing = world
    cost = pricing.price(work, ReadAhead(idle), beside)
    assert all(duration > 0 for duration in cost.time_ns.values())
    alone: Counter[Component] = Counter()
    for number in cost.numbers:
        alone[number.component] += number.alone_ns
        assert number.device in pricing.static_uw()
    assert all(duration <= alone[component] for component, duration in cost.time_ns.items())
    assert {use.device for use in cost.uses} <= {number.device for number in cost.numbers}
    moved: Counter[str] = Counter()
    for number in cost.numbers:
        if number.device in profile.memories and number.unit == "B":
            moved[number.device] += number.amount
    assert cost.channel_bytes == dict(moved)


@settings(max_examples=150)
@given(any_worlds, anything, st.integers(0, 10**9), besides, st.integers(0, 10**10))
def test_what_is_cut_off_and_what_was_done_are_the_whole(
    world: World, work: Work, idle: int, beside: Beside, at: int
) -> None:
    """By component, number and channel; energy to a picojoule for each device and component. A cut waits for the end of
    a part, and for no later one."""
    cost = world[2].price(work, ReadAhead(idle), beside)
    ends = cost.parts_ns
    assert ends[-1] == cost.duration_ns
    assert list(ends) == sorted(ends)
    done = cost.cut(at)
    assert done.duration_ns == next((end for end in ends if end >= at), ends[-1])
    assert done.parts_ns == ends[: len(done.parts_ns)]
    flat = [part for part, count in cost.parts for _ in range(count)]
    rest = Cost.of(cost.device, [(part, 1) for part in flat[len(done.parts_ns) :]], is_rebuild=cost.is_rebuild)
    if cost.parts:
        assert _sum(done.time_ns, rest.time_ns) == cost.time_ns
        assert _sum(done.channel_bytes, rest.channel_bytes) == cost.channel_bytes
        assert done.flash_busy_ns + rest.flash_busy_ns == cost.flash_busy_ns
        assert _sum(_amounts(done), _amounts(rest)) == _amounts(cost)
    whole, first, second = (_energies(told) for told in (cost, done, rest))
    assert all(0 <= whole[key] - first[key] - second[key] <= 1 for key in whole)


def _sum(first: Mapping[Any, int], second: Mapping[Any, int]) -> dict[Any, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()}


def _amounts(cost: Cost) -> Counter[tuple[str, str]]:
    return Counter({(number.device, number.what): number.amount for number in cost.numbers})


def _energies(cost: Cost) -> Counter[tuple[str, Component]]:
    return Counter({(use.device, use.component): use.energy_pj for use in cost.uses})


@given(worlds, st.one_of(verifying(), drafting()), st.integers(0, 10**9))
def test_shares_of_sessions_sum_to_the_whole_by_component_and_by_device(
    world: World, work: VerifyWork | DraftWork, idle: int
) -> None:
    cost = world[2].price(work, ReadAhead(idle))
    rows = [item.rows for item in work.items]
    times = [split(duration, rows) for duration in cost.time_ns.values()]
    energies = [split(use.energy_pj, rows) for use in cost.uses]
    assert sum(map(sum, times)) == cost.duration_ns
    assert sum(map(sum, energies)) == cost.energy_pj


@given(worlds, anything)
def test_the_same_work_costs_the_same(world: World, work: Work) -> None:
    profile, models, pricing = world
    assert pricing.price(work) == Pricing(profile, models.target, models.draft, REAL).price(work)


@given(worlds, verifying(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_idle_flash_never_makes_a_pass_longer(world: World, work: VerifyWork, idle: int, more: int) -> None:
    few, many = (world[2].price(work, ReadAhead(ns)) for ns in (idle, idle + more))
    assert few.duration_ns - more <= many.duration_ns <= few.duration_ns
    assert many.flash_busy_ns == few.flash_busy_ns


@given(worlds, st.integers(1, 300), st.integers(1, 300), st.integers(1, 4000))
def test_more_rows_never_cost_less(world: World, rows: int, more: int, kv_len: int) -> None:
    def price(count: int, role: Role) -> Cost:
        sessions = (ItemRows((kv_len,) * count),)
        if role is Role.VERIFIER:
            return world[2].price(VerifyWork(sessions, (count,) * DEPTH))
        return world[2].price(DraftWork(sessions, (count,), count))

    for role in (Role.VERIFIER, Role.DRAFTER):
        few, many = price(rows, role), price(rows + more, role)
        assert few.duration_ns <= many.duration_ns
        assert few.energy_pj <= many.energy_pj
