"""hetspec bench ahasd"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.options import CacheDir, TargetPath
from hetspec_client.terminal import write, write_line
from laboratory.ahasd_policies import all_policies
from laboratory.ahasd_report import AhasdReport
from laboratory.bars import picture
from laboratory.commands.options import DraftPath, draft_for, telling
from laboratory.crew import Work, study
from laboratory.errors import StudyError
from laboratory.policy import Policy
from laboratory.record import read_record
from laboratory.rig import hardware_of
from laboratory.setup import Setup, pairs_of
from laboratory.stated import Acceptance
from laboratory.study import Pair
from laboratory.tables import as_markdown, as_text

_COST_AS = ["opt-6.7b:int8+opt-1.3b:int8", "llama2-13b:int8+llama2-7b:int8", "palm-62b:int8+palm-8b:int8"]
Excluded = dict[tuple[str, str], str]


def bench_ahasd(
    *,
    record: Annotated[Path, Option(help="What `hetspec record` wrote.")],
    target: TargetPath = None,
    draft: DraftPath = None,
    hardware: Annotated[str, Option(help="A profile, or a .yaml file, with a drafter in memory.")] = "npu-lpddr5-pim",
    cost_as: Annotated[
        list[str] | None,
        Option("--cost-as", help="TARGET:DATATYPE+DRAFT:DATATYPE; repeatable. [default: the three pairs of the paper]"),
    ] = None,
    accept: Annotated[str, Option(help="Acceptance of a synthetic draft instead: 0.7, or 0.8,0.75 by depth.")] = "",
    out: Annotated[Path | None, Option(help="Writes OUT.md, OUT.csv and OUT.svg, too.")] = None,
    jobs: Annotated[int, Option(min=0, help="Processes; 0: as many as there are cores for this one.")] = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
) -> None:
    """Modes ahasd and full, part by part, beside drafting and verifying in turn and plain decoding."""
    with telling() as stages:
        acceptance = Acceptance.parse(accept) if accept else None
        setup = Setup(record, target or embedded_model(), draft_for(target, draft), cache_dir.expanduser(), acceptance)
        pairs, policies = pairs_of(hardware, cost_as or _COST_AS), all_policies()
        excluded = _impossible(setup, pairs, policies)
        work = Work(setup, tuple(pairs), tuple(policies), frozenset(excluded))
        about = read_record(record).about
        with stages.stage("answering", len(about.categories), "answers") as bar:
            studied = study(work, len(about.categories), jobs or default_threads(), bar.advance)
    report = AhasdReport(studied, about.categories, excluded)
    write(as_text(report.tables()))
    if out is not None:
        out.with_name(f"{out.name}.md").write_text(as_markdown(report.tables()))
        out.with_name(f"{out.name}.csv").write_text(report.csv())
        svg = picture("Times faster than NPU + LPDDR5 in turn, chains of 5", report.panels(), marked="ahasd")
        out.with_name(f"{out.name}.svg").write_text(svg)
        write_line(f"{out}.md, {out}.csv, {out}.svg")


def _impossible(setup: Setup, pairs: list[Pair], policies: list[Policy]) -> Excluded:
    """Of pair and policy, why the policy's hardware cannot run the pair."""
    _, draft = setup.open()
    excluded: Excluded = {}
    for pair in pairs:
        for policy in policies:
            try:
                hardware_of(draft.shapes, policy.hardware(pair.hardware), pair.cost_as)
            except StudyError as error:
                excluded[pair.name, policy.name] = str(error)
    draft.close()
    return excluded
