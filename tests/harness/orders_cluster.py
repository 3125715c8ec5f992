"""Three brokers with a replica each of one partition, under the eyes of given checkers, and what breaks it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.replica import ReplicaFetchPartition, ReplicaFetchRequest
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.replication.api import ProduceResult
from kraftlite.replication.partition import Partition
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.losses_keeper import LossesKeeper
from kraftlite.sim.checkers.replica_facts import replica_facts
from kraftlite.sim.service import PRODUCE, ProduceAsk
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.host import SimHost
from tests.harness.watched_cluster import WatchedCluster

TP = TopicPartition("orders", 0)
SHAPE = replace(NAMED["1+3"], topics=())


class Orders(WatchedCluster):
    """Node 1 is the controller, 2 to 4 are brokers with a replica of `orders-0` each, and of three records."""

    def __init__(self, *factories: CheckerFactory) -> None:
        super().__init__(*dict.fromkeys((MetadataWatch, LossesKeeper, *factories)), shape=SHAPE)
        self.world.notes["power_losses"] = {}
        self.sequence = 0

    def start(self) -> Orders:
        super().start()
        self.create_topic("orders", replication=3)
        self.until(lambda: len(self.views) == 3 and self.leader.node_id)
        for _ in range(3):
            self.produce()
        self.until(lambda: {(it.leo, it.hw) for it in self.views.values()} == {(3, 3)})
        return self

    # --- looking

    @property
    def key(self) -> TopicIdPartition:
        return next(iter(replica_facts(self.world).truths))

    @property
    def views(self) -> dict[NodeId, Any]:
        facts = replica_facts(self.world)
        return facts.views.get(self.key, {}) if facts.truths else {}

    @property
    def leader(self) -> SimHost:
        _, node_id = max((it.leader_epoch, it.node_id) for it in self.views.values() if it.leader is not None)
        return self.node(node_id)

    @property
    def follower(self) -> SimHost:
        return self.node(min(it for it in self.views if it != self.leader.node_id))

    def partition(self, node: SimHost) -> Partition:
        assert node.node is not None and node.node.broker is not None
        found = node.node.broker.replicas.partition(TP)
        assert found is not None
        return found

    def log(self, node: SimHost) -> Log:
        return self.partition(node).online_log()

    @property
    def isr(self) -> tuple[NodeId, ...]:
        registration = replica_facts(self.world).registration(self.key)
        assert registration is not None
        return registration.isr

    # --- doing

    def batch(self, value: str = "v", sequence: int | None = None, producer_id: int = 7) -> bytes:
        return bytes(
            build_batch(
                [Record(key=None, value=value.encode())],
                timestamp_ms=self.cluster.wall_ms(),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self.sequence if sequence is None else sequence,
            )
        )

    def produce(self, acks: int = -1, batch: bytes | None = None) -> ProduceResult:
        if batch is None:
            batch = self.batch()
            self.sequence += 1
        ask = ProduceAsk(TP, acks, 1_000, batch)
        result = self.do(self.client.call(Endpoint(f"n{self.leader.node_id}", 9092), PRODUCE, ask, 3_000))
        assert isinstance(result, ProduceResult) and (result.error is ErrorCode.NONE or acks != -1)
        return result

    def only_leader_writes(self) -> None:
        """A record that the leader alone has."""
        for node in self.cluster.brokers:
            if node is not self.leader:
                self.cluster.network.cut(node.node_id, self.leader.node_id)
        self.produce(acks=1)

    def kill_leader(self) -> None:
        old = self.leader.node_id
        self.kill(old)
        self.until(lambda: any(it.leader is not None for it in self.views.values()), "another leader")

    def power_cut(self, node: SimHost, lost: list[str]) -> None:
        """The machine dies; what is said to be lost is not, for whoever wants it to be must take it away."""
        node.kill()
        self.world.notes["power_losses"][node.node_id] = lost
        self._tell(lambda it: it.on_death(node, "power"))

    def ask_fetch(self, epoch: int) -> ReplicaFetchRequest:
        asked = ReplicaFetchPartition(
            topic_id=self.key.topic_id,
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=3,
            last_fetched_epoch=0,
            log_start_offset=0,
        )
        return ReplicaFetchRequest(
            replica_id=self.follower.node_id,
            replica_epoch=1,
            cluster_id="",
            session_id=0,
            session_epoch=0,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1,
            partition_max_bytes=1,
            partitions=(asked,),
            forgotten=(),
        )


@contextlib.contextmanager
def orders() -> Iterator[Callable[..., Orders]]:
    made: list[Orders] = []

    def start(*factories: CheckerFactory) -> Orders:
        made.append(Orders(*factories))
        return made[-1].start()

    try:
        yield start
    finally:
        for cluster in made:
            cluster.close()
