"""What a session in mode lever learns of its draft, round by round, and decides by."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from hetspec.drafting.costs import DraftCosts
from hetspec.rpc.messages import Draft, DraftPolicy, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL
from orchestrator.policies.calibration import Calibration, CalibrationError, outcomes
from orchestrator.policies.draft_pause import DraftPause
from orchestrator.policies.early_exit import EarlyExits, Exit, Pass
from orchestrator.policies.mode import Part


@dataclass(slots=True)
class LeverReport:
    """Over a request's rounds with a draft whose costs are known. expected_tokens: that these rounds should have given,
    emitted_tokens: that they gave. The errors are of the draft's own probabilities, and of the chances made of them
    before their outcome was known. rested: rounds without the draft model, because it did not pay."""

    rounds: int = 0
    expected_tokens: float = 0.0
    emitted_tokens: int = 0
    draft_error: float = 0.0
    calibrated_error: float = 0.0
    rested: int = 0


class Lever:
    """Every session begins alike: the draft is taken at its word, and is asked."""

    def __init__(self, parts: Set[Part]) -> None:
        """parts: of the mode that are on."""
        self.report = LeverReport()
        self._parts = parts
        self._calibration = Calibration()
        self._pause = DraftPause()
        self._own_error, self._error = CalibrationError(), CalibrationError()
        self._exits = EarlyExits()
        self._draft = Draft()  # that is verified
        self._costs: DraftCosts | None = None  # the last that were told
        self._lets_leave = False  # nodes, in the pass over this draft
        self._round: tuple[Draft, DraftCosts] | None = None  # whose outcome is not known yet

    def begin_round(self, draft: Draft, policy: DraftPolicy | None) -> None:
        """Of which `learn` will tell how it ended. policy: whose costs sized the draft, if any did."""
        self._draft, self._lets_leave = draft, False
        self._round = None if policy is None or policy.costs is None else (draft, policy.costs)
        self._costs = self._costs if self._round is None else self._round[1]

    def may_leave(self, at: Exit) -> bool:
        """Whether nodes of this round's draft are to leave its pass there: yes, where no costs are known."""
        self._lets_leave = self._costs is None or self._exits.pays(self._pass(self._costs), at)
        return self._lets_leave

    def _pass(self, costs: DraftCosts) -> Pass:
        draft = self._draft
        expected = sum(_gains(draft, _chances(draft, costs)))
        return Pass(len(draft.tree), expected, costs.verify, _cost(draft, costs))

    def verified(self, dropped: int) -> None:
        """So many of this round's nodes left."""
        if self._lets_leave:
            self._exits.passed(len(self._draft.tree), dropped)

    @property
    def spent(self) -> int | None:
        """On steps of the draft model in the last round, where costs sized its draft."""
        return None if self._round is None else self._round[0].spent

    def refine(self, policy: DraftPolicy) -> DraftPolicy:
        """What the drafter is asked, in a round in which it is. Without costs nothing is refined."""
        if (costs := policy.costs) is None:
            return policy
        if Part.CALIBRATION in self._parts:
            costs = replace(costs, calibration=self._calibration.map)
        sources = policy.sources
        if Part.NO_DRAFT in self._parts and DRAFT_SOURCE_MODEL in sources and not self._pause.may_draft():
            sources = tuple(source for source in sources if source != DRAFT_SOURCE_MODEL)
            self.report.rested += 1
        return replace(policy, costs=costs, sources=sources)

    def learn(self, walk: Walk) -> None:
        """How the round ended."""
        seen = outcomes(self._draft, walk)
        if self._lets_leave:
            was_right = sum(one.is_accepted for one in seen)
            self._exits.judged(len(walk.accepted), was_right > len(walk.accepted))
        if self._round is None:
            return
        draft, costs = self._round
        chances = _chances(draft, costs)
        for one in seen:
            self._own_error.add(draft.probabilities[one.node], one.is_accepted)
            self._error.add(chances[one.node], one.is_accepted)
        self._calibration.learn(draft, seen)
        if draft.spent:
            self._pause.drafted(len(walk.tokens), _cost(draft, costs), costs.plain)
        self._report(draft, chances, walk)

    def _report(self, draft: Draft, chances: list[float], walk: Walk) -> None:
        told = self.report
        told.rounds += 1
        told.expected_tokens += 1 + sum(_gains(draft, chances))
        told.emitted_tokens += len(walk.tokens)
        told.draft_error, told.calibrated_error = self._own_error.value, self._error.value


def _cost(draft: Draft, costs: DraftCosts) -> float:
    """Of the whole round; of its pass as far as the curve tells."""
    return costs.round + draft.spent + costs.verify(min(1 + len(draft.tree), costs.verify.max_rows))


def _chances(draft: Draft, costs: DraftCosts) -> list[float]:
    """Of each node, given its parent."""
    nodes = zip(draft.sources, draft.tree.depths(), draft.probabilities, strict=True)
    if costs.calibration is None:
        return list(draft.probabilities)
    return [costs.calibration.chance(*node) for node in nodes]


def _gains(draft: Draft, chances: list[float]) -> list[float]:
    """Of each node, its chance to be accepted."""
    gains = list[float]()
    for parent, chance in zip(draft.tree.parents, chances, strict=True):
        gains.append(chance * (gains[parent] if parent >= 0 else 1.0))
    return gains
