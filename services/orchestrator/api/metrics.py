"""What Prometheus reads of the orchestrator's requests. docs/observability.md lists every metric."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from orchestrator.api.request_log import tell
from orchestrator.engine.request import Emission, Statistics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_ROUND_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry, running: Callable[[], int], queued: Callable[[], int]) -> None:
        self.registry = registry
        by_request = ("endpoint", "mode")

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def seconds(name: str, text: str, *labels: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        self.requests = counter("hetspec_requests", "Admitted requests by how they ended.", *by_request, "outcome")
        self.refusals = counter("hetspec_refusals", "Requests answered with an error.", "status", "code")
        self.admission = seconds("hetspec_admission_wait_seconds", "From arrival to admission.", "endpoint")
        self.duration = seconds("hetspec_request_seconds", "From arrival to the last token.", *by_request)
        self.first_token = seconds(
            "hetspec_time_to_first_token_seconds", "From arrival to the first token.", *by_request
        )
        self.inter_token = seconds(
            "hetspec_inter_token_seconds",
            "Between tokens, after the first: a round's tokens share the time since the round before.",
            "mode",
            buckets=_ROUND_SECONDS,
        )
        self.round = seconds(
            "hetspec_round_seconds", "A round, the first of a request with its prompt.", "mode", buckets=_ROUND_SECONDS
        )
        self.prompt_tokens = counter("hetspec_prompt_tokens", "Tokens of prompts.")
        self.tokens = counter("hetspec_generated_tokens", "Tokens answered.", "mode")
        self.rounds = counter("hetspec_rounds", "Decoding rounds.", "mode")
        self.drafted = counter("hetspec_drafted_tokens", "Nodes that drafters proposed.", "mode")
        self.verified = counter("hetspec_verified_tokens", "Nodes that verifiers scored.", "mode")
        self.pruned = counter("hetspec_pruned_tokens", "Of these, nodes that left the pass early.", "mode")
        self.accepted = counter(
            "hetspec_accepted_tokens", "Nodes that became output; the bonus token of a round is none.", "mode"
        )
        self.drafted_nodes = counter("hetspec_drafted_nodes", "Nodes drafted, by depth; 1 is the first.", "depth")
        self.accepted_nodes = counter("hetspec_accepted_nodes", "Nodes accepted, by depth.", "depth")
        self.drafted_by_source = counter("hetspec_drafted_by_source", "Nodes drafted, by what proposed them.", "source")
        self.accepted_by_source = counter("hetspec_accepted_by_source", "Nodes accepted, by that.", "source")
        self.rebuilds = counter("hetspec_rebuilds", "Sessions told to another verifier from their tokens.")
        self.host_seconds = counter("hetspec_host_seconds", "Host time by part.", "part")
        Gauge(
            "hetspec_requests_running", "Choices being computed: a request with n = 3 has three.", registry=registry
        ).set_function(running)
        Gauge("hetspec_requests_queued", "Choices that wait for admission.", registry=registry).set_function(queued)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def refused(self, status: int, code: str | None) -> None:
        self.refusals.labels(str(status), code or "invalid_request").inc()

    def observe(self, endpoint: str, mode: str, prompt_tokens: int) -> Observation:
        return Observation(self, endpoint, mode, prompt_tokens)


class Observation:
    """One request, as metrics and log see it: `choice` for each of its choices, `end` once, however it ended."""

    def __init__(self, metrics: Metrics, endpoint: str, mode: str, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._endpoint = endpoint
        self._labels = (endpoint, mode)
        self._arrived = time.perf_counter()
        self._prompt_tokens = prompt_tokens
        self._choices: list[Statistics] = []
        self._seen_first = False
        tell(mode=mode, prompt_tokens=prompt_tokens)

    def admitted(self) -> None:
        wait_s = time.perf_counter() - self._arrived
        self._metrics.admission.labels(self._endpoint).observe(wait_s)
        tell(admission_wait_s=round(wait_s, 6))

    def choice(self, statistics: Statistics) -> ChoiceObservation:
        """statistics: as they grow."""
        self._choices.append(statistics)
        return ChoiceObservation(self._metrics, statistics, self._token_seen)

    def end(self, outcome: str) -> None:
        m = self._metrics
        m.requests.labels(*self._labels, outcome).inc()
        m.duration.labels(*self._labels).observe(time.perf_counter() - self._arrived)
        m.prompt_tokens.inc(self._prompt_tokens)
        tell(outcome=outcome, rounds=self._sum("rounds"), tokens=self._sum("emitted"), accepted=self._sum("accepted"))

    def _sum(self, name: str) -> int:
        return sum(getattr(statistics, name) for statistics in self._choices)

    def _token_seen(self) -> None:
        if not self._seen_first:
            self._seen_first = True
            wait_s = time.perf_counter() - self._arrived
            self._metrics.first_token.labels(*self._labels).observe(wait_s)
            tell(first_token_s=round(wait_s, 6))


class ChoiceObservation:
    """One choice: its rounds as they end, so that counters move while it runs."""

    def __init__(self, metrics: Metrics, statistics: Statistics, on_token: Callable[[], None]) -> None:
        mode = statistics.mode.value
        self._statistics = statistics
        self._on_token = on_token
        self._last_token: float | None = None
        self._round = metrics.round.labels(mode)
        self._tokens = metrics.tokens.labels(mode)
        self._gaps = metrics.inter_token.labels(mode)
        counters = {"rounds": metrics.rounds, "drafted": metrics.drafted}
        counters |= {"verified": metrics.verified, "pruned": metrics.pruned, "accepted": metrics.accepted}
        self._growths = {name: _Growth(counter.labels(mode)) for name, counter in counters.items()}
        self._growths["rebuilds"] = _Growth(metrics.rebuilds)
        self._drafted = _Growths(lambda depth: metrics.drafted_nodes.labels(str(depth)))
        self._accepted = _Growths(lambda depth: metrics.accepted_nodes.labels(str(depth)))
        self._drafted_by_source = _Growths(metrics.drafted_by_source.labels)
        self._accepted_by_source = _Growths(metrics.accepted_by_source.labels)
        self._host = _Growths(lambda part: metrics.host_seconds.labels(part), scale=1e-9)

    def emission(self, emission: Emission, round_s: float) -> None:
        """A round that gave something; round_s: what it took."""
        tokens = len(emission.tokens)
        self._round.observe(round_s)
        self._tokens.inc(tokens)
        self.count()
        if not tokens:
            return
        self._on_token()
        now = time.perf_counter()
        if self._last_token is not None:
            gap_s = (now - self._last_token) / tokens
            for _ in range(tokens):
                self._gaps.observe(gap_s)
        self._last_token = now

    def count(self) -> None:
        """Brings the counters up to the statistics. Called after every round, and at the end."""
        for name, growth in self._growths.items():
            growth.to(getattr(self._statistics, name))
        self._drafted.to(enumerate(self._statistics.drafted_by_depth, 1))
        self._accepted.to(enumerate(self._statistics.accepted_by_depth, 1))
        self._drafted_by_source.to(self._statistics.drafted_by_source.items())
        self._accepted_by_source.to(self._statistics.accepted_by_source.items())
        self._host.to(self._statistics.host_ns.items())


class _Growth:
    """Tells a counter how much a number has grown since the last time."""

    __slots__ = ("_counter", "_scale", "_told")

    def __init__(self, counter: Counter, scale: float = 1) -> None:
        self._counter = counter
        self._scale = scale
        self._told = 0

    def to(self, value: int) -> None:
        if value != self._told:
            self._counter.inc((value - self._told) * self._scale)
            self._told = value


class _Growths:
    """Of numbers by label. Looking a label up takes longer than counting: each is looked up once."""

    def __init__(self, counter: Callable[[Any], Counter], scale: float = 1) -> None:
        self._counter = counter
        self._scale = scale
        self._known: dict[object, _Growth] = {}

    def to(self, values: Iterable[tuple[object, int]]) -> None:
        for label, value in values:
            if (growth := self._known.get(label)) is None:
                growth = self._known[label] = _Growth(self._counter(label), self._scale)
            growth.to(value)
