"""Makes this broker act on each new metadata image."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol
from uuid import UUID

from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.log.config import LogConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, supports_directories
from kraftlite.metadata.image import ClientQuotasImage, MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.topics_delta import TopicsDelta
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.broker import FirstPublishDone

_DONE: Final = object()


class AppliesMetadata(Protocol):
    """The part of `ReplicaManager` that metadata drives."""

    def start(self) -> None: ...

    def apply_delta_steps(self, delta: TopicsDelta, image: MetadataImage) -> Iterator[None]: ...

    def add_delta(self, delta: TopicsDelta, image: MetadataImage) -> None: ...

    def handle_image_steps(self, image: MetadataImage) -> Iterator[None]: ...

    @property
    def elections_left(self) -> bool: ...

    def announce_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]: ...

    def update_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]: ...

    def update_broker_values(self, values: Mapping[str, str]) -> None: ...

    def start_hw_checkpoints(self) -> None: ...


class FollowsReplicas(Protocol):
    """A coordinator: told of every change of topics once the local replicas have followed it (ML-22), and of configs."""

    def replicas_applied(self, delta: TopicsDelta, image: MetadataImage) -> None: ...

    def configs_applied(self, image: MetadataImage) -> None: ...


@dataclass(frozen=True, slots=True)
class _Update:
    """The part of a metadata update, or of several that follow one another, that concerns a broker; and the image after it."""

    image: MetadataImage
    topics: TopicsDelta | None
    configs: tuple[tuple[int, str], ...] | None
    registrations: bool
    """Features or registrations have changed."""

    @classmethod
    def of(cls, delta: MetadataDelta, image: MetadataImage) -> _Update:
        configs = None if delta.configs is None else delta.configs.changed
        return cls(image, delta.topics, configs, delta.features is not None or delta.cluster is not None)

    @property
    def merges(self) -> bool:
        """Return whether it may be one with others: the configurations that come with partitions must be known before them."""
        return self.configs is None and (self.topics is None or not self.topics.drops_partitions)

    @classmethod
    def merged(cls, updates: Sequence[_Update]) -> _Update:
        topics = [update.topics for update in updates if update.topics is not None]
        merged = TopicsDelta.merged(topics) if len(topics) > 1 else topics[0] if topics else None
        return cls(updates[-1].image, merged, None, any(update.registrations for update in updates))


class BrokerMetadataPublisher:
    """Applies metadata to this broker: cache, logs, replicas, coordinators, configs; in order, update after update (ML-21).

    An update is applied at once, but for one that changes so many replicas that the loop would stand still: the rest of it is
    done by a task, a step a turn, and updates that arrive meanwhile wait behind it in order. Until then the cache shows what
    is being applied: clients that come to a replica too early are told NOT_LEADER_OR_FOLLOWER and come again. Updates that
    wait become one with it where no configuration changes: a new leader is urgent, and must not wait until the update before has
    dealt with everything else (a failover of 50,000 partitions is five updates).

    The first update loads and recovers every log before anything else is applied, so it is always done by a task.
    `wait_first_publish` returns when it is applied in full, and raises Fault when the publisher was closed before.
    `guard(call)` calls `call` and reports its error like one of `on_metadata_update` (ML-07).
    Source: ML-07, ML-21, ML-23, ML-25, CM-52; Kafka's BrokerMetadataPublisher.
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
        on_directories_known: Callable[[], None],
        cordon: Callable[[MetadataImage], None],
        guard: Callable[[Callable[[], None]], None],
        coordinators: Sequence[FollowsReplicas] = (),
        on_broker_values: Callable[[Mapping[str, str]], None] = lambda _values: None,
        on_topic_values: Callable[[str, Mapping[str, str]], None] = lambda _topic, _values: None,
        on_quotas: Callable[[ClientQuotasImage], None] = lambda _quotas: None,
    ) -> None:
        self._ports = ports
        self._node_id = node_id
        self._cache = cache
        self._configs = configs
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._on_directories_known = on_directories_known
        self._cordon = cordon
        self._guard = guard
        self._coordinators = coordinators
        self._on_broker_values = on_broker_values
        self._on_topic_values = on_topic_values
        self._on_quotas = on_quotas
        # Not bounded here: what the metadata log says can neither be refused nor dropped.
        self._waiting: deque[_Update] = deque()
        self._task: TaskHandle | None = None
        """Applies what does not fit into one turn; whatever comes meanwhile is in `_waiting`."""
        self._applied_offset = -1
        self._ready = False
        self._closed = False
        self.on_long_update: Callable[[], None] = lambda: None
        """Called when an update that took more than one turn has been applied."""
        self._settled = asyncio.Event()
        self._shown = asyncio.Event()

    # --- MetadataPublisher --------------------------------------------------------------------------------------------

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        if self._closed:
            return
        update = _Update.of(delta, image)
        if self._task is not None:
            self._waiting.append(update)
        elif not self._ready:
            self._waiting.append(update)
            self._task = self._ports.tasks.spawn(self._first_publish(), name="first-publish")
        else:
            steps = self._apply(update)
            if next(steps, _DONE) is not _DONE:
                self._task = self._ports.tasks.spawn(self._apply_rest(steps), name="metadata-publish")

    def elections_left(self) -> bool:
        """Return whether replicas here are yet to lead, or to follow somebody new, by metadata that has been published."""
        return not self._closed and self._replicas.elections_left

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._settled.set()
        self._shown.set()

    async def wait_first_publish(self) -> None:
        await self._settled.wait()
        if not self._ready:
            raise Fault("the broker was stopped before it had applied the cluster's metadata")

    async def wait_live(self) -> None:
        """Return when clients that ask are told of this broker: its own metadata shows it unfenced. Raises Fault as above.

        The controller's word comes first, and a client whose first answer lists no brokers may not ask again for minutes.
        """
        while not self._cache.image.cluster.is_alive(self._node_id):
            if self._closed:
                raise Fault("the broker was stopped before its metadata showed it unfenced")
            self._shown.clear()
            await self._shown.wait()

    def applied_offset(self, loaded: int) -> int:
        """Return up to where the broker acts on metadata that is loaded up to `loaded`. Metadata with which it starts counts
        as applied."""
        return self._applied_offset if self._ready and self._task is not None else loaded

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _first_publish(self) -> None:
        image = self._waiting[0].image
        self._cache.set_image(image)
        self._configs.set_image(image)
        count = await self._log_dirs.load(
            lambda tp, topic_id: _has_replica(image, self._node_id, tp, topic_id),
            lambda tp: _leader_epoch(image, tp),
            lambda tp: _vouches_alone(image, self._node_id, tp, clean=self._log_dirs.stopped_cleanly),
            _hosted(image, self._node_id),
            lambda tp: _assigned(image, self._node_id, tp),
        )
        if self._closed:
            return
        self._replicas.start()
        while self._waiting:
            for _ in self._apply(self._waiting.popleft()):
                await self._ports.clock.sleep(0)
        self._ready, self._task = True, None
        self._replicas.start_hw_checkpoints()
        self._log_dirs.start_housekeeping(lambda tp: _assigned(self._cache.image, self._node_id, tp))
        self._ports.tracer.emit(FirstPublishDone(metadata_offset=self._cache.image.offset, logs=count))
        self._settled.set()

    async def _apply_rest(self, steps: Iterator[None]) -> None:
        """The rest of an update that was begun, and those that came meanwhile. An error ends one update, not the next."""
        try:
            await self._take(steps)
            while self._waiting:
                self.on_long_update()
                await self._take(self._apply(self._waiting.popleft()))
        finally:
            self._task = None
        self.on_long_update()

    async def _take(self, steps: Iterator[None]) -> None:
        more = True

        def step() -> None:
            nonlocal more
            more = False
            more = next(steps, _DONE) is not _DONE

        while more:
            await self._ports.clock.sleep(0)
            self._guard(step)

    def _apply(self, update: _Update) -> Iterator[None]:
        """One update, and those that come meanwhile where they may be one; pauses where the loop should have a turn."""
        configs = update.configs
        self._show(update)
        if update.topics is not None and configs is not None:
            yield from self._each(self._topics_of(configs), self._replicas.announce_log_config_steps)
        if update.topics is not None:
            update = yield from self._apply_topics(update, update.topics)
            assert update.topics is not None
            for coordinator in self._coordinators:
                coordinator.replicas_applied(update.topics, update.image)
        image = update.image
        if configs is not None:
            yield from self._apply_configs(configs)
            for coordinator in self._coordinators:
                coordinator.configs_applied(image)
        yield from self._replicas.handle_image_steps(image)
        if update.registrations:
            self._refresh_registration(image)
        self._applied_offset = image.offset

    def _show(self, update: _Update) -> None:
        self._cache.set_image(update.image)
        self._configs.set_image(update.image)
        if update.configs is not None or update.registrations:
            self._cordon(update.image)
        self._on_quotas(update.image.client_quotas)
        self._shown.set()

    def _apply_topics(self, update: _Update, topics: TopicsDelta) -> Generator[None, None, _Update]:
        """Return the update that has been applied: others may have joined it. An error ends this one; they come again, alone."""
        updates, done = [update], False
        try:
            for _ in self._replicas.apply_delta_steps(topics, update.image):
                yield
                self._join(updates)
            done = True
        finally:
            if not done:
                self._waiting.extendleft(reversed(updates[1:]))
        return update if len(updates) == 1 else _Update.merged(updates)

    def _join(self, updates: list[_Update]) -> None:
        """Make what waits one with the updates that are being applied, where that may be."""
        most = self._ports.tuning.updates_joined
        while updates[-1].merges and self._waiting and self._waiting[0].merges and len(updates) < most:
            update = self._waiting.popleft()
            updates.append(update)
            self._show(update)
            if update.topics is not None:
                self._replicas.add_delta(update.topics, update.image)

    def _apply_configs(self, changed: tuple[tuple[int, str], ...]) -> Iterator[None]:
        if any(self._configs.concerns_this_broker(kind, name) for kind, name in changed):
            self._replicas.update_broker_values(self._configs.broker_values())
            self._on_broker_values(self._configs.broker_values())
        for kind, name in changed:
            if kind == ConfigResourceType.TOPIC:
                self._on_topic_values(name, self._configs.topic_values(name))
        yield from self._each(self._topics_of(changed), self._replicas.update_log_config_steps)

    def _each(self, topics: Sequence[str], tell: Callable[[str, LogConfig], Iterator[None]]) -> Iterator[None]:
        """Tell the configuration of topic after topic, with a pause after every `partitions_per_step` replicas and topics."""
        at_once, count = self._ports.tuning.partitions_per_step, 0
        for topic in topics:
            for _ in chain((None,), tell(topic, self._configs.log_config_for(topic))):
                if count >= at_once:
                    count = 0
                    yield
                count += 1

    def _topics_of(self, changed: tuple[tuple[int, str], ...]) -> list[str]:
        """The topics whose logs go by one of these resources, in the order of their names."""
        if any(self._configs.concerns_this_broker(kind, name) for kind, name in changed):
            return sorted({log.tp.topic for log in self._log_dirs.logs()})
        return sorted({name for kind, name in changed if kind == ConfigResourceType.TOPIC})

    def _refresh_registration(self, image: MetadataImage) -> None:
        """ML-25: a registration from before directories were known says none; say them now."""
        own = image.cluster.brokers.get(self._node_id)
        level = image.features.metadata_version
        if own is not None and not own.log_dirs and level is not None and supports_directories(level):
            self._on_directories_known()


