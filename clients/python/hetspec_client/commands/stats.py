"""hetspec stats"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hetspec_client.answers import Readiness
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.metrics import Metrics
from hetspec_client.terminal import write_json, write_line, write_table


@dataclass(frozen=True, slots=True)
class ModeStatistics:
    """Of all requests in one mode; names as in an answer's statistics."""

    rounds: int
    drafted: int
    verified: int
    pruned: int
    accepted: int
    emitted: int
    accept_length: float


@dataclass(frozen=True, slots=True)
class DraftedNodes:
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Since the server was started. ended: requests by how. refused: by HTTP status. host_s: by part.

    by_depth: below the last token, from 1 on. by_source: lookup, model, grammar.
    """

    status: str
    missing: list[str]
    replicas: dict[str, int]
    running: int
    queued: int
    ended: dict[str, int]
    refused: dict[str, int]
    prompt_tokens: int
    modes: dict[str, ModeStatistics]
    by_depth: dict[str, DraftedNodes]
    by_source: dict[str, DraftedNodes]
    host_s: dict[str, float]


def stats(*, server: Server, as_json: AsJson = False) -> None:
    """Show what the server did since its start: from /readyz and /metrics."""
    with server.connect() as client:
        told = collect(client.readiness(), client.metrics())
    if as_json:
        write_json(asdict(told))
    else:
        _show(told)


def collect(readiness: Readiness, metrics: Metrics) -> ServerStatistics:
    return ServerStatistics(
        status=readiness.status,
        missing=readiness.missing,
        replicas=dict(readiness.replicas),
        running=int(metrics.total("hetspec_requests_running")),
        queued=int(metrics.total("hetspec_requests_queued")),
        ended=_whole(metrics.by("hetspec_requests_total", "outcome")),
        refused=_whole(metrics.by("hetspec_refusals_total", "status")),
        prompt_tokens=int(metrics.total("hetspec_prompt_tokens_total")),
        modes={mode: _mode(metrics, mode) for mode in sorted(metrics.by("hetspec_rounds_total", "mode"))},
        by_depth=_drafted(metrics, "{}_nodes", "depth"),
        by_source=_drafted(metrics, "{}_by_source", "source"),
        host_s=metrics.by("hetspec_host_seconds_total", "part"),
    )


def _mode(metrics: Metrics, mode: str) -> ModeStatistics:
    def count(name: str) -> int:
        return int(metrics.total(f"hetspec_{name}_total", mode=mode))

    rounds, emitted = count("rounds"), count("generated_tokens")
    return ModeStatistics(
        rounds=rounds,
        drafted=count("drafted_tokens"),
        verified=count("verified_tokens"),
        pruned=count("pruned_tokens"),
        accepted=count("accepted_tokens"),
        emitted=emitted,
        accept_length=emitted / rounds if rounds else 0.0,
    )


def _drafted(metrics: Metrics, name: str, label: str) -> dict[str, DraftedNodes]:
    """name: with a place for "drafted" and "accepted"."""
    drafted, accepted = (metrics.by(f"hetspec_{name.format(what)}_total", label) for what in ("drafted", "accepted"))
    values = sorted(drafted, key=lambda value: (len(value), value))  # depth 10 comes after 9
    return {value: DraftedNodes(int(drafted[value]), int(accepted.get(value, 0))) for value in values}


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in sorted(counts.items())}


def _show(told: ServerStatistics) -> None:
    waits_for = f", without {', '.join(told.missing)}" if told.missing else ""
    write_table(
        [
            ("status", told.status + waits_for),
            ("replicas", _listed(told.replicas)),
            ("requests", f"{told.running} running, {told.queued} waiting"),
            ("ended", _listed(told.ended)),
            ("refused", _listed(told.refused)),
            ("prompt tokens", str(told.prompt_tokens)),
            ("host seconds", _listed({part: f"{seconds:.2f}" for part, seconds in told.host_s.items()})),
        ]
    )
    if told.modes:
        write_line()
        heads = ("mode", "rounds", "drafted", "verified", "pruned", "accepted", "emitted", "tokens a round")
        write_table([heads, *(_row(mode, counted) for mode, counted in told.modes.items())])

    for name, counts in (("depth", told.by_depth), ("source", told.by_source)):
        if counts:
            write_line()
            rows = [(value, str(n.drafted), str(n.accepted), _share(n)) for value, n in counts.items()]
            write_table([(name, "drafted", "accepted", "share"), *rows])


def _share(nodes: DraftedNodes) -> str:
    return f"{nodes.accepted / nodes.drafted:.1%}" if nodes.drafted else ""


def _row(mode: str, told: ModeStatistics) -> tuple[str, ...]:
    counts = (told.rounds, told.drafted, told.verified, told.pruned, told.accepted, told.emitted)
    return (mode, *map(str, counts), f"{told.accept_length:.2f}")


def _listed(counts: dict[str, int] | dict[str, str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
