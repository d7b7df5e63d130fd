"""Profiles: those that come along, and how bad ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetspec.hardware.platform import Operand, Role
from hetspec.hardware.profile import Described, MeasuredHost, ProfileError, load_profile, parse_profile, profile_names
from tests.toy_hardware import toy_data, toy_profile

Data = dict[str, Any]


def described() -> list[Described]:
    profiles = [load_profile(name) for name in profile_names()]
    return [profile for profile in profiles if isinstance(profile, Described)]


def test_every_profile_that_comes_along_loads_under_its_own_name() -> None:
    assert [load_profile(name).name for name in profile_names()] == [
        "host",
        "npu-lpddr5",
        "npu-lpddr5-pim",
        "oneplus12",
        "phone-flash-pim",
        "rtx5090-laptop",
    ]


@pytest.mark.parametrize("profile", described(), ids=lambda profile: profile.name)
def test_every_number_has_a_dated_source_or_says_why_it_is_assumed(profile: Described) -> None:
    numbers = dict(profile.numbers())
    assert len(numbers) > 10
    cited = {number.source for number in numbers.values() if number.source is not None}
    assert cited == profile.sources.keys()  # none is missing, none stands there for show
    for path, number in numbers.items():
        assert (number.source is None) != (number.assumption is None), path


def test_no_number_hides_beside_the_told_ones() -> None:
    """Every digit of a profile's YAML belongs to a told number, a request's size, a source or a name."""

    def bare(value: object, path: str) -> list[str]:
        if isinstance(value, dict):
            if "value" in value or "rows" in value or "cites" in value:
                return []
            return [found for key, item in value.items() for found in bare(item, f"{path}.{key}")]
        if isinstance(value, list):
            return [found for item in value for found in bare(item, path)]
        return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []

    folder = Path(__file__).parents[2] / "services/hetspec/hardware/profiles"
    for file in sorted(folder.glob("*.yaml")):
        assert bare(yaml.safe_load(file.read_text(encoding="utf-8")), file.stem) == []


def test_the_profiles_are_the_platforms_that_they_are_named_after() -> None:
    roles = (Role.VERIFIER, Role.DRAFTER, Role.SAMPLER)
    placed = {p.name: [p.placement.device_of(role) for role in roles] for p in described()}
    assert placed["oneplus12"] == ["npu", "npu", "cpu"]
    assert placed["npu-lpddr5"] == ["npu", "npu", "npu"]
    assert placed["npu-lpddr5-pim"] == ["npu", "pim", "npu"]
    assert placed["phone-flash-pim"] == ["npu", "pim", "cpu"]
    assert placed["rtx5090-laptop"] == ["gpu", "gpu", "gpu"]
    assert {p.name for p in described() if p.flash} == {"oneplus12", "phone-flash-pim"}


def test_the_phone_with_pim_is_made_of_the_other_two() -> None:
    both, phone, pim = (load_profile(name) for name in ("phone-flash-pim", "oneplus12", "npu-lpddr5-pim"))
    assert isinstance(both, Described)
    assert isinstance(phone, Described)
    assert isinstance(pim, Described)
    for name in ("npu", "cpu"):
        assert _values(both.devices[name]) == _values(phone.devices[name])
    assert _values(both.devices["pim"]) == _values(pim.devices["pim"])
    for name, made_of in (("dram", phone), ("pim-ranks", pim)):
        ours, theirs = _values(both.memories[name]), _values(made_of.memories[name])
        assert [ours[field] for field in ("bandwidth", "energy")] == [
            theirs[field] for field in ("bandwidth", "energy")
        ]
    assert both.flash == phone.flash


def _values(part: Any) -> Any:
    """Without where the numbers come from, which each file tells anew."""

    def strip(value: object) -> object:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in ("source", "assumption", "note")}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip(part.model_dump())


def test_the_host_template_waits_to_be_measured() -> None:
    host = load_profile("host")
    assert isinstance(host, MeasuredHost)
    assert host.measured is None


def _set(*path: str | int, to: object) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        *before, last = path
        at: Any = data
        for key in before:
            at = at[key]
        at[last] = to

    return change


def _drop(*path: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        *before, last = path
        at: Any = data
        for key in before:
            at = at[key]
        del at[last]

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_drop("devices", "npu", "launch"), "devices.npu.launch: Field required"),
        (_drop("memories", "dram", "capacity"), "memories.dram.capacity: Field required"),
        (_drop("flash", "latency"), "flash.latency: Field required"),
        (_set("devices", "npu", "cores", to=8), "devices.npu.cores: Extra inputs are not permitted"),
        (_set("colour", to="red"), "colour: Extra inputs are not permitted"),
        (_set("devices", "npu", "launch", to="10 us"), "devices.npu.launch: '10 us', must be fields"),
        (_set("devices", "npu", "launch", "value", to="10 GB"), "devices.npu.launch: '10 GB', its unit must be ns"),
        (
            _set("devices", "npu", "bandwidth", "value", to="0 GB/s"),
            "devices.npu.bandwidth: value '0 GB/s', must be",
        ),
        (
            _set("devices", "npu", "bandwidth", "value", to="-1 GB/s"),
            "devices.npu.bandwidth: '-1 GB/s', must not",
        ),
        (_set("devices", "npu", "bandwidth", "value", to="21 GB/s"), "devices.npu.bandwidth: 21 GB/s, must be at most"),
        (_drop("devices", "npu", "launch", "assumption"), "devices.npu.launch: must have either a source or an assump"),
        (
            _set("devices", "npu", "launch", "source", to="x"),
            "devices.npu.launch: must have either a source",
        ),
        (
            _set("devices", "npu", "launch", to={"value": "1 us", "source": "nobody"}),
            "devices.npu.launch: source 'nobody' is not among sources",
        ),
        (
            _set("devices", "npu", "buckets", "rows", to=[4, 4]),
            "devices.npu.buckets: rows [4, 4], must be positive",
        ),
        (_set("devices", "npu", "memory", to="tape"), "devices.npu.memory: 'tape' is not among memories"),
        (_drop("devices", "npu", "arithmetic", "attention"), "devices.npu.arithmetic: must have attention or fp16"),
        (
            _set("devices", "npu", "arithmetic", "int3", to={}),
            "devices.npu.arithmetic.int3: Input should be",
        ),
        (_set("placement", "sampler", to="gpu"), "placement.sampler: 'gpu' is not among devices"),
        (_drop("handover"), "handover: must be given where roles are on different devices"),
        (_set("handover", "through", to="bus"), "handover.through: 'bus' is not among memories"),
        (_set("flash", "reads", to="sometimes"), "flash.reads: Input should be 'overlap' or 'serial'"),
        (_set("flash", "reads", to="serial"), "flash: reads_ahead, must be false where reads are serial"),
        (_set("flash", "request", "value", to="2 MiB"), "flash: request 2 MiB, must be within what bandwidth tells"),
        (_set("flash", "bandwidth", 1, "request", to="4 KiB"), "flash: bandwidth: requests must ascend"),
        (_set("flash", "bandwidth", 0, "request", to="0 B"), "flash.bandwidth.0: request '0 B', must be positive"),
        (_set("flash", "bandwidth", to=[]), "flash.bandwidth: List should have at least 1 item"),
        (_set("memories", "npu", to=toy_data()["memories"]["dram"]), "'npu' is the name of two things"),
        (
            _set("sources", "x", to={"cites": "a paper", "date": "soon"}),
            "sources.x.date: String should match pattern",
        ),
        *(
            (_set("sources", "x", to={"cites": "a paper", "date": date}), f"sources.x.date: '{date}', {told}")
            for date, told in (
                ("2024-13", "is no date"),
                ("2023-02-29", "is no date"),
                ("2100", "must be of the years 1900 to 2099"),
                (1066, "must be of the years"),
            )
        ),
        (
            _set("memories", "dram", "energy", "value", to="1e9 pJ/bit"),
            "memories.dram.energy: '1e9 pJ/bit', must be in",
        ),
        (_set("devices", "npu", "launch", "value", to="1e400 s"), "devices.npu.launch: '1e400 s', must be in [1 ns, "),
        (_set("devices", "npu", "buckets", "rows", to=[1, 10**7]), "devices.npu.buckets: rows [1, 10000000], must be"),
    ],
)
def test_a_bad_profile_is_refused_in_one_line_that_names_file_and_field(
    change: Callable[[Data], None], told: str
) -> None:
    data = toy_data(flash={})
    toy_profile(data)
    change(data)
    with pytest.raises(ProfileError) as refusal:
        parse_profile(data, "mine.yaml")
    line = str(refusal.value)
    assert line.startswith(f"mine.yaml: {told}")
    assert "\n" not in line


def test_a_users_own_file_works_like_those_that_come_along(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(toy_data(flash={})), encoding="utf-8")
    assert load_profile(str(path)) == toy_profile(toy_data(flash={}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nname: b\n", "'name' stands twice"),
        ("name: [", "expected"),
        ("[1, 2]", "mine.yaml: [1, 2], must be fields"),
        ("", "mine.yaml: is empty, must be fields"),
        (
            "name: a\nabout: b\nsources: {a: {cites: b, date: 2024-13-45}}",
            "sources.a.date: '2024-13-45', is no date: month must be in",
        ),
        ("name: " + "[" * 600, "recursion"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=r"mine\.yaml: ") as refusal:
        load_profile(str(path))
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ProfileError, match=r"'pixel', must be a \.yaml file or one of host, npu-lpddr5"):
        load_profile("pixel")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.yaml: .*No such file"):
        load_profile("nowhere.yaml")


def test_the_documented_numbers_are_the_profiles() -> None:
    text = (Path(__file__).parents[2] / "docs/hardware.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for profile in described():
        row, placed = rows[profile.name], {profile.placement.device_of(role) for role in Role}
        told = [profile.devices[name].arithmetic[Operand.INT8].rate.value for name in placed if name != "cpu"]
        told += [memory.bandwidth.value for memory in profile.memories.values()]
        told += [profile.flash.bandwidth[-1].value] if profile.flash else []
        assert [value for value in told if value not in row] == []
