"""Profiles of a process by itself: what the samplers see, what the window holds, one at a time.

py-spy reads all symbols of what it looks at, which in a process of many libraries takes seconds: it is shown a small
one. Where a test is not about what it sees, a program of ours stands in for it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import Counter, Histogram

from hetspec.rpc.messages import WorkTrace
from hetspec.telemetry import py_spy
from hetspec.telemetry.counters import Counters
from hetspec.telemetry.frame_sampler import FrameSampler
from hetspec.telemetry.profile import OperatorTotal, Profile, Stack, check_seconds
from hetspec.telemetry.profiler import Profiler, ProfilerBusyError
from hetspec.telemetry.registry import new_registry
from hetspec.telemetry.task_log import CAPACITY, TaskLog
from hetspec.telemetry.task_record import TaskKind, TaskRecord

over = threading.Event()
SAMPLING = "echo 'py-spy> Sampling process 100 times'"
A_PROCESS_THAT_PROFILES_ITSELF = """
    import asyncio, hashlib, json, threading
    from dataclasses import asdict
    from hetspec.telemetry.profiler import Profiler
    from hetspec.telemetry.registry import new_registry

    over = threading.Event()

    def spin():  # most of it without the interpreter's lock, as a unit computes
        while not over.is_set():
            hashlib.sha256(bytes(1 << 20))

    threads = [threading.Thread(target=spin, name="spinner"), threading.Thread(target=over.wait, name="sleeper")]
    for thread in threads:
        thread.start()
    profile = asyncio.run(Profiler(new_registry()).profile(1))
    over.set()
    print(json.dumps(asdict(profile)))
"""


@pytest.fixture
def py_spy_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a shell script in py-spy's place."""

    def put(script: str) -> None:
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))

    return put


@pytest.fixture
def busy() -> Iterator[None]:
    """A thread that computes in `spin`, and one that only waits."""
    over.clear()
    threads = [threading.Thread(target=spin, name="spinner"), threading.Thread(target=over.wait, name="sleeper")]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


def spin() -> None:
    """Most of it without the interpreter's lock, as a unit computes."""
    numbers = np.ones(200_000)
    while not over.is_set():
        np.sqrt(numbers, numbers)


def seen(profile: Profile, thread: str) -> list[Stack]:
    return [stack for stack in profile.stacks if stack.thread == thread]


def test_py_spy_sees_the_busy_thread_and_where_it_is() -> None:
    program = [sys.executable, "-c", textwrap.dedent(A_PROCESS_THAT_PROFILES_ITSELF)]
    told = json.loads(subprocess.run(program, stdout=subprocess.PIPE, check=True).stdout)
    assert told["sampler"] == {"name": "py-spy", "rate_hz": 100, "note": ""}
    stacks = [stack for stack in told["stacks"] if stack["thread"] == "spinner"]
    assert sum(stack["samples"] for stack in stacks) > 0
    assert all(any(frame.startswith("spin (") for frame in stack["frames"]) for stack in stacks)
    assert "sleeper" not in {stack["thread"] for stack in told["stacks"]}
    assert told["end_ns"] - told["start_ns"] > 0.9e9


