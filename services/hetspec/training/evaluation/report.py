"""What is told of a draft model: how it agrees with its target, what that is worth, what a step costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hetspec.training.evaluation.acceptance import OVERALL
from hetspec.training.evaluation.agreement import TOPS, Agreement
from hetspec.training.evaluation.passes import SOURCES, Passes
from hetspec.training.evaluation.step_cost import StepCost

Table = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DraftReport:
    """steps: agreement by draft step. acceptance: by category, then by way of drafting. parameters: of the draft's own
    weights. threads: of every measurement."""

    target: str
    draft: str
    kind: str
    layers: int
    head_tokens: int
    parameters: int
    temperature: float
    max_tokens: int
    prompts: int
    threads: int
    steps: Sequence[Agreement]
    acceptance: Mapping[str, Mapping[str, Passes]]
    cost: StepCost

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        told["acceptance"] = {
            category: {way: asdict(passes) | {"accept_length": passes.accept_length} for way, passes in by_way.items()}
            for category, by_way in self.acceptance.items()
        }
        told["cost"]["share"] = self.cost.share
        return told

    def tables(self) -> Iterator[Table]:
        """As the command line prints them."""
        yield self._head()
        yield self._steps()
        yield self._reliability()
        yield self._acceptance()
        yield self._depths()
        yield self._sources()

    def _head(self) -> Table:
        draft_ms, target_ms = self.cost.draft_ns / 1e6, self.cost.target_ns / 1e6
        cost = f"{draft_ms:.2f} ms, {self.cost.share:.3f} of the target's {target_ms:.2f} ms"
        return [
            ("target", self.target),
            ("draft", f"{self.draft}: {self.kind}, layers {self.layers}, head of {self.head_tokens} tokens"),
            ("parameters", f"{self.parameters / 1e6:.2f} million"),
            ("a draft step", f"{cost} ({self.threads} threads)"),
            ("prompts", f"{self.prompts}, {self.max_tokens} tokens, temperature {self.temperature:g}"),
        ]

    def _steps(self) -> Table:
        names = ("greedy match", *(f"top-{k}" for k in TOPS[1:]), "overlap", "calibration error", "guesses")
        rows: Table = [("draft step", *names)]
        for step, one in enumerate(self.steps, start=1):
            shares = (*(one.top[k] for k in TOPS), one.overlap, one.calibration_error)
            rows.append((str(step), *(f"{share:.3f}" for share in shares), str(one.guesses)))
        return rows

    def _reliability(self) -> Table:
        """Of the first step, which has most of the guesses."""
        rows: Table = [("confidence", "right", "guesses")]
        for one in self.steps[0].reliability:
            rows.append((f"{one.confidence:.3f}", f"{one.right:.3f}", str(one.guesses)))
        return rows

    def _acceptance(self) -> Table:
        overall = self.acceptance.get(OVERALL, {})
        rows: Table = [("accept length", *(way.replace("_", " ") for way in overall))]
        for category, by_way in self.acceptance.items():
            rows.append((category, *(f"{passes.accept_length:.2f}" for passes in by_way.values())))
        return rows

    def _depths(self) -> Table:
        overall = self.acceptance.get(OVERALL, {})
        deepest = max((len(passes.depths) for passes in overall.values()), default=0)
        rows: Table = [("accepted at depth", *map(str, range(1, deepest + 1)))]
        for way, passes in overall.items():
            shares = [f"{count.share:.3f}" for count in passes.depths]
            rows.append((way, *shares, *[""] * (deepest - len(shares))))
        return rows

    def _sources(self) -> Table:
        """Nodes by who proposed them, and what was missed."""
        names = [f"{source} {what}" for source in SOURCES for what in ("nodes", "accepted")]
        rows: Table = [("nodes", *names, "missed", "beyond the head")]
        for way, passes in self.acceptance.get(OVERALL, {}).items():
            counts = [passes.sources[source] for source in SOURCES]
            told = [text for count in counts for text in (str(count.offered), f"{count.share:.3f}")]
            beyond = passes.beyond_head / max(1, passes.missed)
            rows.append((way, *told, str(passes.missed), f"{beyond:.3f}"))
        return rows
