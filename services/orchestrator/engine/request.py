"""What goes into the engine and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hetspec.decoding.constraint import Grammar
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import TokenLogprobs
from orchestrator.clock.clock import Arrival
from orchestrator.clock.presence import Presence
from orchestrator.policies.control import AheadReport
from orchestrator.policies.drafting_algorithm import Drafting
from orchestrator.policies.lever import LeverReport
from orchestrator.policies.mode import Mode as Mode
from orchestrator.policies.mode import Objective, Part, grows_chains, parts_of
from orchestrator.timeline.timeline import Timeline

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One choice. max_nodes, max_depth and min_gain bound one draft; deadline: in the event loop's time.

    max_tokens 0: nothing is generated. min_tokens: so many come before an end token may, and before a stop string ends
    the text. ignore_eos: end tokens are tokens like any other. grammar: of the output. top_logprobs None: no logprobs.
    scores_prompt: logprobs of the prompt's tokens too. reuse_prefix: KV may be shared with other choices that begin
    with the same tokens. arrival: in an emulated world, where it is part of a closed workload. objective: of a tree
    that its costs size. disabled: parts of the mode that are switched off. outcomes: of a verification, that a batch is
    drafted ahead for. shares_edc: what drafting control learns is shared with other requests. fits_tvc: check control
    foretells how long tasks take by a fit. drafting: what chooses the length of a chain.
    """

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
    min_tokens: int = 0
    ignore_eos: bool = False
    grammar: Grammar | None = None
    scores_prompt: bool = False
    reuse_prefix: bool = True
    min_gain: float = 0.0
    arrival: Arrival | None = None
    objective: Objective = Objective.LATENCY
    disabled: frozenset[Part] = frozenset()
    outcomes: int = 1
    shares_edc: bool = False
    fits_tvc: bool = False
    drafting: Drafting = Drafting.FIXED

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("prompt_ids: empty, must hold at least one token")
        for name, least in (("max_tokens", 0), ("max_nodes", 1), ("max_depth", 1), ("outcomes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}, must be >= {least}")
        if not 0 <= self.min_gain <= 1:
            raise ValueError(f"min_gain = {self.min_gain}, must be in [0, 1]")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(f"min_tokens = {self.min_tokens}, must be in [0, {self.max_tokens}]")
        if self.scores_prompt and self.top_logprobs is None:
            raise ValueError("scores_prompt: needs top_logprobs")
        if foreign := self.disabled - parts_of(self.mode):
            raise ValueError(f"disabled: mode {self.mode} has no {', '.join(sorted(foreign))}")
        if self.drafting is not Drafting.FIXED and not grows_chains(self.mode):
            raise ValueError(f"drafting: mode {self.mode} has no chains whose length {self.drafting} could choose")

    @property
    def parts(self) -> frozenset[Part]:
        """Of the mode, those that are on."""
        return parts_of(self.mode) - self.disabled


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """logprobs: None where none were asked for, and of a prompt's first token, which nothing predicts."""

    id: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Emission:
    """What one round adds. `text` is what is safe to show now; the end token is among `tokens` but leaves no text.

    prompt: the prompt's tokens, in the first emission of a request that scores them.
    """

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: FinishReason | None
    prompt: tuple[EmittedToken, ...] = ()


@dataclass(slots=True)
class Statistics:
    """Raw counters of one request.

    drafted: nodes the drafter returned. verified: nodes in target passes. pruned: of these, that left the pass early.
    accepted: drafted nodes that became output; the bonus of a round is none. emitted: tokens given out, the end token
    included. rebuilds: how often a verifier had to be told all tokens again, as the one before was lost or failed.
    cached_tokens: of the prompt, which the verifier had read for others already. host_ns: of each unit, its share of
    every pass by rows; "queue", waiting for work of others; "orchestrator", the rest of the rounds, transport included.
    """

    mode: Mode
    seed: int
    drafting: Drafting = Drafting.FIXED
    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    pruned: int = 0
    accepted: int = 0
    emitted: int = 0
    rebuilds: int = 0
    cached_tokens: int = 0
    drafted_by_depth: list[int] = field(default_factory=list)  # [0]: of the nodes that follow the last token
    accepted_by_depth: list[int] = field(default_factory=list)
    drafted_by_source: dict[str, int] = field(default_factory=dict)  # lookup, model, grammar
    accepted_by_source: dict[str, int] = field(default_factory=dict)
    host_ns: dict[str, int] = field(default_factory=dict)
    presence: Presence | None = None  # in an emulated world
    timeline: Timeline = field(default_factory=Timeline)
    lever: LeverReport | None = None  # of a tree that its costs size
    ahead: AheadReport | None = None  # of what was drafted while drafts were verified

    @property
    def accept_length(self) -> float:
        """Tokens emitted a round, that is a target pass, the bonus counted."""
        return self.emitted / self.rounds if self.rounds else 0.0

    def add_draft(self, tree: TokenTree, sources: Sequence[str]) -> None:
        """sources: of each node."""
        self.drafted += len(tree)
        _count_each(self.drafted_by_source, sources)
        for depth in tree.depths():
            _count_at(self.drafted_by_depth, depth)

    def add_accepted(self, sources: Sequence[str]) -> None:
        """A walk down over nodes of these sources."""
        self.accepted += len(sources)
        _count_each(self.accepted_by_source, sources)
        for depth in range(1, len(sources) + 1):
            _count_at(self.accepted_by_depth, depth)

    def add_host_ns(self, part: str, spent_ns: int) -> None:
        self.host_ns[part] = self.host_ns.get(part, 0) + spent_ns


def _count_each(counts: dict[str, int], names: Sequence[str]) -> None:
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _count_at(by_depth: list[int], depth: int) -> None:
    by_depth.extend([0] * (depth - len(by_depth)))
    by_depth[depth - 1] += 1
