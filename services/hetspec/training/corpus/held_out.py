"""The conversations that a student never sees in training, chosen by what they are: every fiftieth or so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from hetspec.training.corpus.said import Said
from hetspec.training.corpus.shards import Shard
from hetspec.training.corpus.talk import ANSWERED

_ONE_IN = 50


def is_held_out(one: Said) -> bool:
    """The same conversation, said twice, is on the same side both times."""
    digest = hashlib.blake2b(one.tokens.tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % _ONE_IN == 0


def held_out(shards: Iterable[Shard], at_most: int) -> list[Said]:
    """The first ones that hold an answer."""
    found: list[Said] = []
    for shard in shards:
        found += [one for one in shard.read() if is_held_out(one) and (one.origins == ANSWERED).any()]
        if len(found) >= at_most:
            break
    return found[:at_most]
