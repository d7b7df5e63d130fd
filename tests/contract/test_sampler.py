"""The sampler against its contract: the engine on a small stand-in head, then the whole unit beside a weight store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
import transformers
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray
from scipy import special

from hetspec.decoding.choose import choose
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.model.self_check import SelfCheckError
from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import WALK
from hetspec.rpc.messages import ErrorCode, Rows, UnitError, Walk, WalkItem, WorkTrace, rows_to_bytes
from hetspec.rpc.server import Server, ServerSettings, StartError
from hetspec.rpc.unit import UnitService
from hetspec.rpc.work import Stopped
from hetspec.v1 import common_pb2, sampler_pb2, sampler_pb2_grpc
from sampler.__main__ import main
from sampler.config import SamplerSettings
from sampler.engine import MAX_LOGPROBS, SamplerEngine
from sampler.self_check import probe_rows, self_check
from sampler.unit import load
from tests.models import make_checkpoint
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

VOCAB, HIDDEN = 12, 4
PADDING = np.array([VOCAB - 1])


class StandInHead:
    """Logits by plain sums, a row at a time; nothing is shared between rows."""

    vocab_size, hidden_size = VOCAB, HIDDEN

    def __init__(self, seed: int = 0) -> None:
        self.weights = np.random.default_rng(seed).normal(0, 1, (VOCAB, HIDDEN)).astype(np.float32)
        self.heights: list[int] = []

    def logits(self, hidden: Rows) -> NDArray[np.float32]:
        self.heights.append(len(hidden))
        return np.stack([(self.weights * row).sum(axis=1) for row in hidden])


def engine_of(head: StandInHead) -> SamplerEngine:
    return SamplerEngine(head, PADDING, lambda: None)


def best(head: StandInHead, row: Rows) -> int:
    """The likeliest token that is not padding."""
    return int(np.argmax(head.logits(row[None])[0, :-1]))


@dataclass(frozen=True)
class Chain:
    """A chain of what a head chooses greedily at random rows, and the item that walks it."""

    rows: Rows
    tokens: tuple[int, ...]
    item: WalkItem

    @classmethod
    def of(cls, head: StandInHead, length: int, seed: int) -> Chain:
        rows = np.random.default_rng(seed).normal(0, 2, (1 + length, HIDDEN)).astype(np.float32)
        tokens = tuple(best(head, row) for row in rows)
        tree = TokenTree.chain(tokens[:length])
        return cls(rows, tokens, WalkItem("s", rows_to_bytes(rows), tree, Sampling(), NoiseKey(0), 7, 99))


def run_alone(engine: SamplerEngine, item: WalkItem) -> Walk | UnitError:
    (result,) = engine.run([item], lambda: False).items
    return result


def test_items_walk_in_lockstep_by_passes_of_four_rows_and_the_trace_counts_those_of_use() -> None:
    head = StandInHead()
    long, short = Chain.of(head, 3, seed=1), Chain.of(head, 0, seed=2)
    head.heights.clear()
    result = engine_of(head).run([long.item, short.item], lambda: False)
    assert result.items == (Walk(long.tokens, (0, 1, 2)), Walk(short.tokens, ()))
    assert head.heights == [4, 1]
    assert result.trace == WorkTrace(head_rows=5)


def test_rows_that_a_walk_does_not_come_to_are_no_use_and_change_nothing() -> None:
    head = StandInHead()
    chain = Chain.of(head, 5, seed=4)
    first = (chain.tokens[0] + 1) % (head.vocab_size - 1)
    astray = replace(chain.item, tree=TokenTree((first, *chain.item.tree.tokens), (-1, 0, *range(1, 5))))
    hidden = np.concatenate([chain.rows[:1], chain.rows])
    head.heights.clear()
    result = engine_of(head).run([replace(astray, hidden=rows_to_bytes(hidden))], lambda: False)
    assert result.items == (Walk(chain.tokens[:1], ()),)
    assert (head.heights, result.trace) == ([4], WorkTrace(head_rows=1))


def test_many_walks_take_no_rows_along() -> None:
    head = StandInHead()
    chains = [Chain.of(head, 2, seed=seed) for seed in range(5)]
    head.heights.clear()
    result = engine_of(head).run([chain.item for chain in chains], lambda: False)
    assert result.items == tuple(Walk(chain.tokens, (0, 1)) for chain in chains)
    assert (head.heights, result.trace.head_rows) == ([5, 5, 5], 15)


def test_an_item_is_answered_the_same_alone_and_among_others() -> None:
    head = StandInHead()
    chains = [Chain.of(head, length, seed=length).item for length in range(4)]
    items = [replace(item, sampling=Sampling(1.2), noise=NoiseKey(5), top_logprobs=2) for item in chains]
    engine = engine_of(head)
    assert engine.run(items, lambda: False).items == tuple(run_alone(engine, item) for item in items)


@pytest.mark.parametrize("eager", [(True,), (True, False), (False, True, True)])
def test_an_eager_item_is_answered_the_same_with_all_its_rows_through_the_head_first(eager: tuple[bool, ...]) -> None:
    head = StandInHead()
    chains = [Chain.of(head, 3 + i, seed=i).item for i in range(len(eager))]
    forked = [replace(item, tree=TokenTree((*item.tree.tokens[:-1], 11), item.tree.parents)) for item in chains]
    told = {"sampling": Sampling(0.7, repetition_penalty=1.2), "noise": NoiseKey(5), "top_logprobs": 3}
    items = [replace(item, **told) for item in (*chains, *forked)]
    lazy = engine_of(head).run(items, lambda: False)
    asked = [replace(item, eager=eager[i % len(eager)]) for i, item in enumerate(items)]
    head.heights.clear()
    found = engine_of(head).run(asked, lambda: False)
    assert found.items == lazy.items
    walks = [walk for walk in found.items if isinstance(walk, Walk)]
    expected = [1 + len(item.tree) if item.eager else len(walk.tokens) for item, walk in zip(asked, walks, strict=True)]
    assert found.trace == WorkTrace(head_rows=sum(expected))
    assert head.heights[: sum(item.eager for item in asked)] == [1 + len(item.tree) for item in asked if item.eager]


SOUND = Chain.of(StandInHead(), 2, seed=3).item
BROKEN = {
    "hidden: 12 bytes": replace(SOUND, hidden=bytes(12)),
    r"hidden: 2 rows, must be 1 \+ 2": replace(SOUND, hidden=bytes(2 * HIDDEN * 4)),
    "hidden: holds NaN": replace(SOUND, hidden=np.full((3, HIDDEN), np.nan, "<f4").tobytes()),
    r"tree.tokens\[1\] = 12": replace(SOUND, tree=TokenTree.chain([0, VOCAB])),
    r"end_ids\[0\] = 12": replace(SOUND, end_ids=(VOCAB,)),
    "max_tokens = 0": replace(SOUND, max_tokens=0),
    f"top_logprobs = {MAX_LOGPROBS + 1}": replace(SOUND, top_logprobs=MAX_LOGPROBS + 1),
    r"sampling.bias\[1\] = 12": replace(SOUND, sampling=Sampling(bias=((0, 1.0), (VOCAB, 1.0)))),
    r"constraint.withheld\[0\] = 12": replace(SOUND, constraint=Constraint((VOCAB,), 9)),
    r"past.prompt\[0\] = 12": replace(SOUND, past=Past(prompt=(VOCAB,))),
    r"past.output\[2\] = 12": replace(SOUND, past=Past(output=(0, 1, VOCAB))),
    r"scored\[0\] = 12": replace(SOUND, tree=TokenTree(), scored=(VOCAB, 0, 0), top_logprobs=0),
    "hidden: 3 rows, must be 2, one a scored token": replace(SOUND, tree=TokenTree(), scored=(1, 0), top_logprobs=0),
    "top_logprobs: absent, must be given to score": replace(SOUND, tree=TokenTree(), scored=(1, 0, 0)),
    "tree: 2 nodes, must be empty where tokens are scored": replace(SOUND, scored=(1, 0, 0), top_logprobs=0),
}


@pytest.mark.parametrize("message", list(BROKEN))
def test_a_broken_item_is_refused_by_name_and_its_neighbours_are_not_touched(message: str) -> None:
    engine = engine_of(StandInHead())
    first, broken, last = engine.run([SOUND, BROKEN[message], SOUND], lambda: False).items
    assert isinstance(broken, UnitError)
    assert broken.code == ErrorCode.INVALID
    with pytest.raises(UnitError, match=message):
        raise broken
    assert first == last == run_alone(engine, SOUND)


def test_padding_is_never_emitted_however_likely() -> None:
    head = StandInHead()
    head.weights[-1] = 100
    row = np.ones((1, HIDDEN), np.float32)
    item = WalkItem("s", rows_to_bytes(row), TokenTree(), Sampling(), NoiseKey(0), 0, 1, top_logprobs=VOCAB)
    walk = run_alone(engine_of(head), item)
    assert isinstance(walk, Walk)
    assert walk.tokens == (best(head, row[0]),)
    assert sorted(walk.logprobs[0].top_ids) == list(range(VOCAB - 1))


def test_logprobs_are_the_heads_whatever_the_temperature() -> None:
    head = StandInHead()
    chain = Chain.of(head, 0, seed=4)
    item = replace(chain.item, sampling=Sampling(0.3, 2), top_logprobs=3)
    walk = run_alone(engine_of(head), item)
    assert isinstance(walk, Walk)
    want = special.log_softmax(head.logits(chain.rows)[0, :-1].astype(float))
    assert walk.logprobs[0].logprob == pytest.approx(want[walk.tokens[0]])
    assert walk.logprobs[0].top_ids == tuple(np.argsort(-want)[:3])


def test_logprobs_are_the_heads_whatever_is_adjusted() -> None:
    """The tokens of a walk change with penalties and bias, along the path too; their logprobs do not."""
    head = StandInHead()
    chain = Chain.of(head, 3, seed=4)
    strange = tuple((token, 50.0) for token in range(3))
    plain = replace(chain.item, top_logprobs=VOCAB)
    adjusted = replace(plain, sampling=Sampling(frequency_penalty=60.0, bias=strange), past=Past(output=(0,)))
    tokens = {}
    for item in (plain, adjusted):
        walk = run_alone(engine_of(head), item)
        assert isinstance(walk, Walk)
        tokens[item] = walk.tokens
        want = special.log_softmax(head.logits(chain.rows)[0, :-1].astype(float))
        assert walk.logprobs[0].logprob == pytest.approx(want[walk.tokens[0]])
        assert list(walk.logprobs[0].top_ids) == np.argsort(-want, kind="stable").tolist()
    assert tokens[plain] != tokens[adjusted]


def test_scored_tokens_get_the_logprobs_of_their_rows_and_nothing_is_chosen() -> None:
    """Beside items that walk, and more rows than are projected together."""
    head = StandInHead()
    rows = np.random.default_rng(7).normal(0, 2, (37, HIDDEN)).astype(np.float32)
    tokens = tuple(int(token) for token in np.random.default_rng(8).integers(0, VOCAB - 1, 37))
    scored = replace(SOUND, hidden=rows_to_bytes(rows), tree=TokenTree(), scored=tokens, top_logprobs=2)
    walked, result, again = engine_of(head).run([SOUND, scored, SOUND], lambda: False).items
    assert walked == again == run_alone(engine_of(head), SOUND)
    assert isinstance(result, Walk)
    assert (result.tokens, result.accepted) == ((), ())
    want = special.log_softmax(head.logits(rows)[:, :-1].astype(float), axis=1)
    assert [entry.logprob for entry in result.logprobs] == pytest.approx(want[np.arange(37), tokens].tolist())
    assert [entry.top_ids for entry in result.logprobs] == [tuple(np.argsort(-row)[:2]) for row in want]


def test_a_task_told_to_stop_projects_nothing_more() -> None:
    head = StandInHead()
    chain = Chain.of(head, 5, seed=6)
    head.heights.clear()
    answers = iter([False, True])
    with pytest.raises(Stopped):
        engine_of(head).run([chain.item], lambda: next(answers))
    assert head.heights == [4]


def test_weights_that_are_no_longer_valid_fail_the_task() -> None:
    def gone() -> None:
        raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, "changed")

    with pytest.raises(UnitError, match="WEIGHTS_UNAVAILABLE"):
        SamplerEngine(StandInHead(), PADDING, gone).run([SOUND], lambda: False)


class LeakyHead(StandInHead):
    """Rows depend on how many there are, in the last bit."""

    def logits(self, hidden: Rows) -> NDArray[np.float32]:
        logits = super().logits(hidden)
        return np.nextafter(logits, np.float32(np.inf)) if len(hidden) > 4 else logits


class BreakingHead(StandInHead):
    """Cannot take large inputs."""

    def logits(self, hidden: Rows) -> NDArray[np.float32]:
        large = np.abs(hidden).max(axis=1, keepdims=True) > 1e4
        return super().logits(np.where(large, np.float32(np.inf), hidden).astype(np.float32))


def test_self_check_finds_rows_that_depend_on_their_neighbours() -> None:
    with pytest.raises(SelfCheckError, match="among 5 rows"):
        self_check(LeakyHead())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_self_check_finds_logits_that_are_not_finite() -> None:
    with pytest.raises(SelfCheckError, match="not finite"):
        self_check(BreakingHead())


def test_the_digest_tells_heads_apart_by_a_single_bit() -> None:
    other = StandInHead()
    other.weights[0, 0] = np.nextafter(other.weights[0, 0], np.float32(np.inf))
    assert self_check(StandInHead()) == self_check(StandInHead()) != self_check(other)


def test_probe_rows_hold_the_extremes() -> None:
    rows = probe_rows(19, 64)
    assert np.isfinite(rows).all()
    assert np.abs(rows).max() >= 1e6
    assert (np.abs(rows).max(axis=1) < 1e-9).any()
    assert (np.abs(rows) == 127).all(axis=1).any()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a family whose head has more rows than there are tokens."""
    return make_checkpoint(tmp_path_factory.mktemp("sampler") / "model", "qwen2")


