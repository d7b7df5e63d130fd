"""docs/observability.md, the board, the rules and the autoscalers name the metrics there are, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel
from grafana_foundation_sdk.models.prometheus import Dataquery
from prometheus_client import CollectorRegistry, generate_latest

from orchestrator.api.key_metrics import KeyMetrics
from tests.observe.scrape import families_of, samples_of, scrape
from tests.system import SERVICES, Processes

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"\| `(hetspec_\w+)` \| (\w+) \|([\w, ]*)\| .+ \|")
_NAME = re.compile(r"\b(?:hetspec|process)_\w+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


class Keys:
    """A key ring of none: the metrics of keys are there, and have no samples."""

    accounts = ()


def documented() -> dict[str, tuple[str, set[str]]]:
    """Types and labels by name."""
    rows = (_ROW.fullmatch(line) for line in (ROOT / "docs" / "observability.md").read_text().splitlines())
    return {row[1]: (row[2], set(filter(None, row[3].replace(" ", "").split(",")))) for row in rows if row}


async def scraped(processes: Processes) -> dict[str, str]:
    return {service: await scrape(processes, service) for service in SERVICES}


async def test_list_of_metrics_is_that_of_the_services(processes: Processes, answers: list[dict[str, Any]]) -> None:
    registry = CollectorRegistry()
    registry.register(KeyMetrics(Keys()))  # type: ignore[arg-type]
    texts = [*(await scraped(processes)).values(), generate_latest(registry).decode()]
    found = {name: kind for text in texts for name, kind in families_of(text).items() if name.startswith("hetspec_")}
    assert {name: kind for name, (kind, _) in documented().items()} == found


async def test_labels_are_those_of_the_samples(processes: Processes, answers: list[dict[str, Any]]) -> None:
    told = documented()
    seen = 0
    for text in (await scraped(processes)).values():
        for name, labels in samples_of(text):
            family = name if name in told else _SUFFIX.sub("", name)
            assert {label for label, _ in labels} - {"le"} == told[family][1], name
            seen += 1
    assert seen > 500


async def test_board_loads_and_every_panel_shows_metrics_that_are_there(
    processes: Processes, answers: list[dict[str, Any]]
) -> None:
    register_default_plugins()
    board = Dashboard.from_json(json.loads((ROOT / "deploy" / "grafana" / "boards" / "hetspec.json").read_text()))
    assert board.panels is not None
    panels = [panel for panel in board.panels if isinstance(panel, Panel)]
    assert len(panels) > 15
    assert len({panel.id_val for panel in board.panels}) == len(board.panels)
    known = await sample_names(processes)
    for panel in panels:
        assert panel.targets
        for target in panel.targets:
            assert isinstance(target, Dataquery)
            assert names_in(target.expr) <= known, panel.title


async def test_rules_and_autoscalers_read_metrics_that_are_there(
    processes: Processes, answers: list[dict[str, Any]]
) -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    used = {name for expression in expressions for name in names_in(expression)}
    known = await sample_names(processes)
    assert used
    assert used <= known
    assert {f"{name}_{part}" for name in scaled_on() for part in ("sum", "count")} <= known


async def test_board_asks_the_data_source_that_is_provisioned() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    board = json.loads((ROOT / "deploy" / "grafana" / "boards" / "hetspec.json").read_text())
    asked = {panel["datasource"]["uid"] for panel in board["panels"] if panel["type"] != "row"}
    assert asked == {source["uid"]}
    overlay = yaml.safe_load((ROOT / "deploy" / "compose" / "observe.yml").read_text())["services"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in overlay


async def sample_names(processes: Processes) -> set[str]:
    texts = (await scraped(processes)).values()
    own = {name for text in texts for name, _ in samples_of(text)}
    families = {name for text in texts for name in families_of(text)}
    return own | families  # a counter by label has no samples before it has counted


def names_in(expression: str) -> set[str]:
    return set(_NAME.findall(expression))


def scaled_on() -> Iterator[str]:
    manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "autoscaling.yaml").read_text())
    for manifest in manifests:
        for metric in manifest["spec"]["metrics"]:
            yield metric["pods"]["metric"]["name"]
