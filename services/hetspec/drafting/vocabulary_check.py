"""A draft model must mean the same tokens by the same ids as the target."""

from __future__ import annotations

from hetspec.text.vocabulary import Vocabulary


def check_vocabularies(target: Vocabulary, draft: Vocabulary, draft_size: int) -> None:
    """draft_size: ids that the draft model knows, padding included.

    Raises ValueError with an example where an id stands for different tokens, or one of the target's lies beyond
    draft_size. Ids that stand for no token on one side are padding: the draft never proposes them.
    """
    for token_id in sorted(target.tokens.keys() & draft.tokens.keys()):
        mine, theirs = draft.tokens[token_id], target.tokens[token_id]
        if mine != theirs:
            raise ValueError(
                f"vocabularies differ: id {token_id} is {theirs!r} to the target and {mine!r} to the draft"
            )
    largest = max(target.tokens)
    if largest >= draft_size:
        token = target.tokens[largest]
        raise ValueError(
            f"vocabularies differ: id {largest} is {token!r} to the target, the draft has {draft_size} ids"
        )
