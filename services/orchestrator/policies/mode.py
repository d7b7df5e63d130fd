"""How a request is decoded. No mode changes a token."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    PLAIN = "plain"
    CHAIN = "chain"
    TREE = "tree"
