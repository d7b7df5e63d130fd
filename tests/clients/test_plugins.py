"""Verbs that other packages bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.command import failure_line, hetspec

GOOD = """
import typer
from hetspec_client import InvalidInput

app = typer.Typer()

@app.command()
def grow(steps: int) -> None:
    "Grow a plant."
    if steps == 0:
        raise InvalidInput("steps: must not be 0")
    print(f"grown by {steps}")
"""


LATE = """
import typer
from hetspec_client.commands.late import late_verbs

app = typer.Typer(add_completion=False, cls=late_verbs({"peas": "peas:sow", "beans": "beans:sow"}))

@app.callback()
def sow() -> None:
    "Sow."
"""
PEAS = """
def sow(*, rows: int = 1) -> None:
    "Sow peas."
    print(f"{rows} of peas")
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder as pip leaves it: one plug-in works, one cannot be imported, one has the name of a verb of ours."""
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[hetspec.commands]\ngrow = good:app\nbroken = broken:app\nmodels = good:app\nsow = late:app\n"
    )
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "peas.py").write_text(PEAS)
    (tmp_path / "beans.py").write_text("import no_such_thing")
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("raise RuntimeError('two\\nlines')")
    return tmp_path


def test_plugin_is_a_verb_with_its_own_options(plugins):
    done = hetspec("grow", "3", path=plugins)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"grown by 3\n", b"")


def test_plugins_failures_are_told_as_ours(plugins):
    refused = hetspec("grow", "0", path=plugins)
    assert (refused.returncode, failure_line(refused)) == (2, "steps: must not be 0")
    assert hetspec("grow", "x", path=plugins).returncode == 2


def test_help_lists_plugins_and_names_the_broken_one_in_one_line(plugins):
    done = hetspec("--help", path=plugins)
    assert done.returncode == 0
    assert b"Grow a plant." in done.stdout
    assert failure_line(done) == "the plug-in 'broken' does not load: RuntimeError: two lines"


def test_broken_plugin_costs_other_verbs_nothing(plugins):
    done = hetspec("generate", "--help", path=plugins)
    assert (done.returncode, done.stderr) == (0, b"")


def test_broken_plugin_fails_in_one_line_when_called(plugins):
    done = hetspec("broken", path=plugins)
    assert (done.returncode, done.stdout) == (1, b"")
    assert failure_line(done) == "the plug-in 'broken' does not load: RuntimeError: two lines"


def test_our_verbs_go_before_plugins(plugins):
    assert b"Grow a plant." not in hetspec("models", "--help", path=plugins).stdout


def test_a_late_verb_that_cannot_be_imported_costs_those_beside_it_nothing_and_fails_in_one_line(plugins):
    done = hetspec("sow", "peas", "--rows", "3", path=plugins)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"3 of peas\n", b"")
    failed = hetspec("sow", "beans", path=plugins)
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failure_line(failed) == "beans does not load: ModuleNotFoundError: No module named 'no_such_thing'"
