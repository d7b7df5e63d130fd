"""Threads from the control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hetspec.threads import default_threads

ALLOWED = len(os.sched_getaffinity(0))
SHARE = max(1, ALLOWED // 2)  # two units may compute at once


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("50000 100000", 1), ("100000 100000", 1), ("150000 100000", min(2, ALLOWED)), ("max 100000", SHARE)],
)
def test_quota_is_rounded_up_and_bounded_by_the_cpus_allowed(tmp_path: Path, quota: str, threads: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert default_threads(tmp_path) == threads


@pytest.mark.parametrize(("quota", "threads"), [("100000", 1), ("-1", SHARE)])
def test_first_version_of_control_groups_counts_too(tmp_path: Path, quota: str, threads: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert default_threads(tmp_path) == threads


def test_without_control_groups_half_of_the_cpus_allowed_count(tmp_path: Path) -> None:
    assert default_threads(tmp_path) == SHARE
