"""The broker role of a node: builds its parts and runs the start and stop sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from kraftlite.broker.assignments_driver import AssignmentReporter
from kraftlite.broker.config import BrokerConfig
from kraftlite.broker.controller_channel import RaftControllerChannel
from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.lifecycle_driver import BrokerLifecycle, RegistrationFacts
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.broker.producer_ids import ProducerIdManager
from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.broker.quotas import BrokerQuotas
from kraftlite.broker.transactions import Enrolling, MarkerWriting, Peers
from kraftlite.broker.transactions import handlers as transaction_handlers
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.coordinator import GroupCoordinator
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.coordinator.transactions.coordinator import TransactionCoordinator
from kraftlite.coordinator.transactions.markers_driver import MarkerSender
from kraftlite.metadata.features import SUPPORTED_FEATURES, supports_cordoning
from kraftlite.metadata.image import ClientQuotasImage, MetadataImage
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.model.cordoned import CORDONED_DIRS, cordoned_dirs
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.messages.introspection import ReplicaState
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.raft.client import RaftClient
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.manager import ReplicaManager
from kraftlite.runtime.ports import Handlers, Ports
from kraftlite.runtime.trace.broker import DynamicConfigIgnored

CLIENT_GRACE_MS: Final = 1_000


class BrokerListeners(Protocol):
    """The addresses at which the broker is reached. The node implements it: a broker does not know about sockets."""

    async def open_replication(self, handlers: Handlers) -> None: ...

    async def prepare_clients(self, context: BrokerContext) -> None: ...

    async def open_clients(self) -> None: ...

    async def close_clients(self, grace_ms: int) -> None: ...

    def on_advertised(self, tell: Callable[[tuple[ListenerInfo, ...]], None]) -> None: ...

    def update_broker_values(self, values: Mapping[str, str]) -> None: ...

    def update_ip_quotas(self, quota: Callable[[str], float | None]) -> None: ...


class BrokerServer:
    """One broker. `start` returns when clients can connect; `stop` when everything is on disk.

    Start: register, catch up with the metadata log, load and recover all logs, apply the first image, let followers in, ask to be
    unfenced, see that in the own metadata, and only then let clients in (BL-07). Graceful stop: hand leaderships over, in bounded
    time, close the clients' connections, close the logs, leave a clean-shutdown marker (BL-10, BL-11). Raises Fault when the
    broker cannot start.
    """

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        replication: ReplicationConfig,
        raft: RaftClient,
        loader: MetadataLoader,
        listeners: BrokerListeners,
        config_sources: Mapping[str, str],
    ) -> None:
        self._ports = ports
        self._config = config
        self._loader = loader
        self._listeners = listeners
        self.channel = RaftControllerChannel(ports, raft)
        lifecycle_channel = RaftControllerChannel(ports, raft, attempt_timeout_ms=config.controller_attempt_timeout_ms)
        self.lifecycle = BrokerLifecycle(ports, config.lifecycle, lifecycle_channel, self._applied_offset)
        self.configs = DynamicConfigs(config.node_id, config.values, ports.tracer)
        self.cache = MetadataCache(config.cluster_id)
        self.log_dirs = LogDirs(ports, config, config_for=self.configs.log_config_for, on_dir_failed=self._on_log_dir_failed)
        self.assignments = AssignmentReporter(ports, config.node_id, self.channel, self._broker_epoch, self._image, self.log_dirs)
        hosted, hot = self.assignments.hosted, ports.trace_hot
        self.replicas = ReplicaManager(
            ports, replication, self.log_dirs, self.channel, self._broker_epoch, trace_hot=hot, on_hosted=hosted
        )
        self.groups = GroupCoordinator(ports, config.node_id, GroupConfig.from_values(config.values), self.replicas)
        self.producer_ids = ProducerIdManager(ports, config.node_id, self.channel, self._broker_epoch)
        peers = Peers(config.node_id, config.cluster_id, replication.inter_broker_listener_name, self._image)
        transactions = TransactionConfig.from_values(config.values)
        self.marker_writing = MarkerWriting(ports, peers, self.replicas, self.groups, transactions.request_timeout_ms)
        sender = MarkerSender(ports, self.marker_writing, peers.image)
        self.transactions = TransactionCoordinator(ports, transactions, self.replicas, self.producer_ids, sender, peers.image)
        self.enrolling = Enrolling(ports, peers, self.transactions, transactions.request_timeout_ms)
        self.replicas.enroller.gate = self.enrolling
        self.quotas = BrokerQuotas(ports, config.values)
        self.publisher = BrokerMetadataPublisher(
            ports,
            config.node_id,
            cache=self.cache,
            configs=self.configs,
            log_dirs=self.log_dirs,
            replicas=self.replicas,
            on_directories_known=self._say_directories,
            cordon=self._cordon,
            guard=lambda call: loader.guard(self.publisher, call),
            coordinators=(self.groups, self.transactions),
            on_broker_values=listeners.update_broker_values,
            on_topic_values=self.replicas.throttles.update_topic,
            on_quotas=self._on_quotas,
        )
        self.context = BrokerContext(
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            config=config,
            metadata=self.cache,
            replicas=self.replicas,
            controller=self.channel,
            producer_ids=self.producer_ids,
            raft=raft,
            log_config_for=self.configs.log_config_for,
            ports=ports,
            config_sources=config_sources,
            log_dirs=self.log_dirs,
            groups=self.groups,
            transactions=self.transactions,
            markers=self.marker_writing,
        )
        self.features = SUPPORTED_FEATURES
        """The levels of features that this software has, as they are registered."""
        self._serving = self._publishing = False

    async def start(self) -> None:
        config = self._config
        self.replicas.throttles.update_rates(config.values)
        previous_broker_epoch = self.log_dirs.read_markers()
        self._listeners.on_advertised(self.lifecycle.listeners_changed)
        self.lifecycle.start(
            RegistrationFacts(
                broker_id=config.node_id,
                cluster_id=config.cluster_id,
                listeners=config.listeners,
                features=self.features,
                rack=config.rack,
                log_dirs=self.log_dirs.online_ids(),
                previous_broker_epoch=previous_broker_epoch,
            )
        )
        await self.lifecycle.wait_caught_up()
        self._publishing = True
        self.log_dirs.retention.on_log_start = self._on_log_start
        self.log_dirs.log_moves.report = self.assignments.report
        self.log_dirs.log_moves.throttle = self.replicas.throttles.moves
        self.assignments.start()
        self._loader.elections_left = self.publisher.elections_left
        self.publisher.on_long_update = self.lifecycle.metadata_applied
        self._loader.install_publishers([self.publisher])
        await self.publisher.wait_first_publish()
        between_brokers = {**self.replicas.handlers(), **transaction_handlers(self.marker_writing, self.enrolling)}
        await self._listeners.open_replication(between_brokers)
        self._serving = True
        await self._listeners.prepare_clients(self.context)
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.wait_unfenced()
        await self.publisher.wait_live()
        await self._listeners.open_clients()

    async def stop(self, *, graceful: bool) -> None:
        """The metadata log must still be followed while this runs. Not graceful: as after a crash, but with the files closed."""
        if graceful:
            self.lifecycle.begin_controlled_shutdown()
            await self.lifecycle.wait_finished()
        self.lifecycle.close()
        self.groups.close()
        self.transactions.close()
        if self._serving:
            await self._listeners.close_clients(CLIENT_GRACE_MS if graceful else 0)
        self.assignments.close()
        self.publisher.close()
        self.quotas.close()
        if self._publishing:
            await self.replicas.stop()
        if graceful:
            await self.log_dirs.close(self.lifecycle.broker_epoch)
        else:
            await self.log_dirs.stop_housekeeping()

    def _broker_epoch(self) -> int | None:
        return self.lifecycle.broker_epoch

    def _image(self) -> MetadataImage:
        return self.cache.image

    def _applied_offset(self) -> int:
        """Return the offset that the controller is told: it counts on all brokers knowing of a move before a broker leaves
        (BL-11)."""
        return self.publisher.applied_offset(self._loader.last_applied_offset())

    def replica_states(self, topics: tuple[str, ...] | None) -> tuple[ReplicaState, ...]:
        return self.replicas.replica_states(topics)

    def _on_quotas(self, quotas: ClientQuotasImage) -> None:
        self.context.client_quotas = self.quotas.apply(quotas)
        self._listeners.update_ip_quotas(self.quotas.ip_quota)

    def _on_log_start(self, tp: TopicPartition) -> None:
        """Retention has moved it: who follows here, hears of it with the next answer (RP-17)."""
        if (partition := self.replicas.partition(tp)) is not None:
            partition.log_start_changed(urgent=False)

    def _on_log_dir_failed(self, directory_id: UUID, partitions: Sequence[TopicPartition]) -> None:
        """The replicas there stop at once; the controller moves their leaderships away when it hears of it (BL-16).

        It must know what was there: also of replicas that had just come into this directory (JB-06).
        """
        self.replicas.drop_failed_logs()
        image = self.cache.image
        for tp in partitions:
            topic = image.topics.topic(tp.topic)
            registration = None if topic is None else topic.partitions.get(tp.partition)
            if topic is not None and registration is not None and self._config.node_id in registration.replicas:
                self.assignments.hosted(tp, topic.topic_id, registration.directory_of(self._config.node_id))
        self.lifecycle.directory_failed(directory_id)

    def _cordon(self, image: MetadataImage) -> None:
        """Take over which directories get no new replicas, and tell the controller (JB-13). A value that does not fit, which a
        controller took that does not know our directories, changes nothing."""
        level = image.features.metadata_version
        if level is None or not supports_cordoning(level):
            return
        text = self.configs.broker_values().get(CORDONED_DIRS, "")
        try:
            paths = cordoned_dirs(text, [spec.path for spec in self._config.log_dirs])
        except ValueError as error:
            self._ports.tracer.emit(DynamicConfigIgnored(resource=str(self._config.node_id), reasons=(str(error),)))
            return
        self.lifecycle.cordoned(self.log_dirs.cordon(paths))

    def _say_directories(self) -> None:
        """The metadata version has begun to know directories, and the registration has none: say them, and who is in them."""
        self.lifecycle.resend_registration()
        image, node_id = self.cache.image, self._config.node_id
        for topic in image.topics:
            for index, registration in topic.partitions.items():
                if node_id in registration.replicas:
                    tp = TopicPartition(topic.name, index)
                    self.assignments.hosted(tp, topic.topic_id, registration.directory_of(node_id))
