"""What each key has used, by its name."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.api.keys import KeyRing


class KeyMetrics(Collector):
    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        answers = CounterMetricFamily("hetspec_key_requests", "Requests of a key, by status.", labels=["key", "status"])
        tokens = CounterMetricFamily("hetspec_key_tokens", "Tokens of a key's prompts and answers.", labels=["key"])
        running = GaugeMetricFamily("hetspec_key_requests_running", "Requests of a key under way.", labels=["key"])
        for account in self._keys.accounts:
            for status, count in sorted(account.answers.items()):
                answers.add_metric([account.name, str(status)], count)
            tokens.add_metric([account.name], account.tokens)
            running.add_metric([account.name], account.running)
        return answers, tokens, running
