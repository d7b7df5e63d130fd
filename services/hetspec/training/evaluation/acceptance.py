"""Accept lengths of whole speculative decoding: tokens a target pass, by way of drafting and kind of prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.speculation.rounds import Task
from hetspec.training.speculation.speculator import Speculator
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

_LOOKUP, _BOTH = (DRAFT_SOURCE_LOOKUP,), (DRAFT_SOURCE_MODEL, DRAFT_SOURCE_LOOKUP)
OVERALL = "overall"


def ways(depth: int, nodes: int) -> dict[str, DraftPolicy]:
    """Of drafting: chains of `depth` and trees of so many `nodes`, with the draft model, and by prompt lookup alone."""
    width = max(1, min(8, nodes // 4))
    return {
        "chain": DraftPolicy(depth, depth, 1, _BOTH),
        "tree": DraftPolicy(nodes, depth, width, _BOTH),
        "lookup_chain": DraftPolicy(depth, depth, 1, _LOOKUP),
        "lookup_tree": DraftPolicy(nodes, depth, width, _LOOKUP),
    }


@dataclass(slots=True)
class Passes:
    """Of the target, those that read prompts not counted, and the tokens that they gave."""

    passes: int = 0
    tokens: int = 0

    @property
    def accept_length(self) -> float:
        return self.tokens / max(1, self.passes)


@dataclass(frozen=True, slots=True)
class Decoding:
    max_tokens: int
    temperature: float
    seed: int


def measure_acceptance(
    speculator: Speculator,
    prompts: Sequence[Prompt],
    policies: Mapping[str, DraftPolicy],
    decoding: Decoding,
    on_prompt: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Passes]]:
    """By category, all of them together under OVERALL, then by way."""
    found: dict[str, dict[str, Passes]] = {}
    for place, prompt in enumerate(prompts):
        for way, policy in policies.items():
            passes = _passes(speculator, prompt, policy, decoding, place)
            for category in (OVERALL, prompt.category):
                told = found.setdefault(category, {}).setdefault(way, Passes())
                told.passes += passes.passes
                told.tokens += passes.tokens
        on_prompt()
    return found


def _passes(speculator: Speculator, prompt: Prompt, policy: DraftPolicy, decoding: Decoding, place: int) -> Passes:
    sampling = Sampling(temperature=decoding.temperature)
    task = Task(prompt.ids, policy, decoding.max_tokens, sampling, NoiseKey(decoding.seed + place))
    _, *rounds = speculator.rounds(task)
    return Passes(len(rounds), sum(len(one.emitted) for one in rounds))
