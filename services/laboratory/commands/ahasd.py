"""hetspec bench ahasd"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.threads import default_threads
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.commands.options import CacheDir, TargetPath
from hetspec_client.terminal import write
from laboratory.ahasd_policies import all_policies
from laboratory.ahasd_report import AhasdReport
from laboratory.bars import picture
from laboratory.commands.options import (
    Accept,
    DraftPath,
    HeadPath,
    Jobs,
    OfEach,
    Out,
    RecordPath,
    WorkFolder,
    check_places,
    draft_for,
    head_for,
    telling,
    write_files,
)
from laboratory.crew import Work, study
from laboratory.errors import StudyError
from laboratory.flash_policies import all_policies as flash_policies
from laboratory.flash_report import FlashReport
from laboratory.policy import Policy
from laboratory.record import read_record
from laboratory.rig import hardware_of
from laboratory.selection import places_of_each
from laboratory.setup import Setup, hardware_named, pairs_of
from laboratory.stated import Acceptance
from laboratory.study import Pair
from laboratory.tables import as_markdown, as_text
from orchestrator.policies.drafting_algorithm import Drafting

_COST_AS = ["opt-6.7b:int8+opt-1.3b:int8", "llama2-13b:int8+llama2-7b:int8", "palm-62b:int8+palm-8b:int8"]
_FLASH_COST_AS = ["llama2-7b:int4", "llama2-7b:int4+llama3.2-1b:int8"]
Excluded = dict[tuple[str, str], str]


def bench_ahasd(
    *,
    record: RecordPath,
    target: TargetPath = None,
    draft: DraftPath = None,
    head: HeadPath = None,
    hardware: Annotated[str, Option(help="A profile, or a .yaml file, with a drafter in memory.")] = "npu-lpddr5-pim",
    cost_as: Annotated[
        list[str] | None,
        Option(
            "--cost-as",
            help="TARGET:DATATYPE[+DRAFT:DATATYPE]; repeatable. [default: the three pairs of the paper; of hardware "
            "with flash LLaMA2 7B in INT4, with a draft made for it and with Llama 3.2 1B]",
        ),
    ] = None,
    accept: Accept = None,
    out: Out = None,
    per_category: OfEach = 0,
    work: WorkFolder = None,
    jobs: Jobs = 0,
    cache_dir: CacheDir = DEFAULT_CACHE,
) -> None:
    """Modes ahasd and full, part by part, beside drafting and verifying in turn and plain decoding. Where the target
    streams from flash, beside mode lever, with flash reading ahead and resting."""
    with telling() as stages:
        check_places(out, work)
        acceptance = Acceptance.parse(accept) if accept is not None else None
        drafting, judging = draft_for(target, draft), head_for(draft, head)
        setup = Setup(record, target or embedded_model(), drafting, cache_dir.expanduser(), acceptance, judging)
        profile = hardware_named(hardware)
        streams = profile.flash is not None
        pairs = pairs_of(profile, cost_as or (_FLASH_COST_AS if streams else _COST_AS))
        policies = flash_policies() if streams else all_policies()
        excluded = _impossible(setup, pairs, policies)
        about = read_record(record).about
        places = tuple(places_of_each(about.categories, per_category))
        asked = Work(setup, tuple(pairs), tuple(policies), places, frozenset(excluded), work)
        with stages.stage("answering", len(places), "answers") as bar:
            studied = study(asked, jobs or default_threads(), bar.advance)
    categories = [about.categories[place] for place in places]
    report = FlashReport(studied, categories, excluded) if streams else AhasdReport(studied, categories, excluded)
    write(as_text(report.tables()))
    if out is not None:
        over = "plain decoding" if streams else "NPU + LPDDR5 in turn, chains of 5"
        svg = picture(f"Times faster than {over}", report.panels(), marked="full" if streams else "ahasd")
        write_files(out, as_markdown(report.tables()), report.csv(), svg)


def _impossible(setup: Setup, pairs: list[Pair], policies: list[Policy]) -> Excluded:
    """Of pair and policy, why the policy's hardware cannot run the pair, or the draft not be drafted with so."""
    _, draft = setup.open()
    excluded: Excluded = {}
    for pair in pairs:
        for policy in policies:
            try:
                hardware_of(draft.shapes, policy.hardware(pair.hardware), pair.cost_as)
            except StudyError as error:
                excluded[pair.name, policy.name] = str(error)
            if policy.drafting is Drafting.SPECDECPP and not draft.model.judges_acceptance:
                excluded[pair.name, policy.name] = "there is no acceptance head"
    draft.close()
    return excluded
