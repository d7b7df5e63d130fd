"""What goes wrong with what a training is given."""

from __future__ import annotations


class TrainingError(Exception):
    """A file, a folder or an option that cannot be used. One line: what is wrong, and where."""
