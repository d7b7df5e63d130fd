"""What `hetspec bench ahasd` tells: tables, a CSV file and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from laboratory import ahasd_policies as known
from laboratory.bars import Bar, Panel
from laboratory.figures import Figures, StudyReport, csv_by_policy
from laboratory.outcome import Outcome
from laboratory.tables import Table, not_possible, percent

_HEAD = (
    "", "tokens/s", "over LPDDR5, 5", "over LPDDR5, best", "tokens/round", "survived", "dropped", "checks", "NPU idle",
    "PIM idle", "mJ/token", "energy over LPDDR5, 5",
)  # fmt: skip
_FORETOLD = (
    "", "policy", "EDC right", "verification, tables", "fitted", "drafting, tables", "fitted", "checks, tables",
    "fitted",
)  # fmt: skip
_CONTROLLED = (
    known.WITH_EDC, known.WITH_TVC, "ahasd", "ahasd without tvc", known.EDC_SHARED, known.EDC_SHARED_ALONE,
    known.TVC_FITTED, "full",
)  # fmt: skip
_DEVICES = ("npu", "pim")


@dataclass(frozen=True, slots=True)
class AhasdReport(StudyReport):
    """excluded: why hardware and models do not go together, by pair and policy."""

    excluded: Mapping[tuple[str, str], str]

    def tables(self) -> Iterator[tuple[str, Table]]:
        yield "mean over pairs", self._means()
        for figures in self.all:
            yield figures.pair, [_HEAD, *(_row(figures, name) for name in _shown(figures))]
        yield "what control foretold", [_FORETOLD, *(row for figures in self.all for row in _foretold(figures))]
        yield from not_possible(self.excluded)

    def csv(self) -> str:
        return csv_by_policy(self.all, _COLUMNS, _cells)

    def panels(self) -> list[Panel]:
        return [
            Panel(figures.pair, [Bar(name, figures.speed(name, known.DRAM_CHAIN)) for name in _shown(figures)])
            for figures in self.all
        ]

    def _means(self) -> Table:
        """Arithmetic means of the ratios, of policies that every pair has."""
        names = [name for name in _shown(self.all[0]) if all(name in figures.outcomes for figures in self.all)]
        rows = []
        for name in names:
            speeds = [figures.speed(name, known.DRAM_CHAIN) for figures in self.all]
            energies = [_energy(figures, name) for figures in self.all]
            rows.append((name, f"{_mean(speeds):.2f}x", f"{_mean(energies):.2f}x"))
        return [("", "speed over LPDDR5, 5", "energy over LPDDR5, 5"), *rows]


def _shown(figures: Figures) -> list[str]:
    """All but lengths of chains other than 5 and the best."""
    names = list(figures.outcomes)
    lengths = {chain for one in known.CHAINS for chain in known.best_of(names, one)}
    best = {figures.fastest(chains) for one in known.CHAINS if (chains := known.best_of(names, one))}
    return [name for name in names if name not in lengths or name in best or name.endswith(", 5")]


def _best(figures: Figures) -> str:
    """Of what NPU and LPDDR5 give without PIM: never below plain decoding."""
    chains = known.best_of(list(figures.outcomes), known.CHAINS[0])
    return figures.fastest([known.PLAIN, *chains])


def _energy(figures: Figures, name: str) -> float:
    return figures.outcomes[name].token_pj / figures.outcomes[known.DRAM_CHAIN].token_pj


def _row(figures: Figures, name: str) -> tuple[str, ...]:
    one = figures.outcomes[name]
    return (
        name,
        f"{1e9 / one.decode_ns:.2f}",
        f"{figures.speed(name, known.DRAM_CHAIN):.2f}x",
        f"{figures.speed(name, _best(figures)):.2f}x",
        f"{one.accept_length:.2f}",
        percent(one.survived, one.survived + one.lost),
        percent(one.dropped, one.drafted),
        f"{one.checks} ({one.failed} failed)" if one.checks else "",
        *(f"{one.idle_share(device):.0%}" for device in _DEVICES),
        f"{one.token_pj / 1e9:.0f}",
        f"{_energy(figures, name):.2f}x",
    )


def _foretold(figures: Figures) -> Iterator[tuple[str, ...]]:
    """How often drafting control was right about a batch; mean errors of what check control foretold of tasks."""
    for name in _CONTROLLED:
        if (one := figures.outcomes.get(name)) is not None:
            right = percent(one.foretold, one.batches)
            errors = [f"{error:.1%}" if error is not None else "" for error in _errors(one)]
            yield (figures.pair, name, right, *errors)


def _errors(one: Outcome) -> list[float | None]:
    kinds = (one.errors.verification, one.errors.drafting, one.errors.pre_verification)
    return [error if kind.tasks else None for kind in kinds for error in (kind.tables, kind.fitted)]


_COLUMNS = (
    "answer_tokens", "decoded_tokens", "rounds", "nodes_verified", "nodes_accepted", "drafted_ahead", "dropped",
    "survived", "lost", "checks", "checks_failed", "ms_per_token", "tokens_per_round", "mj_per_token", "npu_idle",
    "pim_idle", "over_lpddr5_in_turn_5", "energy_over_lpddr5_in_turn_5", "edc_right", "verification_error_tables",
    "verification_error_fitted", "drafting_error_tables", "drafting_error_fitted", "check_error_tables",
    "check_error_fitted",
)  # fmt: skip


def _cells(figures: Figures, name: str, one: Outcome) -> tuple[str, ...]:
    counts = (one.tokens, one.decoded, one.rounds, one.nodes, one.accepted, one.drafted, one.dropped, one.survived)
    ratios = (
        one.decode_ns / 1e6, one.accept_length, one.token_pj / 1e9, *map(one.idle_share, _DEVICES),
        figures.speed(name, known.DRAM_CHAIN), _energy(figures, name),
    )  # fmt: skip
    right = one.foretold / one.batches if one.batches else None
    foretold = ("" if ratio is None else f"{ratio:.3f}" for ratio in (right, *_errors(one)))
    return (*map(str, (*counts, one.lost, one.checks, one.failed)), *(f"{ratio:.3f}" for ratio in ratios), *foretold)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
