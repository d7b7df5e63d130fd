"""Chains under a stop rule are, token by token, what a loop over the rule's formula drafts."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT
from hetspec.drafting.copies import Copies
from hetspec.drafting.growth import Growth
from hetspec.drafting.look_ahead import LookAheadGrowth
from hetspec.drafting.nodes import Proposal
from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import DraftPolicy, LookAhead

LOOKUP, MODEL = 1, 2
LENGTH = 8
rules = st.one_of(
    st.builds(StopRule, st.just(StopKind.ROOT_ENTROPY), st.floats(0, 3)),
    st.builds(StopRule, st.just(StopKind.ACCEPTANCE_BOUND), st.floats(-1, 1)),
    st.builds(StopRule, st.just(StopKind.REJECTION), st.floats(0, 1)),
)
# What the model says after 0, 1, ... tokens: the entropy there, and the acceptance of the token that was fed.
says = st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1)), min_size=LENGTH, max_size=LENGTH)


def expected_length(rule: StopRule, said: list[tuple[float, float]], most: int) -> int:
    none_rejected, length = 1.0, 0
    while length < most:
        entropy, acceptance = said[length]
        if length:
            none_rejected *= acceptance
            if rule.kind is StopKind.REJECTION and 1 - none_rejected > rule.threshold:
                break
            if rule.kind is StopKind.ACCEPTANCE_BOUND and 1 - math.sqrt(0.2 * entropy) < rule.threshold:
                break
        length += 1
        if rule.kind is StopKind.ROOT_ENTROPY and math.sqrt(entropy) > rule.threshold:
            break
    return length


def grow(growth: Growth | LookAheadGrowth, proposals: dict[int, Proposal]) -> int:
    """By these proposals, by depth below the root. The number of steps that fed something."""
    steps = 0
    while selected := growth.select():
        growth.feed(selected)
        for node in selected:
            growth.branch(node, proposals[growth.nodes.depth(node)])
        steps += 1
    return steps


def proposals_of(said: list[tuple[float, float]]) -> dict[int, Proposal]:
    return {
        depth: Proposal([(10 + depth, 0.5), (90 + depth, 0.2)], entropy, acceptance if depth else None)
        for depth, (entropy, acceptance) in enumerate(said)
    }


@given(rules, says, st.integers(1, LENGTH))
def test_chain_is_as_long_as_its_rule_lets_it_be(rule: StopRule, said: list[tuple[float, float]], most: int) -> None:
    growth, proposals = Growth(DraftPolicy(most, most, 1, (MODEL,), stop=rule)), proposals_of(said)
    growth.branch(ROOT, proposals[0])
    steps = grow(growth, proposals)
    length = expected_length(rule, said, most)
    assert list(growth.finish().draft.tree.tokens) == [10 + depth for depth in range(length)]
    judged_by_feeding = rule.kind is not StopKind.ROOT_ENTROPY and length < most
    assert steps == (length if judged_by_feeding else length - 1)


@given(rules, says, st.integers(1, LENGTH))
def test_what_lookup_found_stands_though_the_model_stops(
    rule: StopRule, said: list[tuple[float, float]], found: int
) -> None:
    growth, proposals = Growth(DraftPolicy(LENGTH, LENGTH, 1, (LOOKUP, MODEL), stop=rule)), proposals_of(said)
    growth.add_run([(10 + depth, 0.8) for depth in range(found)], LOOKUP)
    growth.branch(ROOT, proposals[0])
    grow(growth, proposals)
    length = max(found, expected_length(rule, said, LENGTH))
    assert list(growth.finish().draft.tree.tokens) == [10 + depth for depth in range(length)]


@given(rules, says, st.integers(2, LENGTH - 2))
def test_chain_that_looks_ahead_ends_by_its_own_tokens(
    rule: StopRule, said: list[tuple[float, float]], most: int
) -> None:
    """Its first token, the outcome, is there whatever the rule says of it."""
    before, proposals = Growth(DraftPolicy(1, 1, 1, (MODEL,))), proposals_of(said)
    before.branch(ROOT, proposals[0])
    grow(before, proposals)
    policy = DraftPolicy(most, most, 1, (MODEL,), stop=rule)
    look = LookAheadGrowth(before.finish(), LookAhead(1, 0), policy, 64, Copies(), by_levels=False)
    grow(look, proposals)
    tree = look.finish().draft.tree
    below = tree.tokens[1:]
    depths = tree.depths()[1:]
    assert len(below) >= 1
    first = depths[0]  # of the outcome: behind the accepted token, or in its place
    chain = [said[first - 1], *said[first:]]
    chain[0] = (0.0, 1.0)  # the outcome itself is never judged by what it was drawn at
    assert len(below) == expected_length(rule, chain, most)
