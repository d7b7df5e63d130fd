"""What a study is made of, so that every process that takes part makes the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import Described, ProfileError, load_profile
from hetspec.model.checkpoint import open_checkpoint, open_draft
from hetspec.model.checkpoint.acceptance_folder import WEIGHTS_FILE
from hetspec.model.fingerprint import fingerprint
from laboratory.drafts import StudiedDraft, open_real_draft
from laboratory.errors import StudyError
from laboratory.record import Record, read_record
from laboratory.stated import Acceptance, StatedProposals
from laboratory.study import Pair


@dataclass(frozen=True, slots=True)
class Setup:
    """record: its file. acceptance: of a synthetic draft in the place of the draft model, whose shape stays. head: an
    acceptance head's folder, which a synthetic draft has no use for."""

    record: Path
    target: Path
    draft: Path
    cache_dir: Path
    acceptance: Acceptance | None = None
    head: Path | None = None

    def fingerprint(self) -> str:
        """Of record, draft and head. Raises StudyError, CheckpointError."""
        try:
            files = {"record": self.record} | ({"head": self.head / WEIGHTS_FILE} if self.head else {})
            record = fingerprint(files, self.cache_dir)
        except OSError as error:
            raise StudyError(str(error)) from error
        draft = open_draft(self.draft, open_checkpoint(self.target), self.cache_dir).fingerprint(self.cache_dir)
        return f"{record} {draft} {self.acceptance}"

    def open(self) -> tuple[Record, StudiedDraft]:
        """Raises StudyError, CheckpointError, TrainingError."""
        record = read_record(self.record)
        if self.acceptance is None:
            return record, open_real_draft(record, self.target, self.draft, self.cache_dir, 1, self.head)
        draft = open_draft(self.draft, open_checkpoint(self.target), self.cache_dir).config
        context = min(draft.max_context, record.about.model.max_context)
        return record, StudiedDraft.of(record, StatedProposals(record, self.acceptance), draft, context, lambda: None)


def hardware_named(name: str) -> Described:
    """Of a profile or of a file. Raises StudyError."""
    try:
        profile = load_profile(name)
    except ProfileError as error:
        raise StudyError(str(error)) from error
    if not isinstance(profile, Described):
        raise StudyError(f"hardware {name!r}: a measured machine prices only what it runs")
    return profile


def pairs_of(hardware: Described, cost_as: list[str]) -> list[Pair]:
    """The hardware with each of the models. Raises StudyError."""
    try:
        return [Pair(hardware, parse_cost_as(text)) for text in cost_as]
    except ValueError as error:
        raise StudyError(str(error)) from error
