"""What decides in the asynchronous modes: whether the drafter runs on, and how much it drafts at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.batch_length import BatchLength
from orchestrator.policies.edc import Edc, EdcSnapshot, EdcTables
from orchestrator.policies.mode import Objective, Part
from orchestrator.policies.thrift import Thrift
from orchestrator.policies.tvc import Tvc, TvcReport

MOST_AHEAD = 7  # batches drafted and not verified, whatever the control says
STEP_WIDTH = 8  # nodes that a step feeds, of a tree
MAX_ENTROPY = 5.4  # nats: the 99.9th percentile of batch means of the draft that is shipped (docs/adaptive-drafting.md)


_LIKELY = 0.5  # a chance of survival below which a check is of more use than looking ahead


@dataclass(slots=True)
class AheadReport:
    """Of one request. Every drafted node ends once: drafted = accepted + rejected + confirmed + dropped.

    batches: of nodes, those behind decided tokens included. accepted, rejected: by verification. confirmed: outcomes
    that a verification ended with. dropped: never verified, as the premise failed. survived, lost: verifications after
    which what had been drafted ahead was of use, or void. cut: tasks of the drafter that were stopped on the way.
    """

    batches: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    confirmed: int = 0
    dropped: int = 0
    survived: int = 0
    lost: int = 0
    cut: int = 0
    checks_passed: int = 0
    checks_failed: int = 0
    edc: EdcSnapshot | None = None
    tvc: TvcReport | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What a batch must fit in. levels: deeper nodes are of no use. nodes: that the tree may still have."""

    levels: int
    nodes: int


@dataclass(slots=True)
class _Verification:
    begin_ns: int
    kv_len: int
    rows: int


