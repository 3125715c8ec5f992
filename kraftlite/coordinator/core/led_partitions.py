"""The partitions of a coordinator's topic that this broker leads, as the metadata says, and the way from a key to its
partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar
from uuid import UUID

from kraftlite.coordinator.core.placement import partition_for
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.core.shards import Shard
from kraftlite.metadata.image import TopicImage
from kraftlite.metadata.topics_delta import TopicDelta, TopicsDelta
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition

S = TypeVar("S", bound=Shard)
Begin = Callable[[TopicPartition, UUID, int], ShardDriver[S]]
"""Makes the driver of a partition of a topic id in a leader epoch."""


class LedPartitions(Generic[S]):
    """Elects and resigns with the deltas of the metadata (ML-21, ML-22). `what` names what the keys are, for refusals.

    Not `resizable`: keys stay where the number of partitions that this broker saw first puts them, and a partition that is
    elected while the topic has another number is not loaded (TX-64).
    """

    def __init__(self, topic: str, what: str, node_id: NodeId, begin: Begin[S], *, resizable: bool = True) -> None:
        self.topic_name = topic
        self._what = what
        self._node_id = node_id
        self._begin = begin
        self._resizable = resizable
        self._topic: TopicImage | None = None
        self._count = 0
        self._drivers: dict[int, ShardDriver[S]] = {}
        self.closed = False

    # --- metadata

    def apply(self, delta: TopicsDelta, topic: TopicImage | None) -> None:
        """Follow a change of topics, after the local replicas have followed it. `topic`: the coordinator's own as it is now."""
        if topic is not None and (self._resizable or self._topic is None or self._topic.topic_id != topic.topic_id):
            self._count = len(topic.partitions)
        self._topic = topic
        if self.closed:
            return
        for gone in delta.deleted.values():
            if gone.name == self.topic_name:
                self.resign(gone.partitions)
        for changed in delta.changed.values():
            if changed.name == self.topic_name:
                self._classify(changed)

    def _classify(self, changed: TopicDelta) -> None:
        """A change of the ISR alone is neither an election nor a resignation."""
        elected: list[tuple[int, int]] = []
        resigned = list(changed.removed_partitions)
        for index, now in sorted(changed.partition_changes.items()):
            before = changed.image.partitions.get(index)
            if now.leader != self._node_id:
                resigned.append(index)
            elif before is None or before.leader_epoch != now.leader_epoch:
                elected.append((index, now.leader_epoch))
        self.resign(resigned)
        self.elect(changed.topic_id, elected)

    def resign(self, partitions: Iterable[int]) -> None:
        """Let go of partitions that this broker does not lead (any more)."""
        for index in partitions:
            found = self._drivers.pop(index, None)
            if found is not None:
                found.close()

    def elect(self, topic_id: UUID, elected: Iterable[tuple[int, int]]) -> None:
        """(partition, leader epoch) that this broker leads now. One that it led before is read anew: others may have written."""
        for index, leader_epoch in elected:
            self.resign((index,))
            led = self._begin(TopicPartition(self.topic_name, index), topic_id, leader_epoch)
            self._drivers[index] = led
            now = self._count if self._topic is None else len(self._topic.partitions)
            if now == self._count:
                led.start()
            else:
                led.refuse(f"{self.topic_name} has {now} partitions now, and had {self._count} when this broker began")

    def close(self) -> None:
        """Everybody who waits gets NOT_COORDINATOR."""
        self.closed = True
        self.resign(sorted(self._drivers))

    # --- looking

    @property
    def topic(self) -> TopicImage | None:
        """The topic, if it exists yet."""
        return self._topic

    def check_open(self) -> None:
        """Raises ApiError(COORDINATOR_NOT_AVAILABLE) when the broker is stopping."""
        if self.closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")

    def partition_of(self, key: str) -> int:
        """The partition that a key belongs to. ApiError(COORDINATOR_NOT_AVAILABLE) while there is no topic."""
        if self._topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic_name} does not exist yet")
        return partition_for(key, self._count)

    def of(self, key: str) -> ShardDriver[S]:
        """The driver of a key's partition. ApiError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        self.check_open()
        found = self._drivers.get(self.partition_of(key))
        if found is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._what} {key} has its coordinator elsewhere")
        return found

    def drivers(self) -> list[ShardDriver[S]]:
        """The drivers of all partitions that this broker leads."""
        return list(self._drivers.values())

    def get(self, index: int) -> ShardDriver[S] | None:
        return self._drivers.get(index)

    def loaded(self) -> Iterator[S]:
        """The shards that are loaded, in the order of their partitions."""
        for index in sorted(self._drivers):
            driver = self._drivers.get(index)
            if driver is not None and driver.loaded:
                yield driver.shard

    def all_shards(self) -> Iterator[S]:
        """Every shard that this broker coordinates, in the order of the partitions, and one after the other: a partition may be
        led elsewhere when its turn comes. Raises ApiError(COORDINATOR_LOAD_IN_PROGRESS) at one that is loading: the list would
        lack some; passes over one whose load has failed, which nobody coordinates now."""
        self.check_open()
        for index in sorted(self._drivers):
            driver = self._drivers.get(index)
            if driver is None:
                continue
            if driver.loading:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{driver.tp} is being loaded")
            if driver.loaded:
                yield driver.shard

    def tell(self, event: Any) -> None:
        """Tell every shard; those that are loading hear it afterwards."""
        for index in sorted(self._drivers):
            self._drivers[index].tell(event)
