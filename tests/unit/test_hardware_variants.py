"""Changes of a profile: what they make of costs, against closed forms and brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hetspec.hardware.changes import parse_changes
from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Component
from hetspec.hardware.cost_as import RealShapes, parse_cost_as
from hetspec.hardware.platform import Role
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import Described, ProfileError, load_profile
from hetspec.hardware.shapes import SHAPES
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork

REAL = RealShapes(SHAPES["llama3.2-1b"], SHAPES["llama3.2-1b"], 128256)
DEPTH = REAL.target.n_layers
LLAMA, OPT = "llama2-13b:int8+llama2-7b:int8", "opt-6.7b:int8+opt-1.3b:int8"
DRAFT, TARGET = SHAPES["llama2-7b"], SHAPES["llama2-13b"]
KV_LEN = 100
STEP = DraftWork((ItemRows((KV_LEN,)),), (1,), 1)


def changed(text: str = "", profile: str = "npu-lpddr5-pim") -> Described:
    loaded = load_profile(profile)
    assert isinstance(loaded, Described)
    return loaded.with_(parse_changes(text)) if text else loaded


def priced(text: str = "", models: str = LLAMA, profile: str = "npu-lpddr5-pim") -> Pricing:
    cost_as = parse_cost_as(models)
    return Pricing(changed(text, profile), cost_as.target, cost_as.draft, REAL)


def verify(rows: int, role: Role = Role.VERIFIER) -> VerifyWork:
    return VerifyWork((ItemRows((KV_LEN,) * rows),), (rows,) * DEPTH, role=role)


def trips_ns(rows: int) -> Fraction:
    """Of a layer of the draft: norms, softmax and activation go to the NPU's vector unit and come back."""
    there = rows * (2 * DRAFT.hidden + DRAFT.heads * KV_LEN + 2 * DRAFT.ffn)
    back = rows * (2 * DRAFT.hidden + DRAFT.heads * KV_LEN + DRAFT.ffn)
    moved = 2 * 2 * (there + back)  # two bytes each, written and read
    return 8 * 1000 + Fraction(moved * 10, 512) + Fraction(5 * there, 8200)  # 51.2 GB/s, 8.2 TFLOPS


@pytest.mark.parametrize("rows", [1, 3])
def test_without_units_of_its_own_pim_sends_softmax_norms_and_activations_to_the_npu_and_back(rows: int) -> None:
    step = DraftWork((ItemRows((KV_LEN,) * rows),), (rows,), 0)
    own, sent = (priced(f"devices.pim.nonlinear.by={by}").price(step) for by in ("itself", "vector_unit"))
    assert sent.duration_ns - own.duration_ns == pytest.approx(DRAFT.n_layers * trips_ns(rows), abs=2 * DRAFT.n_layers)
    extra = {(use.device, use.component): use.energy_pj for use in sent.uses}.keys() - {
        (use.device, use.component) for use in own.uses
    }
    assert extra == {("lpddr5", Component.TRANSFER), ("npu", Component.COMPUTE)}


def test_where_the_npu_takes_turns_each_of_four_waits_for_the_operator_under_way() -> None:
    running = priced().price(verify(8)).operator_ns
    free, queued = (
        priced("devices.pim.nonlinear.by=in_turn").price(STEP, beside=beside)
        for beside in (Beside(), Beside(operator_ns={"npu": running}))
    )
    assert queued.duration_ns - free.duration_ns == queued.time_ns[Component.QUEUE] == 4 * DRAFT.n_layers * running
    assert priced("devices.pim.nonlinear.by=vector_unit").price(STEP) == free


def test_the_wait_for_an_operator_is_the_mean_over_all_moments_of_a_layer() -> None:
    """Moment by moment, of four operators that are as long as their matrices are large."""
    cost = priced().price(verify(1))
    layer = cost.duration_ns / TARGET.n_layers
    sizes = TARGET.matrices
    ends = [sum(sizes[: i + 1]) / sum(sizes) for i in range(len(sizes))]
    moments = [(moment + 0.5) / 10_000 for moment in range(10_000)]
    left = [next(end for end in ends if end > moment) - moment for moment in moments]
    assert cost.operator_ns == pytest.approx(layer * sum(left) / len(left), rel=3e-3)


