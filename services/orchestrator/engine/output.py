"""From decided tokens to what the client sees: text, ids, logprobs and finish reason, cut at the same place."""

from __future__ import annotations

from hetspec.rpc.messages import TokenLogprobs, Walk
from hetspec.text.stop import StopMatcher
from hetspec.text.tokenizer import TextModel
from orchestrator.engine.request import Emission, EmittedToken, FinishReason, GenerationRequest


class Output:
    """Scans token by token. The earliest of stop string, end token and length ends it, in this order of rank.

    A stop string that one of the first `min_tokens` tokens completes is text like any other.
    """

    def __init__(self, request: GenerationRequest, text: TextModel) -> None:
        self._end_ids = frozenset() if request.ignore_eos else frozenset(text.spec.end_ids)
        self._detokenizer = text.detokenizer(request.prompt_ids)
        self._stop = StopMatcher(request.stop)
        self._left = request.max_tokens
        self._unstoppable = request.min_tokens  # tokens to come that no stop string ends

    def push(self, walk: Walk) -> Emission:
        """What a round adds. After a finish reason nothing is pushed."""
        pieces: list[str] = []
        tokens: list[EmittedToken] = []
        finish_reason: FinishReason | None = None
        for index, token in enumerate(walk.tokens):
            tokens.append(EmittedToken(token, _logprobs_of(walk, index)))
            piece, finish_reason = self._take(token)
            pieces.append(piece)
            if finish_reason is not None:
                break
        return Emission("".join(pieces), tuple(tokens), finish_reason)

    def _take(self, token: int) -> tuple[str, FinishReason | None]:
        self._left -= 1
        self._unstoppable -= 1
        if token in self._end_ids:
            return self._flush(), "stop"
        piece = self._push(self._detokenizer.push(token))
        if self._stop.matched is not None:
            return piece, "stop"
        if self._left > 0:
            return piece, None
        piece += self._flush()
        return piece, "length" if self._stop.matched is None else "stop"

    def _flush(self) -> str:
        """The text held back. It may complete a stop string, which then cuts it."""
        return self._push(self._detokenizer.flush()) + self._stop.flush()

    def _push(self, piece: str) -> str:
        return self._stop.push(piece, may_match=self._unstoppable < 0)


def _logprobs_of(walk: Walk, index: int) -> TokenLogprobs | None:
    return walk.logprobs[index] if walk.logprobs else None
