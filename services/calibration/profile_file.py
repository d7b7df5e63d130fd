"""The file that a calibration leaves behind: a profile of hardware."""

from __future__ import annotations

from pathlib import Path

import yaml

from hetspec.hardware.profile import MeasuredHost
from hetspec.model.fingerprint import write_atomically

_WIDTH = 120


def write_profile(path: Path, profile: MeasuredHost) -> None:
    """Raises OSError."""
    assert profile.measured is not None
    head = f"# Every number: measured on {profile.measured.date}, {profile.measured.machine}.\n"
    told = profile.model_dump(exclude_none=True)
    text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, default_flow_style=None, width=_WIDTH)
    write_atomically(path, (head + text).encode())
