"""A request's timeline, as GET /v1/hetspec/traces/{request_id} answers it: Chrome trace events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """A task on its device or unit. kind: what for; args: all that is told of it."""

    lane: str
    begin_us: float
    end_us: float
    name: str
    kind: str
    args: Mapping[str, Any]

    @property
    def us(self) -> float:
        return self.end_us - self.begin_us


@dataclass(frozen=True, slots=True)
class Mark:
    """Something was cut, dropped or switched."""

    lane: str
    at_us: float
    name: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a draft to the verification that judged it."""

    source: str
    source_us: float
    target: str
    target_us: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Emulated time, with a lane a device, or the host's, with a lane a unit. Times since the request's arrival."""

    name: str
    lanes: tuple[str, ...]
    blocks: tuple[Block, ...]
    marks: tuple[Mark, ...]
    arrows: tuple[Arrow, ...]

    @classmethod
    def parse(cls, events: Sequence[Event]) -> Self:
        """Of one process."""
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        return cls(
            name=next(event["args"]["name"] for event in events if event["name"] == "process_name"),
            lanes=tuple(names[thread] for thread in sorted(names)),
            blocks=tuple(_block(event, names) for event in events if event["ph"] == "X"),
            marks=tuple(Mark(names[e["tid"]], e["ts"], e["name"]) for e in events if e["ph"] == "i"),
            arrows=tuple(_arrows(events, names)),
        )

    @property
    def us(self) -> float:
        return max((block.end_us for block in self.blocks), default=0.0)

    def busy_us(self, lane: str) -> float:
        return sum(block.us for block in self.blocks if block.lane == lane)


@dataclass(frozen=True, slots=True)
class Trace:
    """emulated: None under the host's clock. raw: the whole answer, a file that Perfetto opens."""

    request: str
    mode: str
    left_out: int
    emulated: Axis | None
    host: Axis
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Self:
        about, by_process = told["otherData"], dict[int, list[Event]]()
        for event in told["traceEvents"]:
            by_process.setdefault(event["pid"], []).append(event)
        *emulated, host = (Axis.parse(by_process[pid]) for pid in sorted(by_process))
        return cls(
            about["request"],
            about["mode"],
            about["tasks_left_out"],
            emulated[0] if emulated else None,
            host,
            told,
        )


def _block(event: Event, lanes: Mapping[int, str]) -> Block:
    begin_us = event["ts"]
    lane = lanes[event["tid"]]
    return Block(lane, begin_us, begin_us + event["dur"], event["name"], event["cat"], event["args"])


def _arrows(events: Sequence[Event], lanes: Mapping[int, str]) -> Iterator[Arrow]:
    sources = {event["id"]: event for event in events if event["ph"] == "s"}
    for target in events:
        if target["ph"] == "f":
            source = sources[target["id"]]
            yield Arrow(lanes[source["tid"]], source["ts"], lanes[target["tid"]], target["ts"])
