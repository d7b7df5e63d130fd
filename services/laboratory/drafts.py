"""The draft that a study drafts with: its proposals, and as what its work is priced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetspec.hardware.cost_as import RealShapes
from hetspec.model.acceptance import AcceptanceHead
from hetspec.model.checkpoint.acceptance_folder import open_acceptance
from hetspec.model.config import ModelConfig
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.target import Target
from laboratory.known_draft import DraftShape, KnownDraftModel
from laboratory.modelled import ModelledProposals
from laboratory.proposals import Judge, Proposals
from laboratory.record import Record

_PASS_ROWS = 512
_SLACK = 256  # positions of a tree
_TREE_TOKENS = 1024  # of the cache, for all that is asked about one length


@dataclass(frozen=True, slots=True)
class StudiedDraft:
    """model: grows trees of what `proposals` tell. shapes: of the models that the work is done by."""

    proposals: Proposals
    model: KnownDraftModel
    shapes: RealShapes
    close: Callable[[], None]

    @classmethod
    def of(
        cls,
        record: Record,
        proposals: Proposals,
        draft: ModelConfig,
        max_context: int,
        close: Callable[[], None],
        judge: Judge | None = None,
    ) -> StudiedDraft:
        """draft: the config of the draft model. max_context: of a session. judge: what its acceptance head says."""
        target = record.about.model
        shape = DraftShape(draft.n_layers, draft.hidden_size, draft.reads_features, max_context)
        model = KnownDraftModel(proposals, shape, target, judge)
        return cls(proposals, model, RealShapes.of(target, draft), close)


def real_draft(
    record: Record, target: Target, draft: OpenDraft, threads: int, head: AcceptanceHead | None = None
) -> StudiedDraft:
    """Raises StudyError where the record is another target's, or lacks what the draft reads."""
    record.check_target(target.fingerprint)
    longest = max(len(answer.ids) for answer in record.answers)
    context = min(longest + _SLACK, draft.checkpoint.config.max_context)
    room = longest + (1 + record.about.max_tokens) * _TREE_TOKENS
    parts = DraftParts(draft, threads=threads, max_rows=_PASS_ROWS, max_context=context, kv_tokens=room)
    proposals = ModelledProposals(record, parts.model(draft.barred), head)

    def close() -> None:
        proposals.close()
        parts.close()

    config, judge = draft.checkpoint.config, proposals.judge if head is not None else None
    most = min(config.max_context, record.about.model.max_context)
    return StudiedDraft.of(record, proposals, config, most, close, judge)


def open_real_draft(
    record: Record, target: Path, draft: Path, cache_dir: Path, threads: int, head: Path | None = None
) -> StudiedDraft:
    """head: an acceptance head's folder."""
    opened = Target.open(target, cache_dir)
    drafting = OpenDraft.open(draft, opened, cache_dir)
    mine = drafting.checkpoint.fingerprint(cache_dir)
    judging = open_acceptance(head, opened.fingerprint, mine).head() if head is not None else None
    return real_draft(record, opened, drafting, threads, judging)
