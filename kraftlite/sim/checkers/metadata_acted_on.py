"""Invariant 16, of what a broker does with its metadata: when it has applied an image, all of it acts by that (ML-21, ML-22)."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlite.broker.server import BrokerServer
from kraftlite.coordinator.core.led_partitions import LedPartitions
from kraftlite.metadata.features import supports_directories
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REGISTER_BROKER
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.simhost.host import SimHost


class MetadataActedOn(MetadataChecker):
    """Looked at when the broker's publisher has nothing left to apply, however many updates it has made one of: each replica that
    the image places on it is here, in the image's partition epoch at least; its coordinators coordinate the partitions that the
    image has it lead, each in the image's leader epoch, and no others, and know the image's topics; and where the image has
    begun to know directories and its registration has none (ML-25), it registers again."""

    numbers: ClassVar[tuple[int, ...]] = (16,)
    only_methods = (REGISTER_BROKER,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._new: dict[NodeId, MetadataImage] = {}
        """The images that brokers are applying."""
        self._lacking: set[NodeId] = set()
        """Brokers that know that they are registered without directories."""
        self._unsaid: set[NodeId] = set()
        """Those of them that have not registered since."""
        self.judged = 0

    def on_boot(self, node: SimHost) -> None:
        for known in (self._lacking, self._unsaid):
            known.discard(node.node_id)
        self._new.pop(node.node_id, None)

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        node_id = view.node_id
        self._new[node_id] = image
        if not _lacks_directories(image, node_id):
            self._lacking.discard(node_id)
            self._unsaid.discard(node_id)
        elif node_id not in self._lacking:
            self._lacking.add(node_id)
            self._unsaid.add(node_id)

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is REGISTER_BROKER:
            self._unsaid.discard(source)

    def on_step(self, node: SimHost) -> None:
        image = self._new.get(node.node_id)
        if image is None:
            return
        broker = None if node.node is None else node.node.broker
        if broker is None or node.node is None or node.node._stopping:
            del self._new[node.node_id]
        elif broker.publisher._ready and broker.publisher._task is None and broker.cache.image is image:
            del self._new[node.node_id]
            self.judged += 1
            self._check(f"node {node.node_id} has applied the metadata up to offset {image.offset}", node.node_id, broker, image)

    def _check(self, what: str, node_id: NodeId, broker: BrokerServer, image: MetadataImage) -> None:
        for topic in image.topics:
            for index, registration in topic.partitions.items():
                if node_id not in registration.replicas:
                    continue
                partition = broker.replicas.partition(TopicPartition(topic.name, index))
                if partition is None or partition.topic_id != topic.topic_id:
                    self.fail(f"{what}, and has no replica {topic.name}-{index}")
                elif partition.log is not None and partition.partition_epoch < registration.partition_epoch:
                    known = partition.partition_epoch
                    self.fail(f"{what}, and {partition.tp} is in partition epoch {known}, not {registration.partition_epoch}")
        for led in (broker.groups.led, broker.transactions.led):
            self._check_led(what, node_id, led, image)
        if broker.groups._image.topics is not image.topics:
            self.fail(f"{what}, and its groups go by the topics of offset {broker.groups._image.offset}")
        if node_id in self._unsaid and broker.lifecycle._core._registered:
            self.fail(f"{what}, in which it is registered without directories, and does not register again")

    def _check_led(self, what: str, node_id: NodeId, led: LedPartitions[Any], image: MetadataImage) -> None:
        if led.closed:
            return
        topic = image.topics.topic(led.topic_name)
        leads = set()
        if topic is not None:
            leads = {(index, topic.topic_id, it.leader_epoch) for index, it in topic.partitions.items() if it.leader == node_id}
        found = {(it.tp.partition, it.topic_id, it.leader_epoch) for it in led.drivers()}
        if found != leads or (led.topic is None) != (topic is None):
            self.fail(
                f"{what}, and coordinates (partition, topic id, leader epoch) {sorted(found)} of {led.topic_name}; it leads "
                f"{sorted(leads)}"
            )


def _lacks_directories(image: MetadataImage, node_id: NodeId) -> bool:
    own, level = image.cluster.brokers.get(node_id), image.features.metadata_version
    return own is not None and not own.log_dirs and level is not None and supports_directories(level)
