"""`hetspec inspect`, over a server's HTTP API."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import httpx

from orchestrator.policies.control import AheadReport
from tests.clients.servers import live
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.test_edc_http import BODY, learned

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def test_inspect_shows_what_was_learned(run_here: Run) -> None:
    engine = FakeEngine(says("x"))
    engine.edc, snapshot = learned()
    engine.ahead = AheadReport(edc=snapshot)
    with live(engine) as url:
        request_id = httpx.post(f"{url}/v1/completions", json=BODY).headers["x-request-id"]
        shared, own = run_here("inspect", "edc", url=url), run_here("inspect", "edc", request_id, url=url)
        missing = run_here("inspect", "edc", "nobody", url=url)
    line = [b"0", b"1", b"1", b"0", b"no"]  # older, newer, ahead, counter, drafts on
    assert shared.returncode == own.returncode == 0
    assert shared.stdout.splitlines()[-1].split() == own.stdout.splitlines()[-1].split() == line
    assert b"choice 0: 1 of 2 verdicts foretold" in own.stdout
    assert b"5 0 0 0 0 0 0 0" in own.stdout
    assert missing.returncode == 2
    assert b"no request 'nobody' is kept" in missing.stderr


def test_inspect_says_so_where_nothing_was_learned(run_here: Run) -> None:
    with live(FakeEngine(says("x"))) as url:
        told = run_here("inspect", "edc", url=url)
    assert told.stdout.splitlines()[-1] == b"no counter differs from what it began as"
