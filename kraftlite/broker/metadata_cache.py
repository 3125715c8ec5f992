"""The broker's answers about the cluster: reads on the current metadata image.

Source: Kafka's KRaftMetadataCache; ML-01, ML-24, CP-08 to CP-12.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.metadata.image import MetadataImage, TopicImage
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """A broker as seen from one listener."""

    broker_id: NodeId
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition as a client sees it. `leader` None: none that this listener could name."""

    error: ErrorCode
    partition: int
    leader: NodeId | None
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    error: ErrorCode
    name: str | None
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


class _Listener:
    """The brokers of one image as one listener shows them; made on first use per image."""

    __slots__ = ("alive", "alive_by_id", "all")

    def __init__(self, brokers: Mapping[NodeId, BrokerRegistration], name: str) -> None:
        found: list[BrokerEndpoint] = []
        for broker_id in sorted(brokers):
            registration = brokers[broker_id]
            listener = registration.listener(name)
            if listener is not None:
                found.append(
                    BrokerEndpoint(
                        broker_id=broker_id,
                        host=listener.host,
                        port=listener.port,
                        rack=registration.rack,
                        fenced=registration.fenced,
                    )
                )
        self.all = tuple(found)
        self.alive = tuple(broker for broker in found if not broker.fenced)
        self.alive_by_id = {broker.broker_id: broker for broker in self.alive}


class MetadataCache:
    """The broker's view of the cluster, as of the latest published image.

    `set_image` replaces it by one assignment: a reader that takes `image` once never sees a mix (ML-01). Lists come in a
    deterministic order: brokers by id, topics by name, partitions by index. Fenced brokers neither lead nor are listed (ML-24).
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._image = MetadataImage.EMPTY
        self._listeners: dict[str, _Listener] = {}

    @property
    def image(self) -> MetadataImage:
        return self._image

    def set_image(self, image: MetadataImage) -> None:
        if image.cluster is not self._image.cluster:
            self._listeners = {}
        self._image = image

    # --- brokers -------------------------------------------------------------------------------------------------------

    def _listener(self, name: str) -> _Listener:
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = _Listener(self._image.cluster.brokers, name)
        return found

    def alive_brokers(self, listener: str) -> tuple[BrokerEndpoint, ...]:
        """List the unfenced brokers that have the listener, by id (CP-08)."""
        return self._listener(listener).alive

    def all_brokers(self, listener: str) -> tuple[BrokerEndpoint, ...]:
        """List all brokers, fenced ones too (DescribeCluster v2)."""
        return self._listener(listener).all

    def alive_broker(self, broker_id: NodeId, listener: str) -> BrokerEndpoint | None:
        return self._listener(listener).alive_by_id.get(broker_id)

    def random_alive_broker(self, entropy: random.Random) -> NodeId | None:
        """Choose any live broker, which is what Kafka's brokers answer when asked for the controller: any of them forwards to
        it (CP-08)."""
        brokers = self._image.cluster.brokers
        alive = [broker_id for broker_id in sorted(brokers) if not brokers[broker_id].fenced]
        return entropy.choice(alive) if alive else None

    # --- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicImage | None:
        return self._image.topics.topic(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self._image.topics.topic_by_id(topic_id)

    def topic_names(self) -> Sequence[str]:
        return [topic.name for topic in self._image.topics]

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        found = self._image.topics.topic(topic)
        return None if found is None else found.partitions.get(index)

    def topic_metadata(
        self, topic: TopicImage, listener: str, *, listener_errors: bool, filter_unavailable: bool = False
    ) -> TopicMetadata:
        """`listener_errors`: a leader without the listener is LISTENER_NOT_FOUND (Metadata v6+) instead of LEADER_NOT_AVAILABLE.
        `filter_unavailable`: leave replicas out that the listener cannot reach, and say REPLICA_NOT_AVAILABLE (Metadata v0)."""
        partitions = tuple(
            self.partition_metadata(
                index,
                topic.partitions[index],
                listener,
                listener_errors=listener_errors,
                filter_unavailable=filter_unavailable,
            )
            for index in sorted(topic.partitions)
        )
        return TopicMetadata(
            error=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
        )

    def partition_metadata(
        self,
        index: int,
        registration: PartitionRegistration,
        listener: str,
        *,
        listener_errors: bool,
        filter_unavailable: bool = False,
    ) -> PartitionMetadata:
        alive = self._listener(listener).alive_by_id
        replicas, isr = registration.replicas, registration.isr
        offline = tuple(replica for replica in replicas if replica not in alive)
        error = ErrorCode.NONE
        if filter_unavailable and (offline or any(member not in alive for member in isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas = tuple(replica for replica in replicas if replica in alive)
            isr = tuple(member for member in isr if member in alive)
        leader = registration.leader
        if leader is None or leader not in alive:
            error = self._no_leader(leader, listener_errors)
            leader = None
        return PartitionMetadata(
            error=error,
            partition=index,
            leader=leader,
            leader_epoch=registration.leader_epoch,
            replicas=replicas,
            isr=isr,
            offline_replicas=offline,
            elr=registration.elr,
            last_known_elr=registration.last_known_elr,
        )

    def _no_leader(self, leader: NodeId | None, listener_errors: bool) -> ErrorCode:
        """CP-10: a live leader that merely lacks the listener is told apart where the client understands it."""
        broker = None if leader is None else self._image.cluster.brokers.get(leader)
        if broker is None or broker.fenced or not listener_errors:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LISTENER_NOT_FOUND
