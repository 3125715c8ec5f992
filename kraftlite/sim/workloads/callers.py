"""Two clients of the theme `admin`, each with a random stream of its own and in a third of the seeds.

One pushes metrics of its own, as a subscription asks it to and otherwise (KIP-714); somebody changes the subscriptions meanwhile.
The other asks controllers directly (KIP-919): which there are, what is being moved, and whether configs might be changed so.
`checkers/callers.py` judges what both are told.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kraftlite.broker.telemetry import Push
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    PartitionName,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.services.at_controller import CONFIGS_HERE, CONTROLLERS_HERE, MOVES_HERE, ControllersAsk
from kraftlite.sim.services.telemetry import MAX_BYTES, PUSH, SUBSCRIBE, UNREADABLE, PushAsk, SubscribeAsk, SubscribeTold

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

PUSHER: Final = 380
CALLER: Final = 381
ONE_SEED_IN: Final = 3
TIMEOUT_MS: Final = 4_000
MEAN_GAP_US: Final = 300_000
NOBODY: Final = UUID(int=0)
SUBSCRIPTION: Final = "pushed"
LISTENERS: Final = ("CONTROLLER", "CONTROLLER", "PLAINTEXT")
UNKNOWN_KIND: Final = 99


def comes_with(seed: int, who: str) -> bool:
    return random.Random(f"{who}/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed, "pusher"):
        pusher = Pusher(cluster, PUSHER, "pusher", history)
        yield pusher, pusher.run()
    both = [node.node_id for node in cluster.brokers if node in cluster.controllers]
    if both and comes_with(cluster.seed, "caller"):
        caller = Caller(cluster, CALLER, "caller", history)
        yield caller, caller.run(both, sorted({it.topic for it in partitions}))


class Pusher(SimClient):
    """A client with an instance id that a broker gave it. It stays at one broker for a while: each counts for itself."""

    async def run(self) -> None:
        rng, known = self.rng, SubscribeTold(ErrorCode.NONE)
        brokers = [node.node_id for node in self.cluster.brokers]
        broker = brokers[0]
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            what = rng.randrange(10)
            if what == 0:
                broker = rng.choice(brokers)
            try:
                if what < 2:
                    await self._subscribe_to_something(rng.choice(brokers))
                elif what < 5 or known.instance_id == NOBODY:
                    told = await self.call(broker, SUBSCRIBE, SubscribeAsk(known.instance_id, self.name), TIMEOUT_MS)
                    known = told if told.error is ErrorCode.NONE else known
                else:
                    await self.call(broker, PUSH, PushAsk(self._push(known), self.name), TIMEOUT_MS)
            except (TransportError, ApiError):
                continue

    def _push(self, known: SubscribeTold) -> Push:
        rng = self.rng
        return Push(
            instance_id=NOBODY if rng.randrange(12) == 0 else known.instance_id,
            subscription_id=known.subscription_id ^ (rng.randrange(10) == 0),
            terminating=rng.randrange(8) == 0,
            codec=9 if rng.randrange(12) == 0 else 0,
            payload=rng.choice((b"", b"metrics", b"metrics", UNREADABLE, bytes(MAX_BYTES + 1))),
        )

    async def _subscribe_to_something(self, broker: NodeId) -> None:
        rng = self.rng
        changes = [ConfigChange(name="interval.ms", op=int(AlterConfigOp.SET), value=rng.choice(("100", "300", "2000")))]
        if rng.randrange(2):
            metrics = rng.choice(("*", "org.apache.kafka.", "a,b"))
            changes.append(ConfigChange(name="metrics", op=int(AlterConfigOp.SET), value=metrics))
        if rng.randrange(3) == 0:
            match = rng.choice((f"client_id={self.name}", "client_id=other.*"))
            changes.append(ConfigChange(name="match", op=int(AlterConfigOp.SET), value=match))
        kind = int(ConfigResourceType.CLIENT_METRICS)
        resource = ConfigResourceChange(resource_type=kind, resource_name=SUBSCRIPTION, changes=tuple(changes))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self.call(broker, ADMIN, AdminAsk("alter_configs", request), TIMEOUT_MS)


class Caller(SimClient):
    """A client that comes to controllers, active or not, and changes nothing."""

    async def run(self, nodes: Sequence[NodeId], topics: Sequence[str]) -> None:
        rng = self.rng
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            node, what = rng.choice(nodes), rng.randrange(4)
            with contextlib.suppress(TransportError, ApiError):
                if what == 0:
                    await self.call(node, CONTROLLERS_HERE, ControllersAsk(rng.choice(LISTENERS)), TIMEOUT_MS)
                elif what == 1:
                    some = tuple(PartitionName(topic=it, partition=0) for it in topics)
                    asked = ListPartitionReassignmentsRequest(partitions=rng.choice((None, some)), timeout_ms=TIMEOUT_MS)
                    await self.call(node, MOVES_HERE, asked, TIMEOUT_MS)
                else:
                    await self.call(node, CONFIGS_HERE, self._configs(nodes, topics), TIMEOUT_MS)

    def _configs(self, nodes: Sequence[NodeId], topics: Sequence[str]) -> IncrementalAlterConfigsRequest:
        rng = self.rng
        broker = str(rng.choice(nodes))
        drawn = [rng.choice(self._one(broker, rng.choice(topics))) for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.randrange(4) == 0:
            drawn.append(drawn[0])
        return IncrementalAlterConfigsRequest(resources=tuple(drawn), validate_only=True, timeout_ms=TIMEOUT_MS)

    def _one(self, broker: str, topic: str) -> Sequence[ConfigResourceChange]:
        kinds = ConfigResourceType
        return [
            change(int(kinds.TOPIC), topic, "retention.ms", "100000"),
            change(int(kinds.BROKER), broker, "log.cleaner.threads", "2"),
            change(int(kinds.BROKER), "", "min.insync.replicas", "1"),
            change(int(kinds.BROKER), broker, "cordoned.log.dirs", "/data"),
            change(int(kinds.BROKER), broker, "listeners", "PLAINTEXT://elsewhere:1"),
            change(int(kinds.BROKER_LOGGER), self.rng.choice((broker, "77")), "root", "DEBUG"),
            change(UNKNOWN_KIND, "x", "retention.ms", "1"),
        ]


def change(kind: int, name: str, key: str, value: str) -> ConfigResourceChange:
    change = ConfigChange(name=key, op=int(AlterConfigOp.SET), value=value)
    return ConfigResourceChange(resource_type=kind, resource_name=name, changes=(change,))
