"""An acceptance head on its way: from its folder through the weight store to a drafter, and who does without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drafter.engine import DrafterEngine
from hetspec.decoding.history import History
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.model.checkpoint import CheckpointError
from hetspec.model.weights import read_acceptance
from hetspec.rpc.messages import DraftItem, DraftPolicy, ErrorCode, SessionUpdate, UnitError
from hetspec.rpc.server import Server, ServerSettings
from tests.acceptance_artefact import make_acceptance
from tests.models import make_checkpoint
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

LOOKUP = 1


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("acceptance")
    target = make_checkpoint(folder / "target", "smollm")
    draft = make_checkpoint(folder / "draft", "smollm", seed=1)
    head = make_acceptance(folder / "head", target, draft, folder / "cache")
    return {"target": target, "draft": draft, "head": head, "cache": folder / "cache"}


async def read_from(store: Store) -> object:
    server = Server(WeightStoreService(store), ServerSettings(grace_s=2))
    await server.start()
    try:
        return await asyncio.to_thread(read_acceptance, f"127.0.0.1:{server.port}", 10.0)
    finally:
        await server.stop()


async def test_what_a_drafter_reads_is_what_the_folder_holds(places: dict[str, Path]) -> None:
    store = Store({role: places[role] for role in ("target", "draft")}, places["cache"], acceptance=places["head"])
    found = await read_from(store)
    assert store.acceptance is not None
    assert found.config == store.acceptance.config
    for name, values in store.acceptance.weights.items():
        assert found.weights[name].tobytes() == values.tobytes()


async def test_store_without_a_head_says_that_it_has_none(places: dict[str, Path]) -> None:
    assert await read_from(Store({"target": places["target"]}, places["cache"])) is None


@pytest.mark.parametrize(
    ("roles", "problem"),
    [({"draft": "target"}, "made for .* the draft has"), ({}, "is for a draft, and none is served")],
)
def test_head_that_fits_no_draft_here_is_refused(roles: dict[str, str], problem: str, places: dict[str, Path]) -> None:
    paths = {"target": places["target"], **{role: places[name] for role, name in roles.items()}}
    with pytest.raises(CheckpointError, match=problem):
        Store(paths, places["cache"], acceptance=places["head"]).open()


def test_drafter_without_a_head_refuses_to_judge_by_it() -> None:
    update = SessionUpdate("s", 1, 0, History().hash, append=(1, 2))
    policy = DraftPolicy(4, 4, 1, (LOOKUP,), stop=StopRule(StopKind.REJECTION, 0.3))
    (refused,) = DrafterEngine(64, None).run([DraftItem(update, policy, Sampling(0), NoiseKey(0))], lambda: False).items
    assert isinstance(refused, UnitError)
    assert refused.code is ErrorCode.INVALID
    assert refused.message == "policy.stop.kind = 3: there is no acceptance head"
