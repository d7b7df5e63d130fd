"""Settings are refused before anything that runs is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.settings import SETTINGS, LaunchError, check, services


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HETSPEC_PRECISON", "float32", "no such setting; HETSPEC_PRECISION?"),
        ("HETSPEC_PRECISION", "int4", "verifier: HETSPEC_PRECISION = 'int4'"),
        ("HETSPEC_DRAM_BUDGET", "150%", "verifier: HETSPEC_DRAM_BUDGET = '150%'"),
        ("HETSPEC_DRAM_BUDGET", "0%", "verifier: HETSPEC_DRAM_BUDGET = '0%'"),
        ("HETSPEC_THREADS", "0", "HETSPEC_THREADS = '0'"),
        ("HETSPEC_MODE", "Tree", "orchestrator: HETSPEC_MODE = 'Tree'"),
        ("HETSPEC_TARGET", "/nope", "HETSPEC_TARGET = '/nope'"),
        ("HETSPEC_TARGET", "none", "HETSPEC_TARGET = 'none'"),
        ("HETSPEC_DRAFT", "/nope", "HETSPEC_DRAFT = '/nope'"),
        ("HETSPEC_EARLY_EXIT", "/nope", "HETSPEC_EARLY_EXIT = '/nope'"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(name: str, value: str, says: str) -> None:
    with pytest.raises(LaunchError) as refused:
        check({name: value, "PATH": "/bin"})
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_that_services_take_pass(tmp_path: Path) -> None:
    check({"HETSPEC_DRAM_BUDGET": "25%", "HETSPEC_THREADS": "2", "HETSPEC_TARGET": str(tmp_path), "HOME": "/"})
    check({"HETSPEC_DRAFT": "none", "HETSPEC_EARLY_EXIT": "none"})


@pytest.mark.parametrize("named", ["HETSPEC_HARDWARE", "HETSPEC_COST_AS"])
def test_a_file_that_the_orchestrator_reads_restarts_it_alone_when_it_changes(tmp_path: Path, named: str) -> None:
    file = tmp_path / ("mine.yaml" if named == "HETSPEC_HARDWARE" else "config.json")
    value = str(file) if named == "HETSPEC_HARDWARE" else f"{tmp_path}:int8+llama3.2-1b:int8"
    digests = []
    for content in ("old", "old", "new"):
        file.write_text(content)
        digests.append({service.name: service.digest("code") for service in services({named: value})})
    assert digests[0] == digests[1]
    changed = {name for name in digests[0] if digests[0][name] != digests[2][name]}
    assert changed == {"orchestrator"}


@pytest.mark.parametrize("service", SETTINGS)
def test_every_service_of_the_launcher_has_its_own_settings(service: str) -> None:
    assert SETTINGS[service].__module__ == f"{service}.config"
