"""python -m hetspec.decoding.grammar_trial: compiles strangers' grammars where nothing else can be hurt by them.

llguidance bounds the work on a grammar, but neither its time nor its stack: a rule of rules of rules overflows the
stack, a large `multipleOf` computes for a minute. So a grammar is tried here first, and this process dies of it alone.

Lines of JSON. In: the vocabulary, then grammars. Out: null when it is ready, then for each grammar null, or why it
cannot be used.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np

from hetspec.decoding.constraint import DeadEnd, Grammar, GrammarKind
from hetspec.decoding.grammar import GrammarError, Grammars
from hetspec.decoding.matcher import Matchers
from hetspec.text.text_spec import TextSpec

MAX_CPU_S = 0.5
_MEMORY_BYTES = 256 << 20  # beyond what the process holds before the first grammar
_STACK_BYTES = 2 << 20  # a quarter of what a service's thread has
_REHEARSED_TOKENS = 32


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its input
    vocabulary = json.loads(sys.stdin.buffer.readline())
    text = TextSpec(vocabulary["tokenizer_json"], end_ids=tuple(vocabulary["end_ids"]))
    grammars = Grammars(text, vocabulary["vocab_size"], kept=1)
    refusal_of(grammars, Grammar(GrammarKind.REGEX, "a"))  # so that the tokenizer's making is no grammar's fault
    _limit_memory()
    threading.stack_size(_STACK_BYTES)
    _answer(None)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        grammar = Grammar(GrammarKind(asked["kind"]), asked["source"])
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)  # when it is over, SIGPROF ends the process
        refusal = _in_thread(partial(refusal_of, grammars, grammar))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(refusal)


def refusal_of(grammars: Grammars, grammar: Grammar) -> str | None:
    """Why the grammar cannot be used; None when it compiles and a few tokens have followed it."""
    try:
        matcher = Matchers(grammars).at("", grammar, ())
        path: list[int] = []
        while len(path) < _REHEARSED_TOKENS:
            allowed = np.flatnonzero(matcher.allowed(path))
            going_on = allowed[~np.isin(allowed, grammars.end_ids)]
            if not len(going_on):
                return None
            path.append(int(going_on[0]))
    except (GrammarError, DeadEnd) as error:
        return str(error)
    return None


def _in_thread(work: partial[str | None]) -> str | None:
    """On a small stack."""
    results: list[str | None] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(refusal: str | None) -> None:
    print(json.dumps(refusal), flush=True)


if __name__ == "__main__":
    main()
