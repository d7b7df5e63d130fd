from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable

import pytest

from hetspec_client import cli


@pytest.fixture
def run_here(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The `hetspec` command without a process of its own, which is what takes the time."""

    def run(*arguments: str, url: str | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name, value in {"HETSPEC_URL": url, "HETSPEC_API_KEY": None}.items():
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)
        code = cli.main(arguments)
        told = capfdbinary.readouterr()
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return run
