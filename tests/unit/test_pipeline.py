"""The asynchronous pipeline in a virtual world: its tokens, its times against closed forms, and what must add up."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import Draft, DraftPolicy
from orchestrator.engine.session import Session
from orchestrator.policies.batch_length import BatchLength
from orchestrator.policies.control import Control
from orchestrator.policies.edc import COUNTERS, LEVELS, Edc, EdcTables
from orchestrator.policies.thrift import EnergyCosts
from orchestrator.policies.tvc import Tvc
from tests.toy_pipeline import Plan, Run, ToyPipeline

WITHIN_S = 5.0


def run(plan: Plan, delay: int = 0) -> Run:
    async def scenario() -> Run:
        async with asyncio.timeout(WITHIN_S):
            return await ToyPipeline(plan, lambda: delay).run()

    return asyncio.run(scenario())


def endless(**fields: object) -> Plan:
    """One whose text no end token cuts short."""
    for first in range(20):
        plan = Plan(prompt=(first, 5), **fields)  # type: ignore[arg-type]
        if len(plan.expected) == plan.max_tokens:
            return plan
    raise AssertionError("the toy model ends every text")


def drawn(idle: int) -> EnergyCosts:
    """A pass draws 100 and 5 a drafted token, a draft step 10, of which `idle` is drawn whatever is done."""
    verify = CostCurve(((1, 100), (9, 140)))
    return EnergyCosts(DraftCosts(0, verify, CostCurve(((1, 10),))), idle, CostCurve(((1, 100), (9, 100))))


def check_sums(result: Run) -> None:
    report = result.report
    assert report.drafted == report.accepted + report.rejected + report.confirmed + report.dropped
    assert min(report.accepted, report.rejected, report.confirmed, report.dropped) >= 0


class Noting(Control):
    """cut_as_it_survived: tasks cut by each verdict after which what was drafted ahead was of use."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.cut_before, self.cut_as_it_survived = 0, list[int]()

    def judged(self, tokens: int, accepted: int, survived: bool | None) -> None:
        super().judged(tokens, accepted, survived)
        if survived:
            self.cut_as_it_survived.append(self.report.cut - self.cut_before)
        self.cut_before = self.report.cut


@pytest.mark.parametrize(("draft_ns", "verify_ns"), [(10, 100), (25, 100), (40, 100), (100, 100)])
def test_period_is_the_longer_of_both_where_every_draft_is_accepted(draft_ns: int, verify_ns: int) -> None:
    result = run(endless(max_tokens=40, hits=1.0, draft_ns=lambda: draft_ns, verify_ns=lambda: verify_ns))
    periods = [b - a for a, b in zip(result.round_ns[1:], result.round_ns[2:-1], strict=False)]
    assert periods == [max(verify_ns, 5 * draft_ns)] * len(periods)  # the bonus, and 4 below it
    assert result.report.lost == 0


@pytest.mark.parametrize(("draft_ns", "verify_ns"), [(10, 100), (25, 100), (40, 100)])
def test_period_is_the_sum_of_both_where_no_draft_is_accepted(draft_ns: int, verify_ns: int) -> None:
    result = run(endless(max_tokens=12, hits=0.0, draft_ns=lambda: draft_ns, verify_ns=lambda: verify_ns))
    periods = [b - a for a, b in zip(result.round_ns[:-5], result.round_ns[1:-4], strict=True)]
    assert periods == [verify_ns + 4 * draft_ns] * len(periods)
    assert result.report.accepted == result.report.confirmed == result.report.survived == 0


def test_checks_that_fail_in_time_leave_the_verifier_no_wait_though_no_draft_is_ever_accepted() -> None:
    plan = endless(max_tokens=40, hits=0.0, draft_ns=lambda: 5, verify_ns=lambda: 200, check_ns=lambda: 10)
    never: Any = Mock(spec=Edc, may_look_ahead=lambda: False)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, never, Tvc())))
    periods = [b - a for a, b in zip(result.round_ns[3:-6], result.round_ns[4:-5], strict=True)]
    assert periods == [200] * len(periods)  # in turn it would be 200 and 4 * 5
    assert result.report.checks_passed == 0
    assert result.report.checks_failed > 20


def test_checks_that_find_all_right_pass_and_tell_the_bonus_behind() -> None:
    plan = endless(max_tokens=40, hits=1.0, draft_ns=lambda: 5, verify_ns=lambda: 200, check_ns=lambda: 10)
    never: Any = Mock(spec=Edc, may_look_ahead=lambda: False)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, never, Tvc())))
    assert result.report.checks_failed == result.report.rejected == 0
    assert result.report.checks_passed > 5


