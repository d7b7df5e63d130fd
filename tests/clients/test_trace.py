"""What `hetspec trace` makes of a trace: a picture, lines of letters, and files."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from math import floor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec_client.observe.trace import Axis, Trace
from hetspec_client.observe.trace_colours import KINDS, look
from hetspec_client.observe.trace_svg import trace_svg
from hetspec_client.observe.trace_text import HEADS, lane_lines, rows
from orchestrator.api.chrome_trace import Block, Process
from tests.clients.command import failure_line
from tests.clients.servers import raw, response

_SVG = "{http://www.w3.org/2000/svg}"
Tasks = list[tuple[str, int, int]]  # of a lane: kind, idle ns before it, ns
TASKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 90_000), st.integers(1, 90_000)), max_size=8)


def told(npu: Tasks, pim: Tasks = []) -> dict[str, Any]:  # noqa: B006  read only
    """As the server writes it, with an arrow from each task of the one lane to that of the other."""
    ids = itertools.count(1)
    process, host = Process(1, "emulated npu-lpddr5-pim", ["npu", "pim"], 0, ids), Process(2, "host", [], 0, ids)
    placed = {lane: list(_placed(lane, tasks)) for lane, tasks in (("npu", npu), ("pim", pim))}
    for kind, block in itertools.chain(*placed.values()):
        args = {"outcome": ["done"], "waited_ns": [7]} if kind != "other" else {}
        process.block(block, f"{kind} 3 rows", kind, args)
    for (_, source), (_, target) in zip(placed["pim"], placed["npu"], strict=False):
        process.arrow(source, target, "judged")
    about = {"request": "mine", "mode": "tree", "tasks_left_out": 0}
    return {"traceEvents": [*process.events(), *host.events()], "displayTimeUnit": "ms", "otherData": about}


def _placed(lane: str, tasks: Tasks) -> Any:
    now_ns = 0
    for kind, idle_ns, took_ns in tasks:
        now_ns += idle_ns
        yield kind, Block(lane, now_ns, now_ns + took_ns)
        now_ns += took_ns


def axis(npu: Tasks, pim: Tasks = []) -> Axis:  # noqa: B006
    emulated = Trace.parse(told(npu, pim)).emulated
    assert emulated is not None
    return emulated


@given(TASKS, TASKS)
def test_a_picture_has_a_bar_for_every_block_as_wide_as_its_time_and_every_arrow(npu: Tasks, pim: Tasks) -> None:
    trace = Trace.parse(told(npu, pim))
    assert trace.emulated is not None
    svg = ElementTree.fromstring(trace_svg(trace, trace.emulated))
    bars = [group.find(f"{_SVG}rect") for group in svg.iter(f"{_SVG}g")]
    assert len(bars) == len(npu) + len(pim)
    assert len(list(svg.iter(f"{_SVG}path"))) == min(len(npu), len(pim))
    drawn, took = Counter[str](), Counter[str]()
    for bar in bars:
        assert bar is not None
        drawn[bar.attrib["fill"]] += float(bar.attrib["width"])  # type: ignore[assignment]
    for kind, _, ns in npu + pim:
        took[look(kind).colour] += ns
    scale = sum(drawn.values()) / max(1, sum(took.values()))
    for colour, ns in took.items():
        assert drawn[colour] == pytest.approx(ns * scale, abs=0.4 * (len(npu) + len(pim)))


@given(TASKS, st.integers(20, 120))
def test_each_letter_is_what_most_of_its_time_went_to(npu: Tasks, width: int) -> None:
    shown = axis(npu)
    letters = max(10, width - len("npu") - len("  100%") - 1)
    line = next(lane_lines(shown, width)).plain[len("npu ") :][:letters]
    assert len(line) == letters
    for place, letter in enumerate(line):
        if letter != "·" and shown.us:
            middle = {
                look(kind).letter for kind, block in _placed("npu", npu) if _touches(block, place, shown, letters)
            }
            assert letter in middle
    if not npu:
        assert set(line) == {"·"}


def _touches(block: Block, place: int, shown: Axis, letters: int) -> bool:
    scale = letters / shown.us / 1e3
    return floor(block.begin_ns * scale) <= place <= block.end_ns * scale


@given(TASKS, TASKS)
def test_the_table_counts_and_sums_every_kind(npu: Tasks, pim: Tasks) -> None:
    found = {row[0]: dict(zip(HEADS, row, strict=True)) for row in rows(axis(npu, pim))}
    counts = Counter(kind for kind, _, _ in npu + pim)
    assert {kind: int(row["tasks"]) for kind, row in found.items()} == counts
    for kind, row in found.items():
        took_ns = sum(ns for each, _, ns in npu + pim if each == kind)
        assert float(row["ms"]) == pytest.approx(took_ns / 1e6, abs=6e-4)


def test_the_command_shows_saves_and_draws(run_here: Any, tmp_path: Path) -> None:
    answer = told([("verify", 0, 4_000_000)], [("draft", 1_000_000, 3_000_000)])
    saved, picture = tmp_path / "mine.json", tmp_path / "mine.svg"
    with raw(response(json.dumps(answer).encode())) as server:
        done = run_here("trace", "mine", "--out", str(saved), "--picture", str(picture), url=server.url)
        as_json = run_here("trace", "mine", "--json", url=server.url)
    assert done.returncode == 0
    shown = done.stdout.decode().splitlines()
    assert shown[0] == "emulated npu-lpddr5-pim, mode tree: 4.000 ms"
    assert [line.split()[-1] for line in shown if line.startswith(("npu ", "pim "))] == ["100%", "75%"]
    assert json.loads(saved.read_text()) == json.loads(as_json.stdout) == answer
    assert ElementTree.parse(picture).getroot().tag == f"{_SVG}svg"


def test_a_file_that_cannot_be_written_and_an_answer_that_is_no_trace_are_one_line(
    run_here: Any, tmp_path: Path
) -> None:
    with raw(response(json.dumps(told([])).encode())) as server:
        done = run_here("trace", "mine", "--out", str(tmp_path), url=server.url)
    assert (done.returncode, f"--out {tmp_path}: " in failure_line(done)) == (2, True)
    with raw(response(b'{"object": "list"}')) as server:
        done = run_here("trace", "mine", url=server.url)
    assert (done.returncode, "not of this API" in failure_line(done)) == (1, True)
