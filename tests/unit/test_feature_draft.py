"""A draft model that reads the target's hidden rows, with a trimmed head: against a plain restatement of it in numpy,
and whatever came before against a session that is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from drafter.engine import DrafterEngine
from hetspec.decoding.history import History
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.checkpoint import open_checkpoint, open_draft
from hetspec.model.head import Head
from hetspec.model.kv import PAGE
from hetspec.model.pack import open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.residency import WeightReader
from hetspec.model.transformer import Transformer
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy, ErrorCode, SessionUpdate, UnitError, rows_to_bytes
from tests.draft_artefact import NumpyDraft, make_draft
from tests.models import make_checkpoint
from tests.packs import TINY, MemoryPack

LOOKUP, MODEL = 1, 2
GREEDY = Sampling()
BARRED = np.array([0, 13])
CHAIN = DraftPolicy(max_nodes=5, max_depth=5, width=1, sources=(MODEL,))
TREE = DraftPolicy(max_nodes=12, max_depth=4, width=3, sources=(MODEL,))
PACK = MemoryPack(n_layers=2, reads_features=True, head_vocab_size=25)


def engine_of(pack: WeightReader = PACK, barred: NDArray[np.intp] = BARRED, kv_pages: int = 60) -> DrafterEngine:
    config = pack.layout.config
    transformer = Transformer(pack, threads=1, max_rows=24, max_context=160, kv_capacity_tokens=kv_pages * PAGE)
    features = Projection(pack, FEATURES, config.hidden_size, threads=1)
    return DrafterEngine(config.vocab_size, DraftModel(transformer, Head(pack, threads=1), barred, features))


ENGINE = engine_of()


def feature_of(ids: Sequence[int], hidden_size: int = TINY.hidden_size) -> NDArray[np.float32]:
    """The target's row of the last of these tokens: any function of them all."""
    rng = np.random.default_rng([len(ids), *ids])
    return rng.normal(0, 2, hidden_size).astype(np.float32)


def features_before(ids: Sequence[int], rows: int, hidden_size: int = TINY.hidden_size) -> bytes:
    """Of each of the last `rows` tokens, the row that stands before it."""
    before = [feature_of(ids[:end], hidden_size) for end in range(len(ids) - rows, len(ids))]
    return rows_to_bytes(np.array(before, np.float32))


@dataclass
class Client:
    """One session as an orchestrator keeps it."""

    name: str
    ids: list[int] = field(default_factory=list)
    tree: TokenTree = TokenTree()
    fork_of: str = ""
    hidden_size: int = TINY.hidden_size

    def item(self, rows: int | None, commit: Sequence[int], append: Sequence[int], policy: DraftPolicy) -> DraftItem:
        """rows: of features; None: of every token that gets committed now."""
        before = len(self.ids)
        self.ids += [self.tree.tokens[node] for node in commit]
        digest = History(self.ids).hash
        update = SessionUpdate(self.name, 1, len(self.ids), digest, tuple(commit), tuple(append), self.fork_of)
        self.ids += append
        self.fork_of = ""
        sent = min(len(self.ids) - max(before, 1) if rows is None else rows, max(0, len(self.ids) - 1))
        return DraftItem(update, policy, Sampling(), NoiseKey(5), features_before(self.ids, sent, self.hidden_size))


def drafted(
    client: Client, rows: int | None = None, commit: Sequence[int] = (), append: Sequence[int] = (),
    policy: DraftPolicy = TREE, sampling: Sampling = GREEDY, engine: DrafterEngine = ENGINE,
) -> Draft:  # fmt: skip
    item = replace(client.item(rows, commit, append, policy), sampling=sampling)
    (draft,) = engine.run([item], lambda: False).items
    assert isinstance(draft, Draft), draft
    client.tree = draft.tree
    return draft


def from_nothing(ids: Sequence[int], rows: int, policy: DraftPolicy = TREE, sampling: Sampling = GREEDY) -> Draft:
    """What a new session drafts that is given these tokens and the features before the last `rows` of them."""
    try:
        return drafted(Client("reference"), rows, append=ids, policy=policy, sampling=sampling)
    finally:
        ENGINE.release(["reference"])


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DrafterEngine, NumpyDraft]]:
    folder = tmp_path_factory.mktemp("artefact")
    target = make_checkpoint(folder / "target", "smollm")
    draft = make_draft(folder / "draft", target, n_layers=2, head_vocab_size=120, ffn_size=100)
    checkpoint = open_draft(draft, open_checkpoint(target))
    engine = engine_of(open_pack(write_pack(checkpoint, "float32", folder)), np.array([], np.intp))
    yield engine, NumpyDraft(draft, open_checkpoint(target), checkpoint.config)
    assert engine._model is not None
    engine._model.close()


