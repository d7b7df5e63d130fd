"""What goes wrong with checkpoint files."""

from __future__ import annotations


class CheckpointError(Exception):
    """A file that is truncated, corrupt, foreign or unsupported. One line: what is wrong, and where."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
