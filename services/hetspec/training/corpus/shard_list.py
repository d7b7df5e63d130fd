"""What a corpus is made of: the list of its shards, each a function of the seed, the target and the files given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from hetspec.training.corpus.generation import MAX_TOKENS
from hetspec.training.corpus.prompts import read_prompts
from hetspec.training.corpus.shards import Corpus, Shard
from hetspec.training.corpus.talk import Talk
from hetspec.training.corpus.talks import Talks
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target

CONVERSATIONS = 192  # a shard: some 50,000 rows
_READ_TOKENS = 384  # a stretch of a given text
_LONGEST_PROMPT = MAX_TOKENS - 192
_OWN, _PROMPTS, _TEXT = "own", "prompts", "text"


@dataclass(frozen=True, slots=True)
class CorpusRecipe:
    """prompts: JSONL files whose prompts the target answers. texts: files that it reads.

    conversations: a shard.
    """

    target: Path
    cache_dir: Path
    seed: int
    prompts: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    conversations: int = CONVERSATIONS

    def digest(self, target: Target) -> str:
        """Of all that decides what the shards hold. Raises OSError."""
        files = [hashlib.blake2b(path.read_bytes()).hexdigest() for path in (*self.prompts, *self.texts)]
        told = [target.fingerprint, target.pack.layout.precision, self.seed, len(self.prompts), files]
        return hashlib.blake2b(json.dumps([*told, self.conversations]).encode(), digest_size=16).hexdigest()


class ShardList:
    """Names of shards, and the conversations behind a name."""

    def __init__(self, recipe: CorpusRecipe, target: Target) -> None:
        """Raises TrainingError, OSError for files that cannot be read."""
        self._each = recipe.conversations
        self._talks = Talks(target.text, recipe.seed)
        prompts = [p.ids for path in recipe.prompts for p in read_prompts(path, target.text)]
        self._prompts = [ids for ids in prompts if len(ids) <= _LONGEST_PROMPT]
        self.prompts_left_out = len(prompts) - len(self._prompts)
        self._stretches = [s for path in recipe.texts for s in _stretches(_read_text(path, target))]

    def given(self) -> list[str]:
        """Of the files' contents."""
        lengths = ((_PROMPTS, len(self._prompts)), (_TEXT, len(self._stretches)))
        return [f"{kind}-{number:05d}" for kind, length in lengths for number in range(-(-length // self._each))]

    def own(self) -> Iterator[str]:
        """Of what the target tells itself; endless."""
        return (f"{_OWN}-{number:05d}" for number in count())

    def talks(self, name: str) -> list[Talk]:
        kind, _, number = name.partition("-")
        places = range(int(number) * self._each, (int(number) + 1) * self._each)
        if kind == _OWN:
            return [self._talks.own(place) for place in places]
        if kind == _PROMPTS:
            return [self._talks.answer(p, self._prompts[p]) for p in places if p < len(self._prompts)]
        return [self._talks.read(p, self._stretches[p]) for p in places if p < len(self._stretches)]

    def chosen(self, corpus: Corpus, rows: int) -> list[Shard]:
        """The given files' shards, and as many others, from the first on, as hold `rows`; fewer where those are not
        there yet."""
        there = {shard.name: shard for shard in corpus.shards()}
        chosen = [there[name] for name in self.given() if name in there]
        for name in self.own():
            if rows <= 0 or name not in there:
                return chosen
            chosen.append(there[name])
            rows -= there[name].rows
        raise AssertionError("own() ended")


def _read_text(path: Path, target: Target) -> list[int]:
    try:
        return target.text.encode(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise TrainingError(f"{path}: is not UTF-8: {error}") from error


def _stretches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + _READ_TOKENS] for start in range(0, len(ids) - 1, _READ_TOKENS))
