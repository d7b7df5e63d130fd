"""A picture of bars, in panels below each other, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABELS, _VALUES = 860, 250, 60
_BAR, _GAP, _TITLE = 16, 6, 34


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        return _TITLE + len(self.bars) * (_BAR + _GAP)


def picture(title: str, panels: Sequence[Panel], marked: str, unit: str = "x") -> str:
    """All panels to one scale. marked: the name of the bars that stand out."""
    longest = max((bar.value for panel in panels for bar in panel.bars), default=1.0)
    height = _TITLE + sum(panel.height for panel in panels) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="15">{escape(title)}</text>',
    ]
    top = _TITLE
    for panel in panels:
        parts += _panel(panel, top, longest, marked, unit)
        top += panel.height
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, top: int, longest: float, marked: str, unit: str) -> Iterator[str]:
    yield f'<text x="10" y="{top + 22}" font-weight="bold">{escape(panel.title)}</text>'
    for place, bar in enumerate(panel.bars):
        y = top + _TITLE + place * (_BAR + _GAP)
        length = (_WIDTH - _LABELS - _VALUES) * bar.value / longest
        colour = "#c44e52" if bar.name == marked else "#4c72b0"
        yield f'<text x="{_LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(bar.name)}</text>'
        yield f'<rect x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>'
        yield f'<text x="{_LABELS + length + 6:.1f}" y="{y + 12}">{bar.value:.2f}{unit}</text>'
