"""What work costs on described hardware, against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Component, Cost
from hetspec.hardware.cost_as import PricedModel, RealShapes, parse_cost_as
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.flash import ReadAhead
from hetspec.hardware.platform import Role
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import Described, ProfileError, load_profile, parse_profile
from hetspec.hardware.shapes import SHAPES
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work
from tests.toy_hardware import (
    DRAFT,
    REAL,
    REAL_LAYERS,
    TARGET,
    draft_rows,
    toy_data,
    toy_pricing,
    toy_profile,
    verify_rows,
)

NS = 10**9
LAYERS = TARGET.n_layers
WEIGHTS = 4 * 1024 * 1024 + 3 * 1024 * 4096  # of a layer of the toy target
LAYER_BYTES = WEIGHTS * 34 // 32
KV_BYTES = 2 * 2 * 8 * 128  # of a position in a layer
HEAD_BYTES = 32000 * 1024 * 34 // 32


def layer_ns(rows: int, kv_len: int = 100) -> int:
    """Of the toy NPU, memory at 10 GB/s or arithmetic at 2 and 1 TOPS, the longer; `rows` are padded already."""
    memory = (LAYER_BYTES + (kv_len + rows) * KV_BYTES) / 10
    compute = 2 * WEIGHTS * rows / 2000 + 4 * 8 * 128 * kv_len * rows / 1000
    return round(max(memory, compute))


def near(cost: Cost, expected: float, layers: int = LAYERS) -> bool:
    """Each layer's times are rounded up to whole nanoseconds, arithmetic in two parts."""
    return abs(cost.duration_ns - expected) <= 3 * layers


def test_a_resident_pass_is_its_layers_and_one_launch() -> None:
    for rows in (1, 4, 16):
        assert near(toy_pricing().price(verify_rows(rows)), LAYERS * layer_ns(rows) + 10_000)


READ_NS = LAYER_BYTES  # at 1 GB/s, a byte a nanosecond
LATENCY_NS = 50_000


def test_a_plain_pass_from_flash_is_the_hand_computed_pipeline() -> None:
    busy = layer_ns(1) + 10_000  # every streamed layer is a graph of its own
    overlap = toy_pricing(toy_data(flash={})).price(verify_rows(1))
    assert near(overlap, LATENCY_NS + READ_NS + (LAYERS - 1) * max(busy, READ_NS) + busy)
    serial = toy_pricing(toy_data(flash={"reads": "serial", "reads_ahead": False})).price(verify_rows(1))
    assert near(serial, LATENCY_NS + LAYERS * (READ_NS + busy))
    assert overlap.flash_busy_ns == serial.flash_busy_ns == LATENCY_NS + LAYERS * READ_NS


def flash_rate(rate: str) -> list[dict[str, str]]:
    return [{"request": request, "value": rate, "assumption": "."} for request in ("4 KiB", "1 MiB")]


def test_doubled_flash_bandwidth_halves_a_pass_that_flash_binds() -> None:
    """To within the last layer's computing, which no read hides."""
    slow, fast = (
        toy_pricing(toy_data(flash={"latency": "0 ns", "bandwidth": flash_rate(rate)})).price(verify_rows(1))
        for rate in ("1 GB/s", "2 GB/s")
    )
    last = layer_ns(1) + 10_000
    assert abs((slow.duration_ns - last) - 2 * (fast.duration_ns - last)) <= 2 * LAYERS
    assert slow.time_ns[Component.FLASH] > 0.8 * slow.duration_ns


