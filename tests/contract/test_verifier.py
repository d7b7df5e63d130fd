"""The verifier against its contract: the engine on a tiny pack in memory, then the whole unit beside a weight store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from pydantic import ValidationError

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model.cut import NEVER, Cut
from hetspec.model.kv import PAGE
from hetspec.model.lease import WeightsUnavailableError
from hetspec.model.transformer import Transformer
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.messages import ErrorCode, HiddenRows, HiddenStates, UnitError, VerifyItem, rows_from_bytes
from hetspec.rpc.server import Server, ServerSettings, StartError
from hetspec.rpc.unit import UnitService
from hetspec.rpc.work import Stopped
from hetspec.v1 import common_pb2, verifier_pb2_grpc
from hetspec.verification.engine import VerifierEngine
from tests.contract.streams import WorkStream, serving, update, weight_store
from tests.models import make_checkpoint
from tests.packs import TINY, MemoryPack
from verifier.__main__ import main
from verifier.config import VerifierSettings
from verifier.unit import load

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
TREE = TokenTree((7, 8, 7, 9), (ROOT, ROOT, 0, 2))


def engine_of(pack: MemoryPack | None = None, kv_pages: int = 8, **options: Any) -> VerifierEngine:
    shape = {"max_rows": 64, "max_context": 100, "kv_capacity_tokens": kv_pages * PAGE} | options
    return VerifierEngine(Transformer(pack or MemoryPack(), threads=1, **shape), lambda: None)


def run(engine: VerifierEngine, *items: VerifyItem) -> list[HiddenStates | UnitError]:
    return list(engine.run(items, lambda: False).items)


def rows_of(answer: Any) -> NDArray[np.float32]:
    assert isinstance(answer, HiddenStates), answer
    return rows_from_bytes(answer.data, TINY.hidden_size)


def plain(ids: Sequence[int]) -> NDArray[np.float32]:
    """The reference: a row a token, each from a task of its own."""
    engine = engine_of()
    return np.concatenate(
        [rows_of(run(engine, VerifyItem(update("s", ids[:i], ids[i : i + 1])))[0]) for i in range(len(ids))]
    )


def opened(engine: VerifierEngine, tree: TokenTree = TREE) -> None:
    run(engine, VerifyItem(update("s", [], PROMPT), tree))


def test_rounds_give_the_bits_of_plain_decoding() -> None:
    engine = engine_of()
    first, second = PROMPT[:6], PROMPT[6:]
    assert run(engine, VerifyItem(update("s", [], first), hidden=HiddenRows.NONE)) == [HiddenStates()]
    rows = rows_of(run(engine, VerifyItem(update("s", first, second), TREE))[0])
    down, aside = plain([*PROMPT, 7, 7, 9]), plain([*PROMPT, 8])
    assert rows.tobytes() == np.stack([down[-4], down[-3], aside[-1], down[-2], down[-1]]).tobytes()
    item = VerifyItem(update("s", PROMPT, [2, 4], [0, 2], TREE), TokenTree.chain([6]), HiddenRows.ALL)
    assert rows_of(run(engine, item)[0]).tobytes() == plain([*PROMPT, 7, 7, 2, 4, 6])[-3:].tobytes()


def test_sessions_of_one_task_are_answered_as_alone_and_the_trace_counts_them() -> None:
    engine = engine_of()
    items = [VerifyItem(update(str(n), [], PROMPT[:n]), TREE) for n in (1, 4, 10)]
    result = engine.run(items, lambda: False)
    assert list(result.items) == [run(engine_of(), item)[0] for item in items]
    assert result.trace.rows_by_layer == (1 + 4 + 10 + 3 * 4,) * TINY.n_layers
    kv_lens = [k for n in (1, 4, 10) for k in (*range(1, n + 1), n + 1, n + 1, n + 2, n + 3)]
    assert result.trace.kv_len_by_row == tuple(kv_lens)
    assert result.trace.weight_bytes_read == result.trace.weight_reads == 0


REFUSED: dict[str, tuple[ErrorCode, VerifyItem]] = {
    "append: empty": (ErrorCode.INVALID, VerifyItem(update("t", [], []))),
    r"append\[1\] = 40, must be in \[0, 40\)": (ErrorCode.INVALID, VerifyItem(update("t", [], [1, 40]))),
    r"tree.tokens\[0\] = 41": (ErrorCode.INVALID, VerifyItem(update("t", [], [1]), TokenTree.chain([41]))),
    "session: good is in this task twice": (ErrorCode.INVALID, VerifyItem(update("good", [], [1]))),
    "reach position 101, must be at most 100": (
        ErrorCode.INVALID,
        VerifyItem(update("long", [1] * 60, [1] * 37), TokenTree.chain([1] * 4)),
    ),
    "has room for 52 of its 64": (ErrorCode.EXHAUSTED, VerifyItem(update("t", [], [1] * 53))),
    "0 of its 64|epoch: 0 is stale": (ErrorCode.INVALID, VerifyItem(update("long", [1] * 60, [1], epoch=0))),
    "not a path": (ErrorCode.INVALID, VerifyItem(replace(update("long", [1] * 60, [1]), commit=(0,)))),
    "t: not open here": (ErrorCode.SESSION_LOST, VerifyItem(update("t", [1], [1]))),
    "long: holds 60 tokens, not these 59": (ErrorCode.SESSION_LOST, VerifyItem(update("long", [1] * 59, [1]))),
    "long: holds 60 tokens, not these 60": (ErrorCode.SESSION_LOST, VerifyItem(update("long", [2] * 60, [1]))),
    "fork_of: nobody": (ErrorCode.SESSION_LOST, VerifyItem(update("t", [1], [1], fork_of="nobody"))),
}


@pytest.mark.parametrize("message", list(REFUSED))
def test_an_item_is_refused_by_name_and_its_neighbours_are_not_touched(message: str) -> None:
    engine = engine_of()
    run(engine, VerifyItem(update("long", [], [1] * 60), hidden=HiddenRows.NONE))
    code, item = REFUSED[message]
    good, after = VerifyItem(update("good", [], PROMPT[:8]), TREE), VerifyItem(update("after", [], PROMPT[:4]))
    first, refused, last = run(engine, good, item, after)
    assert isinstance(refused, UnitError)
    assert refused.code == code
    with pytest.raises(UnitError, match=message):
        raise refused
    assert [first, last] == run(engine_of(), good, after)


def test_refused_items_leave_the_tasks_room_as_it_is() -> None:
    engine = engine_of()
    twice = VerifyItem(update("a", [], [1] * 40))
    answers = run(engine, twice, twice, VerifyItem(update("b", [], [1] * 25)), VerifyItem(update("c", [], [1] * 24)))
    assert [a.code if isinstance(a, UnitError) else a.rows for a in answers] == [
        1, ErrorCode.INVALID, ErrorCode.EXHAUSTED, 1,
    ]  # fmt: skip


def test_a_full_kv_refuses_the_item_and_takes_nothing_from_the_others() -> None:
    engine = engine_of(kv_pages=2)
    opened(engine)
    large, small = VerifyItem(update("large", [], [1] * 33)), VerifyItem(update("small", [], [1]))
    refused, served = run(engine, large, small)
    assert isinstance(refused, UnitError)
    assert refused.code == ErrorCode.EXHAUSTED
    assert [served] == run(engine_of(), small)
    item = VerifyItem(update("s", PROMPT, [2], [0, 2], TREE))
    assert rows_of(run(engine, item)[0]).tobytes() == plain([*PROMPT, 7, 7, 2])[-1:].tobytes()
    engine.release(["large", "small", "s"])
    assert engine.transformer.pool.held_tokens == len(engine.sessions) == 0
    assert isinstance(run(engine, large)[0], HiddenStates)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_stopped_task_leaves_its_sessions_where_their_commit_left_them(looks: int) -> None:
    engine = engine_of(max_rows=99)
    opened(engine)
    asked = count()
    item = VerifyItem(update("s", PROMPT, [2] * 87, [0, 2], TREE))  # so many rows: a look every other layer
    with pytest.raises(Stopped):
        engine.run([item], lambda: next(asked) == looks)
    ids = [*PROMPT, 7, 7]
    assert rows_of(run(engine, VerifyItem(update("s", ids, [4])))[0]).tobytes() == plain([*ids, 4])[-1:].tobytes()


def test_a_higher_epoch_opens_the_session_anew() -> None:
    engine = engine_of()
    opened(engine)
    again = VerifyItem(update("s", [], [1, 2], epoch=2))
    assert run(engine, again) == run(engine_of(), again)
    assert len(engine.sessions) == 1


def test_a_fork_begins_with_its_parents_tokens() -> None:
    engine = engine_of()
    opened(engine)
    fork = VerifyItem(update("twin", PROMPT[:7], [8, 8], fork_of="s"), hidden=HiddenRows.ALL)
    on = VerifyItem(update("s", PROMPT, [2], [1], TREE))
    twin, parent = run(engine, fork, on)
    assert rows_of(twin).tobytes() == plain([*PROMPT[:7], 8, 8])[-2:].tobytes()
    assert rows_of(parent).tobytes() == plain([*PROMPT, 8, 2])[-1:].tobytes()


class TornPack(MemoryPack):
    """Reads fail from the `after`-th on."""

    after = 10**9

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        self.after -= 1
        if self.after < 0:
            raise WeightsUnavailableError("weight store: gone")
        super().read_into(offset, buffer, cut)


@pytest.mark.parametrize("after", [0, 1])
def test_weights_that_cannot_be_read_fail_the_task_and_not_the_sessions(after: int) -> None:
    pack = TornPack()
    engine = engine_of(pack, budget_bytes=pack.layout.segments["layers.0"].bytes)
    opened(engine)
    pack.after = after
    with pytest.raises(UnitError, match="WEIGHTS_UNAVAILABLE: weight store: gone"):
        run(engine, VerifyItem(update("s", PROMPT, [2], [0], TREE)))
    pack.after = 10**9
    ids = [*PROMPT, 7]
    assert rows_of(run(engine, VerifyItem(update("s", ids, [4])))[0]).tobytes() == plain([*ids, 4])[-1:].tobytes()


def test_weights_that_are_no_longer_valid_fail_the_task() -> None:
    def gone() -> None:
        raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, "changed")

    engine = VerifierEngine(engine_of().transformer, gone)
    with pytest.raises(UnitError, match="WEIGHTS_UNAVAILABLE: changed"):
        run(engine, VerifyItem(update("s", [], [1])))


@pytest.mark.parametrize(("budget", "bytes_"), [("0", 0), ("700", 700), ("1%", 10), ("25%", 250), ("100%", 1000)])
def test_a_budget_is_bytes_or_a_share(budget: str, bytes_: int) -> None:
    assert VerifierSettings(dram_budget=budget).budget_bytes(1000) == bytes_


@pytest.mark.parametrize("budget", ["0%", "101%", "250%", "007", "-1", "lots", ""])
def test_a_budget_that_makes_no_sense_is_refused(budget: str) -> None:
    with pytest.raises(ValidationError, match="dram_budget"):
        VerifierSettings(dram_budget=budget)


Load = Callable[..., UnitService[VerifyItem, HiddenStates]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("verifier") / "model", "smollm")


@pytest.fixture
async def unit(checkpoint: Path) -> AsyncIterator[Load]:
    """Makes verifiers of `checkpoint`, with settings by keyword."""
    async with weight_store(checkpoint.parent / "cache", target=checkpoint) as address:
        yield lambda **settings: service_of(address, **settings)


def service_of(address: str, **settings: Any) -> UnitService[VerifyItem, HiddenStates]:
    chosen = VerifierSettings(weight_store=address, **{"threads": 1, "weights_timeout_s": 30, **settings})
    return UnitService(VERIFY, lambda: load(chosen))


def reference_rows(checkpoint: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    """Hidden rows before the final norm, by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    seen: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(torch.tensor([list(ids)]))
    return np.asarray(seen[0][0].numpy())


