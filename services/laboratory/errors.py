"""What goes wrong with what a study is given."""

from __future__ import annotations


class StudyError(Exception):
    """A file or an option that cannot be used. One line: what is wrong, and where."""
