"""hetspec train early-exit, hetspec eval early-exit"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.early_exit_folder import open_early_exit
from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.measured import Measured
from hetspec.training.commands.options import AsJson, CacheDir, TargetPath, Threads, telling, write_report
from hetspec.training.early_exit.evaluation import Measurement
from hetspec.training.early_exit.fit import Fitting
from hetspec.training.early_exit.gather import Growing
from hetspec.training.early_exit.training import EarlyExitPlan, EarlyExitTraining
from hetspec_client.files import writable_folder

DraftPath = Annotated[Path, Option("--draft", help="The draft that grows the trees: a draft folder, or a checkpoint.")]


@dataclass(frozen=True, slots=True)
class TreeShape:
    nodes: Annotated[int, Option(min=1, max=256, help="Of a tree.")] = 32
    depth: Annotated[int, Option(min=1, max=16, help="Levels of a tree.")] = 5
    tokens: Annotated[int, Option(min=2, help="Tokens of an answer.")] = 48
    seed: Annotated[int, Option(min=0, help="Of everything that is drawn.")] = 0

    def growing(self, threads: int) -> Growing:
        return Growing(self.nodes, self.depth, self.tokens, self.seed, threads or default_threads())


def train_early_exit(
    *,
    target: TargetPath = None,
    draft: DraftPath,
    out: Annotated[Path, Option(help="The folder to write.")],
    prompts: Annotated[
        Path | None, Option(help="JSONL prompts to grow trees along; default: user turns that the target writes.")
    ] = None,
    rounds: Annotated[int, Option(min=1, help="Trees to grow.")] = 2000,
    recall: Annotated[float, Option(min=0.5, max=1.0, help="Share of accepted nodes to keep.")] = 0.995,
    layers: Annotated[
        list[int] | None, Option(help="Layers to try, repeatable; default: three in the first half.")
    ] = None,
    trees: TreeShape,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Make a predictor that drops drafted nodes after some of the target's layers."""
    plan = EarlyExitPlan(
        target=target or embedded_model(),
        draft=draft,
        out=out,
        cache_dir=cache_dir,
        prompts=prompts,
        rounds=rounds,
        recall=recall,
        layers=tuple(layers or ()),
        growing=trees.growing(threads),
        fitting=Fitting(seed=trees.seed),
    )
    with telling() as stages:
        writable_folder("--out", out)
        write_report(EarlyExitTraining(plan, stages).run(), as_json)


def eval_early_exit(
    *,
    target: TargetPath = None,
    draft: DraftPath,
    predictor: Annotated[Path, Option(help="What `hetspec train early-exit` wrote.")],
    prompts: Annotated[Path, Option(help="JSONL prompts to measure on.")],
    limit: Annotated[int, Option(min=0, help="So many of the prompts, at equal distances; 0: all.")] = 0,
    trees: TreeShape,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Measure an early-exit predictor on prompts."""
    with telling() as stages:
        on = Measured.open(target, draft, prompts, limit, cache_dir)
        folder = open_early_exit(predictor.expanduser(), on.target.fingerprint)
        measurement = Measurement(on.target, on.draft, folder, trees.growing(threads))
        with stages.stage("growing trees", len(on.prompts), "prompts") as bar:
            report = measurement.on_prompts(on.prompts, lambda _: bar.advance())
        write_report(report, as_json)