@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3"])
async def test_rows_are_the_references_for_every_path_of_a_tree(family: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family)
    async with (
        weight_store(tmp_path / "cache", target=checkpoint) as address,
        serving(service_of(address, precision="float32", threads=2)) as channel,
    ):
        stream = await WorkStream(VERIFY, channel).open()
        ids = [(7 * i) % 300 for i in range(45)]
        result = await stream.task(VerifyItem(update("s", [], ids), TREE, HiddenRows.ALL))
        await stream.end()
    rows = np.frombuffer(result.items[0].hidden, "<f4").reshape(result.items[0].rows, -1)
    for leaf in (1, 3):
        path = TREE.path(leaf)
        wanted = reference_rows(checkpoint, [*ids, *(TREE.tokens[node] for node in path)])
        found = np.concatenate([rows[: len(ids)], rows[[len(ids) + node for node in path]]])
        np.testing.assert_allclose(found, wanted, atol=2e-4 * np.abs(wanted).max())


async def test_over_the_wire_a_session_lives_from_its_opening_to_its_release(unit: Load) -> None:
    async with serving(unit()) as channel:
        stub = verifier_pb2_grpc.VerifierStub(channel)
        stream = await WorkStream(VERIFY, channel).open()
        whole = await stream.task(VerifyItem(update("whole", [], [*PROMPT, 7, 2]), hidden=HiddenRows.ALL))
        assert (await stream.task(VerifyItem(update("s", [], PROMPT), TREE))).items[0].rows == 1 + len(TREE)
        result = await stream.task(VerifyItem(update("s", PROMPT, [2], [0], TREE)))
        size = len(whole.items[0].hidden) // 12
        assert result.items[0].hidden == whole.items[0].hidden[-size:]
        lost = await stream.task(VerifyItem(update("s", PROMPT, [3])))
        assert lost.items[0].error.code == common_pb2.SESSION_LOST
        description = await stub.Describe(common_pb2.DescribeRequest())
        assert (description.sessions, description.kv_held_tokens) == (1, PAGE)
        await stream.release("whole")
        late = await stream.task(VerifyItem(update("late", [], [1])), timeout_ns=1)
        assert late.error.code == common_pb2.DEADLINE_EXCEEDED
        description = await stub.Describe(common_pb2.DescribeRequest())
        assert (description.sessions, description.kv_held_tokens) == (0, 0)
        await stream.task(VerifyItem(update("s", [], PROMPT, epoch=2)))
        await stream.end()
        async with asyncio.timeout(10):
            while (await stub.Describe(common_pb2.DescribeRequest())).sessions:
                await asyncio.sleep(0.01)


