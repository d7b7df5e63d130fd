"""The timeline as a picture: one SVG file that needs nothing else. Names and numbers are under the pointer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log10
from xml.etree.ElementTree import Element, SubElement, tostring

from hetspec_client.observe.trace import Arrow, Axis, Block, Mark, Trace
from hetspec_client.observe.trace_colours import KINDS, look

_WIDTH, _MARGIN, _LABELS, _HEAD, _FOOT = 1200, 12, 150, 84, 30  # pixels
_LANE, _BAR = 44, 28
_NARROWEST = 0.3
_LETTER = 6.7
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".title{font:bold 16px sans-serif}.about{font:12px sans-serif;fill:#555}.in{fill:#fff}"
    ".grid{stroke:#e4e4e4}.arrow{fill:none;stroke:#333;stroke-opacity:.45}.mark{fill:#d00000}"
    "rect{stroke:#fff;stroke-width:.4}.cut{stroke:#d00000;stroke-width:1.5}g:hover rect{stroke:#000;stroke-width:1}"
)


@dataclass(frozen=True, slots=True)
class _Scale:
    axis: Axis

    def x(self, at_us: float) -> float:
        return _LABELS + at_us / (self.axis.us or 1.0) * (_WIDTH - _LABELS - _MARGIN)

    def y(self, lane: str) -> float:
        """The bar's upper edge."""
        return _HEAD + self.axis.lanes.index(lane) * _LANE

    @property
    def bottom(self) -> float:
        return _HEAD + len(self.axis.lanes) * _LANE


def trace_svg(trace: Trace, axis: Axis) -> str:
    scale = _Scale(axis)
    height = scale.bottom + _FOOT
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {height:g}", width=str(_WIDTH))
    SubElement(svg, "style").text = _STYLE
    SubElement(svg, "rect", width="100%", height="100%", fill="#fff")
    _write(svg, _MARGIN, 24, f"{trace.request}: mode {trace.mode}, {axis.us / 1e3:.1f} ms", "title")
    _write(svg, _MARGIN, 44, f"{axis.name}. Arrows: from a draft to the pass that verified it.", "about")
    _draw_legend(svg, axis)
    _draw_grid(svg, scale)
    for lane in axis.lanes:
        _write(svg, _MARGIN, scale.y(lane) + 12, lane)
        _write(svg, _MARGIN, scale.y(lane) + 26, f"{axis.busy_us(lane) / (axis.us or 1.0):.0%} busy", "about")
    for block in axis.blocks:
        _draw_block(svg, scale, block)
    for arrow in axis.arrows:
        _draw_arrow(svg, scale, arrow)
    for mark in axis.marks:
        _draw_mark(svg, scale, mark)
    return tostring(svg, encoding="unicode")


def _draw_legend(svg: Element, axis: Axis) -> None:
    x, present = float(_MARGIN), {block.kind for block in axis.blocks}
    for kind in KINDS:
        if kind in present:
            SubElement(svg, "rect", x=f"{x:g}", y="55", width="12", height="12", fill=look(kind).colour)
            _write(svg, x + 17, 65, kind)
            x += 34 + len(kind) * _LETTER


def _draw_grid(svg: Element, scale: _Scale) -> None:
    for at_us in _ticks(scale.axis.us):
        x = f"{scale.x(at_us):.1f}"
        SubElement(svg, "line", {"x1": x, "x2": x, "y1": str(_HEAD - 6), "y2": f"{scale.bottom:g}", "class": "grid"})
        _write(svg, scale.x(at_us) + 2, scale.bottom + 14, f"{at_us / 1e3:g} ms")


def _ticks(us: float) -> Iterator[float]:
    """Up to ten round times."""
    if us <= 0:
        return
    power = 10 ** floor(log10(us / 10))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if us / (factor * power) <= 10)
    yield from (number * step for number in range(int(us / step) + 1))


def _draw_block(svg: Element, scale: _Scale, block: Block) -> None:
    x, width = scale.x(block.begin_us), max(_NARROWEST, scale.x(block.end_us) - scale.x(block.begin_us))
    y, group = scale.y(block.lane), SubElement(svg, "g")
    SubElement(group, "title").text = _tip(block)
    style = {"class": "cut"} if "cut" in block.args.get("outcome", ()) else {}
    place = {"x": f"{x:.2f}", "y": f"{y:g}", "width": f"{width:.2f}", "height": str(_BAR)}
    SubElement(group, "rect", place | {"fill": look(block.kind).colour} | style)
    letters = int((width - 6) / _LETTER)
    if letters >= 3 and block.kind != "other":
        name = block.name if len(block.name) <= letters else block.name[: letters - 1] + "…"
        _write(group, x + 3, y + _BAR / 2 + 4, name, "in")


def _tip(block: Block) -> str:
    lines = [f"{block.name}: {block.us / 1e3:.3f} ms from {block.begin_us / 1e3:.3f} ms"]
    return "\n".join(lines + [f"{name}: {_words(value)}" for name, value in block.args.items()])


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _draw_arrow(svg: Element, scale: _Scale, arrow: Arrow) -> None:
    """From the bar's lower or upper edge, whichever is nearer to the other lane."""
    above = scale.axis.lanes.index(arrow.source) < scale.axis.lanes.index(arrow.target)
    x1, x2 = scale.x(arrow.source_us), scale.x(arrow.target_us)
    y1 = scale.y(arrow.source) + (_BAR if above else 0)
    y2 = scale.y(arrow.target) + (0 if above else _BAR if arrow.source != arrow.target else 0)
    bend = y1 - 12 if arrow.source == arrow.target else (y1 + y2) / 2
    SubElement(svg, "path", {"d": f"M{x1:.1f} {y1:g}C{x1:.1f} {bend:g} {x2:.1f} {bend:g} {x2:.1f} {y2:g}"} | _ARROW)


_ARROW = {"class": "arrow"}


def _draw_mark(svg: Element, scale: _Scale, mark: Mark) -> None:
    x, y = scale.x(mark.at_us), scale.y(mark.lane) + _BAR + 2
    group = SubElement(svg, "g")
    SubElement(group, "title").text = f"{mark.name} at {mark.at_us / 1e3:.3f} ms"
    SubElement(group, "path", {"d": f"M{x:.1f} {y:g}l4 8h-8z", "class": "mark"})


def _write(parent: Element, x: float, y: float, text: str, style: str = "") -> None:
    place = {"x": f"{x:.2f}", "y": f"{y:g}"} | ({"class": style} if style else {})
    SubElement(parent, "text", place).text = text
