"""What was measured of one task."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.hardware.work import Work


@dataclass(frozen=True, slots=True)
class Sample:
    """work: as it would be priced. ns: that the unit computed."""

    work: Work
    ns: int