@pytest.fixture
async def store_port(checkpoint: Path, tmp_path: Path) -> AsyncIterator[int]:
    server = Server(WeightStoreService(Store({"target": checkpoint}, tmp_path)), ServerSettings())
    await server.start()
    yield server.port
    await server.stop()


def service_of(store_port: int, precision: str = "float32", timeout_s: float = 30) -> UnitService[WalkItem, Walk]:
    address = f"127.0.0.1:{store_port}"
    settings = SamplerSettings(weight_store=address, precision=precision, threads=1, weights_timeout_s=timeout_s)
    return UnitService(WALK, lambda: load(settings))


@pytest.fixture
async def channel(store_port: int) -> AsyncIterator[grpc.aio.Channel]:
    server = Server(service_of(store_port), ServerSettings())
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel
    await server.stop()


async def ask(channel: grpc.aio.Channel, items: list[WalkItem]) -> sampler_pb2.WalkResult:
    stream = sampler_pb2_grpc.SamplerStub(channel).Work()
    assert (await stream.read()).credits.tasks > 0
    task = sampler_pb2.WalkTask(task_id=3, items=[item.to_pb() for item in items])
    await stream.write(sampler_pb2.SamplerRequest(task=task))
    result = (await stream.read()).result
    await stream.done_writing()
    assert result.task_id == 3
    return result


