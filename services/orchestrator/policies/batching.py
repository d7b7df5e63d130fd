"""What goes into a pass: of a prompt, and of the waiting items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Rows of one pass; of these, rows of prompt chunks, so that decoders beside them do not wait long."""

    max_rows: int
    max_prompt_rows: int


_SHARED_CHUNK_TOKENS = 64


def prompt_chunk_tokens(most: int, sessions: int) -> int:
    """Of a prompt, in one pass of a unit that holds so many sessions.

    Whoever decodes beside a prompt waits for a chunk or two at every token: with neighbours they are short. Alone they
    are long, so that weights which are read in every pass are read seldom.
    """
    return most if sessions <= 1 else min(most, _SHARED_CHUNK_TOKENS)


class Waiting(Protocol):
    @property
    def rows(self) -> int: ...

    @property
    def is_prompt(self) -> bool: ...

    @property
    def alone(self) -> bool: ...


W = TypeVar("W", bound=Waiting)


def compose_pass(waiting: Iterable[W], limits: PassLimits) -> tuple[list[W], list[W]]:
    """Splits `waiting`, oldest first, into the next pass and the rest; both keep their order.

    Everything that fits goes. The oldest always does, whatever its size, so that nothing starves. One that is to go
    alone shares its pass with nothing.
    """
    taken: list[W] = []
    left: list[W] = []
    rows = prompt_rows = 0
    for item in waiting:
        fits = rows + item.rows <= limits.max_rows and not (taken and (item.alone or taken[0].alone))
        if item.is_prompt:
            fits = fits and prompt_rows + item.rows <= limits.max_prompt_rows
        if fits or not (taken or left):
            taken.append(item)
            rows += item.rows
            prompt_rows += item.rows if item.is_prompt else 0
        else:
            left.append(item)
    return taken, left
