"""deploy/prometheus, as promtool sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.observe.scrape import CONFIG

PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def promtool(*arguments: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_no_fault_in_configuration_and_rules() -> None:
    assert "SUCCESS" in promtool("check", "config", str(CONFIG / "prometheus.yml"))


def test_rules_say_what_their_tests_say() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(Path(__file__).parent / "rules.test.yml"))
