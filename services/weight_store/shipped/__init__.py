"""What comes with hetspec, made for the packaged target: folders that name the hashes of their files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hetspec.model.checkpoint import CheckpointError

SUMS_FILE = "SHA256SUMS"  # as sha256sum writes and checks it
DRAFT = Path(__file__).parent / "smollm2-135m-instruct-draft"
EARLY_EXIT = Path(__file__).parent / "smollm2-135m-instruct-early-exit"
ACCEPTANCE = Path(__file__).parent / "smollm2-135m-instruct-acceptance"
"""Of the draft's tokens."""


def checked(folder: Path) -> Path:
    """The folder. Raises CheckpointError unless every file that it names is there and has its hash."""
    try:
        for line in (folder / SUMS_FILE).read_text("utf-8").splitlines():
            expected, _, name = line.partition("  ")
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            if found != expected:
                raise CheckpointError(f"{folder / name}: damaged: its SHA-256 is {found}, must be {expected}")
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return folder
