"""A simulated administrator who cordons log directories and lets them be used again (KIP-1066).

It comes with a third of the seeds of its theme. Others make topics meanwhile, and move replicas between brokers and directories.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.errors import ApiError
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    TopicSelector,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimAdmin, SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.services.directories import ALTER_DIR, AlterDirAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.creation import TIMEOUT_MS, create

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 234
TOPIC: Final = "placed"


def comes_with(seed: int) -> bool:
    return random.Random(f"directories/cordons/{seed}").randrange(3) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = CordonAdmin(cluster, NUMBER, "cordons", history)
        yield it, it.run(partitions)


class CordonAdmin(SimAdmin):
    """Cordons some directories of a broker, all of them, or none; makes a topic, and moves a replica, rightly and wrongly."""

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        rng, brokers = self.rng, self.cluster.brokers
        plan = TopicPlan(name=TOPIC, partitions=3, replication=max(1, len(brokers) - 1), config={})
        while not self.stopping:
            await self.pause(rng.choice((1, 100_000, 600_000)))
            broker = rng.choice(brokers)
            paths = broker.config.log_dirs
            named = rng.choice(("", "*", ",".join(rng.sample(paths, rng.randint(1, len(paths)))), rng.choice(paths)))
            await self._cordon(str(broker.node_id), named)
            await self.do("create_topics", create(plan), {"topic": plan.name, "partitions": plan.partitions})
            tp = rng.choice([*partitions, TopicPartition(TOPIC, 0)])
            with contextlib.suppress(TransportError, ApiError):
                await self.call(broker.node_id, ALTER_DIR, AlterDirAsk(tp, rng.choice(paths)))
            await self.pause(rng.choice((1, 50_000, 400_000)))
            gone = DeleteTopicsRequest(topics=(TopicSelector(name=plan.name, topic_id=None),), timeout_ms=TIMEOUT_MS)
            await self.do("delete_topics", gone, {"topic": plan.name})

    async def _cordon(self, name: str, paths: str) -> None:
        op, value = (AlterConfigOp.SET, paths) if paths else (AlterConfigOp.DELETE, None)
        change = ConfigChange(name=CORDONED_DIRS, op=int(op), value=value)
        resource = ConfigResourceChange(resource_type=int(ConfigResourceType.BROKER), resource_name=name, changes=(change,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        itself = next(it.node_id for it in self.cluster.brokers if str(it.node_id) == name)
        with contextlib.suppress(TransportError, ApiError):
            await self.call(itself, ADMIN, AdminAsk("alter_configs", request))
