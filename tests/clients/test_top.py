"""What `hetspec top` makes of two looks at the services."""

from __future__ import annotations

from typing import Any

from hetspec_client.commands.top import _row
from hetspec_client.observe.service import Load, Service, loads, parse_services


def service(**changes: Any) -> dict[str, Any]:
    """As the server tells of a verifier that has computed half of its time."""
    return {
        "unit": "verifier", "replica": 1, "address": "127.0.0.1:7002", "problem": None, "instance": "a",
        "model": "tiny", "precision": "int8", "digest": "d", "threads": 2, "uptime_seconds": 100.0,
        "busy_seconds": 50.0, "tasks": 1000, "rows": 5000, "running": 1, "queued": 3, "sessions": 4,
        "kv_held_tokens": 96, "kv_capacity_tokens": 1024, "leases": None, "generated_tokens": None,
        "verified_tokens": None, "accepted_tokens": None,
    } | changes  # fmt: skip


def parsed(**changes: Any) -> Service:
    return Service.parse(service(**changes))


def test_rates_are_what_grew_by_the_services_own_clock() -> None:
    later = parsed(uptime_seconds=104.0, busy_seconds=53.0, tasks=1010, rows=5400)
    (load,) = loads([parsed()], [later])
    assert (load.busy_share, load.tasks_per_s, load.rows_per_s) == (0.75, 2.5, 100.0)
    assert (load.tokens_per_s, load.acceptance) == (None, None)


def test_tokens_and_acceptance_are_those_between_the_looks() -> None:
    before = parsed(unit="orchestrator", generated_tokens=10, verified_tokens=100, accepted_tokens=90)
    after = parsed(
        unit="orchestrator", uptime_seconds=102.0, generated_tokens=60, verified_tokens=140, accepted_tokens=100
    )
    (load,) = loads([before], [after])
    assert (load.tokens_per_s, load.acceptance) == (25.0, 0.25)


def test_a_service_seen_first_or_started_again_has_its_rates_since_its_start() -> None:
    for earlier in ([], [parsed(instance="before", busy_seconds=900.0)], [parsed(problem="does not answer")]):
        (load,) = loads(earlier, [parsed()])
        assert (load.busy_share, load.tasks_per_s, load.rows_per_s) == (0.5, 10.0, 50.0)


def test_replicas_are_told_apart_by_address() -> None:
    before = [parsed(), parsed(address="127.0.0.1:7102", replica=2, busy_seconds=10.0)]
    after = [parsed(address="127.0.0.1:7102", replica=1, uptime_seconds=110.0, busy_seconds=11.0)]
    (load,) = loads(before, after)
    assert load.busy_share == 0.1


def test_a_row_shows_what_there_is_and_a_silent_service_why() -> None:
    row = _row(Load.between(None, parsed()))
    assert row == (
        "verifier", "127.0.0.1:7002", "tiny int8", "50%", "1", "3", "4", "96 of 1024", "10.0", "50", "", ""
    )  # fmt: skip
    silent = parsed(problem="does not answer", uptime_seconds=0.0)
    assert _row(Load.between(None, silent))[:3] == ("verifier", "127.0.0.1:7002", "does not answer")


def test_a_newer_server_may_tell_more() -> None:
    (told,) = parse_services({"data": [service(temperature_c=41)]})
    assert told.more == {"temperature_c": 41}