def test_reading_ahead_saves_what_was_idle_but_no_more_than_the_buffer() -> None:
    for room in (1, 3):
        pricing = toy_pricing(toy_data(flash={"buffer_layers": room}))
        alone = pricing.price(verify_rows(1))
        held = LATENCY_NS + room * READ_NS
        for idle in (1, READ_NS // 3, held - 1, held, 10 * held):
            saved = alone.duration_ns - pricing.price(verify_rows(1), ReadAhead(idle)).duration_ns
            assert saved == min(idle, held)


def test_without_reading_ahead_idle_flash_saves_nothing() -> None:
    pricing = toy_pricing(toy_data(flash={"reads_ahead": False}))
    assert pricing.price(verify_rows(1), ReadAhead(10**9)) == pricing.price(verify_rows(1))


def test_layers_within_the_budget_stay_and_cost_no_read() -> None:
    pricing = toy_pricing(toy_data(flash={"budget": f"{5 * LAYER_BYTES + 1} B", "latency": "0 ns"}))
    cost, busy = pricing.price(verify_rows(1)), layer_ns(1)
    resident = 10_000 + 5 * busy  # one graph; the first read is under way meanwhile
    assert near(cost, max(resident, READ_NS) + 6 * READ_NS + busy + 10_000)
    assert cost.flash_busy_ns == 7 * READ_NS


def test_a_budget_that_holds_the_model_makes_flash_as_good_as_none() -> None:
    held, none = toy_pricing(toy_data(flash={"budget": "1 GB"})), toy_pricing(toy_data())
    assert held.price(verify_rows(4)).duration_ns == none.price(verify_rows(4)).duration_ns


def test_padding_is_charged() -> None:
    pricing = toy_pricing()
    assert pricing.price(verify_rows(5)) == pricing.price(verify_rows(16))
    assert pricing.price(verify_rows(4)).energy_pj < pricing.price(verify_rows(5)).energy_pj


def test_more_rows_than_the_largest_bucket_run_several_times_and_read_the_weights_as_often() -> None:
    cost = toy_pricing().price(verify_rows(16 + 16 + 3))
    ops, moved = 2 * WEIGHTS * (16 + 16 + 4), 3 * LAYER_BYTES + (100 + 36) * KV_BYTES
    compute = ops / 2000 + 4 * 8 * 128 * 100 * 36 / 1000
    assert near(cost, LAYERS * max(compute, moved / 10) + 3 * 10_000)


def test_rows_that_leave_early_are_missing_from_the_priced_layers_at_the_same_depth() -> None:
    """6 layers run, 12 are priced: after 2 of 6, 4 of 12. Where the bucket changes another graph begins."""
    work = VerifyWork((ItemRows((100,) * 16),), (16, 16, 4, 4, 4, 1))
    expected = 4 * layer_ns(16) + 6 * layer_ns(4) + 2 * layer_ns(1) + 3 * 10_000
    assert near(toy_pricing().price(work), expected)


def test_a_pass_that_was_cut_costs_the_layers_that_it_ran() -> None:
    assert near(toy_pricing().price(verify_rows(1, layers=2)), 4 * layer_ns(1) + 10_000)


def test_sessions_of_a_pass_share_the_weights_and_read_their_own_keys_and_values() -> None:
    alone = toy_pricing().price(verify_rows(1, kv_len=500))
    both = toy_pricing().price(
        VerifyWork((ItemRows((500,)), ItemRows((300, 301, 302))), (4,) * REAL_LAYERS)
    )  # fmt: skip
    moved = LAYER_BYTES + (500 + 302 + 4) * KV_BYTES
    assert near(both, LAYERS * moved / 10 + 10_000)
    assert near(alone, LAYERS * (LAYER_BYTES + 501 * KV_BYTES) / 10 + 10_000)


def test_a_rebuilding_pass_costs_the_same_and_counts_as_rebuilding() -> None:
    pricing, work = toy_pricing(toy_data(flash={})), verify_rows(4)
    usual, again = pricing.price(work), pricing.price(VerifyWork(work.items, work.rows_by_layer, rebuilt=True))
    assert again.time_ns == {Component.REBUILD: usual.duration_ns}
    assert {use.component for use in again.uses} == {Component.REBUILD}
    assert again.energy_pj == usual.energy_pj


def test_the_dynamic_energy_of_a_pass_is_its_operations_and_bytes() -> None:
    cost = toy_pricing(toy_data(flash={})).price(verify_rows(4))
    found = {(use.device, use.component): use.energy_pj for use in cost.uses}
    assert found == {
        ("npu", Component.COMPUTE): LAYERS * (2 * WEIGHTS * 4 * 1 + 4 * 8 * 128 * 100 * 4 * 2),
        ("dram", Component.MEMORY): LAYERS * (LAYER_BYTES + 104 * KV_BYTES) * 32,
        ("flash", Component.FLASH): LAYERS * LAYER_BYTES * 400,
        ("dram", Component.FLASH): LAYERS * LAYER_BYTES * 32,
    }


def test_a_lazy_walk_hands_over_its_rows_and_projects_one_after_another_on_the_samplers_device() -> None:
    cost = toy_pricing().price(WalkWork(rows=17, head_rows=3))
    assert cost.device == "cpu"
    assert cost.time_ns[Component.TRANSFER] == 2_000 + 2 * 17 * 1024 * 2 * NS // (20 * NS) + 1
    assert cost.time_ns[Component.MEMORY] == 3 * HEAD_BYTES // 5  # 5 GB/s
    assert cost.time_ns[Component.LAUNCH] == 3_000


def test_a_walk_at_once_pads_its_rows_on_the_verifiers_device_and_hands_over_logits() -> None:
    cost = toy_pricing().price(WalkWork(rows=14, head_rows=14, lazy=False))
    assert cost.device == "npu"
    compute = 2 * 32000 * 1024 * 16 // 2000
    assert cost.time_ns[Component.MEMORY] == max(compute, HEAD_BYTES // 10)
    assert cost.time_ns[Component.TRANSFER] == 2_000 + 2 * 14 * 32000 * 2 // 20


def test_on_one_device_nothing_is_handed_over() -> None:
    data = toy_data()
    data["placement"]["sampler"] = "npu"
    assert Component.TRANSFER not in toy_pricing(data).price(WalkWork(9, 1)).time_ns


DRAFT_WEIGHTS = 2 * 512 * 64 * (8 + 4) + 3 * 512 * 2048
DRAFT_HEAD = 32000 * 512


def draft_step_ns(rows: int) -> float:
    """Layers and head of the toy draft, both bound by memory for up to 16 rows."""
    kv = 2 * 2 * 4 * 64
    return (2 * (DRAFT_WEIGHTS * 34 / 32 + (100 + rows) * kv) + DRAFT_HEAD * 34 / 32) / 10


def test_a_draft_is_the_sum_of_its_steps() -> None:
    expected = draft_step_ns(4) + 2 * draft_step_ns(1) + 3 * 10_000
    assert near(toy_pricing().price(draft_rows(3, 1, 1, head_rows=3)), expected, layers=9)


def test_a_draft_step_of_more_rows_than_the_largest_bucket_runs_several_times() -> None:
    cost = toy_pricing().price(draft_rows(16 + 16 + 3, 1, head_rows=2))
    assert cost.time_ns[Component.LAUNCH] == (3 + 1) * 10_000


def test_where_lookup_alone_drafted_the_draft_costs_nothing() -> None:
    cost = toy_pricing().price(DraftWork((), (), 0))
    assert (cost.duration_ns, cost.energy_pj) == (0, 0)


def test_a_draft_that_reads_features_has_them_handed_over_and_mixes_them_in() -> None:
    data = toy_data()
    data["placement"]["drafter"] = "cpu"
    data["devices"]["cpu"]["arithmetic"]["attention"] = data["devices"]["npu"]["arithmetic"]["attention"]
    plain = PricedModel.whole(DRAFT, Datatype.INT8)
    mixing = PricedModel(DRAFT, Datatype.INT8, DRAFT.n_layers, DRAFT.vocab, mix_weights=512 * 512)
    costs = [toy_pricing(data, draft=model).price(draft_rows(3, head_rows=1)) for model in (plain, mixing)]
    handover = 2_000 + 2 * 3 * 512 * 2 / 20
    mix = max(2 * 512 * 512 * 3 / 100, 512 * 512 * 34 / 32 / 5)
    assert costs[1].duration_ns - costs[0].duration_ns == pytest.approx(handover + mix, abs=3)


def test_a_channel_that_others_use_in_part_slows_what_memory_binds_down_to_half() -> None:
    """The toy NPU reaches half of the channel by itself."""
    pricing = toy_pricing()
    free = pricing.price(verify_rows(1)).time_ns[Component.MEMORY]

    def beside(taken: Fraction) -> int:
        return pricing.price(verify_rows(1), beside=Beside({"dram": taken})).time_ns[Component.MEMORY]

    assert beside(Fraction(1, 2)) == free
    data = toy_data()
    data["devices"]["npu"]["bandwidth"]["value"] = "20 GB/s"
    pricing = toy_pricing(data)
    free = pricing.price(verify_rows(1)).time_ns[Component.MEMORY]
    assert beside(Fraction(1, 5)) == pytest.approx(free * 5 / 4, abs=LAYERS)
    assert beside(Fraction(1, 2)) == pytest.approx(free * 2, abs=LAYERS)
    assert beside(Fraction(1, 2)) == beside(Fraction(9, 10)) == beside(Fraction(3))


def test_what_a_task_takes_of_a_channel_is_its_bytes_over_its_time() -> None:
    pricing = toy_pricing()
    cost = pricing.price(verify_rows(1))
    moved = LAYERS * (LAYER_BYTES + 101 * KV_BYTES)
    assert cost.channel_bytes == {"dram": moved}
    assert pricing.share(cost) == {"dram": Fraction(moved * NS, 20 * NS * cost.duration_ns)}


def test_int4_weights_take_their_bytes_and_the_arithmetic_of_int8() -> None:
    int4 = toy_pricing(target=PricedModel.whole(TARGET, Datatype.INT4)).price(verify_rows(1))
    assert near(int4, LAYERS * (WEIGHTS * 18 / 32 + 101 * KV_BYTES) / 10 + 10_000)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (VerifyWork((ItemRows((1, 2)),), (3,) * REAL_LAYERS), "must begin with the items' 2 rows"),
        (VerifyWork((ItemRows((1,)),), ()), "must begin with the items' 1 rows"),
        (VerifyWork((ItemRows((1,)),), (1, 0)), "must be positive"),
        (verify_rows(1, layers=REAL_LAYERS + 1), "has 7 layers, the model that runs has 6"),
        (DraftWork((ItemRows((1,)),), (1, 0), 1), "must be positive"),
        (DraftWork((), (1,), 1), "of 0 rows, must be positive"),
        (WalkWork(-1, 1), "must not be negative"),
    ],
)
def test_work_that_cannot_have_been_done_is_refused(work: Work, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        toy_pricing().price(work)


def test_steps_of_a_draft_model_that_is_not_there_are_refused() -> None:
    target = PricedModel.whole(TARGET, Datatype.INT8)
    pricing = Pricing(toy_profile(toy_data()), target, None, RealShapes(REAL.target))
    with pytest.raises(ValueError, match="no draft model is priced"):
        pricing.price(draft_rows(1))


def test_a_datatype_that_a_device_cannot_multiply_is_refused() -> None:
    with pytest.raises(ProfileError, match="toy: npu, the verifier, has no arithmetic for fp16 weights"):
        toy_pricing(target=PricedModel.whole(TARGET, Datatype.FP16))


def priced(profile: str, cost_as: str, change: Callable[[dict[str, Any]], None] | None = None) -> Pricing:
    """On a profile that comes along, or what `change` makes of it."""
    loaded = load_profile(profile)
    assert isinstance(loaded, Described)
    if change is not None:
        data = loaded.model_dump(mode="python", exclude_none=True)
        change(data)
        changed = parse_profile(data, profile)
        assert isinstance(changed, Described)
        loaded = changed
    models = parse_cost_as(cost_as)
    return Pricing(
        loaded, models.target, models.draft, RealShapes(SHAPES["llama3.2-1b"], SHAPES["llama3.2-1b"], 128256)
    )


AHASD = "llama2-13b:int8+llama2-7b:int8"


def test_ahasds_draft_takes_137_ms_off_chip_and_27_on_chip() -> None:
    step = DraftWork((ItemRows((1,)),), (1,), 1)
    assert priced("npu-lpddr5", AHASD).price(step).duration_ns == pytest.approx(137e6, rel=0.02)
    assert priced("npu-lpddr5-pim", AHASD).price(step).duration_ns == pytest.approx(27e6, rel=0.03)


@pytest.mark.parametrize("pair", ["opt-6.7b:int8+opt-1.3b:int8", AHASD, "palm-62b:int8+palm-8b:int8"])
@pytest.mark.parametrize("profile", ["npu-lpddr5", "npu-lpddr5-pim"])
def test_ahasds_pairs_of_models_fit_its_platform(profile: str, pair: str) -> None:
    priced(profile, pair)


def rows_1b(rows: int) -> VerifyWork:
    return verify_rows(rows, kv_len=1, layers=SHAPES["llama3.2-1b"].n_layers)


@pytest.mark.parametrize("profile", ["npu-lpddr5", "npu-lpddr5-pim"])
def test_ahasds_verification_takes_254_ms_and_is_bound_by_memory_up_to_about_150_rows(profile: str) -> None:
    assert priced(profile, AHASD).price(rows_1b(1)).duration_ns == pytest.approx(254e6, rel=0.05)
    exact = priced(profile, AHASD, lambda data: data["devices"]["npu"].pop("buckets"))
    bound = [rows for rows in range(1, 257) if Component.COMPUTE not in exact.price(rows_1b(rows)).time_ns]
    assert bound == list(range(1, len(bound) + 1))
    assert 140 <= len(bound) <= 170


def test_pim_with_102_gops_in_all_would_gain_nothing() -> None:
    """Why the figure is read as one unit's."""
    step = DraftWork((ItemRows((1,)),), (1,), 1)
    whole = priced("npu-lpddr5-pim", AHASD, lambda data: data["devices"]["pim"].pop("units"))
    assert whole.price(step).duration_ns == pytest.approx(priced("npu-lpddr5", AHASD).price(step).duration_ns, rel=0.08)


def test_a_target_of_13b_does_not_fit_the_pim_ranks_which_would_beat_every_pipeline() -> None:
    def verify_on_pim(data: dict[str, Any]) -> None:
        data["placement"]["verifier"] = "pim"

    with pytest.raises(
        ProfileError, match=r"the verifier's llama2-13b:int8 brings pim-ranks to 13\.\d+ GB, it holds 12\.88"
    ):
        priced("npu-lpddr5-pim", AHASD, verify_on_pim)

    def with_room(data: dict[str, Any]) -> None:
        verify_on_pim(data)
        data["memories"]["pim-ranks"]["capacity"]["value"] = "32 GiB"

    step = priced("npu-lpddr5-pim", AHASD, with_room).price(rows_1b(1))
    assert step.duration_ns == pytest.approx(51e6, rel=0.06)


@pytest.mark.parametrize(
    ("profile", "cost_as", "told"),
    [
        ("npu-lpddr5-pim", "llama2-13b:int8+llama2-13b:int8", "the drafter's llama2-13b:int8 brings pim-ranks"),
        ("npu-lpddr5", "palm-62b:fp16+palm-8b:int8", "the verifier's palm-62b:fp16 brings lpddr5 to"),
        ("rtx5090-laptop", "llama2-13b:fp16+llama2-7b:int8", "the verifier's llama2-13b:fp16 brings gddr7 to"),
        ("oneplus12", "llama2-7b:int8+llama2-13b:int8", "the drafter's llama2-13b:int8 brings dram to"),
        ("rtx5090-laptop", "llama2-13b:int8+llama2-13b:int8", "the drafter's llama2-13b:int8 brings gddr7 to 27.66 GB"),
    ],
)
def test_what_does_not_fit_is_refused_by_role_model_and_memory(profile: str, cost_as: str, told: str) -> None:
    with pytest.raises(ProfileError, match=f"{profile}: {told}"):
        priced(profile, cost_as)


@pytest.mark.parametrize("target", ["llama3.2-3b:int8", "llama2-7b:int4", "llama2-7b:int8", "llama2-13b:int4"])
def test_plain_decoding_from_a_phones_flash_is_mostly_reading_as_lever_reports(target: str) -> None:
    """Lever's section 1: 78.3 to 93.3 % of the time, on systems that read before they compute."""

    def serial(data: dict[str, Any]) -> None:
        data["flash"] |= {"reads": "serial", "reads_ahead": False}

    pricing = priced("oneplus12", f"{target}+llama3.2-1b:int4", serial)
    cost = pricing.price(verify_rows(1, kv_len=300, layers=16))
    walk = pricing.price(WalkWork(1, 1))
    assert 0.783 <= cost.flash_busy_ns / (cost.duration_ns + walk.duration_ns) <= 0.933


def test_roles_are_where_the_profile_places_them() -> None:
    pricing = priced("phone-flash-pim", "llama2-7b:int4+llama3.2-1b:int8")
    assert [pricing.device_of(role) for role in (Role.VERIFIER, Role.DRAFTER, Role.SAMPLER)] == ["npu", "pim", "cpu"]
    assert pricing.static_uw().keys() == {"npu", "cpu", "pim", "dram", "pim-ranks", "flash"}
