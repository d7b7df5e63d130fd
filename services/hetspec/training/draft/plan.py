"""What a draft training is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hetspec.model.config import ModelConfig
from hetspec.training.corpus.shard_list import CorpusRecipe
from hetspec.training.draft.distillation import Course

USUAL_HEAD = 12_000  # tokens


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """kind: "features" or "independent". rows: of the target's own conversations. corpus: a folder of shards to take
    instead of all of that. work: where what is unfinished is kept. begin_from: a draft folder of the same target, whose
    shape is kept, but for layers that are added and tokens of the head that are left out. layers: None: those of
    `begin_from`, or one. head_tokens: that the head knows; 0: all; None: those of `begin_from`, or `USUAL_HEAD`.
    """

    target: Path
    out: Path
    work: Path
    cache_dir: Path
    kind: str = "features"
    layers: int | None = None
    head_tokens: int | None = None
    rows: int = 1_000_000
    prompts: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    corpus: Path | None = None
    begin_from: Path | None = None
    max_length: int = 288
    threads: int = 1
    course: Course = Course()
    conversations: int = 192
    report_tokens: int = 64

    def recipe(self) -> CorpusRecipe:
        """Of the target's own conversations, and of the files given."""
        return CorpusRecipe(self.target, self.cache_dir, self.course.seed, self.prompts, self.texts, self.conversations)

    def model(self, target: ModelConfig, head_tokens: int, begun: ModelConfig | None) -> ModelConfig:
        """The shape of `begun`, or the target's, a few layers high."""
        if begun is not None:
            left = head_tokens if head_tokens < begun.head_rows else begun.head_vocab_size
            return replace(begun, n_layers=self.layers or begun.n_layers, head_vocab_size=left)
        return replace(
            target,
            name=f"{target.name} draft",
            n_layers=self.layers or 1,
            qkv_bias=False,
            qk_norm=False,
            tied_head=False,
            head_vocab_size=head_tokens if head_tokens < target.vocab_size else 0,
            reads_features=self.kind == "features",
        )
