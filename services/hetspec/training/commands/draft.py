"""hetspec train draft, hetspec eval draft"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.measured import Measured
from hetspec.training.commands.options import AsJson, CacheDir, TargetPath, Threads, telling, write_report
from hetspec.training.draft.distillation import Course
from hetspec.training.draft.head_loss import Teaching
from hetspec.training.draft.loss import LossOptions
from hetspec.training.draft.plan import DraftPlan
from hetspec.training.draft.training import DraftTraining
from hetspec.training.evaluation.acceptance import Shapes
from hetspec.training.evaluation.evaluation import Decoding, Evaluation, Trial
from hetspec_client.files import writable_folder


class Kind(StrEnum):
    FEATURES = "features"
    INDEPENDENT = "independent"


@dataclass(frozen=True, slots=True)
class Sources:
    rows: Annotated[int, Option(min=0, help="Tokens of conversations that the target leads with itself.")] = 1_000_000
    prompts: Annotated[list[Path] | None, Option(help="JSONL prompts that the target answers; repeatable.")] = None
    text: Annotated[list[Path] | None, Option(help="Text that the target reads; repeatable.")] = None
    corpus: Annotated[Path | None, Option(help="A folder of conversations made earlier, instead of making any.")] = None


@dataclass(frozen=True, slots=True)
class Shape:
    kind: Annotated[Kind, Option(help="Whether it reads the target's hidden rows.")] = Kind.FEATURES
    layers: Annotated[
        int | None, Option(min=1, help="Layers, of the target's own shape; default: 1, or those of --begin-from.")
    ] = None
    vocab: Annotated[
        int | None,
        Option(
            min=0,
            help="Tokens that its head knows, the most frequent; 0: all; default: 12000, or those of --begin-from.",
        ),
    ] = None
    begin_from: Annotated[
        Path | None,
        Option(
            help="A draft folder to train further: its shape is kept; --layers may add layers, --vocab take tokens."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Learning:
    epochs: Annotated[int, Option(min=1, help="Times that the conversations are gone through.")] = 3
    rate: Annotated[float, Option(min=0.0, help="The highest learning rate.")] = 8e-3
    batch: Annotated[int, Option(min=1, help="Tokens a batch.")] = 2048
    max_length: Annotated[int, Option(min=2, help="Tokens of a conversation that are learned from.")] = 288
    steps: Annotated[int, Option(min=1, max=16, help="Draft steps that are taught.")] = 3
    first_alone: Annotated[
        float, Option(min=0.0, max=1.0, help="Share of the training in which only the first of them is.")
    ] = 0.5
    sampled: Annotated[
        int, Option(min=0, help="Tokens of the head that a batch is taught against, beside the target's; 0: all.")
    ] = 1500
    agreement: Annotated[
        float,
        Option(min=0.0, max=1.0, help="Share of the chance to choose as the target does in what is taught."),
    ] = 0.0
    seed: Annotated[int, Option(min=0, help="Of everything that is drawn.")] = 0

    def course(self) -> Course:
        loss = LossOptions(self.steps, sampled=self.sampled, teaching=Teaching(self.agreement))
        return Course(self.seed, self.epochs, self.rate, self.batch, self.first_alone, loss)


def train_draft(
    *,
    target: TargetPath = None,
    out: Annotated[Path, Option(help="The draft folder to write.")],
    work: Annotated[
        Path | None, Option(help="Where what is unfinished is kept, to go on from; default: OUT.work.")
    ] = None,
    sources: Sources,
    shape: Shape,
    learning: Learning,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Make a draft model for a target, out of what the target says. Called again, it goes on where it was ended."""
    plan = DraftPlan(
        target=target or embedded_model(),
        out=out,
        work=work or out.with_name(f"{out.name}.work"),
        cache_dir=cache_dir,
        kind=shape.kind,
        layers=shape.layers,
        head_tokens=shape.vocab,
        rows=sources.rows,
        prompts=tuple(sources.prompts or ()),
        texts=tuple(sources.text or ()),
        corpus=sources.corpus,
        begin_from=shape.begin_from,
        max_length=learning.max_length,
        threads=threads or default_threads(),
        course=learning.course(),
    )
    with telling() as stages:
        writable_folder("--out", out)
        writable_folder("--work", plan.work)
        write_report(DraftTraining(plan, stages).run(), as_json)


def eval_draft(
    *,
    target: TargetPath = None,
    draft: Annotated[Path, Option(help="A draft folder, or a checkpoint of the target's vocabulary.")],
    prompts: Annotated[Path, Option(help="JSONL prompts to measure on.")],
    tokens: Annotated[int, Option(min=2, help="Tokens of an answer.")] = 128,
    temperature: Annotated[float, Option(min=0.0, max=2.0, help="Of the answers.")] = 0.0,
    limit: Annotated[int, Option(min=0, help="So many of the prompts, at equal distances; 0: all.")] = 0,
    depth: Annotated[int, Option(min=1, max=16, help="Tokens of a chain.")] = 5,
    nodes: Annotated[int, Option(min=1, max=256, help="Of a tree.")] = 32,
    tree_depth: Annotated[int, Option(min=1, max=16, help="Levels of a tree.")] = 8,
    seed: Annotated[int, Option(min=0, help="Of the noise at temperatures above 0.")] = 0,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Measure a draft model on prompts."""
    trial = Trial(Decoding(tokens, temperature, seed), Shapes(depth, nodes, tree_depth), threads or default_threads())
    with telling() as stages:
        on = Measured.open(target, draft, prompts, limit, cache_dir)
        write_report(Evaluation(on.target, on.draft, trial, stages).report(on.prompts), as_json)
