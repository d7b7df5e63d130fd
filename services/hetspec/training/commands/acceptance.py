"""hetspec train acceptance, hetspec eval acceptance"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.acceptance_folder import open_acceptance
from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.acceptance.data import Chains, gather
from hetspec.training.acceptance.fit import Fitting
from hetspec.training.acceptance.report import AcceptanceReport
from hetspec.training.acceptance.training import AcceptancePlan, AcceptanceTraining
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.measured import Measured
from hetspec.training.commands.options import AsJson, CacheDir, TargetPath, Threads, telling, write_report
from hetspec_client.files import writable_folder

DraftPath = Annotated[Path, Option("--draft", help="The draft that is judged: a draft folder, or a checkpoint.")]


@dataclass(frozen=True, slots=True)
class ChainShape:
    length: Annotated[int, Option(min=1, max=32, help="Judged tokens of a chain.")] = 8
    tokens: Annotated[int, Option(min=2, help="Tokens of an answer.")] = 48
    seed: Annotated[int, Option(min=0, help="Of everything that is drawn.")] = 0

    def chains(self, threads: int) -> Chains:
        return Chains(self.length, self.tokens, self.seed, threads or default_threads())


def train_acceptance(
    *,
    target: TargetPath = None,
    draft: DraftPath,
    out: Annotated[Path, Option(help="The folder to write.")],
    prompts: Annotated[
        Path | None, Option(help="JSONL prompts to draft along; default: user turns that the target writes.")
    ] = None,
    rounds: Annotated[int, Option(min=1, help="Chains to draft.")] = 4000,
    blocks: Annotated[int, Option(min=1, max=8, help="Residual blocks of the head.")] = 1,
    rejection_weight: Annotated[
        float, Option(min=0.01, max=1000, help="What a rejected token counts for, an accepted one counting 1.")
    ] = 1.0,
    shape: ChainShape,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Make a head by which a draft model foresees whether its tokens will be accepted."""
    plan = AcceptancePlan(
        target=target or embedded_model(),
        draft=draft,
        out=out,
        cache_dir=cache_dir,
        prompts=prompts,
        rounds=rounds,
        chains=shape.chains(threads),
        fitting=Fitting(blocks=blocks, rejection_weight=rejection_weight, seed=shape.seed),
    )
    with telling() as stages:
        writable_folder("--out", out)
        write_report(AcceptanceTraining(plan, stages).run(), as_json)


def eval_acceptance(
    *,
    target: TargetPath = None,
    draft: DraftPath,
    head: Annotated[Path, Option(help="What `hetspec train acceptance` wrote.")],
    prompts: Annotated[Path, Option(help="JSONL prompts to measure on.")],
    limit: Annotated[int, Option(min=0, help="So many of the prompts, at equal distances; 0: all.")] = 0,
    shape: ChainShape,
    threads: Threads = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Measure an acceptance head on prompts."""
    with telling() as stages:
        on = Measured.open(target, draft, prompts, limit, cache_dir)
        fingerprint = on.draft.checkpoint.fingerprint(cache_dir.expanduser())
        made = open_acceptance(head.expanduser(), on.target.fingerprint, fingerprint)
        with stages.stage("drafting chains", len(on.prompts), "prompts") as bar:
            judged = gather(on.target, on.draft, shape.chains(threads), iter(on.prompts), None, lambda _: bar.advance())
        write_report(AcceptanceReport.of(made, judged), as_json)
