"""Fills a corpus: shard after shard, in worker processes of one thread each, which is what makes most of the cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

from hetspec.training.corpus.generation import Generator
from hetspec.training.corpus.shard_list import CorpusRecipe, ShardList
from hetspec.training.corpus.shards import Corpus, Shard
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target

_DIGEST = "recipe"  # a file in the folder
_LOOK_EVERY_S = 0.5


def gather(
    corpus: Corpus, recipe: CorpusRecipe, target: Target, rows: int, workers: int, on_rows: Callable[[int], None]
) -> list[Shard]:
    """All shards of the given files, and of the target's own conversations until they have `rows`.

    What is there already stays, and what a worker was at when it was ended is begun anew: neither their number nor an
    interruption changes a shard. on_rows: told the rows that were computed since the last call.
    Raises TrainingError where the folder holds the shards of another recipe, OSError.
    """
    _claim(corpus, recipe.digest(target))
    shards = ShardList(recipe, target)
    with _workers(corpus, recipe, workers) as (pool, counter):
        running: dict[Future[None], str] = {}
        told = 0
        while missing := _missing(shards, corpus, rows, len(running) + workers):
            for name in [name for name in missing if name not in running.values()][: workers - len(running)]:
                running[pool.submit(_make, name)] = name
            done, _ = wait(running, _LOOK_EVERY_S, FIRST_COMPLETED)
            for future in done:
                del running[future]
                _finish(future)
            computed = counter.value  # workers go on counting
            on_rows(computed - told)
            told = computed
    return shards.chosen(corpus, rows)


def _finish(future: Future[None]) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise TrainingError("a worker was killed; is there memory enough? Fewer --threads need less") from error


def _missing(shards: ShardList, corpus: Corpus, rows: int, ahead: int) -> list[str]:
    """The next names to make, at most `ahead` of the target's own; none when all is there."""
    there = {shard.name: shard.rows for shard in corpus.shards()}
    missing = [name for name in shards.given() if name not in there]
    likely = max(there.values(), default=0)
    for name in shards.own():
        if rows <= 0 or len(missing) >= ahead:
            return missing
        if name not in there:
            missing.append(name)
        rows -= there.get(name, likely)
    raise AssertionError("own() ended")


def _claim(corpus: Corpus, digest: str) -> None:
    corpus.folder.mkdir(parents=True, exist_ok=True)
    path = corpus.folder / _DIGEST
    if not path.exists() and not corpus.shards():
        path.write_text(digest)
    if not path.exists() or path.read_text() != digest:
        raise TrainingError(f"{corpus.folder}: holds conversations of another target, seed, or other files")


@contextmanager
def _workers(
    corpus: Corpus, recipe: CorpusRecipe, count: int
) -> Iterator[tuple[ProcessPoolExecutor, Synchronized[int]]]:
    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads' locks
    counter: Synchronized[int] = context.Value("q", 0)
    pool = ProcessPoolExecutor(count, context, _start, (corpus, recipe, counter))
    try:
        yield pool, counter
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    def __init__(self, corpus: Corpus, recipe: CorpusRecipe, counter: Synchronized[int]) -> None:
        target = Target.open(recipe.target, recipe.cache_dir)
        self._corpus = corpus
        self._counter = counter
        self._shards = ShardList(recipe, target)
        self._generator = Generator(target)

    def make(self, name: str) -> None:
        self._corpus.add(name, self._generator.hear(self._shards.talks(name), self._count))

    def _count(self, rows: int) -> None:
        with self._counter.get_lock():
            self._counter.value += rows


_worker: _Worker


def _start(corpus: Corpus, recipe: CorpusRecipe, counter: Synchronized[int]) -> None:
    global _worker
    _worker = _Worker(corpus, recipe, counter)


def _make(name: str) -> None:
    _worker.make(name)
