"""What `hetspec bench lever` tells: tables, a CSV file and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from laboratory import lever_policies as known
from laboratory.bars import Bar, Panel
from laboratory.figures import Figures, StudyReport
from laboratory.outcome import Outcome
from laboratory.tables import Table, as_csv

_CHAINS = [policy.name for policy in known.chains()]
_TREES = [policy.name for policy in known.trees()]
_LEFT_OUT = [policy.name for policy in known.parts_left_out()]
_HEAD = (
    "", "ms/token", "over plain", "over chain of 5", "tokens/round", "ms/round", "nodes/round", "flash", "mJ/token",
)  # fmt: skip
_OVER = ("", "plain", "with the prompt", "chain of 5", "best chain", "best tree", "better of both", "server tree")


@dataclass(frozen=True, slots=True)
class LeverReport(StudyReport):
    def heading(self, target: str, drafted: str) -> str:
        """What the tables are of, in a line."""
        tokens = sum(outcome.tokens for outcome in self.studied[0].outcomes)
        return (
            f"Mode lever on emulated hardware: {len(self.categories)} answers of {target}, {tokens} tokens, {drafted}"
        )

    def tables(self) -> Iterator[tuple[str, Table]]:
        """With a title each: first lever beside the others, then every pair."""
        yield "lever over", self._ratios()
        for figures in self.all:
            yield figures.pair, _pair_table(figures)

    def csv(self) -> str:
        """A line for each pair, category of prompts ("all" for all of them) and policy."""
        lines = []
        for category in (None, *dict.fromkeys(self.categories)):
            for figures in Figures.of(self.studied, self.categories, category):
                for policy, outcome in figures.outcomes.items():
                    over = figures.speed(policy, known.PLAIN), figures.speed(policy, known.CHAIN)
                    lines.append((figures.pair, category or "all", policy, *_cells(outcome), *map(_3, over)))
        return as_csv([_COLUMNS, *lines])

    def panels(self) -> list[Panel]:
        return [
            Panel(figures.pair, [Bar(name, figures.speed(policy, known.PLAIN)) for name, policy in _shown(figures)])
            for figures in self.all
        ]

    def _ratios(self) -> Table:
        return [_OVER, *(_ratio_row(figures) for figures in self.all)]


def _ratio_row(figures: Figures) -> tuple[str, ...]:
    chain, tree = figures.fastest(_CHAINS), figures.fastest(_TREES)
    over = (known.PLAIN, known.CHAIN, chain, tree, figures.fastest([chain, tree]), known.SERVER)
    speeds = [f"{figures.speed(known.LEVER, policy):.2f}x" for policy in over]
    whole = f"{figures.speed_with_prompt(known.LEVER, known.PLAIN):.2f}x"
    return (figures.pair, speeds[0], whole, *speeds[1:])


def _shown(figures: Figures) -> list[tuple[str, str]]:
    """Name and policy of what is told of a pair: of chains and trees the best."""
    chain, tree = figures.fastest(_CHAINS), figures.fastest(_TREES)
    first = [(name, name) for name in (known.PLAIN, known.SERIAL, known.CHAIN)]
    last = [(name, name) for name in (known.SERVER, known.SMALL_LEVER, known.LEVER, *_LEFT_OUT)]
    best_chain = f"best chain ({chain.removeprefix('chain of ')})"
    best_tree = f"best tree ({tree.removeprefix('tree of ')})"
    return [*first, (best_chain, chain), (best_tree, tree), *last]


def _pair_table(figures: Figures) -> Table:
    return [_HEAD, *(_row(name, policy, figures) for name, policy in _shown(figures))]


def _row(name: str, policy: str, figures: Figures) -> tuple[str, ...]:
    one = figures.outcomes[policy]
    rounds = max(1, one.draft_rounds)
    return (
        name,
        f"{one.decode_ns / 1e6:.1f}",
        f"{figures.speed(policy, known.PLAIN):.2f}x",
        f"{figures.speed(policy, known.CHAIN):.2f}x",
        f"{one.accept_length:.2f}",
        f"{one.round_ns / 1e6:.1f}",
        f"{one.nodes / rounds:.1f}",
        f"{one.io_share:.0%}",
        f"{one.token_pj / 1e9:.0f}",
    )


_COLUMNS = (
    "pair", "prompts", "policy", "answer_tokens", "decoded_tokens", "rounds", "nodes_verified", "nodes_accepted",
    "ms_per_token", "ms_to_first_token", "tokens_per_round", "ms_per_round", "flash_share", "mj_per_token",
    "over_plain", "over_chain_of_5",
)  # fmt: skip


def _cells(one: Outcome) -> tuple[str, ...]:
    counts = (one.tokens, one.decoded, one.rounds, one.nodes, one.accepted)
    times = (one.decode_ns / 1e6, one.first_ns / 1e6, one.accept_length, one.round_ns / 1e6)
    return (*map(str, counts), *map(_3, (*times, one.io_share, one.token_pj / 1e9)))


def _3(value: float) -> str:
    return f"{value:.3f}"
