"""What turning messages into ids and ids into text takes: the manifest's text part as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hetspec.v1 import weight_store_pb2


@dataclass(frozen=True, slots=True)
class TextSpec:
    """tokenizer_json: for tokenizers.Tokenizer.from_str. chat_template: empty when the checkpoint has none.

    end_ids: tokens that end an answer. add_bos: a prompt that does not begin with BOS gets it.
    special_tokens: bos_token, eos_token, ...: what chat templates name.
    """

    tokenizer_json: str
    chat_template: str = ""
    bos_id: int | None = None
    end_ids: tuple[int, ...] = ()
    add_bos: bool = False
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def to_pb(self) -> weight_store_pb2.TextSpec:
        return weight_store_pb2.TextSpec(
            tokenizer_json=self.tokenizer_json,
            chat_template=self.chat_template,
            bos_id=self.bos_id,
            end_ids=self.end_ids,
            add_bos=self.add_bos,
            special_tokens=self.special_tokens,
        )

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.TextSpec) -> TextSpec:
        return cls(
            pb.tokenizer_json,
            pb.chat_template,
            pb.bos_id if pb.HasField("bos_id") else None,
            tuple(pb.end_ids),
            pb.add_bos,
            dict(pb.special_tokens),
        )
