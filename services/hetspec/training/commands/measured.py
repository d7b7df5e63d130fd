"""What the commands that measure an artefact open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.training.corpus.prompts import Prompt, read_prompts, spread
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target


@dataclass(frozen=True, slots=True)
class Measured:
    """prompts: those to measure on."""

    target: Target
    draft: OpenDraft
    prompts: list[Prompt]

    @classmethod
    def open(cls, target: Path | None, draft: Path, prompts: Path, limit: int, cache_dir: Path) -> Self:
        """target: None, the small model. limit: so many of the prompts, at equal distances; 0: all."""
        opened = Target.open(target or embedded_model(), cache_dir)
        chosen = spread(read_prompts(prompts, opened.text), limit)
        return cls(opened, OpenDraft.open(draft, opened, cache_dir), chosen)
