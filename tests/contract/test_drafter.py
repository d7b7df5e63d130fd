"""The drafter as a whole unit beside a weight store: with a draft model, without one, with one that does not fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from drafter.__main__ import main
from drafter.config import DrafterSettings
from drafter.engine import MAX_DEPTH, MAX_NODES
from drafter.unit import load
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model.kv import PAGE
from hetspec.rpc.contracts import DRAFT
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy, LookAhead, SessionUpdate, rows_to_bytes
from hetspec.rpc.server import StartError
from hetspec.rpc.unit import UnitService
from hetspec.v1 import common_pb2, drafter_pb2, drafter_pb2_grpc
from tests.contract.streams import WorkStream, serving, update, weight_store
from tests.draft_artefact import make_draft
from tests.models import make_checkpoint

LOOKUP, MODEL = drafter_pb2.DRAFT_SOURCE_LOOKUP, drafter_pb2.DRAFT_SOURCE_MODEL
GRAMMAR = drafter_pb2.DRAFT_SOURCE_GRAMMAR
CHAIN = DraftPolicy(max_nodes=5, max_depth=5, width=1, sources=(MODEL,))
TREE = DraftPolicy(max_nodes=12, max_depth=4, width=3, sources=(LOOKUP, MODEL))
PROMPT = [30, 31, 32, 33, 30, 31]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("target") / "model", "smollm")


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the target's tokenizer, and another shape."""
    return make_checkpoint(tmp_path_factory.mktemp("draft") / "model", "smollm", seed=1, num_hidden_layers=1)


def service_of(address: str, **settings: Any) -> UnitService[DraftItem, Draft]:
    chosen = DrafterSettings(weight_store=address, **{"threads": 1, "weights_timeout_s": 30, **settings})
    return UnitService(DRAFT, lambda: load(chosen))


@asynccontextmanager
async def drafter(cache: Path, checkpoints: dict[str, Path], **settings: Any) -> AsyncIterator[grpc.aio.Channel]:
    async with weight_store(cache, **checkpoints) as address, serving(service_of(address, **settings)) as channel:
        yield channel


def item(changes: SessionUpdate, policy: DraftPolicy = TREE, temperature: float = 0.0) -> DraftItem:
    return DraftItem(changes, policy, Sampling(temperature), NoiseKey(3))


async def describe(channel: grpc.aio.Channel) -> Any:
    return await drafter_pb2_grpc.DrafterStub(channel).Describe(common_pb2.DescribeRequest())


def greedy(checkpoint: Path, ids: Sequence[int], length: int) -> list[int]:
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    out = list(ids)
    with torch.no_grad():
        for _ in range(length):
            out.append(int(model(torch.tensor([out])).logits[0, -1].argmax()))
    return out[len(ids) :]


async def test_a_greedy_chain_is_the_references_continuation(target: Path, draft: Path, tmp_path: Path) -> None:
    async with drafter(tmp_path, {"target": target, "draft": draft}, precision="float32") as channel:
        stream = await WorkStream(DRAFT, channel).open()
        result = await stream.task(item(update("s", [], PROMPT), CHAIN))
        await stream.end()
    assert Draft.from_pb(result.items[0]).tree == TokenTree.chain(greedy(draft, PROMPT, 5))


async def test_over_the_wire_rounds_draft_as_new_sessions_do(target: Path, draft: Path, tmp_path: Path) -> None:
    async with drafter(tmp_path, {"target": target, "draft": draft}) as channel:
        stream = await WorkStream(DRAFT, channel).open()
        ids = list(PROMPT)
        found = Draft.from_pb((await stream.task(item(update("s", [], ids), temperature=1))).items[0])
        assert set(found.sources) == {LOOKUP, MODEL}
        path = found.tree.path(len(found.tree) - 1)
        step = item(update("s", ids, [40], path, found.tree), temperature=1)
        ids = [*ids, *(found.tree.tokens[node] for node in path), 40]
        twin = item(update("new", [], ids), temperature=1)
        answers = (await stream.task(step, twin)).items
        assert Draft.from_pb(answers[0]) == Draft.from_pb(answers[1])
        bad = item(update("bad", [], [1]), DraftPolicy(0, 1, 1, ()))
        lost, refused, forked = (
            await stream.task(
                item(update("s", ids[:-1], [40])), bad, item(update("fork", ids[:6], ids[6:], fork_of="new"), TREE, 1)
            )
        ).items
        assert (lost.error.code, refused.error.code) == (common_pb2.SESSION_LOST, common_pb2.INVALID)
        assert refused.error.message == f"policy.max_nodes = 0, must be in [1, {MAX_NODES}]"
        assert Draft.from_pb(forked) == Draft.from_pb(answers[1])
        description = await describe(channel)
        assert description.sessions == 2
        assert description.kv_held_tokens == 2 * PAGE
        late = await stream.task(item(update("late", [], [1])), timeout_ns=1)
        assert late.error.code == common_pb2.DEADLINE_EXCEEDED
        await stream.end()
        async with asyncio.timeout(10):
            while (await describe(channel)).sessions:
                await asyncio.sleep(0.01)
        assert (await describe(channel)).kv_held_tokens == 0


