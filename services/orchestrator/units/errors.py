"""How a unit fails the orchestrator, apart from its own typed refusals (hetspec.rpc.messages.UnitError)."""

from __future__ import annotations

from hetspec.rpc.messages import UnitError


class UnitLost(Exception):
    """The unit, or the way to it, is gone: stopped, restarted, frozen or cut off. What it held is lost.

    had_item: whether the unit had the caller's item when it was lost, and may have been lost by it. instance: where the
    connection broke, the unit at its other end; when that is found again it was only out of reach.
    """

    def __init__(self, message: str, had_item: bool = False, instance: str = "") -> None:
        super().__init__(message)
        self.had_item = had_item
        self.instance = instance


class Nonsense(Exception):
    """An answer that breaks the contract; the message names the field."""


class NoReplica(Exception):
    """There is no unit of that kind, and none came in time."""


FAULTS = (UnitError, UnitLost, Nonsense)
"""Whatever can be wrong with a unit; a session outlives any of them."""
