"""The `hetspec` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "hetspec_client")
TIMEOUT_S = 60


def environ(url: str | None = None, *, path: Path | None = None) -> dict[str, str]:
    """Without a terminal's colours and this machine's settings. path: where further packages are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HETSPEC_")}
    packages = [ROOT / "clients" / "python", *([path] if path else [])]
    kept |= {"PYTHONPATH": os.pathsep.join(map(str, packages)), "PYTHONUTF8": "1"}
    return kept | ({"HETSPEC_URL": url} if url else {})


def hetspec(
    *arguments: str, url: str | None = None, stdin: bytes = b"", path: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environ(url, path=path), input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def hetspec_process(*arguments: str, url: str) -> subprocess.Popen[bytes]:
    """With pipes for stdout and stderr."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *arguments], env=environ(url), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )


def failure_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """All that stderr holds, which must be one line of the command's own."""
    text = done.stderr.decode()
    assert text.startswith("hetspec: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    return text.removeprefix("hetspec: ").rstrip()
