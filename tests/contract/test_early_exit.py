"""Early exit in the verifier: what is dropped is what the predictor says, and costs later layers nothing; what stays
has the bits it has without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetspec.decoding.noise import tree_noise
from hetspec.decoding.sampling import NoiseKey
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model.checkpoint import CheckpointError
from hetspec.model.early_exit import DraftedRows
from hetspec.model.forward import PAGE
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.model.weights import read_early_exit
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.messages import EarlyExit as Told
from hetspec.rpc.messages import ErrorCode, HiddenRows, HiddenStates, UnitError, VerifyItem, rows_from_bytes
from hetspec.rpc.server import Server, ServerSettings
from hetspec.rpc.unit import UnitService
from hetspec.v1 import common_pb2
from hetspec.verification.early_exit import EarlyExit
from hetspec.verification.engine import VerifierEngine
from tests.contract.streams import WorkStream, serving, update
from tests.early_exit_artefact import make_early_exit, random_predictor
from tests.models import make_checkpoint
from tests.packs import TINY, MemoryPack
from tests.unit.strategies import trees
from verifier.config import VerifierSettings
from verifier.unit import load
from weight_store.config import WeightStoreSettings
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

PROMPT = [3, 1, 4, 1, 5]
TREE = TokenTree((7, 8, 9, 7, 9, 2, 8, 3, 6), (ROOT, ROOT, ROOT, 0, 0, 1, 3, 3, 5))
LAYER, THRESHOLD = 1, -1.4
NAN = float("nan")
ARTEFACT = random_predictor(TINY.hidden_size, LAYER, THRESHOLD)


def told(tree: TokenTree, seed: int = 0) -> Told:
    rng = np.random.default_rng(seed)
    probabilities, sources = rng.uniform(0, 1, len(tree)).tolist(), rng.integers(1, 3, len(tree)).tolist()
    return Told(tuple(probabilities), tuple(sources), 0.8 * (seed % 2), NoiseKey(seed))


def engine_of(precision: str = "int8", threads: int = 1, budget_bytes: int = 0) -> VerifierEngine:
    model = Transformer(
        MemoryPack(precision), threads=threads, max_rows=128, max_context=120, kv_capacity_tokens=16 * PAGE,
        budget_bytes=budget_bytes,
    )  # fmt: skip
    return VerifierEngine(model, lambda: None, EarlyExit(ARTEFACT, model))


def item(tree: TokenTree = TREE, session: str = "s", *, early: bool = True, seed: int = 0) -> VerifyItem:
    return VerifyItem(update(session, [], PROMPT), tree, HiddenRows.ALL, told(tree, seed) if early else None)


def run(engine: VerifierEngine, *items: VerifyItem) -> list[HiddenStates]:
    found = engine.run(items, lambda: False).items
    assert all(isinstance(one, HiddenStates) for one in found), found
    return [one for one in found if isinstance(one, HiddenStates)]


def rows_of(states: HiddenStates) -> Rows:
    return rows_from_bytes(states.data, TINY.hidden_size)


def dropped(tree: TokenTree, seed: int = 0) -> tuple[int, ...]:
    """The oracle: the predictor on the rows after its layer, of a pass in which nothing leaves."""
    model = Transformer(MemoryPack(), threads=1, max_rows=128, max_context=120, kv_capacity_tokens=8 * PAGE)
    seen: list[NDArray[np.float32]] = []
    cache = model.new_cache()
    model.run([Span(cache, PROMPT, tree)], looks={LAYER: lambda rows: seen.append(rows.copy())})
    draft, last = told(tree, seed), PROMPT[-1]
    noise = tree_noise(tree, draft.temperature, draft.noise, len(PROMPT))
    drafted = DraftedRows.of(last, tree, draft.probabilities, draft.sources, noise)
    embeddings = model.embeddings((last, *tree.tokens))
    kept = ARTEFACT.predictor().keeps(drafted, seen[0][len(PROMPT) - 1 :], embeddings, THRESHOLD)
    return tuple(np.flatnonzero(~kept[1:]).tolist())


def whole_rows(tree: TokenTree, precision: str = "int8") -> Rows:
    return rows_of(run(engine_of(precision), item(tree, early=False))[0])


@given(trees(TINY.vocab_size), st.integers(0, 9))
@settings(max_examples=40)
def test_what_the_predictor_drops_has_no_row_and_the_rest_the_bits_it_has_without(tree: TokenTree, seed: int) -> None:
    found = engine_of().run([item(tree, seed=seed)], lambda: False)
    states = found.items[0]
    assert isinstance(states, HiddenStates)
    assert states.pruned == dropped(tree, seed)
    stays = [*range(len(PROMPT)), *(len(PROMPT) + n for n in range(len(tree)) if n not in states.pruned)]
    assert rows_of(states).tobytes() == whole_rows(tree)[stays].tobytes()
    rows = len(PROMPT) + len(tree)
    after = rows - len(states.pruned)
    assert found.trace.rows_by_layer == (rows,) * LAYER + (after,) * (TINY.n_layers - LAYER)
    assert len(found.trace.kv_len_by_row) == rows


def test_the_example_drops_some_and_keeps_some() -> None:
    assert 0 < len(dropped(TREE)) < len(TREE)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize(("threads", "budget_bytes"), [(1, 0), (2, 0), (1, 1)])
def test_sessions_side_by_side_drop_what_they_drop_alone_and_others_nothing(
    precision: str, threads: int, budget_bytes: int
) -> None:
    """With threads, and with every layer streamed."""
    engine = engine_of(precision, threads, budget_bytes)
    other = TokenTree((5, 6, 7), (ROOT, 0, 1))
    items = (item(session="a"), item(other, "b", early=False), item(session="c", seed=4), item(TokenTree(), "d"))
    together = run(engine, *items)
    alone = [run(engine_of(precision), one)[0] for one in items]
    assert together == alone
    assert together[0].pruned
    assert together[2].pruned
    assert not together[1].pruned
    assert together[1] == HiddenStates.of(whole_rows(other, precision))


def test_a_path_that_stayed_is_committed_and_built_upon() -> None:
    engine = engine_of()
    pruned = run(engine, item())[0].pruned
    stays = max((n for n in range(len(TREE)) if n not in pruned), key=lambda n: TREE.depths()[n])
    path = TREE.path(stays)
    assert path
    tokens = [TREE.tokens[n] for n in path]
    after = VerifyItem(update("s", PROMPT, [2], path, TREE), TokenTree.chain([6, 1]))
    plain = VerifyItem(update("p", [], [*PROMPT, *tokens, 2]), TokenTree.chain([6, 1]))
    assert run(engine, after) == run(engine_of(), plain)


def test_a_node_that_left_cannot_be_committed_and_the_session_stays_as_it_was() -> None:
    engine = engine_of()
    pruned = run(engine, item())[0].pruned
    bad = VerifyItem(update("s", PROMPT, [2], TREE.path(pruned[0]), TREE))
    refused = engine.run([bad], lambda: False).items[0]
    assert isinstance(refused, UnitError)
    assert refused.code is ErrorCode.INVALID
    assert refused.message.startswith("commit: node ")
    good = VerifyItem(update("s", PROMPT, [2]), TokenTree.chain([6]))
    plain = VerifyItem(update("p", [], [*PROMPT, 2]), TokenTree.chain([6]))
    assert run(engine, good) == run(engine_of(), plain)


@pytest.mark.parametrize(
    ("early_exit", "problem"),
    [
        (Told((0.5,) * 8, (1,) * 9), "early_exit.probabilities: 8 for 9 nodes"),
        (Told((0.5,) * 9, (1,) * 10), "early_exit.sources: 10 for 9 nodes"),
        (Told((*(0.5,) * 8, 1.5), (1,) * 9), "early_exit.probabilities[8] = 1.5, must be in [0, 1]"),
        (Told((NAN, *(0.5,) * 8), (1,) * 9), "early_exit.probabilities[0] = nan, must be in [0, 1]"),
        (Told((0.5,) * 9, (*(1,) * 8, 77)), "early_exit.sources: 77 is not known"),
        (Told((0.5,) * 9, (1,) * 9, NAN), "early_exit.temperature = nan, must be >= 0"),
        (Told((0.5,) * 9, (1,) * 9, -0.5), "early_exit.temperature = -0.5, must be >= 0"),
    ],
)
def test_an_item_that_does_not_tell_of_each_node_is_refused(early_exit: Told, problem: str) -> None:
    bad = VerifyItem(update("s", [], PROMPT), TREE, HiddenRows.LAST, early_exit)
    refused = engine_of().run([bad], lambda: False).items[0]
    assert isinstance(refused, UnitError)
    assert (refused.code, refused.message) == (ErrorCode.INVALID, problem)


def test_a_verifier_without_a_predictor_sends_every_node_through_all_layers() -> None:
    engine = engine_of()
    engine.early_exit = None
    assert run(engine, item()) == [HiddenStates.of(whole_rows(TREE))]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A target, a predictor for it, a cache."""
    folder = tmp_path_factory.mktemp("served")
    target = make_checkpoint(folder / "target", "smollm", num_hidden_layers=4)
    return target, make_early_exit(folder / "exit", target, folder / "cache", 2, -3.5), folder / "cache"