def test_checks_that_every_verification_overtakes_are_given_up() -> None:
    plan = endless(max_tokens=40, hits=0.0, draft_ns=lambda: 5, verify_ns=lambda: 200, check_ns=lambda: 1000)
    never: Any = Mock(spec=Edc, may_look_ahead=lambda: False)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, never, Tvc())))
    assert result.report.checks_passed + result.report.checks_failed == 0
    assert result.report.cut == 8 < len(result.round_ns) - 10


def test_what_is_said_to_survive_is_there_when_it_does() -> None:
    steps = random.Random(1)
    plan = endless(max_tokens=60, hits=0.3, draft_ns=lambda: steps.choice((5, 60)), verify_ns=lambda: 200)
    toy = ToyPipeline(plan)
    now, survived_ns, begun_ns = toy.toy.world.now_ns, list[int](), list[int]()

    class Timing(Control):
        def judged(self, tokens: int, accepted: int, survived: bool | None) -> None:
            super().judged(tokens, accepted, survived)
            if survived:
                survived_ns.append(now())

        def verification_begins(self, now_ns: int, kv_len: int, rows: int) -> None:
            super().verification_begins(now_ns, kv_len, rows)
            begun_ns.append(now_ns)

    never: Any = Mock(spec=Edc, may_look_ahead=lambda: False)
    asyncio.run(toy.run(Timing(1, never, Tvc())))
    assert len(survived_ns) > 10
    assert set(survived_ns) <= set(begun_ns)


def test_drafting_control_learns_to_leave_such_a_drafter_its_checks() -> None:
    plan = endless(max_tokens=40, hits=0.0, draft_ns=lambda: 25, verify_ns=lambda: 200, check_ns=lambda: 10)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, Edc(EdcTables(), 1.0), Tvc())))
    periods = [b - a for a, b in zip(result.round_ns[8:-6], result.round_ns[9:-5], strict=True)]
    assert periods == [200] * len(periods)  # a batch ahead would leave no time for a check and a new draft
    assert len(periods) > 20


def test_the_verifier_goes_on_while_the_drafter_reads_the_prompt() -> None:
    plan = endless(hits=1.0, draft_ns=lambda: 10, prompt_ns=350, verify_ns=lambda: 100)
    result = run(plan)
    assert result.round_ns[:5] == [100, 200, 300, 400, 400 + 4 * 10 + 100]
    assert result.tokens == plan.expected
    assert plan.max_tokens == 4 + 4 * (4 + 1)  # a token a round, then drafts of four and their bonuses
    assert len(result.round_ns) == 4 + 4


def test_a_round_without_a_draft_is_laid_to_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, chance = list[tuple[int, DraftPolicy | None]](), random.Random(1)
    begin = Session.begin_round

    def noted(session: Session, draft: Draft, policy: DraftPolicy | None) -> None:
        rounds.append((len(draft.tree), policy))
        begin(session, draft, policy)

    monkeypatch.setattr(Session, "begin_round", noted)
    run(endless(max_tokens=60, hits=0.8, prompt_ns=250, fails=lambda: chance.random() < 0.3))
    assert sum(not nodes for nodes, _ in rounds) > 6  # more than the first reading's
    assert all(policy is None for nodes, policy in rounds if not nodes)
    assert any(policy is not None for nodes, policy in rounds if nodes)


def test_where_drafting_ahead_is_likely_in_vain_it_checks_though_drafting_control_says_go() -> None:
    plan = endless(max_tokens=40, hits=0.0, draft_ns=lambda: 25, verify_ns=lambda: 200, check_ns=lambda: 10)
    always: Any = Mock(spec=Edc, may_look_ahead=lambda: True)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, always, Tvc(), BatchLength())))
    periods = [b - a for a, b in zip(result.round_ns[4:-6], result.round_ns[5:-5], strict=True)]
    assert periods == [200] * len(periods)  # a batch ahead would leave no time for a check and a new draft
    assert len(periods) > 20


