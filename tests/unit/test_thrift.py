"""What little energy asks of the asynchronous modes, against a simulation of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.batch_length import BatchLength
from orchestrator.policies.control import Control
from orchestrator.policies.thrift import EnergyCosts, Thrift
from orchestrator.policies.tvc import Tvc

CHAIN = DraftPolicy(12, 12, 1, (2,))
ROUNDS = 20_000


def accepted_of(chance: random.Random, tokens: int, accept: float) -> int:
    return next((i for i in range(tokens) if chance.random() >= accept), tokens)


def thrift(accept: float, idle: float = 3.0, step: float = 7.0, check: float = 40.0) -> Thrift:
    """A pass of n rows draws 95 + 5 n, a draft step `step` and, as long as it lasts, `idle`."""
    chance, length = random.Random(1), BatchLength()
    for _ in range(5000):
        length.judged(8, accepted_of(chance, 8, accept), None)
    verify = CostCurve(((1, 100), (16, 175)))
    in_turn = DraftCosts(0, verify, CostCurve(((1, round(idle + step)), (2, 99))))
    return Thrift(length, EnergyCosts(in_turn, idle, CostCurve(((1, round(check)), (16, round(check))))))


@pytest.mark.parametrize("accept", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_token_takes_what_a_simulation_says(accept: float, length: int) -> None:
    chance, tokens, spent = random.Random(2), 0, 0.0
    for _ in range(ROUNDS):
        tokens += 1 + accepted_of(chance, length, accept)
        spent += 100 + 5 * length + length * 10
    assert thrift(accept).per_token(length) == pytest.approx(spent / tokens, rel=0.03)


def test_a_chain_is_as_long_as_takes_least_and_grows_with_agreement() -> None:
    lengths = []
    for accept in (0.1, 0.5, 0.9):
        careful = thrift(accept)
        lengths.append(length := careful.policy(CHAIN).max_depth)
        assert careful.per_token(length) == min(map(careful.per_token, range(1, 13)))
        assert careful.policy(CHAIN).max_nodes == length
    assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("accept", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("unverified", [1, 5])
@pytest.mark.parametrize("idle", [1.0, 5.0, 50.0])
def test_it_drafts_ahead_where_that_draws_less(accept: float, unverified: int, idle: float) -> None:
    chance, gained = random.Random(3), 0.0
    for _ in range(ROUNDS):
        survives = accepted_of(chance, unverified + 1, accept) == unverified + 1
        gained += idle if survives else -7.0
    if abs(gained) > 0.02 * ROUNDS:  # a sampling error decides nothing
        assert thrift(accept, idle).pays_ahead(unverified) == (gained > 0)


@pytest.mark.parametrize("accept", [0.3, 0.9])
@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("idle", [2.0, 15.0, 40.0])
def test_it_checks_where_that_draws_less(accept: float, tokens: int, idle: float) -> None:
    chance, gained, next_steps = random.Random(4), 0.0, 5
    for _ in range(ROUNDS):
        fails = accepted_of(chance, tokens, accept) < tokens
        gained += next_steps * idle * fails - 40.0
    assert abs(gained) > 0.5 * ROUNDS
    assert thrift(accept, idle).pays_check(tokens, next_steps) == (gained > 0)


def test_what_nobody_knows_the_costs_of_is_not_done() -> None:
    unknown = Thrift(BatchLength())
    assert unknown.policy(CHAIN) == CHAIN
    assert not unknown.pays_ahead(1)
    assert not unknown.pays_check(1, 5)


def test_trees_and_chains_that_an_algorithm_ends_are_left_alone() -> None:
    careful = thrift(0.1)
    for policy in (replace(CHAIN, width=4), replace(CHAIN, stop=StopRule(StopKind.ROOT_ENTROPY, 0.5))):
        assert careful.policy(policy) == policy


def test_a_check_is_judged_by_the_tokens_that_are_there_to_check() -> None:
    careful = thrift(0.1, idle=40.0)
    tvc: Any = Mock(spec=Tvc, is_ready=True, pre_verify_tokens=lambda *_: 41)
    control = Control(1, None, tvc, careful.length, careful)
    control.verification_begins(0, 10, 2)
    assert careful.pays_check(1, 5)
    assert not careful.pays_check(41, 5)  # more than a check can have
    assert control.to_check(5, 5, 1, 5) == 41
    careful.costs = None
    assert control.to_check(5, 5, 1, 5) is None
