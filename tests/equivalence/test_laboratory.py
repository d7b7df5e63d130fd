"""What a record and a draft whose proposals are known say of rounds, time and energy is what the services do."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import Described, load_profile
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.target import Target
from laboratory.commands.bench import app
from laboratory.drafts import StudiedDraft, open_real_draft
from laboratory.errors import StudyError
from laboratory.lever_policies import no_read_ahead, one_bucket, serial_reads
from laboratory.outcome import Outcome
from laboratory.policy import Policy
from laboratory.record import Record, read_record, write_record
from laboratory.recording import Asking, Recorder
from laboratory.rig import Rig, hardware_of
from laboratory.stated import Acceptance, StatedProposals
from laboratory.study import Pair, Study
from laboratory.works import repriced
from orchestrator.clock.settings import WorldSettings
from orchestrator.policies.drafting_algorithm import Drafting
from orchestrator.policies.mode import Mode, Part
from tests.acceptance_artefact import make_acceptance
from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target
from tests.system import Ask, Setup, System

PROMPTS = (tuple(range(30, 110)), tuple(range(40, 60)) * 2)
TOKENS, CHUNK = 24, 64
HARDWARE, COST_AS = "oneplus12", "llama2-7b:int4"
LAZY_HEAD = frozenset({Part.LAZY_HEAD})
POLICIES = (
    Policy("plain", Mode.PLAIN),
    Policy("chain", Mode.CHAIN, 5, 5),
    Policy("tree", Mode.TREE, 12, 4),
    Policy("lever", Mode.LEVER, 24, 6),
    Policy("lever, eager", Mode.LEVER, 24, 6, LAZY_HEAD),
)
JUDGED = Policy("chain, specdecpp", Mode.CHAIN, 8, 8, drafting=Drafting.SPECDECPP)


def profile() -> Described:
    found = load_profile(HARDWARE)
    assert isinstance(found, Described)
    return found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_forgetful_target(tmp_path_factory.mktemp("forgetful"))


@pytest.fixture(scope="module")
def draft(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_agreeing_draft(tmp_path_factory.mktemp("agreeing"), target, head_vocab_size=330)


@pytest.fixture(scope="module")
def record(target: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    out = tmp_path_factory.mktemp("record") / "a.npz"
    prompts = [Prompt(prompt, "talk") for prompt in PROMPTS]
    opened, work = Target.open(target, cache_dir), out.with_suffix(".work")
    recorder = Recorder(opened, Asking(TOKENS), work, threads=1, max_context=256)
    try:
        return recorder.record(prompts, out, lambda _: None)
    finally:
        recorder.close()


@pytest.fixture(scope="module")
def head(target: Path, draft: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_acceptance(tmp_path_factory.mktemp("head"), target, draft, cache_dir, logit=4.0)


@pytest.fixture
def studied(record: Record, target: Path, draft: Path, head: Path, cache_dir: Path) -> StudiedDraft:
    return open_real_draft(record, target, draft, cache_dir, 1, head)


@pytest_asyncio.fixture
async def system(target: Path, draft: Path, head: Path, cache_dir: Path) -> AsyncIterator[System]:
    world = WorldSettings(profile(), parse_cost_as(COST_AS))
    async with System(
        Setup(target, cache_dir, draft=draft, chunk_tokens=CHUNK, world=world, acceptance=head)
    ) as system:
        yield system


async def test_rounds_time_and_energy_are_those_of_the_services(
    system: System, record: Record, studied: StudiedDraft
) -> None:
    rig = Rig(record, studied.model, studied.shapes, profile(), parse_cost_as(COST_AS), CHUNK)
    accepted = 0
    for place, prompt in enumerate(PROMPTS):
        studied.proposals.turn_to(place)
        for policy in (*POLICIES, JUDGED):
            ask = Ask(
                prompt, policy.mode.value, TOKENS, max_nodes=policy.max_nodes, max_depth=policy.max_depth,
                disabled=policy.disabled, drafting=policy.drafting,
            )  # fmt: skip
            real = await system.generate(ask)
            found = (await rig.answer(place, policy)).outcome
            assert tuple(real.tokens) == record.answers[place].tokens, policy.name
            assert found == replace(Outcome.of(real.statistics), energy_pj=found.energy_pj), policy.name
            # Static power is rounded by when, not by how long, it is drawn.
            assert found.energy_pj == pytest.approx(Outcome.of(real.statistics).energy_pj, abs=8), policy.name
            accepted += found.accepted
    assert accepted > TOKENS
    studied.close()


async def test_the_same_work_elsewhere_costs_what_it_costs_when_it_is_done_there(
    record: Record, studied: StudiedDraft
) -> None:
    """Whatever the hardware, where a policy does not see its costs; and of a walk that is not lazy."""
    there = [(change(profile()), "llama2-13b:int4") for change in (no_read_ahead, one_bucket, serial_reads)]
    home = Rig(record, studied.model, studied.shapes, profile(), parse_cost_as(COST_AS))
    studied.proposals.turn_to(0)
    for policy in POLICIES[:3]:
        done = await home.answer(0, policy)
        for hardware, cost_as in there:
            rig = Rig(record, studied.model, studied.shapes, hardware, parse_cost_as(cost_as))
            expected = (await rig.answer(0, policy)).outcome
            found = repriced(done, hardware_of(studied.shapes, hardware, parse_cost_as(cost_as)), lazy=True)
            assert found == expected
    lazy, eager = [await home.answer(0, policy) for policy in POLICIES[3:]]
    assert repriced(lazy, hardware_of(studied.shapes, profile(), parse_cost_as(COST_AS)), lazy=False) == eager.outcome
    studied.close()


def test_a_study_gives_what_each_run_gives_alone(record: Record, studied: StudiedDraft) -> None:
    pair = Pair(profile(), parse_cost_as(COST_AS))
    runs = [(pair, policy) for policy in POLICIES]
    together = Study(record, studied, runs)
    alone = [Study(record, replace(studied, close=lambda: None), [run]) for run in runs]
    for place in range(len(PROMPTS)):
        assert together.answer(place) == [one.answer(place)[0] for one in alone]
    for study in (*alone, together):
        study.close()


def test_what_policies_share_is_learned_from_the_answers_before(record: Record, studied: StudiedDraft) -> None:
    """The first answer is as that of a policy that begins anew; after it they know more."""
    own = Policy("own", Mode.AHASD, 5, 5, frozenset({Part.TVC}))
    pair = Pair(load_profile("npu-lpddr5-pim"), parse_cost_as("llama3.2-3b:int8+llama3.2-1b:int8"))
    runs = [(pair, own), (pair, replace(own, name="shared", shares_edc=True))]
    study = Study(record, studied, runs)
    begun, *alone = [study.answer(place, runs[:1])[0] for place in (0, 0, 1)]
    first, *others = [study.answer(place, runs[1:])[0] for place in (0, 0, 1)]
    assert first == begun == alone[0]
    assert others != alone
    assert first.batches > first.foretold > 0
    study.close()


def test_a_stated_draft_needs_no_model_and_is_accepted_as_stated(record: Record, studied: StudiedDraft) -> None:
    """Nearly always right: of all but the last of its nodes."""
    config = replace(record.about.model, n_layers=1, reads_features=True)
    stated = StudiedDraft.of(record, StatedProposals(record, Acceptance((0.99,))), config, 256, lambda: None)
    study = Study(record, stated, [(Pair(profile(), parse_cost_as(COST_AS)), Policy("chain", Mode.CHAIN, 3, 3))])
    assert study.answer(0)[0].accept_length > 3.2
    study.close()
    studied.close()


def test_the_command_writes_tables_and_a_picture_that_agree(
    target: Path, draft: Path, record: Record, cache_dir: Path, tmp_path: Path
) -> None:
    write_record(tmp_path / "a.npz", record)
    options = {
        "--record": tmp_path / "a.npz", "--target": target, "--draft": draft, "--cache-dir": cache_dir,
        "--cost-as": COST_AS, "--accept": "0.8,0.6", "--jobs": 1, "--out": tmp_path / "b",
    }  # fmt: skip
    ran = CliRunner().invoke(app, ["lever", *(str(word) for option in options.items() for word in option)])
    assert ran.exit_code == 0, ran.output
    lines = list(csv.DictReader((tmp_path / "b.csv").read_text().splitlines()))
    found = {line["policy"]: line for line in lines if line["prompts"] == "all"}
    assert {line["prompts"] for line in lines} == {"all", "talk"}
    assert float(found["plain"]["tokens_per_round"]) == 1
    speed = float(found["plain"]["ms_per_token"]) / float(found["lever"]["ms_per_token"])
    assert float(found["lever"]["over_plain"]) == pytest.approx(speed, abs=0.002)
    assert f"| lever | {float(found['lever']['ms_per_token']):.1f} |" in (tmp_path / "b.md").read_text()
    drawn = ElementTree.fromstring((tmp_path / "b.svg").read_text())
    assert f"{speed:.2f}x" in {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}


def test_recording_goes_on_where_it_was_ended_and_refuses_what_it_did_not_begin(
    target: Path, cache_dir: Path, record: Record, tmp_path: Path
) -> None:
    opened, out, work = Target.open(target, cache_dir), tmp_path / "a.npz", tmp_path / "a.npz.work"
    prompts = [Prompt(prompt, "all") for prompt in PROMPTS]

    def end(tokens: int) -> None:
        raise KeyboardInterrupt

    recorder = Recorder(opened, Asking(TOKENS), work, threads=1, max_context=256)
    with pytest.raises(KeyboardInterrupt):
        recorder.record(prompts, out, end)
    assert not out.exists()
    (first,) = work.iterdir()
    begun = first.stat().st_mtime_ns
    with pytest.raises(StudyError, match="another target, prompt or sampling"):
        recorder.record(prompts[::-1], out, lambda _: None)
    recorder.record(prompts, out, lambda place: begun == first.stat().st_mtime_ns or pytest.fail("asked again"))
    recorder.close()
    assert not work.exists()
    again = read_record(out)
    assert [(one.prompt, one.tokens) for one in again.answers] == [(one.prompt, one.tokens) for one in record.answers]
