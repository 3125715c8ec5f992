"""What each new metadata image makes this broker do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.log.config import LogConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.features import supports_directories
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.topics_delta import TopicsDelta
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.broker import FirstPublishDone


class AppliesMetadata(Protocol):
    """The part of `ReplicaManager` that metadata drives."""

    def start(self) -> None: ...

    def apply_delta(self, delta: TopicsDelta, image: MetadataImage) -> None: ...

    def handle_image(self, image: MetadataImage) -> None: ...

    def update_log_config(self, topic: str, config: LogConfig) -> None: ...

    def start_hw_checkpoints(self) -> None: ...


class BrokerMetadataPublisher:
    """Applies metadata to this broker: cache, logs, replicas, configs; in that order, one update after the other (ML-21).

    The first update loads and recovers every log before anything else is applied. That takes time: it runs as a task, and
    updates that arrive meanwhile wait behind it in order. `wait_first_publish` returns when the first update is applied in full,
    and raises Fault when the publisher was closed before. Source: ML-21, ML-23, ML-25, CM-52; seeds/metadata-propagation.
    """

    name = "BrokerMetadataPublisher"

    def __init__(
        self,
        ports: Ports,
        node_id: NodeId,
        *,
        cache: MetadataCache,
        configs: DynamicConfigs,
        log_dirs: LogDirs,
        replicas: AppliesMetadata,
        resend_registration: Callable[[], None],
    ) -> None:
        self._ports = ports
        self._node_id = node_id
        self._cache = cache
        self._configs = configs
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._resend_registration = resend_registration
        self._waiting: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        self._begun = False
        self._task: TaskHandle | None = None
        self._ready = False
        self._closed = False
        self._settled = asyncio.Event()

    # --- MetadataPublisher --------------------------------------------------------------------------------------------

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        if self._closed:
            return
        if self._ready:
            self._apply(delta, image)
            return
        self._waiting.append((delta, image))
        if not self._begun:
            self._begun = True
            self._task = self._ports.tasks.spawn(self._first_publish(), name="first-publish")

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._settled.set()

    async def wait_first_publish(self) -> None:
        await self._settled.wait()
        if not self._ready:
            raise Fault("the broker was stopped before it had applied the cluster's metadata")

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _first_publish(self) -> None:
        image = self._waiting[0][1]
        self._cache.set_image(image)
        self._configs.set_image(image)
        count = await self._log_dirs.load(lambda tp, topic_id: _has_replica(image, self._node_id, tp, topic_id))
        if self._closed:
            return
        self._replicas.start()
        self._ready = True
        while self._waiting:
            self._apply(*self._waiting.popleft())
        self._replicas.start_hw_checkpoints()
        self._log_dirs.start_housekeeping()
        self._ports.tracer.emit(FirstPublishDone(metadata_offset=self._cache.image.offset, logs=count))
        self._settled.set()

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._cache.set_image(image)
        self._configs.set_image(image)
        if delta.topics is not None:
            self._replicas.apply_delta(delta.topics, image)
        if delta.configs is not None:
            self._apply_configs(delta.configs.changed)
        self._replicas.handle_image(image)
        if delta.features is not None or delta.cluster is not None:
            self._refresh_registration(image)

    def _apply_configs(self, changed: tuple[tuple[int, str], ...]) -> None:
        topics = {name for kind, name in changed if kind == ConfigResourceType.TOPIC}
        if any(self._configs.concerns_this_broker(kind, name) for kind, name in changed):
            topics = {log.tp.topic for log in self._log_dirs.logs()}
        for topic in sorted(topics):
            self._replicas.update_log_config(topic, self._configs.log_config_for(topic))

    def _refresh_registration(self, image: MetadataImage) -> None:
        """ML-25: a registration from before directories were known says none; say them now."""
        own = image.cluster.brokers.get(self._node_id)
        level = image.features.metadata_version
        if own is not None and not own.log_dirs and level is not None and supports_directories(level):
            self._resend_registration()


def _has_replica(image: MetadataImage, node_id: NodeId, tp: TopicPartition, topic_id: UUID) -> bool:
    topic = image.topics.topic_by_id(topic_id)
    if topic is None or topic.name != tp.topic:
        return False
    registration = topic.partitions.get(tp.partition)
    return registration is not None and node_id in registration.replicas
