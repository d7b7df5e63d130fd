"""`python -m orchestrator` as a process: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.__main__ import main

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("HETSPEC_")}


@contextmanager
def orchestrator(**settings: str) -> Iterator[subprocess.Popen[str]]:
    env = ENVIRON | {"PYTHONPATH": "services", "HETSPEC_PORT": "0"}
    env |= {f"HETSPEC_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "orchestrator"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "http"),
        ("port", "65536"),
        ("verifier", "nowhere"),
        ("drain_s", "-1"),
        ("port", ""),
        ("metrics_port", "65536"),
        ("log_level", "LOUD"),
    ],
)
def test_bad_setting_is_one_line_and_exit_code_2(name, value, monkeypatch, capfd):
    monkeypatch.setenv(f"HETSPEC_{name.upper()}", value)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capfd.readouterr().err
    assert ended.value.code == 2
    assert told.count("\n") == 1
    assert told.startswith(f"orchestrator: HETSPEC_{name.upper()} = {value!r}: ")


def test_a_process_says_nothing_else():
    with orchestrator(mode="fast") as process:
        _, told = process.communicate(timeout=30)
    assert process.returncode == 2
    assert told.count("\n") == 1
    assert told.startswith("orchestrator: HETSPEC_MODE = 'fast': ")


def test_taken_port_is_one_line_and_exit_code_2():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with orchestrator(port=str(port)) as process:
            _, told = process.communicate(timeout=30)
    assert process.returncode == 2
    assert told.count("\n") == 1
    assert f"127.0.0.1:{port}" in told


def test_taken_metrics_port_is_one_line_and_exit_code_2():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with orchestrator(metrics_port=str(port)) as process:
            _, told = process.communicate(timeout=30)
    assert process.returncode == 2
    assert told == f"orchestrator: HETSPEC_METRICS_PORT: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_it_lives_without_units_says_so_and_ends_on_sigterm():
    nobody = dict.fromkeys(("weight_store", "verifier", "drafter", "sampler"), "127.0.0.1:9")
    with orchestrator(**nobody) as process:
        assert process.stderr is not None
        port = json.loads(process.stderr.readline())["port"]
        assert get(port, "/healthz") == (200, {"status": "ok"})
        status, told = get(port, "/readyz")
        assert (status, told["missing"]) == (503, ["weight_store", "verifier", "sampler"])
        assert get(port, "/v1/models")[0] == 503
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert not re.search("traceback", rest, re.IGNORECASE)


def get(port: int, path: str) -> tuple[int, dict]:
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
