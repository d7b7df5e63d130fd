"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

PROGRAM = "from hetspec import jit; print(jit.numba.config.CACHE_DIR)"

SUMMING = """
from hetspec.jit import part

@part
def total(x):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
    return s
"""

# Sums an array of the type it is given. Before it keeps the index of what is compiled, and before it keeps the code, it
# says so and waits for a line.
KEEPER = """
import sys
import numpy as np
from numba.core.caching import IndexDataCacheFile
from summing import total

def told(keep):
    def wait(*arguments):
        print("keeping", flush=True)
        sys.stdin.readline()
        return keep(*arguments)
    return wait

IndexDataCacheFile._save_index = told(IndexDataCacheFile._save_index)
IndexDataCacheFile._save_data = told(IndexDataCacheFile._save_data)
print(total(np.arange(5).astype(sys.argv[1])))
"""


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


class Keeper:
    """A process that sums 0 to 4 as numbers of `kind`."""

    def __init__(self, kind: str, folder: Path) -> None:
        paths = f"services{os.pathsep}{folder}"
        env = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
        command = (sys.executable, "-c", KEEPER, kind)
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def waits(self, within_s: float = 60) -> bool:
        """Whether it comes to a place where it waits."""
        return bool(select.select([self._process.stdout], [], [], within_s)[0])

    def go_on(self) -> str:
        """From where it waits."""
        assert self._process.stdout
        assert self._process.stdin
        line = self._process.stdout.readline()
        print(file=self._process.stdin, flush=True)
        return line

    def end(self) -> float:
        return float(self._process.communicate("\n\n")[0].splitlines()[-1])


def test_two_that_keep_a_functions_code_at_once_leave_each_type_its_own(tmp_path: Path) -> None:
    (tmp_path / "summing.py").write_text(SUMMING)
    first = Keeper("float64", tmp_path)
    assert first.waits()
    second = Keeper("int8", tmp_path)
    together = second.waits(5)
    assert first.go_on() == "keeping\n"
    assert first.waits()
    if together:  # the first has numbered its code; the second does now, as the same
        second.end()
    assert first.end() == 10
    assert together or second.end() == 10
    assert [Keeper(kind, tmp_path).end() for kind in ("float64", "int8")] == [10, 10]