async def test_over_the_wire_a_chain_drafted_in_parts_is_the_chain_drafted_at_once(
    target: Path, draft: Path, tmp_path: Path
) -> None:
    parts = DraftPolicy(3, 3, 1, (MODEL,))
    async with drafter(tmp_path, {"target": target, "draft": draft}) as channel:
        stream = await WorkStream(DRAFT, channel).open()
        await stream.task(item(update("s", [], PROMPT), parts, 0.8))
        ahead = replace(item(update("s", PROMPT, []), parts, 0.8), look_ahead=LookAhead(outcomes=1, since=2))
        at_once = item(update("t", [], PROMPT), DraftPolicy(6, 6, 1, (MODEL,)), 0.8)
        grown, whole = (await stream.task(ahead, at_once)).items
        broken = (await stream.task(replace(ahead, look_ahead=LookAhead(1, 6)))).items[0]
        await stream.end()
    assert Draft.from_pb(grown) == Draft.from_pb(whole)
    assert len(whole.entropies) == len(whole.tree.tokens) == 6
    assert broken.error.message == "look_ahead.since = 6, must be below the tree's 6 nodes"


async def test_with_a_draft_model_it_tells_whose(target: Path, draft: Path, tmp_path: Path) -> None:
    async with drafter(tmp_path, {"target": target, "draft": draft}, max_context=100) as channel:
        found = await describe(channel)
    assert list(found.sources) == [LOOKUP, MODEL, GRAMMAR]
    assert (found.max_nodes, found.max_depth, found.max_context) == (MAX_NODES, MAX_DEPTH, 100)
    assert (found.identity.unit, found.identity.precision) == ("drafter", "int8")
    assert len(found.identity.fingerprint) > 0
    assert found.credits > 0


async def test_without_a_draft_model_lookup_drafts(target: Path, tmp_path: Path) -> None:
    async with drafter(tmp_path, {"target": target}) as channel:
        found = await describe(channel)
        assert list(found.sources) == [LOOKUP, GRAMMAR]
        assert (found.identity.model, found.identity.fingerprint, found.kv_held_tokens) == ("", "", 0)
        stream = await WorkStream(DRAFT, channel).open()
        lookup = DraftPolicy(8, 4, 1, (LOOKUP,))
        answer = (await stream.task(item(update("s", [], PROMPT), lookup))).items[0]
        assert Draft.from_pb(answer).tree == TokenTree.chain([32, 33, 30, 31])
        assert (await stream.task(item(update("t", [], PROMPT)))).items[0].error.code == common_pb2.INVALID
        await stream.end()


@pytest.mark.parametrize("precision", ["int8", "float32"])
async def test_a_draft_folder_drafts_from_the_targets_rows(precision: str, target: Path, tmp_path: Path) -> None:
    folder = make_draft(tmp_path / "folder", target, head_vocab_size=100)
    ids = set(load_file(folder / "model.safetensors")["head_ids"].tolist())
    size = transformers.AutoConfig.from_pretrained(target).hidden_size
    rows = rows_to_bytes(np.random.default_rng(0).normal(0, 1, (len(PROMPT) - 1, size)).astype(np.float32))
    async with drafter(tmp_path / "cache", {"target": target, "draft": folder}, precision=precision) as channel:
        found = await describe(channel)
        assert (found.reads_features, found.identity.model) == (True, "draft")
        stream = await WorkStream(DRAFT, channel).open()
        blind, fed, broken = (
            await stream.task(
                item(update("s", [], PROMPT)),
                replace(item(update("t", [], PROMPT)), hidden=rows),
                replace(item(update("u", [], PROMPT)), hidden=rows[:-1]),
            )
        ).items
        await stream.end()
    assert set(blind.sources) == {LOOKUP}
    drafts = zip(fed.tree.tokens, fed.sources, strict=True)
    assert {token for token, source in drafts if source == MODEL} <= ids
    assert MODEL in fed.sources
    assert broken.error.message.startswith("hidden: ")


