"""Rounds whose drafting does not wait for verification (AHASD, arXiv 2604.25326, section 4).

Two tasks of a session run beside each other. `next` verifies, batch by batch, and commits. `_draft_ahead` keeps the
drafter busy: it drafts, hands over what is to be verified, drafts on from the likeliest outcomes of that, or has the
drafter check it with the target itself. Batches that are drafted and not verified wait in `Ahead.batches`; how a
verification ended is told by `_tell`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from hetspec.hardware.platform import Role
from hetspec.rpc.messages import Draft, DraftPolicy, LookAhead, Walk
from orchestrator.engine.ahead import Ahead, Batch, Unverified, is_in_full, likeliest_path, mean_entropy
from orchestrator.engine.drafting import Drafted
from orchestrator.engine.mailbox import Mailbox
from orchestrator.engine.pre_verifying import UNKNOWN
from orchestrator.engine.round import Steps
from orchestrator.engine.seat import Mark, mark_at
from orchestrator.engine.session import Session
from orchestrator.policies.control import Control, Room

_GIVES_UP = 8  # checks in vain: where the target has a long prompt to read on the drafter, it reads anew every time

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Verdict:
    verified: Unverified
    walk: Walk


@dataclass(slots=True)
class _Doing:
    """What the drafter does. is_void: whether it is of no use any more, once a verdict is known. decides: the batch
    whose verdict can be judged only when it is done."""

    task: asyncio.Task[Any]
    is_void: Callable[[_Verdict], bool]
    decides: Batch | None


class Pipeline:
    def __init__(self, session: Session, steps: Steps, control: Control) -> None:
        self._session = session
        self._steps = steps
        self._control = control
        self._next: Mailbox[Unverified | Exception] = Mailbox(session.clock, 2)
        self._feedback: Mailbox[_Verdict | None] = Mailbox(session.clock)  # None: nothing to judge
        self._ahead: Ahead | None = None  # None: the next draft begins at the session's last token
        self._policy: DraftPolicy | None = None  # of the draft that a tree begins with
        self._under: Ahead | None = None  # of which something is being verified
        self._verifying: Unverified | None = None
        self._checked = 0  # tokens of that
        self._may_check = True
        self._in_vain = 0  # checks in a row that a verification overtook
        self._is_reading = False  # the prompt
        self._doing: _Doing | None = None
        self._drafter: asyncio.Task[None] | None = None

    # --- the verifier's side

    async def next(self) -> Walk:
        """Verifies the batch that comes next and decides at least one token more. Raises EngineError."""
        if self._drafter is None:
            self._drafter = self._session.clock.spawn(self._draft_ahead())
        if self._steps.verifying.needs_prefill(self._session):
            await self._steps.verifying.prefill(self._session)
        batch = await self._next.get()
        if isinstance(batch, Exception):
            raise batch
        walk = await self._verify(batch)
        self._tell(_Verdict(batch, walk))
        return walk

    async def _verify(self, part: Unverified) -> Walk:
        session, control, draft = self._session, self._control, part.draft
        policy = self._policy if part.batch.first == 0 else None
        session.begin_round(draft, policy)
        session.timeline.propose(*part.batch.tasks)
        control.verification_begins(session.clock.now_ns(), session.mark.length + len(draft.tree), 1 + len(draft.tree))
        self._wake_drafter()
        verified = await self._steps.verifying.verify(session, draft)
        control.verification_ended(session.clock.now_ns())
        walk = await self._steps.choosing.choose(session, verified.tree, verified.hidden)
        walk = session.commit(walk, verified, (session.verifier,))
        session.chain_length.round_ended(policy, len(draft.tree), len(walk.accepted))
        return walk

    def _tell(self, verdict: _Verdict) -> None:
        """How a verification ended. What the drafter does that has lost its premise is cut at its next step; where it
        is just finding the outcomes of what was verified, the verdict waits for them."""
        doing = self._doing
        if doing is not None and doing.is_void(verdict):
            self._cut(doing)
        elif doing is not None and doing.decides is verdict.verified.batch:
            self._feedback.put(verdict)
            return
        self._judge(verdict)
        self._hand_over()
        self._wake_drafter()

    def _wake_drafter(self) -> None:
        """There may be something to do for it."""
        if self._feedback.has_reader:
            self._feedback.put(None)

    def _cut(self, doing: _Doing) -> None:
        if (task := self._session.timeline.running(Role.DRAFTER)) is not None:
            self._session.timeline.cut(task)
        doing.task.cancel()
        self._control.report.cut += 1

    def _judge(self, verdict: _Verdict) -> None:
        """Confirms what was drafted ahead, or gives it up."""
        under, part = self._under, verdict.verified
        assert under is not None
        self._under, self._verifying, self._checked = None, None, 0
        self._control.verified(part.batch.index, part.batch.entropy, is_in_full(part.draft.tree, verdict.walk))
        had_more = under.outcomes is not None or bool(under.batches)
        is_alive = under.judge(part, verdict.walk)
        if under is self._ahead:
            self._control.judged(len(part.draft.tree), len(verdict.walk.accepted), is_alive if had_more else None)
            if not is_alive:
                self._go_back()
        else:  # a check has told already how it would end
            self._settle(under)
            is_right = None if self._ahead is None else self._ahead.base == self._session.mark
            self._control.judged(len(part.draft.tree), len(verdict.walk.accepted), is_right)
            if self._ahead is not None and not is_right:
                self._control.lost()
                self._settle(self._ahead)
                self._ahead = None
                self._session.leave_drafter()

    # --- the drafter's side

    async def _draft_ahead(self) -> None:
        try:
            while True:
                self._hand_over()
                if (work := self._choose_work()) is not None:
                    await work()
                if self._feedback or work is None:
                    verdict = await self._feedback.get()
                    if verdict is not None:
                        self._judge(verdict)
        except Exception as error:
            self._next.put(error)

    def _hand_over(self) -> None:
        """Gives the verifier its next batch, where it waits for one; an empty one while the prompt is read."""
        if self._verifying is not None:
            return
        if self._is_reading and self._ahead is None:
            self._ahead = Ahead(self._session.mark)
            self._ahead.add(Draft(), Batch(0, 0, 0.0))
        if (ahead := self._ahead) is None:
            return
        self._verifying = ahead.next()
        if self._verifying is not None:
            self._under = ahead
            self._next.put(self._verifying)
        elif ahead.outcomes is None:
            self._go_back()

    def _choose_work(self) -> Work | None:
        """What the drafter does next; None: it waits for feedback."""
        ahead, control = self._ahead, self._control
        if ahead is None and self._verifying is None:
            goes_on = control.thrift is None and self._steps.drafting.has_long_to_read(self._session)
            return self._read_prompt if goes_on else self._draft
        if ahead is None:
            return None
        if not ahead.may_grow or self._policy is None or not ahead.draft.tree:
            return None
        if ahead.outcomes is not None:
            return self._grow
        if not control.has_room(len(ahead.batches), self._room(ahead)):
            return None
        looks = control.pays_ahead(ahead.length - self._session.mark.length) and not self._rather_checks(ahead)
        if looks and control.may_look_ahead():
            return self._begin_batch
        if (more := self._to_check(ahead)) is None:
            return None
        if more:
            return partial(self._check, more)
        return self._begin_batch if looks else None

    def _rather_checks(self, ahead: Ahead) -> bool:
        """Whether to check what is being verified, or is verified next, is likely of more use than to look ahead."""
        if not self._is_checked():
            return False
        part = self._verifying if self._under is ahead else None
        path = likeliest_path(ahead.draft if part is None else part.draft)
        unchecked = len(path) - (0 if part is None else self._checked)
        return unchecked > 0 and self._control.prefers_check(unchecked)

    def _to_check(self, ahead: Ahead) -> list[int] | None:
        """Tokens to check of what is being verified; none where there is no time for that. None: all are checked, or
        nobody could say."""
        part = self._verifying
        if part is None or self._under is not ahead or not self._is_checked():
            return None
        path = likeliest_path(part.draft)
        if self._checked == len(path):
            return None
        levels = max(ahead.draft.tree.depths()[: ahead.first_batch], default=0)
        unchecked = len(path) - self._checked
        more = self._control.to_check(self._session.clock.now_ns(), ahead.first_batch, unchecked, levels)
        if more is None:
            return None
        return path[: self._checked + more] if more else []

    async def _read_prompt(self) -> None:
        """Has the drafter read the prompt; meanwhile the verifier goes on without drafts."""
        self._is_reading, self._policy = True, None
        self._hand_over()
        try:
            shortest = partial(replace, max_nodes=1, max_depth=1, width=1, costs=None)
            drafted = await self._do(self._steps.drafting.draft(self._session, (), shortest), lambda verdict: False)
        finally:
            self._is_reading = False
        if drafted is not None:
            nodes, report = len(drafted.draft.tree), self._control.report
            report.drafted, report.dropped = report.drafted + nodes, report.dropped + nodes
            if drafted.task is not None:
                self._session.timeline.dropped(drafted.task)

    async def _draft(self, foreseen: tuple[int, ...] = ()) -> None:
        """A batch behind the session's last token, or behind what is foreseen to follow it."""
        begin_ns, base = self._session.clock.now_ns(), self._mark_of(foreseen)
        reads_prompt = not self._session.drafter.known.length
        if self._control.thrift is not None:
            self._control.thrift.costs = self._steps.drafting.energy(self._session)
        sized = partial(self._control.draft_policy, is_checked=self._is_checked())
        work = self._steps.drafting.draft(self._session, foreseen, sized)
        drafted = await self._do(work, lambda verdict: self._session.mark != base)
        if drafted is None:
            return
        self._policy, self._ahead = drafted.policy, Ahead(base)
        self._add(self._ahead, drafted, 0, None if reads_prompt else begin_ns)

    async def _begin_batch(self) -> None:
        """The outcomes that the newest batch most likely ends with."""
        ahead, policy = self._ahead, self._policy
        assert ahead is not None
        assert ahead.newest is not None
        assert policy is not None
        batch, first = ahead.newest, len(ahead.draft.tree)

        def is_void(verdict: _Verdict) -> bool:
            is_its_own = verdict.verified.batch is batch  # one of the outcomes may be what it has ended with
            return not is_its_own and self._is_beside(ahead, batch.first, verdict)

        look = LookAhead(self._control.outcomes, batch.first)
        drafted = await self._look(ahead, look, self._control.outcomes_policy(policy), is_void, batch)
        if drafted is not None and len(drafted.draft.tree) > first:
            ahead.begin(drafted.draft, first, drafted.task)
        elif drafted is not None:
            ahead.may_grow = False  # it knows of none

    async def _grow(self) -> None:
        """The rest of a batch, below its outcomes."""
        ahead, policy = self._ahead, self._policy
        assert ahead is not None
        assert ahead.outcomes is not None
        assert policy is not None
        begin_ns, first = self._session.clock.now_ns(), ahead.outcomes
        drafted: Drafted | None = Drafted(ahead.draft)
        bounds = self._control.batch_policy(policy, ahead.first_batch, self._room(ahead))
        if bounds is not None:
            look = LookAhead(self._control.outcomes, first)
            drafted = await self._look(ahead, look, bounds, partial(self._is_beside, ahead, first))
        if drafted is not None:
            self._add(ahead, drafted, first, begin_ns)

    async def _check(self, tokens: list[int]) -> None:
        """Has the drafter verify these itself. What that finds out is where the next draft begins."""
        ahead, session, steps = self._ahead, self._session, self._steps.pre_verifying
        assert ahead is not None
        assert steps is not None
        begin_ns = session.clock.now_ns()
        agreed = await self._do(steps.check(session, tokens), lambda verdict: True)
        if agreed is None:
            self._in_vain += 1
            self._may_check = self._in_vain < _GIVES_UP
            return
        if agreed == UNKNOWN:
            self._may_check = False
            return
        self._in_vain = 0
        foreseen = session.foreseen.beyond(session.history)
        nodes = ahead.follow(foreseen)
        duration_ns, kv_len = session.clock.now_ns() - begin_ns, session.mark.length + len(tokens)
        self._control.pre_verified(duration_ns, len(tokens) - self._checked, kv_len, agreed == len(tokens))
        self._checked = len(tokens)
        if len(nodes) < len(foreseen):
            self._go_back(nodes, foreseen)
            await self._draft(foreseen)

    def _add(self, ahead: Ahead, drafted: Drafted, first: int, begin_ns: int | None) -> None:
        """A batch to the tree, which has grown to this one. begin_ns: None where its time says nothing of others'."""
        draft, tasks = drafted.draft, ahead.tasks if drafted.task is None else (*ahead.tasks, drafted.task)
        stop, entropy = len(draft.tree), mean_entropy(draft, first)
        duration_ns = 0 if begin_ns is None else self._session.clock.now_ns() - begin_ns
        kv_len = ahead.base.length + max(draft.tree.depths(), default=0)
        index = self._control.drafted(stop - first, entropy, duration_ns, kv_len)
        ahead.add(draft, Batch(first, stop, entropy, index, tasks))

    async def _look(
        self,
        ahead: Ahead,
        look: LookAhead,
        policy: DraftPolicy,
        is_void: Callable[[_Verdict], bool],
        decides: Batch | None = None,
    ) -> Drafted | None:
        """None: it was cut, or the drafter failed. Then nothing more grows on this tree."""
        work = self._steps.drafting.look_ahead(self._session, ahead.draft, look, policy)
        drafted = await self._do(work, is_void, decides)
        if drafted is None or ahead is not self._ahead:
            ahead.may_grow, ahead.outcomes = False, None
            return None
        return drafted

    async def _do(
        self, work: Coroutine[Any, Any, T], is_void: Callable[[_Verdict], bool], decides: Batch | None = None
    ) -> T | None:
        """None where it was cut."""
        task = self._session.clock.spawn(work)
        self._doing = _Doing(task, is_void, decides)
        try:
            return await self._session.clock.join(task)
        except asyncio.CancelledError:
            if (me := asyncio.current_task()) is not None and me.cancelling():
                raise
            return None
        finally:
            self._doing = None
            task.cancel()

    def _go_back(self, nodes: list[int] | None = None, foreseen: tuple[int, ...] = ()) -> None:
        """The tree is given up; of it the drafter keeps the path down to what is decided, and these nodes below that,
        which hold tokens that are foreseen."""
        ahead, seat, session = self._ahead, self._session.drafter, self._session
        assert ahead is not None
        self._ahead = None
        self._control.lost(but_the_first=self._verifying is not None)
        if ahead is not self._under:  # it is settled when its verdict is known
            self._settle(ahead)
        path = (*ahead.path, *(nodes or ()))
        if path and seat.replica is not None and session.draft_item is not None:
            seat.advance(mark_at(session.history_with(foreseen), seat.known.length + len(path)), path)

    def _settle(self, ahead: Ahead) -> None:
        """It has been given up."""
        ahead.settle(self._control.report)
        for task in ahead.unverified:
            self._session.timeline.dropped(task)

    def _is_beside(self, ahead: Ahead, first: int, verdict: _Verdict) -> bool:
        """Whether nothing of the tree from node `first` on hangs below where a verification has ended."""
        if self._under is not ahead:  # the tree hangs where a check has told that it would end
            return ahead.base != self._session.mark
        landing = ahead.lands(verdict.verified, verdict.walk)
        return landing is None or not ahead.holds(landing, first)

    def _mark_of(self, foreseen: tuple[int, ...]) -> Mark:
        ids = self._session.history_with(foreseen)
        return Mark(len(ids), ids.hash)

    def _is_checked(self) -> bool:
        """Whether the drafter can check what is being verified."""
        steps = self._steps.pre_verifying
        return (
            self._control.tvc is not None and self._may_check and steps is not None and steps.is_possible(self._session)
        )

    def _room(self, ahead: Ahead) -> Room:
        """The last token of all is a bonus: nodes that would stand for it are of no use."""
        session, replica = self._session, self._session.drafter.replica
        if replica is None:
            return Room(0, 0)
        levels = session.mark.length + session.left - 1 - ahead.length
        return Room(levels, replica.description.max_nodes - len(ahead.draft.tree))

    # --- its end

    async def close(self) -> None:
        self.abort()
        if self._drafter is not None:
            await asyncio.gather(self._drafter, return_exceptions=True)
        while self._feedback:
            if (verdict := self._feedback.take()) is not None:
                self._judge(verdict)
        if self._verifying is not None and self._under is not None:
            self._under.settled.difference_update(self._verifying.nodes)
        for ahead in {id(ahead): ahead for ahead in (self._ahead, self._under) if ahead is not None}.values():
            self._settle(ahead)
        self._control.close()

    def abort(self) -> None:
        if self._doing is not None:
            self._doing.task.cancel()
        if self._drafter is not None:
            self._drafter.cancel()
