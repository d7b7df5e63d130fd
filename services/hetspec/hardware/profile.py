"""Profiles of hardware: YAML files, read strictly, every number with its source or marked as an assumption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from hetspec.hardware.changes import change
from hetspec.hardware.measured import Measured
from hetspec.hardware.platform import Device, Flash, Handover, Memory, Placement, Role, Schedule
from hetspec.hardware.quantity import Date, Provenance, Strict, Text

_FOLDER = Path(__file__).parent / "profiles"
FLASH = "flash"
"""The flash's name among devices and memories."""


class ProfileError(ValueError):
    """One line: the file, the field and what is wrong with it."""


class Source(Strict):
    """cites: a publication, data sheet or announcement, and where in it. date: of it."""

    cites: Text
    date: Date


class Described(Strict):
    """Hardware that is described and need not exist. Its clock and energy follow from its numbers. contention: whether
    tasks that run at once share the channels of memories, or find each of them as if they were alone."""

    name: Text
    about: Text
    sources: dict[str, Source]
    devices: Annotated[dict[str, Device], Field(min_length=1)]
    memories: Annotated[dict[str, Memory], Field(min_length=1)]
    flash: Flash | None = None
    handover: Handover | None = None
    placement: Placement
    contention: bool = True
    schedule: Schedule = "by_task"

    @model_validator(mode="after")
    def _check_names(self) -> Described:
        shared = (self.devices.keys() & self.memories.keys()) | ({FLASH} & (self.devices.keys() | self.memories.keys()))
        if shared:
            raise ValueError(f"{min(shared)!r} is the name of two things")
        for path, number in self.numbers():
            if number.source is not None and number.source not in self.sources:
                raise ValueError(f"{path}: source {number.source!r} is not among sources")
        return self

    @model_validator(mode="after")
    def _check_devices(self) -> Described:
        for name, device in self.devices.items():
            memory = self.memories.get(device.memory)
            if memory is None:
                raise ValueError(f"devices.{name}.memory: {device.memory!r} is not among memories")
            if device.bandwidth.base > memory.bandwidth.base:
                raise ValueError(
                    f"devices.{name}.bandwidth: {device.bandwidth.value}, must be at most the memory's "
                    f"{memory.bandwidth.value}"
                )
        return self

    @model_validator(mode="after")
    def _check_placement(self) -> Described:
        placed = {role: self.placement.device_of(role) for role in Role}
        for role, name in placed.items():
            if name not in self.devices:
                raise ValueError(f"placement.{role}: {name!r} is not among devices")
            if role is not Role.SAMPLER and self.devices[name].attention is None:
                raise ValueError(f"devices.{name}.arithmetic: must have attention or fp16, it is the {role}")
        if self.handover is None and len(set(placed.values())) > 1:
            raise ValueError("handover: must be given where roles are on different devices")
        if self.handover is not None and self.handover.through not in self.memories:
            raise ValueError(f"handover.through: {self.handover.through!r} is not among memories")
        return self

    @model_validator(mode="after")
    def _check_helpers(self) -> Described:
        for name, device in self.devices.items():
            if device.nonlinear is None:
                continue
            helper = self.devices.get(device.nonlinear.helper)
            if helper is None or helper is device:
                raise ValueError(f"devices.{name}.nonlinear.helper: {device.nonlinear.helper!r} is not another device")
            if helper.attention is None:
                raise ValueError(f"devices.{device.nonlinear.helper}.arithmetic: must have attention or fp16 to help")
            if self.handover is None:
                raise ValueError(f"handover: must be given where {name} has a helper")
        if self.schedule != "by_task" and self.placement.verifier == self.placement.drafter:
            raise ValueError(f"schedule: {self.schedule}, needs verifier and drafter on two devices")
        return self

    def with_(self, changes: Mapping[str, object]) -> Described:
        """The same but for these fields, by their paths: `{"devices.pim.preemptible": False}`. A number's value is
        changed as `{"memories.dram.bandwidth": "90 GB/s"}` and counts as an assumption. Raises ProfileError."""
        if not changes:
            return self
        told = ",".join(f"{path}={_told(value)}" for path, value in sorted(changes.items()))
        data = self.model_dump(exclude_none=True)
        try:
            for path, value in changes.items():
                change(data, path, value)
        except ValueError as error:
            raise ProfileError(f"{self.name}: {error}") from error
        other = parse_profile({**data, "name": f"{self.name} with {told}"}, self.name)
        assert isinstance(other, Described)
        return other

    def numbers(self) -> Iterator[tuple[str, Provenance]]:
        """Every number with its path."""
        return _numbers(self, "")


class MeasuredHost(Strict):
    """A machine as it was measured, on which every role runs. measured: none yet in the file that comes along."""

    name: Text
    about: Text
    device: Text
    measured: Measured | None


Profile = Described | MeasuredHost


def profile_names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_profile(name_or_path: str) -> Profile:
    """One of `profile_names()`, or a file. Raises ProfileError."""
    is_path = name_or_path.endswith((".yaml", ".yml"))
    path = Path(name_or_path) if is_path else _FOLDER / f"{name_or_path}.yaml"
    if not is_path and name_or_path not in profile_names():
        raise ProfileError(f"hardware {name_or_path!r}, must be a .yaml file or one of {', '.join(profile_names())}")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ProfileError(f"{path}: {' '.join(str(error).split())}") from error
    return parse_profile(data, str(path))


def changed(profile: Profile, changes: Mapping[str, object]) -> Profile:
    """See Described.with_. Raises ProfileError."""
    if isinstance(profile, Described):
        return profile.with_(changes)
    if changes:
        raise ProfileError(f"{profile.name}: of a measured machine nothing can be changed")
    return profile


def parse_profile(data: Any, origin: str) -> Profile:
    """`data`: a profile's content; `origin` names it in errors. Raises ProfileError."""
    kind: type[Profile] = MeasuredHost if isinstance(data, dict) and "measured" in data else Described
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise ProfileError(f"{origin}: {where + ': ' if where else ''}{_reason(first)}") from error


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] not in ("model_type", "dict_type"):
        return str(error["msg"]).removeprefix("Value error, ")
    found = "is empty" if error["input"] is None else f"{error['input']!r:.40}"
    return f"{found}, must be fields, each with its value"


def _told(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _numbers(value: object, path: str) -> Iterator[tuple[str, Provenance]]:
    if isinstance(value, Provenance):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _numbers(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _numbers(item, f"{path}[{i}]")


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, where YAML's own rule would keep the last. Dates are left to be checked."""

    yaml_constructors = {  # noqa: RUF012
        **yaml.SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_yaml_str,
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)
