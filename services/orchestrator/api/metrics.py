"""What Prometheus reads at /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from orchestrator.engine.request import Emission, GenerationRequest, Statistics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    def __init__(self, running: Callable[[], int], queued: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        by_request = ("endpoint", "mode")
        self.requests = Counter(
            "hetspec_requests", "Admitted requests by how they ended.", (*by_request, "outcome"), registry=registry
        )
        self.refusals = Counter(
            "hetspec_refusals", "Requests answered with an error.", ("status", "code"), registry=registry
        )
        self.duration = Histogram(
            "hetspec_request_seconds",
            "From arrival to the last token.",
            by_request,
            registry=registry,
            buckets=_SECONDS,
        )
        self.first_token = Histogram(
            "hetspec_time_to_first_token_seconds",
            "From arrival to the first token.",
            by_request,
            registry=registry,
            buckets=_SECONDS,
        )
        self.prompt_tokens = Counter("hetspec_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.tokens = Counter("hetspec_generated_tokens", "Tokens answered.", ("mode",), registry=registry)
        self.rounds = Counter("hetspec_rounds", "Decoding rounds.", ("mode",), registry=registry)
        self.drafted = Counter("hetspec_drafted_tokens", "Nodes drafted.", ("mode",), registry=registry)
        self.verified = Counter("hetspec_verified_tokens", "Nodes verified.", ("mode",), registry=registry)
        self.accepted = Counter("hetspec_accepted_tokens", "Nodes accepted.", ("mode",), registry=registry)
        self.host_seconds = Counter("hetspec_host_seconds", "Host time by part.", ("part",), registry=registry)
        Gauge("hetspec_requests_running", "Requests in the engine.", registry=registry).set_function(running)
        Gauge("hetspec_requests_queued", "Requests that wait for admission.", registry=registry).set_function(queued)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def refused(self, status: int, code: str | None) -> None:
        self.refusals.labels(str(status), code or "invalid_request").inc()

    def observe(self, endpoint: str, request: GenerationRequest) -> Observation:
        return Observation(self, endpoint, request)


class Observation:
    """One request as the metrics see it; `end` is called once, however it ended."""

    def __init__(self, metrics: Metrics, endpoint: str, request: GenerationRequest) -> None:
        self._metrics = metrics
        self._labels = (endpoint, request.mode.value)
        self._mode = request.mode.value
        self._arrived = time.perf_counter()
        self._seen_first = False
        self._prompt_tokens = len(request.prompt_ids)

    def emission(self, emission: Emission) -> None:
        if not emission.tokens:
            return
        if not self._seen_first:
            self._seen_first = True
            self._metrics.first_token.labels(*self._labels).observe(time.perf_counter() - self._arrived)
        self._metrics.tokens.labels(self._mode).inc(len(emission.tokens))

    def end(self, outcome: str, statistics: Statistics) -> None:
        m = self._metrics
        m.requests.labels(*self._labels, outcome).inc()
        m.duration.labels(*self._labels).observe(time.perf_counter() - self._arrived)
        m.prompt_tokens.inc(self._prompt_tokens)
        m.rounds.labels(self._mode).inc(statistics.rounds)
        m.drafted.labels(self._mode).inc(statistics.drafted)
        m.verified.labels(self._mode).inc(statistics.verified)
        m.accepted.labels(self._mode).inc(statistics.accepted)
        for part, spent_ns in statistics.host_ns.items():
            m.host_seconds.labels(part).inc(spent_ns * 1e-9)
