"""Options that several of the commands share, and how their failures are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

from rich.console import Console
from typer import Option

from hetspec.model.checkpoint import CheckpointError
from hetspec.training.errors import TrainingError
from hetspec.training.progress import Stages
from hetspec_client.errors import InvalidInput
from hetspec_client.terminal import write_json, write_tables

TargetPath = Annotated[
    Path | None,
    Option(
        "--target", envvar="HETSPEC_TARGET", help="A GGUF file or a Hugging Face directory; default: the small model."
    ),
]
CacheDir = Annotated[Path, Option("--cache-dir", envvar="HETSPEC_CACHE_DIR", help="Where packs are kept.")]
Threads = Annotated[int, Option(min=0, help="Threads to compute with; 0: what this process is granted.")]
AsJson = Annotated[bool, Option("--json", help="The report as JSON.")]


@contextmanager
def telling() -> Iterator[Stages]:
    """Progress goes to stderr. What is wrong with what was given is one line, and exit code 2."""
    try:
        yield Stages(Console(stderr=True))
    except (CheckpointError, TrainingError) as error:
        raise InvalidInput(str(error)) from error


class Report(Protocol):
    def to_json(self) -> dict[str, Any]: ...
    def tables(self) -> Iterable[list[tuple[str, ...]]]: ...


def write_report(report: Report, as_json: bool) -> None:
    """To stdout, as JSON or as its tables."""
    if as_json:
        write_json(report.to_json())
        return
    write_tables(report.tables())