async def test_without_py_spy_a_thread_of_ours_sees_the_same_and_says_why(
    busy: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    profile = await Profiler(new_registry()).profile(1)
    assert (profile.sampler.name, profile.sampler.note) == ("in-process", "py-spy is not installed")
    stacks = seen(profile, "spinner")
    assert sum(stack.samples for stack in stacks) > 0
    assert all(any(frame.startswith("spin (") for frame in stack.frames) for stack in stacks)
    assert not seen(profile, "sleeper")


async def test_py_spy_that_may_not_look_is_replaced(busy: None, py_spy_that: Callable[[str], None]) -> None:
    py_spy_that("echo 'Permission Denied: no' >&2; exit 1")
    profile = await Profiler(new_registry()).profile(1)
    assert (profile.sampler.name, profile.sampler.note) == ("in-process", "Permission Denied: no")


async def test_stacks_that_are_lost_on_the_way_leave_the_rest(py_spy_that: Callable[[str], None]) -> None:
    py_spy_that(f"{SAMPLING}; echo 'it went away' >&2; exit 3")
    registry = new_registry()
    counter = Counter("eggs", "Counted.", registry=registry)
    asyncio.get_running_loop().call_later(0.5, counter.inc)
    profile = await Profiler(registry).profile(1)
    assert (profile.sampler.name, profile.sampler.note, profile.stacks) == ("py-spy", "it went away", ())
    assert {change.name: change.value for change in profile.metrics}["eggs_total"] == 1


def test_folded_stacks_are_read_as_they_are_written() -> None:
    folded = "thread (12): engine;run (a.py:1);f (b.py:2) 7\nthread (0xAB): MainThread;<module> (c d.py:3) 1\n"
    assert py_spy.parse(folded) == (
        Stack("engine", ("run (a.py:1)", "f (b.py:2)"), 7),
        Stack("MainThread", ("<module> (c d.py:3)",), 1),
    )


@pytest.mark.parametrize("bytes_read", ["verify\x00\x00p~ÌO½", "two\nlines", "a\u2028b\nthread", "x 3\n 4", "\x7f"])
def test_stacks_that_changed_while_they_were_read_are_left_out(bytes_read: str) -> None:
    good = "thread (12): odd; name;run (a.py:1)"
    folded = f"{good} 7\nthread (12): engine;{bytes_read};f (b.py:2) 1\n{good} 2\n"
    assert py_spy.parse(folded) == tuple(Stack("odd; name", ("run (a.py:1)",), count) for count in (7, 2))


async def test_samples_of_a_thread_are_its_ticks_of_processor_time(busy: None) -> None:
    (spinner,) = (thread for thread in threading.enumerate() if thread.name == "spinner")
    assert spinner.ident is not None
    clock = time.pthread_getcpuclockid(spinner.ident)
    before_s = time.clock_gettime(clock)
    sampler = FrameSampler("asked for")
    await asyncio.sleep(0.5)
    inside_s = [time.clock_gettime(clock)]
    await asyncio.sleep(0.5)
    inside_s.append(time.clock_gettime(clock))
    stacks = await sampler.finish()
    spinning = sum(stack.samples for stack in stacks if stack.thread == "spinner")
    assert int((inside_s[1] - inside_s[0]) * 100) - 1 <= spinning <= (time.clock_gettime(clock) - before_s) * 100
    assert all(stack.thread != "frame-sampler" for stack in stacks)


async def test_one_profile_at_a_time(py_spy_that: Callable[[str], None]) -> None:
    py_spy_that(f"{SAMPLING}; sleep 1")
    profiler = Profiler(new_registry())
    first = asyncio.create_task(profiler.profile(1))
    await asyncio.sleep(0.2)
    with pytest.raises(ProfilerBusyError, match="a profile is being taken already"):
        await profiler.profile(1)
    await first
    await profiler.profile(1)


async def test_a_profile_that_nobody_waits_for_any_more_ends_at_once(py_spy_that: Callable[[str], None]) -> None:
    py_spy_that(f"sleep 0.2; {SAMPLING}; exec sleep 30")
    profiler = Profiler(new_registry())
    for delay_s in (0, 0.1, 0.5):  # before py-spy starts; while it starts; while it looks
        profile = asyncio.create_task(profiler.profile(30))
        await asyncio.sleep(delay_s)
        profile.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await profile
        profiler.tasks.add(1, record())
        assert profiler.tasks.close() == ((), 0)
    py_spy_that(SAMPLING)
    await profiler.profile(1)


@pytest.mark.parametrize("seconds", [0, 61])
def test_seconds_out_of_range_are_refused_by_name(seconds: int) -> None:
    with pytest.raises(ValueError, match=rf"seconds = {seconds}, must be in \[1, 60\]"):
        check_seconds(seconds)


async def test_a_profile_is_what_grew_in_its_window(py_spy_that: Callable[[str], None]) -> None:
    py_spy_that(SAMPLING)
    registry = new_registry()
    counter = Counter("eggs", "Counted.", ("size",), registry=registry)
    waits = Histogram("waits", "Waited.", registry=registry, buckets=(1, 2))
    counter.labels("large").inc(5)
    operators = [OperatorTotal("layers", "qkv", 10, 1, 3, 7, 9), OperatorTotal("layers", "o", 1, 1, 1)]
    profiler = Profiler(registry, operators=lambda: tuple(operators))

    def work() -> None:
        counter.labels("large").inc(2)
        counter.labels("small").inc()
        waits.observe(1.5)
        profiler.tasks.add(77, record(queue_ns=3))
        operators[0] = OperatorTotal("layers", "qkv", 25, 3, 13, 107, 19)

    profiler.tasks.add(1, record())
    asyncio.get_running_loop().call_later(0.5, work)
    profile = await profiler.profile(1)
    profiler.tasks.add(2, record())
    grown = {
        (change.name, change.labels.get("size", change.labels.get("le"))): change.value for change in profile.metrics
    }
    assert grown[("eggs_total", "large")] == 2
    assert grown[("eggs_total", "small")] == 1
    assert (grown[("waits_sum", None)], grown[("waits_bucket", "2.0")]) == (1.5, 1)
    assert ("waits_bucket", "1.0") not in grown
    assert profile.operators == (OperatorTotal("layers", "qkv", 15, 2, 10, 100, 10),)
    assert [(task.start_ns, task.queue_ns, task.kind) for task in profile.tasks] == [(77, 3, "decode")]


def record(queue_ns: int = 0) -> TaskRecord:
    return TaskRecord(TaskKind.DECODE, 1, 1, queue_ns, 5, WorkTrace(), 10, 20)


def test_too_many_tasks_leave_the_newest_and_say_how_many_are_missing() -> None:
    log = TaskLog()
    log.open()
    for start_ns in range(CAPACITY + 7):
        log.add(start_ns, record())
    spans, dropped = log.close()
    assert (len(spans), dropped) == (CAPACITY, 7)
    assert (spans[0].start_ns, spans[-1].start_ns) == (7, CAPACITY + 6)
    assert log.close() == ((), 0)


def test_counters_of_some_names_are_those_alone() -> None:
    registry = new_registry()
    counter = Counter("eggs", "Counted.", ("size",), registry=registry)
    counter.labels("large").inc(2)
    counter.labels("small").inc(3)
    Counter("nuts", "Counted.", registry=registry).inc()
    counted = Counters(registry, ("eggs_total",))
    assert (counted.total("eggs_total"), counted.total("nuts_total")) == (5, 0)
