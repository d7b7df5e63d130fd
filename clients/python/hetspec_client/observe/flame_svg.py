"""The flame graph as a picture: one SVG file that needs nothing else. What it takes to read it is written on it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from hetspec_client.observe.flame import Frame, Node, tree, weighed_stacks
from hetspec_client.observe.profile import Profile

_WIDTH, _MARGIN, _ROW, _HEAD = 1200, 10, 18, 74  # pixels
_NARROWEST = 0.4  # what is narrower is left out
_LETTER = 6.7  # of the font below
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".title{font:bold 16px sans-serif}.about{font:12px sans-serif;fill:#555}"
    "rect{stroke:#fff;stroke-width:.5}g:hover rect{stroke:#000;stroke-width:1}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    node: Node
    left: float  # share of the width
    level: int


def flame_svg(profile: Profile) -> str:
    root = tree(weighed_stacks(profile), profile.service.unit)
    height = _HEAD + root.depth * _ROW + _MARGIN
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {height}", width=str(_WIDTH))
    SubElement(svg, "style").text = _STYLE
    SubElement(svg, "rect", width="100%", height="100%", fill="#fff")
    _write(svg, _MARGIN, 24, title(profile), "title")
    for line, text in enumerate(subtitle(profile)):
        _write(svg, _MARGIN, 44 + 16 * line, text, "about")
    total = max(root.samples, 1e-9)
    for box in _boxes(root, 0.0, 0, total):
        _draw(svg, box, total, height, profile.rate_hz)
    return tostring(svg, encoding="unicode")


def title(profile: Profile) -> str:
    service = profile.service
    told = [f"{service.unit} {service.address}", service.model, service.precision]
    return ", ".join(part for part in told if part)


def subtitle(profile: Profile) -> list[str]:
    """Whence the widths come."""
    seen = f"{profile.samples} samples of busy threads in {profile.window_s:.1f} s, {profile.rate_hz:g} a second each"
    by = f"{profile.sampler} ({profile.note})" if profile.note else profile.sampler
    lines = [f"{seen}, by {by}. Width: share of the samples."]
    if profile.operators:
        lines.append(
            "Blue: operators of the native passes, which no sampler sees into: "
            "their samples, shared out by the passes' own clocks over the same seconds."
        )
    return lines


def _boxes(node: Node, left: float, level: int, total: float) -> Iterator[_Box]:
    yield _Box(node, left, level)
    for child in node.children.values():
        if child.samples / total * _WIDTH >= _NARROWEST:
            yield from _boxes(child, left, level + 1, total)
        left += child.samples / total


def _draw(svg: Element, box: _Box, total: float, height: int, rate_hz: float) -> None:
    inner = _WIDTH - 2 * _MARGIN
    x, width = _MARGIN + box.left * inner, box.node.samples / total * inner
    y = height - _MARGIN - (box.level + 1) * _ROW
    group = SubElement(svg, "g")
    samples, name = box.node.samples, box.node.frame.name
    tip = f"{name}: {samples:.4g} samples, {samples / rate_hz * 1e3:.0f} ms, {samples / total:.1%}"
    SubElement(group, "title").text = tip
    place = {"x": f"{x:.2f}", "y": str(y), "width": f"{width:.2f}", "height": str(_ROW - 1)}
    SubElement(group, "rect", place | {"fill": _colour(box.node.frame)})
    letters = int((width - 6) / _LETTER)
    if letters >= 3:
        _write(group, x + 3, y + 13, name if len(name) <= letters else name[: letters - 1] + "…")


def _write(parent: Element, x: float, y: float, text: str, style: str = "") -> None:
    place = {"x": f"{x:.2f}", "y": f"{y:g}"} | ({"class": style} if style else {})
    SubElement(parent, "text", place).text = text


def _colour(frame: Frame) -> str:
    """Warm for Python, by its file, so that the same file has the same colour in every picture; blue for operators."""
    file = frame.name.rpartition("(")[2].partition(":")[0]
    shade = zlib.crc32((frame.name if frame.is_operator else file).encode())
    if frame.is_operator:
        return f"hsl({200 + shade % 40}, 65%, {70 + shade // 40 % 12}%)"
    return f"hsl({10 + shade % 45}, 75%, {68 + shade // 45 % 12}%)"
