"""hetspec train average"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.options import CacheDir, TargetPath, telling
from hetspec.training.draft.averaging import average_drafts
from hetspec.training.target import Target
from hetspec_client.files import writable_folder


def train_average(
    *,
    target: TargetPath = None,
    draft: Annotated[list[Path], Option(help="A draft folder; repeated: those to take the mean of.")],
    out: Annotated[Path, Option(help="The draft folder to write.")],
    cache_dir: CacheDir = DEFAULT_CACHE,
) -> None:
    """Make a draft model of the mean of others' weights, of one shape."""
    with telling():
        writable_folder("--out", out)
        average_drafts(draft, out, Target.open(target or embedded_model(), cache_dir), cache_dir)
