"""The partitions of this broker, by name and by topic id, and the metadata image that they were told from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import LOST_DIR, Endpoint, NodeId, is_reserved_uuid
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import LeaderHint
from kraftlite.replication.partition import Partition
from kraftlite.replication.traffic import Traffic


class PartitionTable:
    """All maps always hold the same partitions. Raises ApiError for what is not here, saying why."""

    def __init__(self, broker_id: NodeId, inter_broker_listener_name: str) -> None:
        self.by_tp: dict[TopicPartition, Partition] = {}
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.on_added: Callable[[Partition], None] = lambda partition: None
        """Told of each new partition, before it has a role."""
        self.removed = Traffic()
        """The traffic of replicas that are not here any more."""
        self.image = MetadataImage.EMPTY
        self._broker_id = broker_id
        self._listener = inter_broker_listener_name

    def add(self, partition: Partition) -> None:
        self.by_tp[partition.tp] = partition
        self.by_id[partition.topic_id, partition.tp.partition] = partition
        self._by_topic.setdefault(partition.tp.topic, {})[partition.tp.partition] = partition
        self.on_added(partition)

    def remove(self, partition: Partition) -> None:
        if self.by_tp.get(partition.tp) is partition:
            del self.by_tp[partition.tp]
            self.removed.add(partition.traffic)
            topic = self._by_topic[partition.tp.topic]
            del topic[partition.tp.partition]
            if not topic:
                del self._by_topic[partition.tp.topic]
        self.by_id.pop((partition.topic_id, partition.tp.partition), None)

    def of_topic(self, name: str) -> list[Partition]:
        """List the replicas of a topic."""
        return list(self._by_topic.get(name, {}).values())

    def find(self, tp: TopicPartition, topic_id: UUID | None) -> Partition:
        """Find a replica. NOT_LEADER_OR_FOLLOWER when another broker has it, UNKNOWN_TOPIC_OR_PARTITION when nobody has."""
        partition = self.by_tp.get(tp)
        if partition is None:
            topic = self.image.topics.topic(tp.topic)
            if topic is None or tp.partition not in topic.partitions:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} does not exist")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no replica here")
        if topic_id is not None and topic_id != partition.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{tp} has topic id {partition.topic_id}, not {topic_id}")
        return partition

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Find a partition by topic id, as `find` does by name: UNKNOWN_TOPIC_ID when no topic has it (RP-38)."""
        partition = self.by_id.get((topic_id, index))
        if partition is None:
            topic = self.image.topics.topic_by_id(topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic_id}")
            if index not in topic.partitions:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{index} does not exist")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{index} has no replica here")
        return partition

    def is_coming(self, topic_id: UUID, index: int) -> bool:
        """Return whether the image gives this broker a replica that is not here yet: a change of many is applied in steps."""
        topic = self.image.topics.topic_by_id(topic_id) if (topic_id, index) not in self.by_id else None
        registration = None if topic is None else topic.partitions.get(index)
        return registration is not None and self._broker_id in registration.replicas

    def hint(self, tp: TopicPartition) -> LeaderHint | None:
        """Name the leader: our own word if we have a replica, else the image's."""
        partition = self.by_tp.get(tp)
        if partition is not None:
            return partition.hint()
        registration = self.image.topics.registration(tp)
        if registration is None:
            return None
        return LeaderHint(leader_id=registration.leader, leader_epoch=registration.leader_epoch)

    # --- the cluster --------------------------------------------------------------------------------------------------

    def eligible(self, broker_id: NodeId, replica_epoch: int | None) -> bool:
        """May be in an ISR: registered under the epoch of its last fetch, unfenced, not shutting down (RP-21)."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.active and broker.broker_epoch == replica_epoch

    def directory_online(self, broker_id: NodeId, replicas: Sequence[NodeId], directories: Sequence[UUID]) -> bool:
        """Return whether the log directory of a replica is online, as far as its broker's registration says (JB-01).
        `directories`: those of `replicas`, in their order; none, or too few, where they are not known."""
        if len(directories) != len(replicas) or broker_id not in replicas:
            return True
        directory, broker = directories[replicas.index(broker_id)], self.image.cluster.brokers.get(broker_id)
        if is_reserved_uuid(directory) or broker is None or not broker.log_dirs:
            return directory != LOST_DIR
        return directory in broker.log_dirs

    def is_stale(self, broker_id: NodeId, replica_epoch: int) -> bool:
        """Return whether a newer incarnation of this broker is registered: what the old one says no longer counts (RP-34)."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.broker_epoch > replica_epoch

    def alive(self, broker_id: NodeId) -> bool:
        """Return whether a broker is registered and not fenced."""
        return self.image.cluster.is_alive(broker_id)

    def endpoint(self, broker_id: NodeId) -> Endpoint | None:
        """Return the address at which the broker's replicas are fetched; None while it is not registered. A fenced broker may
        still lead."""
        return self.image.cluster.endpoint(broker_id, self._listener)
