"""What tasks look like: in pictures, and on the terminal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    letter: str
    colour: str


_LOOKS = {
    "prefill": Look("P", "#86b6e3"),
    "verify": Look("V", "#2f6db5"),
    "rebuild": Look("R", "#c0504d"),
    "draft": Look("d", "#4c9f70"),
    "look ahead": Look("a", "#8fcfa8"),
    "pre-verify": Look("p", "#a3c644"),
    "walk": Look("w", "#e0902f"),
    "score": Look("s", "#eac06c"),
    "flash": Look("f", "#9673b9"),
    "other": Look("-", "#c8c8c8"),
}
_UNKNOWN = Look("?", "#8c8c8c")
KINDS = tuple(_LOOKS)


def look(kind: str) -> Look:
    return _LOOKS.get(kind, _UNKNOWN)