async def test_streamed_layers_give_the_same_bits_and_are_counted(unit: Load, checkpoint: Path) -> None:
    item = VerifyItem(update("s", [], PROMPT), TREE, HiddenRows.ALL)
    answers, descriptions = [], []
    for budget in ("0", "50%", "1"):
        async with serving(unit(dram_budget=budget)) as channel:
            descriptions.append(await verifier_pb2_grpc.VerifierStub(channel).Describe(common_pb2.DescribeRequest()))
            stream = await WorkStream(VERIFY, channel).open()
            answers.append(await stream.task(item))
            await stream.end()
    assert len({a.items[0].hidden for a in answers}) == len({d.identity.digest for d in descriptions}) == 1
    assert [d.layers_resident for d in descriptions] == [2, 1, 0]
    assert [a.trace.weight_reads for a in answers] == [0, 1, 2]
    layer = answers[1].trace.weight_bytes_read
    assert [a.trace.weight_bytes_read for a in answers] == [0, layer, 2 * layer]
    assert [d.weights_resident_bytes for d in descriptions] == [2 * layer, 2 * layer, 2 * layer]


async def test_describe_tells_what_it_is_and_has(unit: Load, checkpoint: Path) -> None:
    async with serving(unit(max_rows=64, max_context=128, kv_tokens=200, precision="float32")) as channel:
        found = await verifier_pb2_grpc.VerifierStub(channel).Describe(common_pb2.DescribeRequest())
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    assert (found.layers, found.hidden_size, found.vocab_size) == (
        config.num_hidden_layers, config.hidden_size, config.vocab_size,
    )  # fmt: skip
    assert (found.max_rows, found.max_context, found.kv_capacity_tokens, found.kv_held_tokens) == (64, 128, 192, 0)
    assert (found.identity.unit, found.identity.precision, found.identity.threads) == ("verifier", "float32", 1)
    assert len(found.identity.digest) == 64
    assert found.credits > 0


