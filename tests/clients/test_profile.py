"""What `hetspec profile` makes of a profile: flame graph, Speedscope, trace, tables."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec_client.commands.profile import profile_call, write_files
from hetspec_client.errors import InvalidInput
from hetspec_client.observe.flame import tree, weighed_stacks
from hetspec_client.observe.flame_svg import flame_svg
from hetspec_client.observe.profile import Profile
from hetspec_client.observe.speedscope import speedscope
from hetspec_client.observe.tables import tables
from hetspec_client.observe.trace_events import trace_events
from tests.clients.test_top import service

# What https://www.speedscope.app/file-format-schema.json says of a file of sampled profiles, and nothing beside it.
SAMPLED = {
    "type": "object",
    "properties": {
        "type": {"const": "sampled"},
        "name": {"type": "string"},
        "unit": {"enum": ["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]},
        "startValue": {"type": "number"},
        "endValue": {"type": "number"},
        "samples": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "weights": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["endValue", "name", "samples", "startValue", "type", "unit", "weights"],
    "additionalProperties": False,
}
FRAME = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "file": {"type": "string"},
        "line": {"type": "number"},
        "col": {"type": "number"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
SPEEDSCOPE = {
    "type": "object",
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "activeProfileIndex": {"type": "number"},
        "exporter": {"type": "string"},
        "name": {"type": "string"},
        "profiles": {"type": "array", "items": SAMPLED},
        "shared": {
            "type": "object",
            "properties": {"frames": {"type": "array", "items": FRAME}},
            "required": ["frames"],
        },
    },
    "required": ["$schema", "profiles", "shared"],
    "additionalProperties": False,
}
LAYERS, HEAD = "native_layers (hetspec/model/transformer.py:124)", "native_head (hetspec/model/head.py:53)"


def operator(name: str, ns: int, group: str = "layers", **work: int) -> dict[str, Any]:
    return {"group": group, "name": name, "ns": ns, "calls": 4, "rows": 8, "macs": 0, "read_bytes": 0} | work


def stack(samples: int, *frames: str, thread: str = "engine") -> dict[str, Any]:
    return {"thread": thread, "frames": list(frames), "samples": samples}


def task(start_ns: int, queue_ns: int, compute_ns: int, kind: str = "decode") -> dict[str, Any]:
    counts = {"items": 1, "rows": 1, "bytes_in": 10, "bytes_out": 20, "weight_bytes_read": 0}
    return {
        "kind": kind, "outcome": "ok", "start_ns": start_ns, "queue_ns": queue_ns, "compute_ns": compute_ns, **counts
    }  # fmt: skip


def metric(name: str, value: float, **labels: str) -> dict[str, Any]:
    return {"name": name, "labels": {"unit": "verifier", **labels}, "value": value}


def profile(**changes: Any) -> Profile:
    told: dict[str, Any] = {
        "service": service(),
        "sampler": {"name": "py-spy", "rate_hz": 100, "note": ""},
        "start_ns": 1_000_000_000,
        "end_ns": 3_000_000_000,
        "stacks": [stack(30, "run (a.py:1)", LAYERS), stack(5, "run (a.py:1)", "parse (b.py:7)")],
        "operators": [operator("qkv", 100), operator("attention", 300)],
        "metrics": [],
        "tasks": [],
        "tasks_dropped": 0,
    }
    return Profile.parse(told | changes)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from([LAYERS, HEAD, "run (a.py:1)"])), max_size=6),
    st.lists(st.tuples(st.sampled_from(["layers", "head"]), st.integers(0, 10**9)), max_size=6),
)
def test_speedscope_files_keep_to_its_schema_and_weigh_as_much_as_the_samples(
    stacks: list[tuple[int, str]], operators: list[tuple[str, int]]
) -> None:
    told = profile(
        stacks=[stack(samples, "run (a.py:1)", leaf, thread=f"t{samples % 3}") for samples, leaf in stacks],
        operators=[operator(f"op{i}", ns, group) for i, (group, ns) in enumerate(operators)],
    )
    written = speedscope(told)
    jsonschema.validate(json.loads(json.dumps(written)), SPEEDSCOPE)
    weights = [weight for thread in written["profiles"] for weight in thread["weights"]]
    assert math.isclose(sum(weights), told.samples * 10)  # milliseconds, at 100 Hz
    frames = len(written["shared"]["frames"])
    for thread in written["profiles"]:
        assert len(thread["samples"]) == len(thread["weights"])
        assert all(0 <= frame < frames for sample in thread["samples"] for frame in sample)


def test_samples_inside_a_native_pass_are_its_operators_by_their_time() -> None:
    stacks = weighed_stacks(profile())
    assert [(each.frames[-1].name, each.samples) for each in stacks] == [
        ("qkv", 7.5), ("attention", 22.5), ("parse (b.py:7)", 5)
    ]  # fmt: skip
    assert [each.frames[-1].is_operator for each in stacks] == [True, True, False]


def test_a_pass_is_split_by_its_own_operators_only() -> None:
    told = profile(
        stacks=[stack(8, LAYERS), stack(6, HEAD)],
        operators=[operator("qkv", 100), operator("final norm", 10, "head"), operator("head", 20, "head")],
    )
    assert [(each.frames[-1].name, each.samples) for each in weighed_stacks(told)] == [
        ("qkv", 8), ("final norm", 2), ("head", 4)
    ]  # fmt: skip


def test_a_node_of_the_tree_weighs_what_lies_on_it() -> None:
    root = tree(weighed_stacks(profile()), "verifier")
    (engine,) = root.children.values()
    (run,) = engine.children.values()
    assert (root.samples, engine.samples, run.samples) == (35, 35, 35)
    assert [(child.frame.name, child.samples) for child in run.children.values()] == [
        (LAYERS, 30),
        ("parse (b.py:7)", 5),
    ]


def test_the_picture_is_self_contained_and_its_boxes_are_as_wide_as_their_samples() -> None:
    svg = ElementTree.fromstring(flame_svg(profile()))
    name = "{http://www.w3.org/2000/svg}"
    assert {element.tag.removeprefix(name) for element in svg.iter()} <= {"svg", "style", "rect", "text", "title", "g"}
    assert not any(attribute.endswith("href") for element in svg.iter() for attribute in element.attrib)
    widths = {}
    for box in svg.iter(f"{name}g"):
        tip, rect = box.find(f"{name}title"), box.find(f"{name}rect")
        assert tip is not None
        assert rect is not None
        widths[str(tip.text).partition(":")[0]] = float(rect.attrib["width"])
    whole = widths["verifier"]
    assert math.isclose(widths["attention"], whole * 22.5 / 35, abs_tol=0.01)
    assert math.isclose(widths["qkv"], whole * 7.5 / 35, abs_tol=0.01)
    about = " ".join(text.text or "" for text in svg.findall(f"{name}text"))
    assert "verifier 127.0.0.1:7002" in about
    assert "35 samples of busy threads in 2.0 s" in about
    assert "shared out by the passes' own clocks" in about


def test_names_are_escaped_in_the_picture() -> None:
    svg = flame_svg(profile(stacks=[stack(1, '<lambda> (a "b" & c.py:1)')], operators=[]))
    assert any("<lambda> (a" in (title.text or "") for title in ElementTree.fromstring(svg).iter() if title.text)
    assert "passes' own clocks" not in svg


TASKS = [task(2_000, 500, 1_000), task(3_500, 1_900, 700, "verify"), task(4_200, 0, 10)]


def test_trace_events_lie_one_after_the_other_each_after_its_wait() -> None:
    events = json.loads(json.dumps(trace_events(profile(tasks=TASKS))))["traceEvents"]
    done = [event for event in events if event["ph"] == "X"]
    for event in done:
        assert {type(event[name]) for name in ("ts", "dur")} <= {int, float}
        assert (event["pid"], event["tid"], event["cat"]) == (1, 1, "task")
    for earlier, later in pairwise(done):
        assert earlier["ts"] + earlier["dur"] <= later["ts"] + 1e-9
    assert sum(event["dur"] for event in done) == pytest.approx(1.71)
    waits = {(event["id"], event["ph"]): event["ts"] for event in events if event["ph"] in "be"}
    for number, event in enumerate(done):
        assert waits[number, "e"] == event["ts"]
        assert waits[number, "e"] - waits[number, "b"] == pytest.approx(event["args"]["queue_ms"] * 1e3)
    assert [event["name"] for event in done] == ["decode", "verify", "decode"]


METRICS = [
    metric("hetspec_unit_busy_seconds_total", 0.5),
    metric("hetspec_task_seconds_count", 4, kind="decode"),
    metric("hetspec_task_seconds_sum", 0.4, kind="decode"),
    metric("hetspec_task_items_sum", 6, kind="decode"),
    metric("hetspec_task_rows_sum", 8, kind="decode"),
    metric("hetspec_task_seconds_count", 1, kind="verify"),
    metric("hetspec_task_seconds_sum", 0.1, kind="verify"),
    metric("hetspec_task_items_sum", 1, kind="verify"),
    metric("hetspec_task_rows_sum", 32, kind="verify"),
    metric("hetspec_queue_wait_seconds_count", 3),
    metric("hetspec_queue_wait_seconds_sum", 0.006),
    metric("hetspec_unit_received_bytes_total", 4000),
    metric("hetspec_unit_sent_bytes_total", 1000),
]


def rows(told: Profile) -> dict[str, list[dict[str, str]]]:
    return {t.title: [dict(zip(t.heads, row, strict=True)) for row in t.rows] for t in tables(told)}


def test_tables_are_the_sums_and_quotients_of_what_was_counted() -> None:
    work = operator("down", 200_000_000, macs=600_000_000, read_bytes=100_000_000)
    found = rows(profile(metrics=METRICS, operators=[work], tasks=[task(0, ns * 10**6, 1) for ns in (5, 1, 3)]))
    (down, outside) = found["Operators"]
    assert (down["ms"], down["share"], down["us a call"]) == ("200.0", "40.0%", "50000.0")
    assert (down["GMAC/s"], down["GB/s read"]) == ("3.00", "0.50")
    assert (outside["operator"], outside["ms"], outside["share"]) == ("outside operators", "300.0", "60.0%")
    decode, verify = found["Time by task"]
    assert decode == {
        "task": "decode", "count": "4", "ms": "400.0", "of the window": "20.0%", "ms each": "100.00",
        "items each": "1.50", "rows each": "2.00", "rows/s": "20",
    }  # fmt: skip
    assert (verify["ms each"], verify["rows each"], verify["rows/s"]) == ("100.00", "32.00", "320")
    (wait,) = found["Queue wait"]
    assert wait == {"tasks": "3", "mean ms": "2.00", "p50 ms": "3.00", "p99 ms": "5.00", "longest ms": "5.00"}
    assert [(row[""], row["kB"], row["kB/s"]) for row in found["Bytes moved"]] == [
        ("tasks in", "4.0", "2.0"), ("results out", "1.0", "0.5")
    ]  # fmt: skip


def test_a_service_without_tasks_tells_what_it_counted() -> None:
    metrics = [metric("hetspec_rounds_total", 3, mode="tree"), metric("hetspec_round_seconds_bucket", 3, le="1")]
    found = rows(profile(metrics=metrics, operators=[]))
    assert found == {"Counters": [{"": "hetspec_rounds_total (unit verifier, mode tree)", "grew by": "3"}]}


def test_files_are_named_after_the_replica(tmp_path: Path) -> None:
    written = write_files(profile(tasks=TASKS), tmp_path / "new")
    assert sorted(path.name for path in written) == [
        "verifier-1.speedscope.json", "verifier-1.svg", "verifier-1.trace.json"
    ]  # fmt: skip
    assert all(path.parent == tmp_path / "new" and path.stat().st_size for path in written)
    assert {path.suffix for path in write_files(profile(), tmp_path)} == {".svg", ".json"}
    assert len(write_files(profile(), tmp_path)) == 2  # no tasks, no trace


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(InvalidInput, match=re.escape(f"--out {taken}/")):
        write_files(profile(), taken)


@pytest.mark.parametrize(
    ("replica", "sent"), [(None, {}), ("1", {"replica": 1}), ("10.0.0.2:7002", {"replica": "10.0.0.2:7002"})]
)
def test_the_call_names_unit_replica_and_seconds(replica: str | None, sent: dict[str, Any]) -> None:
    call = profile_call("weight-store", replica, 3)
    assert json.loads(call.body or b"") == {"unit": "weight_store", "seconds": 3, **sent}
