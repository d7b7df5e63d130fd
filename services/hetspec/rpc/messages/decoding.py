"""Records of `hetspec.decoding` on the wire, and hidden rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.constraint import Constraint, Grammar, GrammarKind, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.v1 import common_pb2

Rows = NDArray[np.float32]  # [rows, hidden_size]


def tree_to_pb(tree: TokenTree) -> common_pb2.Tree:
    return common_pb2.Tree(tokens=tree.tokens, parents=tree.parents)


def tree_from_pb(pb: common_pb2.Tree) -> TokenTree:
    return TokenTree(tuple(pb.tokens), tuple(pb.parents))


def sampling_to_pb(s: Sampling) -> common_pb2.Sampling:
    return common_pb2.Sampling(
        temperature=s.temperature,
        top_k=s.top_k,
        top_p=s.top_p,
        min_p=s.min_p,
        repetition_penalty=s.repetition_penalty,
        frequency_penalty=s.frequency_penalty,
        presence_penalty=s.presence_penalty,
        bias=[common_pb2.TokenBias(token=token, bias=bias) for token, bias in s.bias],
    )


def sampling_from_pb(pb: common_pb2.Sampling) -> Sampling:
    return Sampling(
        pb.temperature,
        pb.top_k,
        pb.top_p,
        pb.min_p,
        pb.repetition_penalty,
        pb.frequency_penalty,
        pb.presence_penalty,
        tuple((entry.token, entry.bias) for entry in pb.bias),
    )


_GRAMMAR_KINDS = {
    GrammarKind.JSON_SCHEMA: common_pb2.Grammar.JSON_SCHEMA,
    GrammarKind.REGEX: common_pb2.Grammar.REGEX,
    GrammarKind.LARK: common_pb2.Grammar.LARK,
}


def constraint_to_pb(c: Constraint) -> common_pb2.Constraint:
    grammar = None
    if c.grammar is not None:
        grammar = common_pb2.Grammar(kind=_GRAMMAR_KINDS[c.grammar.kind], source=c.grammar.source)
    return common_pb2.Constraint(withheld=c.withheld, withheld_before=c.withheld_before, grammar=grammar)


def constraint_from_pb(pb: common_pb2.Constraint) -> Constraint:
    """Raises ValueError for a kind of grammar that is not known."""
    return Constraint(tuple(pb.withheld), pb.withheld_before, _grammar_from_pb(pb))


def _grammar_from_pb(pb: common_pb2.Constraint) -> Grammar | None:
    if not pb.HasField("grammar"):
        return None
    for kind, number in _GRAMMAR_KINDS.items():
        if number == pb.grammar.kind:
            return Grammar(kind, pb.grammar.source)
    raise ValueError(f"constraint.grammar.kind: {pb.grammar.kind} is not known")


def past_to_pb(past: Past) -> common_pb2.Past:
    return common_pb2.Past(prompt=past.prompt, output=past.output)


def past_from_pb(pb: common_pb2.Past) -> Past:
    return Past(tuple(pb.prompt), tuple(pb.output))


def noise_to_pb(k: NoiseKey) -> common_pb2.NoiseKey:
    return common_pb2.NoiseKey(seed=k.seed, prompt_index=k.prompt_index, choice_index=k.choice_index)


def noise_from_pb(pb: common_pb2.NoiseKey) -> NoiseKey:
    return NoiseKey(pb.seed, pb.prompt_index, pb.choice_index)


def rows_to_bytes(rows: Rows) -> bytes:
    return rows.astype("<f4", copy=False).tobytes()


def rows_from_bytes(data: bytes, hidden_size: int) -> Rows:
    """[rows, hidden_size]; raises ValueError when the bytes are not a whole number of rows."""
    if len(data) % (4 * hidden_size):
        raise ValueError(f"hidden: {len(data)} bytes are not a whole number of rows of {hidden_size} float32")
    return np.frombuffer(data, dtype="<f4").reshape(-1, hidden_size)
