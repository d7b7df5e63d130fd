"""Grammars over a model's vocabulary, by llguidance: from a JSON schema, a regex or a Lark grammar to token masks.

A JSON document is written as Python's `json.dumps` writes it: `", "` and `": "` between what belongs together, no other
white space. Where only one text can follow, its tokens are the tokenizer's own for it, so that they are certain.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

from hetspec.decoding.constraint import Grammar, GrammarKind
from hetspec.text.text_spec import TextSpec

if TYPE_CHECKING:  # imported when the first grammar comes: most processes never see one
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MAX_SOURCE_BYTES = 1 << 16

# llguidance counts work, not time. What these leave possible in a second is bounded by a trial (grammar_trial.py).
MAX_GRAMMAR_SYMBOLS = 100_000
MAX_LEXER_STATES = 10_000  # of an output, up to 2 KB each
MAX_ITEMS_A_STEP = 20_000  # of the parser, for one token

_REASON_CHARS = 300

_JSON_OPTIONS: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}


class GrammarError(ValueError):
    """A grammar that cannot be used, in one line: broken, too large, or not for this model."""


class Grammars:
    """Compiles grammars for one vocabulary and keeps those used last. For one thread."""

    def __init__(self, text: TextSpec, vocab_size: int, kept: int = 64) -> None:
        """vocab_size: of the logits, padding included. kept: grammars."""
        self.vocab_size = vocab_size
        self.end_ids = text.end_ids
        self._text = text
        self._kept = kept
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def start(self, grammar: Grammar) -> LLMatcher:
        """A state before the first token, the caller's to move on. Raises GrammarError."""
        compiled = self._compiled.pop(grammar, None) or self._compile(grammar)
        self._compiled[grammar] = compiled
        if len(self._compiled) > self._kept:
            self._compiled.popitem(last=False)
        return compiled.deep_copy()

    def _compile(self, grammar: Grammar) -> LLMatcher:
        from llguidance import LLMatcher

        check_size(grammar)
        compiled = LLMatcher(self._tokenizer, _translated(grammar), log_level=0, limits=self._limits)
        if compiled.is_error():
            raise GrammarError(reason_of(compiled.get_error()))
        return compiled

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        text = self._text
        if not text.end_ids:
            raise GrammarError("the model has no end token, so that no answer could end where its grammar does")
        try:
            return LLTokenizer(text.tokenizer_json, n_vocab=self.vocab_size, eos_token=list(text.end_ids))
        except ValueError as error:
            raise GrammarError(f"the model's tokenizer is of no kind that grammars work with: {error}") from error

    @cached_property
    def _limits(self) -> LLParserLimits:
        from llguidance import LLParserLimits

        return LLParserLimits(
            step_max_items=MAX_ITEMS_A_STEP,
            max_lexer_states=MAX_LEXER_STATES,
            max_grammar_size=MAX_GRAMMAR_SYMBOLS,
            verbose_errors=False,
        )


def check_size(grammar: Grammar) -> None:
    """Raises GrammarError."""
    size_bytes = len(grammar.source.encode())
    if size_bytes > MAX_SOURCE_BYTES:
        raise GrammarError(f"{size_bytes} bytes, at most {MAX_SOURCE_BYTES} are taken")


def reason_of(error: str) -> str:
    """One line of an llguidance message, which may hold a picture of the place."""
    lines = error.splitlines() or [""]
    line = next((line for line in lines if line.startswith("error: ")), lines[0]).removeprefix("error: ")
    return line if len(line) <= _REASON_CHARS else line[: _REASON_CHARS - 3] + "..."


def _translated(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            try:
                return LLMatcher.grammar_from_json_schema(grammar.source, overrides=_JSON_OPTIONS)
            except ValueError as error:
                raise GrammarError(str(error)) from error
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.source)
        case GrammarKind.LARK:
            return LLMatcher.grammar_from_lark(grammar.source)