@dataclass(slots=True)
class Control:
    """Of one session. outcomes: that a batch is drafted ahead for. edc, tvc, length: None where they are switched
    off. thrift: None where time is what counts."""

    outcomes: int
    edc: Edc | None
    tvc: Tvc | None
    length: BatchLength | None = None
    thrift: Thrift | None = None
    report: AheadReport = field(default_factory=AheadReport)
    _verification: _Verification | None = None

    def has_room(self, waiting: int, room: Room) -> bool:
        """Whether one batch more fits, with so many that wait for verification."""
        return waiting < MOST_AHEAD and room.levels > 0 and room.nodes >= self.outcomes

    def may_look_ahead(self) -> bool:
        """Whether one batch more is likely to be of use."""
        return self.edc is None or self.edc.may_look_ahead()

    def pays_ahead(self, unverified: int) -> bool:
        """Whether one batch more is worth its energy, behind so many tokens that are not verified."""
        return self.thrift is None or self.thrift.pays_ahead(unverified)

    def prefers_check(self, tokens: int) -> bool:
        """Whether to check rather than look ahead, where so many tokens of what is being verified are unchecked."""
        if self.tvc is None or self.length is None or not self.tvc.is_ready:
            return False
        return self.length.survival(tokens) < _LIKELY

    def outcomes_policy(self, policy: DraftPolicy) -> DraftPolicy:
        """Of a batch's first level. policy: of the draft behind decided tokens."""
        return replace(policy, max_nodes=self.outcomes, max_depth=1, width=self.outcomes, costs=None)

    def batch_policy(self, policy: DraftPolicy, nodes: int, room: Room) -> DraftPolicy | None:
        """Of the rest of a batch; None: there is none. nodes: that the draft behind decided tokens came to."""
        if policy.width == 1:  # a chain below each outcome
            depth = min(policy.max_depth, room.levels)
            nodes, width = self.outcomes * depth, self.outcomes
        else:
            depth, width = min(policy.max_depth, room.levels), STEP_WIDTH
        nodes = min(nodes, room.nodes)
        if depth < 1 or nodes < 1:
            return None
        return replace(policy, max_nodes=nodes, max_depth=depth, width=min(width, nodes), costs=None)

    def draft_policy(self, base: DraftPolicy, is_checked: bool) -> DraftPolicy:
        """Of a draft behind decided tokens. Where the drafter checks, what it drafts next hangs little on whether this
        one is accepted in full: it is as long as may be."""
        if self.thrift is not None:
            return self.thrift.policy(base)
        return base if self.length is None or is_checked or base.width > 1 else self.length.policy(base)

    def drafted(self, nodes: int, mean_entropy: float, duration_ns: int, kv_len: int) -> int | None:
        """A batch is there. What `verified` is to be told of it. duration_ns: 0 where nothing is to be learned of it.
        kv_len: positions that it attended to."""
        if not nodes:
            return None
        self.report.batches += 1
        if self.length is not None and duration_ns > 0:
            self.length.drafted(nodes, duration_ns)
        if self.tvc is not None and duration_ns > 0:
            self.tvc.drafted(duration_ns, nodes, kv_len)
        return None if self.edc is None else self.edc.drafted(mean_entropy)

    def verification_begins(self, now_ns: int, kv_len: int, rows: int) -> None:
        self._verification = _Verification(now_ns, kv_len, rows)

    def verification_ended(self, now_ns: int) -> None:
        task, self._verification = self._verification, None
        assert task is not None
        if now_ns == task.begin_ns:
            return
        if self.tvc is not None:
            self.tvc.verified(now_ns - task.begin_ns, task.kv_len, task.rows)
        if self.length is not None:
            self.length.verified(now_ns - task.begin_ns)

    def judged(self, tokens: int, accepted: int, survived: bool | None) -> None:
        """How a batch of so many nodes ended. survived: what was drafted ahead of it, if anything was."""
        self.report.survived += survived is True
        self.report.lost += survived is False
        if self.length is not None and tokens:
            self.length.judged(tokens, accepted, survived)

    def to_check(self, now_ns: int, next_tokens: int, unchecked: int, next_steps: int) -> int | None:
        """How many tokens more of what is being verified, of which so many are unchecked, the drafter should check
        itself, with a draft of next_tokens still to come, made in next_steps; 0: it should rather draft on. None: there
        is nobody who could say, or a check takes more than it saves."""
        task = self._verification
        if self.tvc is None or task is None or not self.tvc.is_ready:
            return None
        tokens = self.tvc.pre_verify_tokens(task.kv_len, now_ns - task.begin_ns, next_tokens, task.rows)
        if tokens and self.thrift is not None and not self.thrift.pays_check(min(tokens, unchecked), next_steps):
            return None
        return tokens

    def pre_verified(self, duration_ns: int, tokens: int, kv_len: int, has_passed: bool) -> None:
        self.report.checks_passed += has_passed
        self.report.checks_failed += not has_passed
        if self.tvc is not None and duration_ns > 0:
            self.tvc.pre_verified(duration_ns, tokens, kv_len)

    def verified(self, index: int | None, mean_entropy: float, is_in_full: bool) -> None:
        """index: that `drafted` gave."""
        if self.edc is not None and index is not None:
            self.edc.verified(index, mean_entropy, is_in_full)

    def close(self) -> None:
        """What has been learned joins the report."""
        self.report.edc = None if self.edc is None else self.edc.snapshot()
        self.report.tvc = None if self.tvc is None else self.tvc.report()

    def lost(self, but_the_first: bool = False) -> None:
        """All that is drafted ahead is void, but for what is still being verified."""
        if self.edc is not None:
            self.edc.look_ahead_dropped(but_the_first)


def control_of(
    parts: frozenset[Part], outcomes: int, tables: EdcTables, fits_tvc: bool, objective: Objective
) -> Control:
    """parts: of the mode, that are on. tables: what is learned of batches is kept there. fits_tvc: the check control
    foretells tasks by a fit, instead of the tables of the paper."""
    edc = Edc(tables, MAX_ENTROPY) if Part.EDC in parts else None
    tvc = Tvc(fits_tvc) if Part.TVC in parts else None
    length = BatchLength() if Part.BATCH_LENGTH in parts else None
    thrift = Thrift(length) if length is not None and objective is Objective.ENERGY else None
    return Control(outcomes, edc, tvc, length, thrift)
