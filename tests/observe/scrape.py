"""What the services tell at their metrics ports, and what Prometheus has made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.ports import HOST, free_ports
from tests.system import Processes, until_async

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "deploy" / "prometheus"
Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]  # by name and labels

_ADDED = ("__name__", "instance", "job", "service")  # to a sample's labels, by Prometheus


async def scrape(processes: Processes, service: str) -> str:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(f"http://{HOST}:{processes.metrics_ports[service]}/metrics")
        return answer.raise_for_status().text


def samples_of(text: str) -> Samples:
    """Those of hetspec; the process's own numbers never rest."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("hetspec_")
    }


def families_of(text: str) -> dict[str, str]:
    """Types by name, as the exposition writes them."""
    lines = (line.split() for line in text.splitlines() if line.startswith("# TYPE "))
    return {name: kind for _, _, name, kind in lines}


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=30)

    async def ready(self) -> bool:
        try:
            return (await self._client.get("/-/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def query(self, expression: str) -> dict[Labels, float]:
        """An instant vector; labels that Prometheus added are left out, save `service`."""
        answer = (await self._client.get("/api/v1/query", params={"query": expression})).json()
        assert answer["status"] == "success", answer
        return {_labels(series["metric"], _ADDED[:3]): float(series["value"][1]) for series in answer["data"]["result"]}

    async def samples(self, service: str) -> Samples:
        """Everything that it has of a service."""
        expression = f'{{__name__=~"hetspec_.*", service="{service}"}}'
        answer = (await self._client.get("/api/v1/query", params={"query": expression})).json()
        return {
            (series["metric"]["__name__"], _labels(series["metric"], _ADDED)): float(series["value"][1])
            for series in answer["data"]["result"]
        }

    async def rules(self) -> list[dict[str, Any]]:
        groups = (await self._client.get("/api/v1/rules")).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def close(self) -> None:
        await self._client.aclose()


def _labels(told: Mapping[str, str], without: tuple[str, ...]) -> Labels:
    return tuple(sorted((name, value) for name, value in told.items() if name not in without))


@asynccontextmanager
async def prometheus(binary: str, processes: Processes, folder: Path) -> AsyncIterator[Prometheus]:
    """As deploy/prometheus says, but for where the services are, and every second."""
    config = yaml.safe_load((CONFIG / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(CONFIG / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    (named,) = job.pop("dns_sd_configs")
    job["static_configs"] = [
        {"targets": [f"{HOST}:{processes.metrics_ports[name]}"], "labels": {"__meta_dns_name": name}}
        for name in named["names"]
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    command = [binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, f"--web.listen-address={HOST}:{port}", stdout=log, stderr=log
        )
    running = Prometheus(f"http://{HOST}:{port}")
    try:
        await until_async(running.ready, 60)
        yield running
    finally:
        await running.close()
        process.kill()
        await process.wait()
