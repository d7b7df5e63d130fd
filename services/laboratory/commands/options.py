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
from laboratory.errors import StudyError
from weight_store import shipped

PerCategory = Annotated[int, Option(min=0, help="So many prompts of each category, at equal distances; 0: all.")]
DraftPath = Annotated[
    Path | None,
    Option(
        "--draft", help="A draft folder, or a checkpoint of the target's vocabulary; default: the small model's own."
    ),
]


def draft_for(target: Path | None, draft: Path | None) -> Path:
    """Raises StudyError where a target is named and no draft; CheckpointError where what is shipped is damaged."""
    if draft is None and target is not None:
        raise StudyError("--draft: must be named where --target is")
    return draft or shipped.checked(shipped.DRAFT)


@contextmanager
def telling() -> Iterator[Stages]:
    """Progress goes to stderr. What is wrong with what was given is one line, and exit code 2."""
    try:
        with training_tells() as stages:
            yield stages
    except StudyError as error:
        raise InvalidInput(str(error)) from error