async def test_the_store_serves_it_and_the_verifier_uses_it(places: tuple[Path, Path, Path]) -> None:
    target, folder, cache = places
    store = Server(WeightStoreService(Store({"target": target}, cache, folder)), ServerSettings(grace_s=2))
    await store.start()
    unit = UnitService(VERIFY, lambda: load(VerifierSettings(weight_store=f"127.0.0.1:{store.port}", threads=1)))
    tree = TokenTree(tuple(range(3, 30)), (ROOT,) * 27)
    async with serving(unit) as channel:
        described = await VERIFY.stub(channel).Describe(common_pb2.DescribeRequest())
        assert (described.exit_layer, described.exit_recall) == (2, 0.5)
        stream = await WorkStream(VERIFY, channel).open()
        result = await stream.task(VerifyItem(update("s", [], PROMPT), tree, early_exit=told(tree)))
    await store.stop()
    pruned = list(result.items[0].pruned)
    assert 0 < len(pruned) < 27
    assert result.items[0].rows == 28 - len(pruned)
    assert list(result.trace.rows_by_layer) == [32, 32, 32 - len(pruned), 32 - len(pruned)]


async def test_what_the_verifier_reads_is_what_the_folder_holds(places: tuple[Path, Path, Path]) -> None:
    target, folder, cache = places
    store = Store({"target": target}, cache, folder)
    server = Server(WeightStoreService(store), ServerSettings(grace_s=2))
    await server.start()
    found = await asyncio.to_thread(read_early_exit, f"127.0.0.1:{server.port}", 10.0)
    await server.stop()
    assert found is not None
    assert store.early_exit is not None
    assert found.config == store.early_exit.config
    assert {name: values.tobytes() for name, values in found.weights.items()} == {
        name: values.tobytes() for name, values in store.early_exit.weights.items()
    }


@pytest.mark.parametrize(
    ("layer", "family", "problem"), [(4, "smollm", "layer = 4, must be below"), (2, "qwen3", "made for")]
)
def test_a_predictor_that_does_not_fit_the_target_is_refused(
    layer: int, family: str, problem: str, places: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    target, _, cache = places
    made_for = target if family == "smollm" else make_checkpoint(tmp_path / "other", family)
    folder = make_early_exit(tmp_path / "exit", made_for, cache, layer, -1.0)
    with pytest.raises(CheckpointError, match=problem):
        Store({"target": target}, cache, folder).open()


def test_without_a_word_about_it_only_the_packaged_target_has_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weight_store.shipped.EARLY_EXIT", Path("/nowhere"))
    assert WeightStoreSettings().early_exit_folder() is None
    assert WeightStoreSettings(target=Path("x")).early_exit_folder() is None
    assert WeightStoreSettings(early_exit="none").early_exit_folder() is None
    assert WeightStoreSettings(early_exit=Path("~/y")).early_exit_folder() == Path("~/y").expanduser()
