"""A conversation: each turn's prompt is all that was said before, and something new."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.model.forward import PAGE
from tests.system import Ask, Requests

TURNS = ((40, 24), (11, 18), (1, 9), (PAGE, 12))  # new prompt tokens, tokens answered


@dataclass(frozen=True)
class Turn:
    tokens: list[int]
    cached: int
    predicted: int


async def converse(system: Requests, mode: str, temperature: float, seed: int) -> list[Turn]:
    """What is said goes on with what was answered. predicted: all that had been committed when the last turn ended."""
    said: tuple[int, ...] = ()
    predicted, turns = 0, []
    for number, (new, answered) in enumerate(TURNS):
        said += tuple(3 + (seed * 7 + number * 31 + i * 13) % 290 for i in range(new))
        rounds: list[int] = [0]
        ask = Ask(said, mode, answered, temperature, seed)
        answer = await system.generate(ask, on_tokens=lambda tokens, rounds=rounds: rounds.append(len(tokens)))
        turns.append(Turn(answer.tokens, answer.statistics.cached_tokens, predicted))
        predicted = len(said) + rounds[-2]  # the last round committed the tokens before it
        said += tuple(answer.tokens)
    return turns