def assert_drafted_by(model: NumpyDraft, draft: Draft, ids: Sequence[int], pairs: int, width: int) -> None:
    """Every node has its parent's child's chance, and is one of the likeliest there. pairs: tokens with a feature."""
    known = [feature_of(ids[:end], 96).astype(np.float64) for end in range(len(ids) - pairs, len(ids))]
    assert len(draft.tree) > 0
    for node, (token, parent) in enumerate(zip(draft.tree.tokens, draft.tree.parents, strict=True)):
        path = [draft.tree.tokens[above] for above in draft.tree.path(parent)]
        logits = model.logits(model.outputs([*ids[len(ids) - pairs :], *path], known)[-1])
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        chance = chances[model.head_ids == token]
        assert draft.probabilities[node] == pytest.approx(float(chance[0]), rel=2e-3)
        assert (chances > chance * 1.001).sum() < width


@pytest.mark.parametrize("policy", [CHAIN, TREE])
def test_several_rounds_draft_what_the_restatement_says(
    policy: DraftPolicy, artefact: tuple[DrafterEngine, NumpyDraft]
) -> None:
    """The prompt in pieces, then accepted paths of every length, one round without the features it needs."""
    engine, model = artefact
    client = Client("s", hidden_size=96)
    drafted(client, 0, append=[30], policy=policy, engine=engine)
    drafted(client, append=[31, 32, 33], policy=policy, engine=engine)
    draft = drafted(client, append=list(range(40, 60)), policy=policy, engine=engine)
    assert_drafted_by(model, draft, client.ids, 23, policy.width)
    for depth, bonus in ((0, 9), (1, 77), (3, 101)):
        deepest = draft.tree.path(int(np.argmax(draft.tree.depths())))
        draft = drafted(client, commit=deepest[:depth], append=[bonus], policy=policy, engine=engine)
        assert_drafted_by(model, draft, client.ids, len(client.ids) - 1, policy.width)
    assert len(drafted(client, 0, append=[5], policy=policy, engine=engine).tree) == 0
    draft = drafted(client, 2, append=[6, 8], policy=policy, engine=engine)
    assert_drafted_by(model, draft, client.ids, 2, policy.width)
    engine.release(["s"])


def test_greedy_chains_are_the_restatements_own_continuation(artefact: tuple[DrafterEngine, NumpyDraft]) -> None:
    engine, model = artefact
    ids = list(range(50, 70))
    draft = drafted(Client("c", hidden_size=96), append=ids, policy=CHAIN, engine=engine)
    engine.release(["c"])
    known = [feature_of(ids[:end], 96).astype(np.float64) for end in range(1, len(ids))]
    chain: list[int] = []
    for _ in range(5):
        logits = model.logits(model.outputs([*ids[1:], *chain], known)[-1])
        chain.append(int(model.head_ids[logits.argmax()]))
    assert draft.tree == TokenTree.chain(chain)


tokens = st.integers(0, TINY.vocab_size - 1)
policies = st.builds(
    DraftPolicy, max_nodes=st.integers(1, 14), max_depth=st.integers(1, 4), width=st.integers(1, 4),
    sources=st.sampled_from([(MODEL,), (MODEL,), (LOOKUP, MODEL), ()]),
)  # fmt: skip
rows_sent = st.one_of(st.none(), st.none(), st.integers(0, 6), st.just(99))
rounds = st.lists(
    st.tuples(rows_sent, st.integers(-1, 13), st.lists(tokens, max_size=3), policies, st.sampled_from([0.0, 0.8])),
    max_size=6,
)


class Pairs:
    """Which tokens an engine can have paired with a feature: [first, end), from what it was sent."""

    def __init__(self) -> None:
        self.first = self.end = 0

    def sent(self, length: int, rows: int) -> None:
        if rows:
            self.first = self.first if self.end and length - rows <= self.end else length - rows
            self.end = length


