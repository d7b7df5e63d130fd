"""clients/examples, each run as it stands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.command import ROOT
from tests.clients.servers import live
from tests.contract.fake_engine import FakeEngine, says

EXAMPLES = ROOT / "clients" / "examples"
ANSWER = "Grün 🙂"


@pytest.fixture
def url() -> Iterator[str]:
    with live(FakeEngine(says("Grü", "n ", "🙂"))) as url:
        yield url


def run(url: str, *command: str | Path) -> str:
    """What it prints; it must succeed and complain of nothing."""
    settings = {"HETSPEC_URL": url, "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT / "clients" / "python")}
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def interpreter(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_curl(url):
    interpreter("curl")
    told = run(url, EXAMPLES / "curl.sh")
    whole, streamed, completion = (part.partition("\n")[2] for part in told.split("== ")[1:])
    assert json.loads(whole)["choices"][0]["message"]["content"] == ANSWER
    events = [line.removeprefix("data: ") for line in streamed.splitlines() if line]
    assert events.pop() == "[DONE]"
    assert "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events) == ANSWER
    assert json.loads(completion)["choices"][0]["text"] == ANSWER


def test_openai_package(url):
    lines = run(url, sys.executable, EXAMPLES / "openai_chat.py").splitlines()
    assert lines[:5] == [
        f"answer: {ANSWER}",
        "rounds: 3 tokens a round: 3.0",
        f"stream: {ANSWER}",
        f"tokens: {len(ANSWER.encode())}",
        "the same with the same seed: True",
    ]
    assert lines[5] == "'G' -0.50 (best: 'G' -0.50, 'I' -1.00)"


def test_python_of_the_guide(url, tmp_path):
    guide = (ROOT / "docs" / "clients.md").read_text()
    _, _, section = guide.partition("## Python\n```\n")
    script = tmp_path / "guide.py"
    script.write_text(section.partition("```")[0].replace("http://127.0.0.1:8000", url))
    answered, streamed, refused = run(url, sys.executable, script).splitlines()
    assert (answered, streamed) == (f"{ANSWER} 3.0 1000", f"{ANSWER}3")
    assert refused.startswith("400 temperature temperature: ")


def test_javascript_fetch(url):
    told = run(url, interpreter("node"), EXAMPLES / "javascript" / "fetch.mjs")
    assert told == f"{ANSWER}\nrounds 3, tokens a round 3\n"


def test_javascript_openai_package(url, tmp_path):
    """npm may have no registry to install from: then there is nothing to run."""
    node, npm = interpreter("node"), interpreter("npm")
    for name in ("openai.mjs", "package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / "javascript" / name, tmp_path)
    command = [npm, "ci", "--no-audit", "--no-fund", "--fetch-retries=0", "--prefix", str(tmp_path)]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if installed.returncode != 0:
        pytest.skip(f"npm ci fails: {installed.stderr.splitlines()[0]}")
    told = run(url, node, tmp_path / "openai.mjs").splitlines()
    assert told == [f"answer: {ANSWER}", "rounds: 3 tokens a round: 3", f"stream: {ANSWER}"]
