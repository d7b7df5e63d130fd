"""hetspec bench lever"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.options import CacheDir, TargetPath
from hetspec_client.terminal import write, write_line
from laboratory.bars import picture
from laboratory.commands.options import (
    Accept,
    DraftPath,
    Jobs,
    OfEach,
    Out,
    RecordPath,
    WorkFolder,
    check_places,
    draft_for,
    telling,
    write_files,
)
from laboratory.crew import Work, study
from laboratory.lever_policies import LEVER, all_policies
from laboratory.lever_report import LeverReport
from laboratory.record import read_record
from laboratory.selection import places_of_each
from laboratory.setup import Setup, hardware_named, pairs_of
from laboratory.stated import Acceptance
from laboratory.tables import as_markdown, as_text

Hardware = Annotated[
    list[str] | None, Option("--hardware", help="A profile, or a .yaml file; repeatable. [default: oneplus12]")
]
Costs = Annotated[
    list[str] | None,
    Option("--cost-as", help="TARGET:DATATYPE[+DRAFT:DATATYPE]; repeatable. [default: four that stream from flash]"),
]
_COST_AS = ["llama3.2-3b:int8", "llama2-7b:int4", "llama2-7b:int8", "llama2-13b:int4"]


def bench_lever(
    *,
    record: RecordPath,
    target: TargetPath = None,
    draft: DraftPath = None,
    hardware: Hardware = None,
    cost_as: Costs = None,
    accept: Accept = None,
    out: Out = None,
    per_category: OfEach = 0,
    work: WorkFolder = None,
    jobs: Jobs = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
) -> None:
    """Mode lever beside plain decoding, chains and trees, and less each of its parts."""
    with telling() as stages:
        check_places(out, work)
        acceptance = Acceptance.parse(accept) if accept is not None else None
        setup = Setup(record, target or embedded_model(), draft_for(target, draft), cache_dir.expanduser(), acceptance)
        pairs = [
            pair for name in hardware or ["oneplus12"] for pair in pairs_of(hardware_named(name), cost_as or _COST_AS)
        ]
        about = read_record(record).about
        places = tuple(places_of_each(about.categories, per_category))
        asked = Work(setup, tuple(pairs), tuple(all_policies()), places, kept=work)
        with stages.stage("answering", len(places), "answers") as bar:
            studied = study(asked, jobs or default_threads(), bar.advance)
    report = LeverReport(studied, [about.categories[place] for place in places])
    heading = report.heading(
        about.target, f"a stated acceptance of {accept}" if accept is not None else "drafts of its draft model"
    )
    write_line(heading)
    write(as_text(report.tables()))
    if out is not None:
        svg = picture("Times faster than plain decoding, a token", report.panels(), marked=LEVER)
        write_files(out, f"# {heading}\n\n{as_markdown(report.tables())}", report.csv(), svg)
