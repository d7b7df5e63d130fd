"""`make up` and `make down` from any state, with stand-ins that hold a port and do nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import ports, process, settings
from deploy.local.launcher import Launcher
from deploy.local.process import Record, RunFolder
from deploy.local.settings import LaunchError, Service
from tests.ports import free_ports

STAND_IN = textwrap.dedent("""
    import os, signal, socket, sys, time
    from pathlib import Path

    print("starting", flush=True)
    if Path("broken").exists():
        sys.exit("HETSPEC_TARGET: no such file")
    if Path("stubborn").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.create_server((os.environ["HETSPEC_HOST"], int(os.environ["HETSPEC_PORT"])))
    while True:
        listener.accept()[0].close()
""")


def answers(service: Service) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((service.host, service.port), timeout=1):
        return True
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Place:
    """A folder with stand-ins for the five services, and settings with free ports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (*settings.UNITS, "orchestrator"):
            (root / "services" / name).mkdir(parents=True)
            (root / "services" / name / "__init__.py").touch()  # else an installed package of that name goes before
            (root / "services" / name / "__main__.py").write_text(STAND_IN)
        (root / "pyproject.toml").touch()
        *units, port = free_ports(5)
        self.environ = {
            f"HETSPEC_{name.upper()}": f"127.0.0.1:{p}" for name, p in zip(settings.UNITS, units, strict=True)
        }
        self.environ |= {"HETSPEC_PORT": str(port), "HETSPEC_METRICS_PORT": "0"}
        self.folder = RunFolder(root / ".run")
        self.said: list[str] = []
        self.launchers: list[Launcher] = []

    @property
    def services(self) -> list[Service]:
        return settings.services(self.environ)

    def launcher(self, grace_s: float = 5.0) -> Launcher:
        """A new one each time, as each `make` is."""
        code = settings.code_digest(self.root)
        self.launchers.append(Launcher(self.root, self.folder, code, answers, self.said.append, 20.0, grace_s))
        return self.launchers[-1]

    def up(self) -> None:
        self.launcher().up(self.services)

    def pids(self) -> dict[str, int]:
        records = {name: self.folder.read(name) for name in self.folder.names()}
        return {name: record.pid for name, record in records.items() if record}

    def clean_up(self) -> None:
        process.stop(self.folder, self.folder.names(), 0)
        for launcher in self.launchers:
            for child in launcher._children.values():
                child.wait(10)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield other
        other.kill()


def test_up_starts_all_five_and_down_leaves_neither_process_nor_port(place):
    place.up()
    assert set(place.pids()) == {*settings.UNITS, "orchestrator"}
    assert all(answers(service) for service in place.services)
    place.launcher().down()
    assert place.pids() == {}
    assert not any(ports.taken(service.host, service.port) for service in place.services)


def test_up_leaves_alone_what_runs(place):
    place.up()
    before = place.pids()
    place.up()
    assert place.pids() == before