def _has_replica(image: MetadataImage, node_id: NodeId, tp: TopicPartition, topic_id: UUID) -> bool:
    topic = image.topics.topic_by_id(topic_id)
    if topic is None or topic.name != tp.topic:
        return False
    registration = topic.partitions.get(tp.partition)
    return registration is not None and node_id in registration.replicas


def _leader_epoch(image: MetadataImage, tp: TopicPartition) -> int | None:
    registration = image.topics.registration(tp)
    return None if registration is None else registration.leader_epoch


def _assigned(image: MetadataImage, node_id: NodeId, tp: TopicPartition) -> UUID | None:
    registration = image.topics.registration(tp)
    return None if registration is None or node_id not in registration.replicas else registration.directory_of(node_id)


def _vouches_alone(image: MetadataImage, node_id: NodeId, tp: TopicPartition, *, clean: bool) -> bool:
    """Return whether this replica may be elected although others lack what it ought to have, or although it lacks it itself.

    With eligible leader replicas a broker that stopped cleanly stays a candidate beside others; one that did not is at most the
    last known leader (KIP-966).
    """
    registration = image.topics.registration(tp)
    if registration is None:
        return False
    isr, elr = registration.isr, registration.elr
    if not image.features.level(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return isr == (node_id,) or (not isr and node_id in elr)
    if clean and (isr == (node_id,) or node_id in elr):
        return True
    return all(it == node_id for it in (*isr, *elr)) and node_id in (*isr, *elr, *registration.last_known_elr)


def _hosted(image: MetadataImage, node_id: NodeId) -> dict[TopicPartition, UUID]:
    return {
        TopicPartition(topic.name, index): topic.topic_id
        for topic in image.topics
        for index, registration in topic.partitions.items()
        if node_id in registration.replicas
    }
