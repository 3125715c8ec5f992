"""The operator of last resort: when the faults are over it asks for the elections that nobody makes unasked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.model.messages.controller import ElectionType, ElectLeadersRequest, PartitionName
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimAdmin

if TYPE_CHECKING:
    from kraftlite.metadata.image import MetadataImage
    from kraftlite.sim.cluster import SimCluster
    from kraftlite.sim.history import History

NUMBER: Final = 97
TIMEOUT_MS: Final = 4_000
PATIENCE_US: Final = 2_000_000
"""The time between two requests, in which the first may have had its effect."""


class Rescue:
    """Asks for an unclean election of each partition with an empty ISR that nobody leads when eligible leader replicas are off.

    The feature was turned off while a partition had no more than a last known leader. That one may lead by the feature only
    (EL-08), so the partition stands still, as in Kafka, until somebody gives up what it may have lost (CM-38).
    """

    def __init__(self, cluster: SimCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._admin: SimAdmin | None = None
        self._next_us = 0
        self._asking: set[asyncio.Task[object]] = set()

    def look(self) -> None:
        now_us = self._cluster.loop.now_us()
        if now_us < self._next_us:
            return
        stranded = next((stranded_in(it.node.loader.image) for it in self._cluster.brokers if it.node is not None), ())
        if not stranded:
            return
        self._next_us = now_us + PATIENCE_US
        if self._admin is None:
            self._admin = SimAdmin(self._cluster, NUMBER, "rescue", self._history)
        partitions = tuple(PartitionName(topic=tp.topic, partition=tp.partition) for tp in stranded)
        request = ElectLeadersRequest(election_type=int(ElectionType.UNCLEAN), partitions=partitions, timeout_ms=TIMEOUT_MS)
        asking = asyncio.get_running_loop().create_task(
            self._admin.do("elect_leaders", request, {"unclean": frozenset(stranded)}), context=self._cluster.outside
        )
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)


def stranded_in(image: MetadataImage) -> tuple[TopicPartition, ...]:
    """Return the partitions that have nobody in the ISR and nobody eligible, while the feature that would elect is off."""
    if image.features.level(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return ()
    return tuple(
        TopicPartition(topic.name, index)
        for topic in image.topics.by_name.values()
        for index, it in topic.partitions.items()
        if it.leader is None and not it.isr and not it.elr
    )
