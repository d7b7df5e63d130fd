"""Token ids of an item against the model's vocabulary: one that lies outside would be read as an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import Sampling

NamedIds = Iterable[tuple[str, Sequence[int]]]


def check_ids(fields: NamedIds, vocab_size: int) -> None:
    """Raises ValueError that names the field, the place in it, the id and the bound."""
    for field, ids in fields:
        if ids and (min(ids) < 0 or max(ids) >= vocab_size):
            place = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
            raise ValueError(f"{field}[{place}] = {ids[place]}, must be in [0, {vocab_size})")


def ids_of_rule(sampling: Sampling, constraint: Constraint, past: Past) -> NamedIds:
    """Every id that the decoding rule is told, by field."""
    return (
        ("sampling.bias", [token for token, _ in sampling.bias]),
        ("constraint.withheld", constraint.withheld),
        ("past.prompt", past.prompt),
        ("past.output", past.output),
    )
