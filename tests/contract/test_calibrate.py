"""A running system is measured by asking its units, and what comes of it is a profile that prices it."""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from calibration import calm
from calibration.calibration import Calibration
from calibration.command import app
from calibration.errors import CalibrationError
from calibration.profile_file import write_profile
from calibration.rig import Addresses, real_shapes
from hetspec.hardware.cost_as import own_cost
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.measured import KvTable
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import MeasuredHost, load_profile
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork
from hetspec_client.commands.server import Server as ServerOptions
from hetspec_client.errors import InvalidInput
from tests.draft_artefact import make_draft
from tests.models import make_checkpoint
from tests.ports import HOST, free_ports
from tests.system import Setup, System

CONTEXT = 256


class Server:
    """Answers as one whose tasks cost 2.5 ms beside their work."""

    def complete(self, prompt: str, **options: Any) -> Any:
        assert options["mode"] == "plain"
        return SimpleNamespace(
            statistics=SimpleNamespace(rounds=10, host_ns={"orchestrator": 40_000_000, "queue": 10_000_000})
        )


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("calibrate")
    target = make_checkpoint(folder / "target", "qwen3", num_hidden_layers=2, max_position_embeddings=1024)
    return Setup(target, folder / "packs", make_draft(folder / "draft", target), max_context=1024)


@pytest.fixture(autouse=True)
def _on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MOST_SPREAD", "MOST_FALL", "MOST_WAITING"):
        monkeypatch.setattr(calm, limit, float("inf"))


async def calibrate(system: System, wanted: int = CONTEXT) -> MeasuredHost:
    server: Any = Server()
    addresses = Addresses(**{name: getattr(system.addresses, name) for name in Addresses.__slots__})
    return await asyncio.to_thread(Calibration(addresses, server, wanted, 0.0).run, "desk", lambda share: None)


@pytest.mark.parametrize("drafts", [True, False])
async def test_a_system_is_measured_and_priced_by_it_and_left_as_it_was(
    setup: Setup, tmp_path: Path, drafts: bool
) -> None:
    async with System(setup if drafts else replace(setup, draft=None)) as system:
        profile = await calibrate(system)
        await system.until_nothing_is_held()
        real = await asyncio.to_thread(real_shapes, system.addresses.weight_store)
    write_profile(tmp_path / "desk.yaml", profile)
    assert load_profile(str(tmp_path / "desk.yaml")) == profile
    measured = profile.measured
    assert measured is not None
    assert (measured.draft is not None, measured.task_ms, measured.threads) == (drafts, 2.5, 1)
    own = own_cost(real, Datatype.INT8)
    pricing = Pricing(profile, own.target, own.draft, real)
    for rows, kv in ((1, 1), (65, CONTEXT), (512, CONTEXT // 2), (77, 100)):
        assert pricing.price(VerifyWork((ItemRows((kv,) * rows),), (rows,) * 2)).duration_ns > measured.task_ns
    assert pricing.price(WalkWork(65, 65, lazy=False)).duration_ns > measured.task_ns
    if drafts:
        items = (ItemRows((100,) * 331),)
        assert pricing.price(DraftWork(items, (300, 7, 8, 8, 8), 25)).duration_ns > measured.task_ns


@pytest.mark.parametrize("drafts", [True, False])
async def test_the_verb_tells_every_table_at_the_shapes_that_were_measured(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafts: bool
) -> None:
    monkeypatch.setattr(ServerOptions, "connect", lambda self: nullcontext(Server()))
    out = tmp_path / "missing" / "desk.yaml"
    async with System(setup if drafts else replace(setup, draft=None)) as system:
        units = {name: getattr(system.addresses, name) for name in Addresses.__slots__}
        words = [word for name, address in units.items() for word in (f"--{name.replace('_', '-')}", address)]
        asked = ["--out", str(out), "--max-context", str(CONTEXT), "--seconds", "1", *words]
        ran = await asyncio.to_thread(CliRunner().invoke, app, asked)
    assert ran.exit_code == 0, ran.output
    *told, last = ran.stdout.split("\n\n")
    assert last == f"{out} is written: HETSPEC_CLOCK=emulated HETSPEC_HARDWARE={out} make up\n"
    profile = load_profile(str(out))
    assert isinstance(profile, MeasuredHost)
    assert profile.measured is not None
    measured = profile.measured
    for table in (measured.verify, measured.draft_read, measured.draft_step, measured.head):
        if table is not None:
            heads, *lines = told.pop(0).splitlines()
            if isinstance(table, KvTable):
                assert [int(at) for at in re.findall(r"ms at (\d+) position", heads)] == table.kv
            numbers = [[float(cell) for cell in line.split()] for line in lines]
            assert [int(rows) for rows, *_ in numbers] == table.rows
            rounded = [[*ms] if isinstance(table, KvTable) else [ms] for ms in table.ms]
            assert [ms for _, *ms in numbers] == [[pytest.approx(one, abs=0.006) for one in ms] for ms in rounded]
    assert [line.split()[-1] for line in told.pop().splitlines()[1:]] == [f"{measured.layer_read_ms:.2f}", "2.50"]
    assert told == []


async def test_a_machine_that_is_busy_is_not_measured(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    signs = {
        "MOST_FALL": "a pass of 1 rows took",
        "MOST_SPREAD": "passes of one shape differ by",
        "MOST_WAITING": "something waited for a processor",
    }
    async with System(replace(setup, draft=None)) as system:
        for limit, told in signs.items():
            monkeypatch.setattr(calm, limit, -1.0)
            with pytest.raises(CalibrationError, match=f"something else keeps this machine busy: {told}"):
                await calibrate(system)


async def test_a_verifier_that_streams_or_has_no_room_is_refused(setup: Setup) -> None:
    async with System(replace(setup, dram_budget="50%")) as system:
        with pytest.raises(CalibrationError, match="streams layers: calibrate without HETSPEC_DRAM_BUDGET"):
            await calibrate(system)
    async with System(replace(setup, max_context=816)) as system:
        with pytest.raises(CalibrationError, match="the verifier has room for 176 tokens more, needs 256"):
            await calibrate(system)


def test_a_unit_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.unit_stream._TIMEOUT_S", 0.2)
    server: Any = Server()
    nowhere = [f"{HOST}:{port}" for port in free_ports(4)]
    with pytest.raises(CalibrationError, match=f"no verifier at {nowhere[1]}: `make up` starts one"):
        Calibration(Addresses(*nowhere), server, CONTEXT, 0.0).run("desk", lambda share: None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--out", "desk.txt"], "--out desk.txt, must end with .yaml: HETSPEC_HARDWARE would take it for a name"),
        (["--verifier", f"{HOST}:1"], f"no verifier at {HOST}:1: `make up` starts one"),
    ],
)
def test_the_verb_says_in_one_line_why_it_cannot(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.unit_stream._TIMEOUT_S", 0.2)
    failed = CliRunner().invoke(app, arguments).exception
    assert isinstance(failed, InvalidInput)
    assert str(failed) == told
