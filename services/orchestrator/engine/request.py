"""What goes into the engine and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import TokenLogprobs
from orchestrator.policies.mode import Mode as Mode

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """max_nodes and max_depth bound one draft; top_logprobs None: no logprobs; deadline: in the event loop's time."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    noise: NoiseKey
    max_tokens: int
    mode: Mode
    max_nodes: int
    max_depth: int
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("prompt_ids: empty, must hold at least one token")
        for name in ("max_tokens", "max_nodes", "max_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}, must be >= 1")


@dataclass(frozen=True, slots=True)
class EmittedToken:
    id: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Emission:
    """What one round adds. `text` is what is safe to show now; the end token is among `tokens` but leaves no text."""

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: FinishReason | None


@dataclass(slots=True)
class Statistics:
    """Raw counters of one request.

    drafted: nodes the drafter returned. verified: nodes in target passes. accepted: drafted nodes that became output;
    the bonus of a round is none. emitted: tokens given out, the end token included. host_ns: of each unit, its share of
    every pass by rows; "queue", waiting for work of others; "orchestrator", the rest of the rounds, transport included.
    """

    mode: Mode
    seed: int
    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    emitted: int = 0
    host_ns: dict[str, int] = field(default_factory=dict)

    @property
    def accept_length(self) -> float:
        """Tokens emitted a round, that is a target pass, the bonus counted."""
        return self.emitted / self.rounds if self.rounds else 0.0

    def add_host_ns(self, part: str, spent_ns: int) -> None:
        self.host_ns[part] = self.host_ns.get(part, 0) + spent_ns
