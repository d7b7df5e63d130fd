"""hetspec record"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.options import CacheDir, TargetPath, Threads
from hetspec.training.corpus.prompts import read_prompts
from hetspec_client.files import writable
from hetspec_client.terminal import write_line
from laboratory.commands.options import PerCategory, telling
from laboratory.selection import of_each_category

app = typer.Typer(add_completion=False)


class RowType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    NONE = "none"


_DTYPES = {RowType.FLOAT32: np.float32, RowType.FLOAT16: np.float16, RowType.NONE: None}


@app.command()
def record(
    *,
    target: TargetPath = None,
    prompts: Annotated[Path, Option(help="JSONL prompts to answer.")],
    out: Annotated[Path, Option(help="The file to write, .npz.")],
    per_category: PerCategory = 4,
    tokens: Annotated[int, Option(min=1, help="Tokens of an answer, at most.")] = 128,
    temperature: Annotated[float, Option(min=0.0, max=2.0, help="Of the answers.")] = 0.0,
    seed: Annotated[int, Option(min=0, help="Of the noise at temperatures above 0.")] = 0,
    rows: Annotated[RowType, Option(help="Hidden rows to keep, for drafts that read them.")] = RowType.FLOAT32,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
) -> None:
    """Keep what a target answers to prompts, for studies without it. Called again, it goes on where it was ended."""
    # What computes takes seconds to import: the list of verbs does not wait for it.
    from hetspec.training.target import Target
    from laboratory.recording import Asking, Recorder

    with telling() as stages:
        writable("--out", out)
        opened = Target.open(target or embedded_model(), cache_dir)
        chosen = of_each_category(read_prompts(prompts, opened.text), per_category)
        longest = max(len(prompt.ids) for prompt in chosen) + tokens
        context = min(longest, opened.checkpoint.config.max_context)
        asking = Asking(tokens, temperature, seed, _DTYPES[rows])
        work = out.with_name(f"{out.name}.work")
        recorder = Recorder(opened, asking, work, threads=threads or default_threads(), max_context=context)
        try:
            with stages.stage("recording", len(chosen), "prompts") as bar:
                found = recorder.record(chosen, out, lambda _: bar.advance())
        finally:
            recorder.close()
    write_line(f"{out}: {len(found.answers)} answers, {sum(len(one.tokens) for one in found.answers)} tokens")
