"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = "from hetspec import jit; print(jit.numba.config.CACHE_DIR)"


def place(**environ: str) -> Path:
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env = inherited | {"PYTHONPATH": "services"} | environ
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return Path(told.stdout.strip())


def test_kernels_made_elsewhere_are_there_from_the_start_and_stay_where_they_are(tmp_path: Path) -> None:
    elsewhere, ours = tmp_path / "image", tmp_path / "cache"
    made = elsewhere / place(XDG_CACHE_HOME=str(tmp_path / "named")).name / "model" / "forward.nbc"
    made.parent.mkdir(parents=True)
    made.write_text("compiled")
    kept = place(XDG_CACHE_HOME=str(ours), HETSPEC_KERNELS=str(elsewhere))
    assert kept.is_relative_to(ours)
    assert (kept / "model" / "forward.nbc").read_text() == made.read_text() == "compiled"


def test_kernels_made_from_other_sources_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "image" / "0123456789abcdef" / "model").mkdir(parents=True)
    kept = place(XDG_CACHE_HOME=str(tmp_path / "cache"), HETSPEC_KERNELS=str(tmp_path / "image"))
    assert kept.is_dir()
    assert not list(kept.iterdir())