def test_without_contention_a_task_finds_every_channel_free() -> None:
    busy = Beside({"lpddr5": Fraction(4, 5)})
    assert priced().price(verify(1), beside=busy).duration_ns > 1.9 * priced().price(verify(1)).duration_ns
    alone = priced("contention=off")
    assert alone.price(verify(1), beside=busy) == alone.price(verify(1))


def test_ranks_that_both_read_are_shared() -> None:
    """All in the PIM's ranks: what the NPU reads of 256 GB/s is missing for the draft, unless contention is off."""
    text = "devices.npu.memory=pim-ranks,memories.pim-ranks.capacity=76 GiB"
    pricing = priced(text)
    share = pricing.share(pricing.price(verify(1)))["pim-ranks"]
    assert float(share) == pytest.approx(51.2 / 256, rel=1e-3)
    free, busy = pricing.price(STEP), pricing.price(STEP, beside=Beside({"pim-ranks": share}))
    slower = busy.time_ns[Component.MEMORY] / free.time_ns[Component.MEMORY]
    assert slower == pytest.approx(256 / (256 - 51.2), rel=1e-3)
    alone = priced(text + ",contention=off")
    assert alone.price(STEP, beside=Beside({"pim-ranks": share})) == free


@pytest.mark.parametrize(("text", "pim"), [("", True), ("devices.pim.preemptible=off", False)])
def test_a_device_tells_whether_its_tasks_can_be_cut(text: str, pim: bool) -> None:
    pricing = priced(text)
    assert (pricing.is_preemptible("pim"), pricing.is_preemptible("npu")) == (pim, True)


