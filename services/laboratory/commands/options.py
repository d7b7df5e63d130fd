"""Options that several of the commands share, and how their failures are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.training.commands.options import telling as training_tells
from hetspec.training.progress import Stages
from hetspec_client.errors import InvalidInput
from hetspec_client.files import writable, writable_folder, write_file
from hetspec_client.terminal import write_line
from laboratory.errors import StudyError
from weight_store import shipped

PerCategory = Annotated[int, Option(min=0, help="So many prompts of each category, at equal distances; 0: all.")]
OfEach = Annotated[int, Option("--per-category", min=0, help="So many of the record's prompts a category; 0: all.")]
WorkFolder = Annotated[
    Path | None,
    Option("--work", help="Keeps what each answer came to; called again, the study goes on where it was ended."),
]
RecordPath = Annotated[Path, Option("--record", help="What `hetspec record` wrote.")]
Accept = Annotated[
    str | None, Option("--accept", help="Acceptance of a synthetic draft instead: 0.7, or 0.8,0.75 by depth.")
]
Out = Annotated[Path | None, Option("--out", help="Writes OUT.md, OUT.csv and OUT.svg, too.")]
Jobs = Annotated[int, Option(min=0, help="Processes; 0: as many as there are cores for this one.")]
DraftPath = Annotated[
    Path | None,
    Option(
        "--draft", help="A draft folder, or a checkpoint of the target's vocabulary; default: the small model's own."
    ),
]
HeadPath = Annotated[
    Path | None,
    Option("--head", help="An acceptance head of the draft, for specdecpp; default: the small model's own draft's."),
]

_SUFFIXES = "md", "csv", "svg"


def draft_for(target: Path | None, draft: Path | None) -> Path:
    """Raises StudyError where a target is named and no draft; CheckpointError where what is shipped is damaged."""
    if draft is None and target is not None:
        raise StudyError("--draft: must be named where --target is")
    return draft or shipped.checked(shipped.DRAFT)


def head_for(draft: Path | None, head: Path | None) -> Path | None:
    """draft: None, the shipped one. Raises CheckpointError where what is shipped is damaged."""
    return shipped.checked(shipped.ACCEPTANCE) if draft is head is None else head


def check_places(out: Path | None, work: Path | None) -> None:
    """Makes the folders of what a study leaves behind. Raises InvalidInput where it cannot."""
    if out is not None:
        if not out.name:
            raise InvalidInput(f"--out {out}: must name files, not a folder")
        for suffix in _SUFFIXES:
            writable("--out", _file(out, suffix))
    if work is not None:
        writable_folder("--work", work)


def write_files(out: Path, page: str, csv: str, svg: str) -> None:
    for suffix, text in zip(_SUFFIXES, (page, csv, svg), strict=True):
        write_file("--out", _file(out, suffix), text)
    write_line(f"{out}.md, {out}.csv, {out}.svg")


def _file(out: Path, suffix: str) -> Path:
    return out.with_name(f"{out.name}.{suffix}")


@contextmanager
def telling() -> Iterator[Stages]:
    """Progress goes to stderr. What is wrong with what was given is one line, and exit code 2."""
    try:
        with training_tells() as stages:
            yield stages
    except StudyError as error:
        raise InvalidInput(str(error)) from error
