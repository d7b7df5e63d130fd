"""A drafter in this process, where an orchestrator's engine expects one behind a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry

from drafter.engine import MAX_DEPTH, MAX_NODES, DrafterEngine
from hetspec.hardware.platform import Role
from hetspec.rpc.messages import Draft, DraftItem, UnitError
from hetspec.v1 import drafter_pb2
from laboratory.known_draft import DraftShape
from orchestrator.clock.world import World
from orchestrator.policies.batching import PassLimits
from orchestrator.units.batcher import Batcher, Served
from orchestrator.units.known_queue import KnownQueue
from orchestrator.units.link import Link
from orchestrator.units.metrics import LinkMetrics, UnitsMetrics
from orchestrator.units.prefix_source import Ids
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet
from orchestrator.units.settings import PrefixSettings
from orchestrator.units.work import work_of

DraftReplica = Replica[DraftItem, Draft]


def drafters_of(engine: DrafterEngine, shape: DraftShape, world: World) -> ReplicaSet[DraftItem, Draft]:
    """One replica, that is always there."""
    return cast("ReplicaSet[DraftItem, Draft]", _OneReplica(engine, shape, world))


class _OneReplica:
    def __init__(self, engine: DrafterEngine, shape: DraftShape, world: World) -> None:
        link, queue = _LocalLink(engine, shape), KnownQueue(world, Role.DRAFTER)

        def batcher(_: Link[Any, Any], limits: PassLimits, metrics: LinkMetrics) -> Batcher[Any, Any]:
            return _LocalBatcher(link, limits, metrics, queue)

        self._replica: DraftReplica = Replica(
            "here",
            cast("Link[DraftItem, Draft]", link),
            lambda description: PassLimits(max_rows=description.max_context, max_prompt_rows=description.max_context),
            PrefixSettings(tokens="0"),
            UnitsMetrics(CollectorRegistry()).of("drafter"),
            batcher,
        )

    @property
    def replicas(self) -> tuple[DraftReplica, ...]:
        return (self._replica,)

    def try_pick(self, digest: str | None = None, avoid: object = None, ids: Ids | None = None) -> DraftReplica:
        return self._replica


class _LocalLink:
    """As Link, where nothing is ever lost."""

    alive = True
    draining = False
    distrusted = False

    def __init__(self, engine: DrafterEngine, shape: DraftShape) -> None:
        self.engine = engine
        self.description = drafter_pb2.DrafterDescription(
            sources=engine.sources,
            max_nodes=MAX_NODES,
            max_depth=MAX_DEPTH,
            max_context=shape.max_context,
            reads_features=shape.reads_features,
        )

    def release(self, sessions: Sequence[str]) -> None:
        self.engine.release(sessions)


class _LocalBatcher(Batcher[DraftItem, Draft]):
    """Drafts at once, which takes its time in the world."""

    def __init__(self, link: _LocalLink, limits: PassLimits, metrics: LinkMetrics, queue: KnownQueue) -> None:
        super().__init__(cast("Link[DraftItem, Draft]", link), limits, metrics)
        self._engine = link.engine
        self._queue = queue

    async def submit(self, item: DraftItem, rows: int, is_prompt: bool = False, alone: bool = False) -> Served[Draft]:
        outcome = self._engine.run([item], lambda: False)
        draft = outcome.items[0]
        if isinstance(draft, UnitError):
            raise draft
        await self._queue.perform(work_of(Role.DRAFTER, [item], outcome.trace), rows)
        return Served(draft, 0, 0, 0)