async def test_a_draft_folder_of_another_target_stops_the_weight_store_with_one_line(
    target: Path, draft: Path, tmp_path: Path
) -> None:
    folder = make_draft(tmp_path / "folder", draft)
    with pytest.raises(StartError, match=r"^[^\n]*config\.json: made for model with fingerprint [^\n]*$"):
        async with weight_store(tmp_path / "cache", target=target, draft=folder):
            pass


def with_tokens(checkpoint: Path, directory: Path, tokens: dict[int, str]) -> Path:
    """A copy whose tokenizer calls these ids so."""
    directory.mkdir()
    for file in checkpoint.iterdir():
        data = file.read_bytes()
        if file.name == "tokenizer.json":
            spec = json.loads(data)
            named = {i: token for token, i in spec["model"]["vocab"].items()} | tokens
            vocab = {token: i for i, token in named.items()}
            merges = [m for m in spec["model"]["merges"] if "".join(m if isinstance(m, list) else m.split()) in vocab]
            spec["model"] |= {"vocab": vocab, "merges": merges}
            data = json.dumps(spec).encode()
        (directory / file.name).write_bytes(data)
    return directory


async def test_a_draft_that_means_other_tokens_does_not_start_and_gives_an_example(
    target: Path, draft: Path, tmp_path: Path
) -> None:
    foreign = with_tokens(draft, tmp_path / "foreign", {350: "other"})
    with pytest.raises(StartError, match=r"^vocabularies differ: id 350 is '[^\n]+' to the target and 'other' to the"):
        async with drafter(tmp_path, {"target": target, "draft": foreign}):
            pass


async def test_ids_that_the_target_lacks_are_never_proposed(target: Path, tmp_path: Path) -> None:
    size = transformers.AutoConfig.from_pretrained(target).vocab_size
    padded = make_checkpoint(tmp_path / "padded", "smollm", seed=2, vocab_size=1000)
    larger = with_tokens(padded, tmp_path / "larger", {i: f"more{i}" for i in range(size, 900)})
    policy = DraftPolicy(MAX_NODES, 2, 64, (MODEL,))
    async with drafter(tmp_path, {"target": target, "draft": larger}) as channel:
        stream = await WorkStream(DRAFT, channel).open()
        found = Draft.from_pb((await stream.task(item(update("s", [], PROMPT), policy, 2.0))).items[0])
        await stream.end()
    assert found.tree.parents.count(ROOT) == 64
    assert max(found.tree.tokens) < size


async def test_an_id_of_the_targets_padding_is_refused_where_the_draft_has_none(draft: Path, tmp_path: Path) -> None:
    padded = make_checkpoint(tmp_path / "padded", "smollm", vocab_size=1000)
    size = transformers.AutoConfig.from_pretrained(draft).vocab_size
    async with drafter(tmp_path, {"target": padded, "draft": draft}) as channel:
        stream = await WorkStream(DRAFT, channel).open()
        refused, served = (await stream.task(item(update("s", [], [size])), item(update("t", [], PROMPT)))).items
        await stream.end()
    assert refused.error.message == f"append[0] = {size}, must be in [0, {size})"
    assert len(served.tree.tokens) > 0


async def test_without_a_weight_store_the_start_fails_with_one_line() -> None:
    with pytest.raises(StartError, match=r"^weight store 127\.0\.0\.1:1: [^\n]*$"):
        async with serving(service_of("127.0.0.1:1", weights_timeout_s=0.2)):
            pass


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HETSPEC_PRECISION", "int4"),
        ("HETSPEC_THREADS", "many"),
        ("HETSPEC_PORT", "-1"),
        ("HETSPEC_WEIGHT_STORE", "nowhere"),
        ("HETSPEC_MAX_CONTEXT", "15"),
        ("HETSPEC_KV_TOKENS", "127"),
    ],
)
def test_a_bad_setting_stops_the_start_with_one_line_that_names_it(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"drafter: {variable} = '{value}': ")
