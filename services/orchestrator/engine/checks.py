"""Whether a unit's answer keeps its contract. What does not is the unit's fault, and never reaches the history."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import Draft, DraftPolicy, HiddenRows, HiddenStates, VerifyItem, Walk, WalkItem
from orchestrator.units.errors import Nonsense


def check_hidden(hidden: HiddenStates, item: VerifyItem, row_bytes: int) -> None:
    _check_pruned(hidden.pruned, item)
    rows = _rows_of(item, hidden.pruned)
    if hidden.rows != rows:
        raise Nonsense(f"verifier: rows = {hidden.rows}, asked for {rows}")
    if len(hidden.data) != rows * row_bytes:
        raise Nonsense(f"verifier: hidden holds {len(hidden.data)} bytes, not {rows} rows of {row_bytes}")


def check_draft(draft: Draft, policy: DraftPolicy, vocab_size: int) -> None:
    tree = draft.tree
    if len(tree) > policy.max_nodes:
        raise Nonsense(f"drafter: {len(tree)} nodes, at most {policy.max_nodes} asked for")
    if max(tree.depths(), default=0) > policy.max_depth:
        raise Nonsense(f"drafter: a tree {max(tree.depths())} deep, at most {policy.max_depth} asked for")
    _check_nodes(draft, policy, vocab_size)


def check_look_ahead(draft: Draft, before: Draft, policy: DraftPolicy, vocab_size: int) -> None:
    """Of a tree that has grown on from what it was before."""
    tree, first = draft.tree, len(before.tree)
    if tree.tokens[:first] != before.tree.tokens or tree.parents[:first] != before.tree.parents:
        raise Nonsense(f"drafter: the first {first} nodes of a tree that was to grow on have changed")
    if len(tree) - first > policy.max_nodes:
        raise Nonsense(f"drafter: {len(tree) - first} nodes more, at most {policy.max_nodes} asked for")
    _check_nodes(draft, policy, vocab_size)


def _check_nodes(draft: Draft, policy: DraftPolicy, vocab_size: int) -> None:
    tree = draft.tree
    _check_tokens("drafter", tree.tokens, vocab_size)
    if len(draft.sources) != len(tree) or not set(draft.sources) <= set(policy.sources):
        raise Nonsense(f"drafter: sources {sorted(set(draft.sources))} for {len(tree)} nodes, of {policy.sources}")
    for name, values in (("probabilities", draft.probabilities), ("entropies", draft.entropies)):
        if len(values) != len(tree) or not all(isfinite(value) and value >= 0 for value in values):
            raise Nonsense(f"drafter: {name} {list(values)} for {len(tree)} nodes, must be one of at least 0 each")


def check_walk(walk: Walk, item: WalkItem, vocab_size: int) -> None:
    _check_length(walk, item)
    _check_tokens("sampler", walk.tokens, vocab_size)
    _check_accepted(walk, item.tree)
    if any(token in item.end_ids for token in walk.tokens[:-1]):
        raise Nonsense("sampler: the walk goes on behind an end token")
    if item.top_logprobs is not None and len(walk.logprobs) != len(walk.tokens):
        raise Nonsense(f"sampler: {len(walk.logprobs)} logprobs for {len(walk.tokens)} tokens")


def check_scored(walk: Walk, item: WalkItem) -> None:
    if len(walk.logprobs) != len(item.scored) or walk.tokens or walk.accepted:
        raise Nonsense(f"sampler: {len(walk.logprobs)} logprobs for {len(item.scored)} scored tokens")


def _rows_of(item: VerifyItem, pruned: Sequence[int]) -> int:
    nodes = len(item.tree) - len(pruned)
    match item.hidden:
        case HiddenRows.NONE:
            return 0
        case HiddenRows.LAST:
            return 1 + nodes
        case HiddenRows.ALL:
            return len(item.update.append) + nodes


def _check_pruned(pruned: Sequence[int], item: VerifyItem) -> None:
    """Some of the tree's nodes, ascending, where that was asked for; whoever's parent went goes too."""
    if pruned and item.early_exit is None:
        raise Nonsense(f"verifier: pruned {list(pruned)}, every node was to go through all layers")
    gone = set(pruned)
    if list(pruned) != sorted(gone) or not gone <= set(range(len(item.tree))):
        raise Nonsense(f"verifier: pruned {list(pruned)}, must be ascending nodes of {len(item.tree)}")
    for node, parent in enumerate(item.tree.parents):
        if parent in gone and node not in gone:
            raise Nonsense(f"verifier: pruned node {parent} but not node {node} below it")


def _check_length(walk: Walk, item: WalkItem) -> None:
    tokens, accepted = len(walk.tokens), len(walk.accepted)
    if not 1 <= tokens <= item.max_tokens:
        raise Nonsense(f"sampler: {tokens} tokens, must be in [1, {item.max_tokens}]")
    has_ended = tokens == item.max_tokens or walk.tokens[-1] in item.end_ids
    if tokens != accepted + 1 and not (tokens == accepted and has_ended):
        raise Nonsense(f"sampler: {tokens} tokens for {accepted} accepted nodes")


def _check_accepted(walk: Walk, tree: TokenTree) -> None:
    if not tree.is_path(walk.accepted):
        raise Nonsense("sampler: accepted is not a path of the tree")
    for token, node in zip(walk.tokens, walk.accepted, strict=False):
        if token != tree.tokens[node]:
            raise Nonsense(f"sampler: token {token} for node {node}, which holds {tree.tokens[node]}")


def _check_tokens(unit: str, tokens: Sequence[int], vocab_size: int) -> None:
    if tokens and max(tokens) >= vocab_size:
        raise Nonsense(f"{unit}: token {max(tokens)}, must be below {vocab_size}")
