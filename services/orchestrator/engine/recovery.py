"""What a session does when a unit it needs fails it: again, for a while."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import ErrorCode, UnitError
from orchestrator.engine.errors import EngineError, NoTokenAllowed, RequestFailed, UnitsUnavailable
from orchestrator.engine.session import Session
from orchestrator.units.errors import UnitLost

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Recovery:
    max_rebuilds: int  # of a session in a row, without progress

    async def after(self, session: Session, fault: Exception) -> None:
        """Returns when the step may be tried again, after a pause that grows where the unit is there and refuses.

        A unit without room has not failed: the session, which has given back what it held, waits for others to end. Nor
        is a session to blame for a unit that was lost before it had the session's item.
        """
        if isinstance(fault, UnitLost) and not fault.had_item:
            return
        if isinstance(fault, UnitError) and fault.code is ErrorCode.DEAD_END:
            raise NoTokenAllowed(fault.message) from fault
        if _is(fault, ErrorCode.EXHAUSTED):
            session.waits += 1
            await _pause(session.waits)
            return
        session.faults += 1
        log_event("unit failed a session", session=session.id, faults=session.faults, reason=str(fault))
        if session.faults > self.max_rebuilds:
            raise _given_up(self.max_rebuilds, fault) from fault
        is_there = not isinstance(fault, UnitLost) and not _is(fault, ErrorCode.SESSION_LOST)
        if is_there:
            await _pause(2 * session.faults - 1)


async def _pause(times: int) -> None:
    """Doubles with every time; at random, so that sessions that wait for the same room do not collide again."""
    longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(times - 1, 16))
    await asyncio.sleep(longest_s * random.uniform(0.5, 1.0))


def _given_up(rebuilds: int, fault: Exception) -> EngineError:
    message = f"given up after {rebuilds} rebuilds without progress: {fault}"
    return UnitsUnavailable(message) if _is(fault, ErrorCode.WEIGHTS_UNAVAILABLE) else RequestFailed(message)


def _is(fault: Exception, *codes: ErrorCode) -> bool:
    return isinstance(fault, UnitError) and fault.code in codes
