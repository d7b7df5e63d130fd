"""Messages and prompts to ids, ids to text: all a checkpoint's TextSpec is for."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from hetspec.text.chat_template import ChatTemplate, Message
from hetspec.text.detokenizer import Detokenizer
from hetspec.text.text_spec import TextSpec
from hetspec.text.vocabulary import Vocabulary


class TextModel:
    """A checkpoint's text side. Holds no state of a request; safe to share between threads."""

    __slots__ = ("_template", "_tokenizer", "longest_token_chars", "spec", "vocabulary")

    def __init__(self, spec: TextSpec) -> None:
        """Raises ValueError that names the part of the spec which is broken."""
        self.spec = spec
        self.vocabulary = Vocabulary(spec.tokenizer_json)
        self.longest_token_chars = max(map(len, self.vocabulary.tokens.values()))  # byte-level ones: at least
        self._tokenizer = _load_tokenizer(spec.tokenizer_json)
        self._template = ChatTemplate(spec.chat_template, spec.special_tokens) if spec.chat_template else None

    def encode_prompt(self, text: str) -> list[int]:
        """Special tokens in `text` count as such. BOS goes in front where the model wants it and the text has none."""
        return self.with_bos(self.encode(text))

    def encode(self, text: str) -> list[int]:
        """Ids of a text that continues another: no BOS."""
        text.encode()  # a lone surrogate is refused here, with a ValueError
        # As a batch of one: only batches let other threads run meanwhile.
        ids: list[int] = self._tokenizer.encode_batch([text], add_special_tokens=False)[0].ids
        return ids

    def with_bos(self, ids: list[int]) -> list[int]:
        """BOS goes in front where the model wants it and the ids do not begin with it."""
        bos = self.spec.bos_id
        return [bos, *ids] if self.spec.add_bos and bos is not None and ids[:1] != [bos] else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The whole text of these ids, names of special tokens included."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Messages through the chat template, up to where the answer begins.

        Raises ValueError, one line that names `messages`, where there is no template or it refuses them.
        """
        if self._template is None:
            raise ValueError("messages: the model has no chat template; send a prompt instead")
        return self.encode_prompt(self._template.render(messages))

    def detokenizer(self, prompt_ids: Sequence[int] = (), skip_special: bool = True) -> Detokenizer:
        """A fresh one, for the text that follows this prompt."""
        skipped = self.vocabulary.special if skip_special else frozenset()
        return Detokenizer(self._tokenizer, prompt_ids, skipped, self.vocabulary.byte_ids)


def _load_tokenizer(tokenizer_json: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # tokenizers raises nothing narrower
        raise ValueError(f"tokenizer_json: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
