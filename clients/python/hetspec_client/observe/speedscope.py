"""The stacks in Speedscope's file format: https://www.speedscope.app/file-format-schema.json"""

from __future__ import annotations

import re
from typing import Any

from hetspec_client.observe.flame import Frame, WeighedStack, weighed_stacks
from hetspec_client.observe.flame_svg import title
from hetspec_client.observe.profile import Profile

_PLACE = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>[0-9]+)\)")
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(profile: Profile) -> dict[str, Any]:
    """A profile a thread, the busiest first. Stacks have no times: the view "left heavy" is the one that tells."""
    stacks = weighed_stacks(profile)
    frames = {frame: number for number, frame in enumerate({f: None for stack in stacks for f in stack.frames})}
    by_thread: dict[str, list[WeighedStack]] = {}
    for stack in stacks:
        by_thread.setdefault(stack.thread, []).append(stack)
    busiest = sorted(by_thread.items(), key=lambda item: -sum(stack.samples for stack in item[1]))
    return {
        "$schema": _SCHEMA,
        "exporter": "hetspec",
        "name": title(profile),
        "shared": {"frames": [_frame(frame) for frame in frames]},
        "profiles": [_thread(name, ours, frames, profile.rate_hz) for name, ours in busiest],
    }


def _frame(frame: Frame) -> dict[str, Any]:
    if frame.is_operator:
        return {"name": f"[{frame.name}]"}
    found = _PLACE.fullmatch(frame.name)
    return {"name": found["name"], "file": found["file"], "line": int(found["line"])} if found else {"name": frame.name}


def _thread(name: str, stacks: list[WeighedStack], frames: dict[Frame, int], rate_hz: float) -> dict[str, Any]:
    weights = [stack.samples * 1e3 / rate_hz for stack in stacks]
    return {
        "type": "sampled",
        "name": name,
        "unit": "milliseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames[frame] for frame in stack.frames] for stack in stacks],
        "weights": weights,
    }