@given(prompt=st.lists(tokens, min_size=1, max_size=40), steps=rounds)
@settings(max_examples=30)
def test_whatever_was_drafted_committed_and_missed_the_next_draft_is_a_new_sessions(
    prompt: list[int], steps: Any
) -> None:
    client, pairs = Client("s"), Pairs()
    try:
        for rows, node, append, policy, temperature in [(None, -1, prompt, TREE, 0.0), *steps]:
            path = client.tree.path(min(node, len(client.tree) - 1))
            item = client.item(rows, path, append, policy)
            pairs.sent(len(client.ids), len(item.hidden) // (4 * TINY.hidden_size))
            (found,) = ENGINE.run([replace(item, sampling=Sampling(temperature))], lambda: False).items
            assert isinstance(found, Draft)
            client.tree = found.tree
            known = len(client.ids) - pairs.first if pairs.end == len(client.ids) else 0
            assert found == from_nothing(client.ids, known, policy, Sampling(temperature))
            assert known or MODEL not in found.sources
    finally:
        ENGINE.release(["s"])
    assert held_tokens() == 0


def held_tokens() -> int:
    assert ENGINE._model is not None
    return ENGINE._model.transformer.pool.held_tokens


@given(
    prompt=st.lists(tokens, min_size=2, max_size=70), late=st.integers(0, 3), append=st.lists(tokens, max_size=2),
    data=st.data(),
)  # fmt: skip
@settings(max_examples=30)
def test_a_fork_drafts_as_a_new_session_and_so_does_its_parent(
    prompt: list[int], late: int, append: list[int], data: st.DataObject
) -> None:
    """`late`: tokens of the parent whose features have not come yet."""
    client = Client("s")
    try:
        drafted(client, append=prompt, policy=data.draw(policies))
        if late:
            drafted(client, 0, append=[3] * late)
        at = data.draw(st.integers(2, len(prompt)))
        twin = Client("twin", ids=client.ids[:at], fork_of="s")
        assert drafted(twin, len(append) + 1, append=append) == from_nothing(twin.ids, len(twin.ids) - 1)
        assert drafted(client, late + 1, append=[6]) == from_nothing(client.ids, len(client.ids) - 1)
    finally:
        ENGINE.release(["s", "twin"])
    assert held_tokens() == 0


def test_drafting_twice_from_the_same_tokens_is_the_same_draft() -> None:
    client = Client("s")
    first = drafted(client, append=[1, 2, 3, 4])
    assert drafted(client, 0) == first
    assert drafted(client, 3) == first
    twin = Client("twin", ids=list(client.ids), fork_of="s")
    assert drafted(twin, 0) == first
    ENGINE.release(["s", "twin"])


def test_a_head_of_a_part_of_the_vocabulary_proposes_its_own_ids_that_are_not_barred() -> None:
    views = PACK.layout.views("head", PACK.data[PACK.layout.segments["head"].offset :].data)
    draft = from_nothing([1, 2, 3, 4, 5], 4, replace(TREE, max_nodes=60, max_depth=1, width=20), Sampling(2.0))
    assert set(draft.tree.tokens) <= set(views["ids"].tolist()) - set(BARRED.tolist())
    assert len(draft.tree) == 20


def test_without_the_last_feature_lookup_alone_drafts() -> None:
    client = Client("s")
    both = replace(TREE, sources=(LOOKUP, MODEL))
    assert set(drafted(client, append=[7, 8, 9, 10, 7, 8], policy=both).sources) == {LOOKUP, MODEL}
    draft = drafted(client, 0, append=[9], policy=both)
    assert set(draft.sources) == {LOOKUP}
    chain = drafted(client, 0, append=[10], policy=replace(CHAIN, sources=(LOOKUP, MODEL)))
    assert (chain.tree.tokens[0], set(chain.sources)) == (7, {LOOKUP})
    ENGINE.release(["s"])


def test_sessions_of_one_task_draft_what_each_drafts_alone() -> None:
    texts = [list(range(1, 4)), [5] * 30, list(range(20, 32))]
    items = [Client(str(i)).item(None, (), ids, TREE) for i, ids in enumerate(texts)]
    result = ENGINE.run(items, lambda: False)
    ENGINE.release(["0", "1", "2"])
    assert list(result.items) == [from_nothing(ids, len(ids) - 1) for ids in texts]
    assert result.trace.draft_step_rows[-1] <= 3 * TREE.width


GOOD = Client("good").item(None, (), [1, 2, 3], TREE)
ROW_BYTES = 4 * TINY.hidden_size
BROKEN = {
    "hidden: 130 bytes are not a whole number of rows of 32 float32": replace(GOOD, hidden=b"x" * 130),
    "hidden: 3 rows, must be fewer than the 3 committed tokens": replace(GOOD, hidden=bytes(3 * ROW_BYTES)),
    "hidden: holds NaN or infinity, must be finite": replace(GOOD, hidden=b"\xff" * ROW_BYTES),
    r"policy.min_gain = nan, must be in \[0, 1\]": replace(GOOD, policy=replace(TREE, min_gain=float("nan"))),
    r"policy.min_gain = 1.5, must be in \[0, 1\]": replace(GOOD, policy=replace(TREE, min_gain=1.5)),
}


@pytest.mark.parametrize("message", list(BROKEN))
def test_a_broken_item_is_refused_by_name_and_holds_no_session(message: str) -> None:
    (refused,) = ENGINE.run([BROKEN[message]], lambda: False).items
    assert isinstance(refused, UnitError)
    assert (refused.code, len(ENGINE.sessions)) == (ErrorCode.INVALID, 0)
    with pytest.raises(UnitError, match=f"{message}$"):
        raise refused


def test_features_are_refused_where_none_are_read() -> None:
    (refused,) = DrafterEngine(TINY.vocab_size, None).run([replace(GOOD, policy=DraftPolicy(1, 1, 1, ()))], bool).items
    assert isinstance(refused, UnitError)
    assert str(refused).endswith("hidden: 256 bytes, must be empty where no features are read")