async def test_the_smallest_settings_start(unit: Load) -> None:
    async with serving(unit(max_rows=64, max_context=16, kv_tokens=128, threads=2)) as channel:
        stream = await WorkStream(VERIFY, channel).open()
        assert (await stream.task(VerifyItem(update("s", [], [1] * 16)))).items[0].rows == 1
        await stream.end()


async def test_without_a_weight_store_the_start_fails_with_one_line() -> None:
    server = Server(service_of("127.0.0.1:1", weights_timeout_s=0.2), ServerSettings())
    with pytest.raises(StartError, match=r"^weight store 127\.0\.0\.1:1: [^\n]*$"):
        await server.start()
    await server.stop()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HETSPEC_PRECISION", "int4"),
        ("HETSPEC_THREADS", "0"),
        ("HETSPEC_PORT", "65536"),
        ("HETSPEC_WEIGHT_STORE", "nowhere"),
        ("HETSPEC_DRAM_BUDGET", "half"),
        ("HETSPEC_MAX_ROWS", "63"),
        ("HETSPEC_MAX_CONTEXT", "15"),
        ("HETSPEC_KV_TOKENS", "127"),
        ("HETSPEC_WEIGHTS_TIMEOUT_S", "0"),
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
    assert line.startswith(f"verifier: {variable} = '{value}': ")