@pytest.mark.parametrize("name", ["weight_store", "verifier", "orchestrator"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_stopped_service_comes_back_and_the_others_stay(place, name, number):
    place.up()
    before = place.pids()
    record = place.folder.read(name)
    os.kill(record.pid, number)
    wait_for(lambda: record.frozen or not record.alive)
    place.up()
    after = place.pids()
    assert {other for other in before if after[other] != before[other]} == {name}
    assert all(answers(service) for service in place.services)


def test_changed_setting_restarts_what_it_concerns(place):
    place.up()
    before = place.pids()
    (place.environ["HETSPEC_PORT"],) = map(str, free_ports(1))
    place.up()
    assert {name for name, pid in place.pids().items() if pid != before[name]} == {"orchestrator"}
    place.environ["HETSPEC_TARGET"] = "other.gguf"
    place.up()
    assert not set(place.pids().values()) & set(before.values())


def test_changed_code_restarts_the_services(place):
    place.up()
    before = place.pids()
    (place.root / "services" / "shared.py").write_text("x = 1")
    place.up()
    assert not set(place.pids().values()) & set(before.values())


def test_taken_port_is_named_with_its_process_and_nothing_starts(place):
    verifier = place.services[1]
    with socket.create_server((verifier.host, verifier.port)), pytest.raises(LaunchError) as refused:
        place.up()
    assert str(refused.value).startswith(f"verifier: port {verifier.port} is taken by process {os.getpid()} (")
    assert place.pids() == {}


def test_service_that_dies_is_reported_with_its_last_line(place):
    (place.root / "broken").touch()
    with pytest.raises(LaunchError, match=r"^weight_store ended with code 1: HETSPEC_TARGET: no such file$"):
        place.up()
    (place.root / "broken").unlink()
    place.up()
    assert len(place.pids()) == 5


def test_service_that_never_answers_is_reported(place):
    launcher = replace(place.launcher(), ready=lambda _: False, ready_within_s=0.2)
    place.launchers.append(launcher)
    with pytest.raises(LaunchError, match="not ready after 0 s: weight_store"):
        launcher.up(place.services)


def test_recycled_pid_is_never_killed(place, stranger):
    record = Record(stranger.pid, "a time long ago", "")
    place.folder.write("verifier", record)
    assert place.launcher().down() == []
    assert stranger.poll() is None
    assert place.folder.names() == []


def test_broken_pid_file_counts_as_none(place):
    (place.folder.path / "verifier.pid").write_text("{")
    place.up()
    assert len(place.pids()) == 5


def test_service_deaf_to_sigterm_is_killed_after_the_grace(place):
    (place.root / "stubborn").touch()
    place.up()
    place.launcher(grace_s=0.2).down()
    assert place.pids() == {}
    assert not any(answers(service) for service in place.services)


def test_process_of_another_start_time_is_not_ours(stranger):
    born = process.birth(stranger.pid)
    assert born is not None
    assert Record(stranger.pid, born, "").alive
    assert not Record(stranger.pid, born + "1", "").alive
    stranger.kill()
    stranger.wait()
    assert not Record(stranger.pid, born, "").alive


def test_units_get_their_own_place_and_the_users_settings():
    environ = {"HETSPEC_HOST": "0.0.0.0", "HETSPEC_VERIFIER": "localhost:7402", "HETSPEC_TARGET": "a", "HOME": "/"}
    told = {service.name: service for service in settings.services(environ)}
    assert (told["orchestrator"].host, told["orchestrator"].address) == ("0.0.0.0", "127.0.0.1:8000")
    assert (told["verifier"].host, told["verifier"].port) == ("localhost", 7402)
    assert told["sampler"].env == {
        "HETSPEC_HOST": "127.0.0.1",
        "HETSPEC_PORT": "7004",
        "HETSPEC_METRICS_PORT": "7104",
        "HETSPEC_VERIFIER": "localhost:7402",
        "HETSPEC_TARGET": "a",
    }


def test_services_start_anew_when_spans_are_to_go_elsewhere():
    here, there = (settings.services({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:4317"}) for host in ("a", "b"))
    assert all(a.digest("code") != b.digest("code") for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"HETSPEC_PORT": "http"}, "HETSPEC_PORT"),
        ({"HETSPEC_PORT": "65536"}, "HETSPEC_PORT"),
        ({"HETSPEC_SAMPLER": "10.0.0.7:7004"}, "HETSPEC_SAMPLER"),
        ({"HETSPEC_SAMPLER": "7004"}, "HETSPEC_SAMPLER"),
        ({"HETSPEC_PORT": "7001"}, "port 7001"),
        ({"HETSPEC_METRICS_PORT": "7000"}, "port 7001"),
        ({"HETSPEC_METRICS_PORT": "65535"}, "HETSPEC_METRICS_PORT"),
    ],
)
def test_setting_that_cannot_be_is_named(environ, named):
    with pytest.raises(LaunchError, match=named):
        settings.services(environ)