def test_a_check_by_the_drafter_reads_the_target_on_chip_and_switches_the_ranks_twice() -> None:
    pricing = priced(models=OPT)
    cost = pricing.price(verify(2, Role.PRE_VERIFIER))
    shape = SHAPES["opt-6.7b"]
    moved = shape.n_layers * (shape.layer_weights * 34 // 32 + (KV_LEN + 2) * 4 * shape.hidden)
    assert cost.device == "pim"
    assert cost.time_ns[Component.MEMORY] == pytest.approx(moved / 256, abs=shape.n_layers)
    assert cost.time_ns[Component.LAUNCH] == 1000 + 2 * 1000
    assert len(cost.parts_ns) == 1 + shape.n_layers  # the switch, and layers to be cut at


@pytest.mark.parametrize(
    ("profile", "models", "told"),
    [
        ("npu-lpddr5-pim", LLAMA, "llama2-13b:int8 brings pim-ranks to 20.64 GB, it holds 12.88 GB"),
        ("phone-flash-pim", "llama2-7b:int4+llama3.2-1b:int4", "llama2-7b:int4 lives in flash"),
    ],
)
def test_a_check_by_a_drafter_that_cannot_hold_the_target_is_refused_by_name(
    profile: str, models: str, told: str
) -> None:
    pricing = priced(models=models, profile=profile)
    assert pricing.pre_verification == f"{profile}: no pre-verification: {told}"
    with pytest.raises(ValueError, match="no pre-verification"):
        pricing.price(verify(2, Role.PRE_VERIFIER))


def test_ranks_that_hold_both_models_make_the_check_possible() -> None:
    assert priced("memories.pim-ranks.capacity=24 GiB").pre_verification is None


def test_devices_that_wait_at_every_operator_are_one_and_pay_its_handover_five_times_a_layer() -> None:
    pricing, apart = priced("schedule=operators_wait"), priced()
    for work, layers in ((STEP, DRAFT.n_layers), (verify(8), TARGET.n_layers)):
        assert pricing.price(work).duration_ns - apart.price(work).duration_ns == 5 * 1000 * layers
    assert {pricing.device_of(role) for role in (Role.VERIFIER, Role.DRAFTER, Role.SAMPLER)} == {"npu+pim"}
    assert pricing.price(WalkWork(1, 1)).duration_ns == apart.price(WalkWork(1, 1)).duration_ns


@pytest.mark.parametrize("rows", [1, 8, 64])
@pytest.mark.parametrize("capacity", ["12 GiB", "24 GiB"])
def test_split_operators_take_what_the_best_of_all_splits_that_fit_does(rows: int, capacity: str) -> None:
    pricing = priced(f"schedule=operators_split,memories.pim-ranks.capacity={capacity}")
    cost = pricing.price(verify(rows))
    own = priced(f"memories.pim-ranks.capacity={capacity}").price(verify(rows))
    helper = priced("memories.pim-ranks.capacity=30 GiB").price(verify(rows, Role.PRE_VERIFIER))
    alone = [each.time_ns.get(Component.MEMORY, 0) + each.time_ns.get(Component.COMPUTE, 0) for each in (own, helper)]
    draft_bytes = 34 * (DRAFT.n_layers * DRAFT.layer_weights + 2 * DRAFT.head_weights) // 32
    room = int(capacity.split()[0]) * 2**30 - draft_bytes
    most = min(1.0, room / (TARGET.n_layers * TARGET.layer_weights * 34 / 32))
    splits = [share / 2000 for share in range(2001) if share / 2000 <= most]
    best = min(max((1 - share) * alone[0], share * alone[1]) for share in splits)
    spent = cost.time_ns.get(Component.MEMORY, 0) + cost.time_ns.get(Component.COMPUTE, 0)
    assert spent == pytest.approx(best, rel=2e-3)


def test_plain_decoding_on_the_pim_alone_needs_ranks_that_hold_the_target() -> None:
    """13B does not fit; where the target does, a token takes as much less as the memory is faster."""
    alone = "placement.verifier=pim,placement.sampler=pim"
    with pytest.raises(ProfileError, match=r"brings pim-ranks to .* GB, it holds 12\.88 GB"):
        priced(alone, models="llama2-13b:int8+llama2-7b:int8")
    there, here = (
        pricing.plain(64, 17, 64) - pricing.plain(64, 1, 64)
        for pricing in (priced(text, models=OPT) for text in ("", alone))
    )
    assert there / here == pytest.approx(256 / 51.2, rel=0.02)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("preemptible", "'preemptible', must be FIELD=VALUE"),
        ("contention=", "'contention=', must be FIELD=VALUE"),
        ("contention=on,contention=off", "contention stands twice"),
        ("devices.gpu.launch=1 us", "npu-lpddr5-pim: devices.gpu.launch: there is no 'gpu'"),
        ("schedule=sometimes", "npu-lpddr5-pim: schedule: Input should be 'by_task', 'operators_wait' or"),
        ("memories.lpddr5.bandwidth=1 W", "npu-lpddr5-pim: memories.lpddr5.bandwidth: '1 W', its unit must be"),
        ("colour=red", "npu-lpddr5-pim: colour: Extra inputs"),
        (
            "devices.pim.nonlinear.helper=pim",
            "npu-lpddr5-pim: devices.pim.nonlinear.helper: 'pim' is not another device",
        ),
        (
            "placement.drafter=npu,schedule=operators_wait",
            "npu-lpddr5-pim: schedule: operators_wait, needs verifier and",
        ),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refusal:
        changed(text)
    assert str(refusal.value).startswith(told)
    assert "\n" not in str(refusal.value)


def test_a_changed_profile_names_its_changes_and_calls_changed_numbers_assumptions() -> None:
    profile = changed("contention=off, devices.npu.buckets.rows=[1, 16],memories.pim-ranks.capacity=24 GiB")
    assert profile.name == (
        "npu-lpddr5-pim with contention=false,devices.npu.buckets.rows=[1, 16],memories.pim-ranks.capacity=24 GiB"
    )
    capacity = profile.memories["pim-ranks"].capacity
    assert (capacity.base, capacity.source, capacity.assumption) == (24 * 2**30, None, "set for this run")
    buckets = profile.devices["npu"].buckets
    assert buckets is not None
    assert buckets.rows == [1, 16]
    assert changed().with_({}) == changed()