async def test_over_the_wire_a_walk_equals_the_references_norm_and_head(
    channel: grpc.aio.Channel, checkpoint: Path
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    size, tokens = model.config.hidden_size, len(transformers.AutoTokenizer.from_pretrained(checkpoint))
    rows = np.random.default_rng(0).normal(0, 1, (9, size)).astype(np.float32)
    with torch.no_grad():
        logits = model.lm_head(model.model.norm(torch.from_numpy(rows))).numpy()[:, :tokens]
    sampling, key = Sampling(0.8, top_p=0.95), NoiseKey(11)
    chosen = [choose(row, sampling, key, 100 + i) for i, row in enumerate(logits)]
    item = WalkItem("s", rows_to_bytes(rows), TokenTree.chain(chosen[:8]), sampling, key, 100, 50, (), 4)
    result = await ask(channel, [item])
    walk = Walk.from_pb(result.items[0])
    assert walk.tokens == tuple(chosen)
    assert walk.accepted == tuple(range(8))
    assert result.trace.head_rows == 9
    want = special.log_softmax(logits.astype(float), axis=1)[np.arange(9), chosen]
    assert [entry.logprob for entry in walk.logprobs] == pytest.approx(want, abs=1e-4)


async def test_over_the_wire_an_item_is_refused_alone(channel: grpc.aio.Channel) -> None:
    description = await sampler_pb2_grpc.SamplerStub(channel).Describe(common_pb2.DescribeRequest())
    item = WalkItem("s", bytes(4 * description.hidden_size), TokenTree(), Sampling(), NoiseKey(0), 0, 1)
    result = await ask(channel, [replace(item, max_tokens=0), item])
    assert result.items[0].error.code == common_pb2.INVALID
    assert "max_tokens" in result.items[0].error.message
    assert len(result.items[1].tokens) == 1


async def test_describe_and_health_tell_who_it_is(channel: grpc.aio.Channel, checkpoint: Path) -> None:
    description = await sampler_pb2_grpc.SamplerStub(channel).Describe(common_pb2.DescribeRequest())
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    assert (description.hidden_size, description.vocab_size) == (config.hidden_size, config.vocab_size)
    assert description.max_logprobs == MAX_LOGPROBS
    identity = description.identity
    assert (identity.unit, identity.precision, identity.threads) == ("sampler", "float32", 1)
    assert len(identity.digest) == 64
    health = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(service="hetspec.v1.Sampler"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_two_samplers_of_one_checkpoint_share_a_digest_and_not_an_instance(
    channel: grpc.aio.Channel, store_port: int
) -> None:
    first = (await sampler_pb2_grpc.SamplerStub(channel).Describe(common_pb2.DescribeRequest())).identity
    server = Server(service_of(store_port), ServerSettings())
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as other:
        second = (await sampler_pb2_grpc.SamplerStub(other).Describe(common_pb2.DescribeRequest())).identity
    await server.stop()
    assert (first.digest, first.fingerprint) == (second.digest, second.fingerprint)
    assert first.instance != second.instance


async def test_without_a_weight_store_the_start_fails_with_one_line() -> None:
    server = Server(service_of(1, timeout_s=0.2), ServerSettings())
    with pytest.raises(StartError, match=r"^weight store 127\.0\.0\.1:1: [^\n]*$"):
        await server.start()
    await server.stop()


async def test_it_can_be_stopped_while_it_waits_for_a_weight_store() -> None:
    server = Server(service_of(1, timeout_s=20), ServerSettings())
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0.1)
    starting.cancel()
    await asyncio.wait_for(server.stop(), 10)


@pytest.mark.parametrize("variable", ["HETSPEC_PRECISION", "HETSPEC_THREADS", "HETSPEC_PORT", "HETSPEC_WEIGHT_STORE"])
def test_a_bad_setting_stops_the_start_with_one_line_that_names_it(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "-1")
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"sampler: {variable} = '-1': ")