@pytest.mark.parametrize("hits", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("draft_ns", [10, 40])  # with time for a check and a new draft, and without
def test_for_little_energy_units_take_turns_where_to_wait_draws_nothing(hits: float, draft_ns: int) -> None:
    parts: dict[str, Any] = {"edc": True, "tvc": True, "batch_length": True, "energy": drawn(0)}
    result = run(endless(max_tokens=40, hits=hits, draft_ns=lambda: draft_ns, prompt_ns=350, **parts))
    report = result.report
    assert report.dropped == report.confirmed == report.checks_passed == report.checks_failed == 0
    assert report.drafted == report.accepted + report.rejected > 0
    assert result.round_ns[-1] == 350 + 100 * len(result.round_ns) + draft_ns * report.drafted


def test_for_little_energy_it_runs_ahead_where_waiting_is_what_draws() -> None:
    """A step of 10 of which 9 are drawn anyway: what survives nine times in ten pays. A check of 100 never does."""
    plan = endless(max_tokens=60, hits=1.0, draft_ns=lambda: 10, tvc=True, batch_length=True, energy=drawn(9))
    report = run(plan).report
    assert report.survived > 5
    assert report.checks_passed + report.checks_failed == 0


def test_where_drafting_ahead_is_likely_of_use_it_does_not_check() -> None:
    plan = endless(max_tokens=60, hits=1.0, draft_ns=lambda: 10, verify_ns=lambda: 200, check_ns=lambda: 10)
    always: Any = Mock(spec=Edc, may_look_ahead=lambda: True)
    result = asyncio.run(ToyPipeline(plan).run(Control(1, always, Tvc(), BatchLength())))
    assert result.report.survived > 5
    assert result.report.checks_passed + result.report.checks_failed <= 4  # as long as little is known


def test_what_hangs_where_a_check_told_that_a_verification_ends_is_not_cut_when_it_does() -> None:
    plan = endless(max_tokens=40, hits=0.0, draft_ns=lambda: 25, verify_ns=lambda: 215, check_ns=lambda: 10)
    tables, ahead_of_one = EdcTables(), range(1, COUNTERS, LEVELS)
    for index in ahead_of_one:  # then it checks; below what it drafts anew it looks ahead
        tables.learn(index, accepted_in_full=False)
    control = Noting(1, Edc(tables, 1.0), Tvc())
    asyncio.run(ToyPipeline(plan).run(control))
    assert control.cut_as_it_survived
    assert set(control.cut_as_it_survived) == {0}


plans = st.builds(
    lambda seed, **fields: Plan(seed=seed, **timed(seed), **fields),
    seed=st.integers(0, 10_000),
    prompt=st.lists(st.integers(0, 25), min_size=1, max_size=5).map(tuple),
    max_tokens=st.integers(1, 30),
    length=st.integers(1, 6),
    outcomes=st.integers(1, 4),
    width=st.integers(1, 3),
    edc=st.booleans(),
    tvc=st.booleans(),
    batch_length=st.booleans(),
    energy=st.sampled_from((None, drawn(0), drawn(9))),
    prompt_ns=st.sampled_from((0, 30, 500)),
    hits=st.sampled_from((0.0, 0.4, 0.8, 0.95, 1.0)),
)


def timed(seed: int) -> dict[str, object]:
    seeded = random.Random(seed)
    fails = seeded.choice((0.0, 0.0, 0.2))
    return {
        "draft_ns": lambda: seeded.randrange(0, 40),
        "verify_ns": lambda: seeded.randrange(1, 120),
        "check_ns": lambda: seeded.randrange(0, 40),
        "fails": lambda: seeded.random() < fails,
    }


@given(plans, st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_whatever_tasks_take_the_tokens_are_plain_decodings_and_every_node_ends_once(plan: Plan, delay: int) -> None:
    result = run(plan, delay)
    assert result.tokens == plan.expected
    check_sums(result)
    assert sum(result.presence.time_ns().values()) == result.presence.total_ns


@given(plans, st.integers(0, 200))
@settings(max_examples=50, deadline=None)
def test_one_that_is_cancelled_at_any_moment_leaves_nothing_behind(plan: Plan, turns: int) -> None:
    async def scenario() -> None:
        pipeline = ToyPipeline(plan)
        task = asyncio.create_task(pipeline.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(WITHIN_S):  # the world is free for the next
            again = await pipeline.run()
        assert again.tokens == plan.expected

    asyncio.run(scenario())


@given(plans)
@settings(max_examples=20, deadline=None)
def test_how_long_hosts_take_to_answer_changes_no_time(plan: Plan) -> None:
    seed = plan.seed
    results = []
    for delay in (0, 1, 5):
        fresh = replace(plan, **timed(seed))  # type: ignore[arg-type]
        results.append(run(fresh, delay))
    assert results[0].round_ns == results[1].round_ns == results[2].round_ns
