"""What a session does when a unit it needs fails it: again, for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import ErrorCode, UnitError
from orchestrator.engine.errors import EngineError, NoTokenAllowed, RequestFailed, UnitsUnavailable
from orchestrator.engine.session import Session
from orchestrator.units.errors import UnitLost

_ROOM_S = (0.02, 2.0, 0.5)  # first pause, growth, longest
_REFUSED_S = (0.05, 8.0, 5.0)  # long enough in all for a unit beside it to be started again


@dataclass(frozen=True, slots=True)
class Recovery:
    """max_rebuilds: of a session in a row, without progress. is_there: whether this incarnation of a unit is."""

    max_rebuilds: int
    is_there: Callable[[str], bool]

    async def after(self, session: Session, fault: Exception) -> None:
        """Returns when the step may be tried again, after a pause that grows where the unit is there and refuses.

        A unit without room has not failed: the session, which has given back what it held, waits for others to end. Nor
        is a session to blame for a unit that was lost before it had the session's item, or for one that is found again:
        frozen for a while, or cut off, but not killed.
        """
        if isinstance(fault, UnitLost) and not fault.had_item:
            return
        if isinstance(fault, UnitError) and fault.code is ErrorCode.DEAD_END:
            raise NoTokenAllowed(fault.message) from fault
        if _is(fault, ErrorCode.EXHAUSTED):
            session.waits += 1
            await _pause(session.waits, *_ROOM_S)
            return
        if isinstance(fault, UnitLost) and fault.instance:
            session.lost_units.add(fault.instance)
        else:
            session.faults += 1
        faults = session.faults + sum(not self.is_there(instance) for instance in session.lost_units)
        log_event("unit failed a session", session=session.id, faults=faults, reason=str(fault))
        if faults > self.max_rebuilds:
            raise _given_up(self.max_rebuilds, fault) from fault
        if not isinstance(fault, UnitLost) and not _is(fault, ErrorCode.SESSION_LOST):
            await _pause(session.faults, *_REFUSED_S)


async def _pause(times: int, first_s: float, growth: float, longest_s: float) -> None:
    """Grows with every time; at random, so that sessions that wait for the same room do not collide again."""
    longest_s = min(longest_s, first_s * growth ** min(times - 1, 16))
    await asyncio.sleep(longest_s * random.uniform(0.5, 1.0))


def _given_up(rebuilds: int, fault: Exception) -> EngineError:
    message = f"given up after {rebuilds} rebuilds without progress: {fault}"
    return UnitsUnavailable(message) if _is(fault, ErrorCode.WEIGHTS_UNAVAILABLE) else RequestFailed(message)


def _is(fault: Exception, *codes: ErrorCode) -> bool:
    return isinstance(fault, UnitError) and fault.code in codes
