"""Why a machine cannot be measured."""

from __future__ import annotations


class CalibrationError(Exception):
    """One line: what is missing or wrong, and where."""
