"""Whether the server that `make up` started will ever answer."""

from __future__ import annotations

import json

import pytest

from deploy.local.readiness import ready
from deploy.local.settings import LaunchError, Service
from tests.clients.servers import HOST, raw, response

WAITING = {"status": "waiting", "missing": ["verifier"], "replicas": {"verifier": 1, "sampler": 1, "drafter": 1}}


def is_ready(told: bytes, status: str) -> bool:
    with raw(response(told, status=status)) as server:
        return ready(Service("orchestrator", HOST, int(server.url.rpartition(":")[2]), {}))


def test_one_that_waits_may_still_become_ready() -> None:
    assert not is_ready(json.dumps(WAITING).encode(), "503 Service Unavailable")
    assert is_ready(json.dumps(WAITING).encode(), "200 OK")
    assert not is_ready(b"not JSON", "503 Service Unavailable")
    assert not is_ready(b"[]", "503 Service Unavailable")


def test_a_problem_that_no_waiting_mends_ends_the_launch_with_its_line() -> None:
    told = WAITING | {"problem": "gpu: the verifier's palm-62b:int4 brings gddr7 to 35.00 GB, it holds 24.00 GB"}
    with pytest.raises(LaunchError, match=r"^orchestrator: gpu: the verifier.s palm-62b:int4 brings gddr7"):
        is_ready(json.dumps(told).encode(), "503 Service Unavailable")
