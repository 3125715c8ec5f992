"""The replicas of one broker: told by metadata who leads and who follows, used by clients and by other brokers.

Source: Kafka's ReplicaManager; RP-01 to RP-39, RP-41; ML-17, ML-21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kraftlite.log.config import LogConfig
from kraftlite.log.log import ActiveProducer, AppendOrigin, Log
from kraftlite.log.seek import Seeker
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode, StorageFault, changing
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.introspection import ReplicaState
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.alter_partition import AlterPartitionCore, AlterPartitionDriver
from kraftlite.replication.api import (
    DeleteRecordsResult,
    FetchEntry,
    FetchParams,
    FetchResult,
    LeaderHint,
    Lease,
    MarkerEntry,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
    ProduceTransaction,
)
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.consume import ConsumePath, FetchRoom, FetchWait
from kraftlite.replication.counts import ReplicaCounts
from kraftlite.replication.delete_records import DeleteRecordsPath
from kraftlite.replication.enrol_driver import Enroller
from kraftlite.replication.fetcher_manager import FetcherManager
from kraftlite.replication.follower_state import prepare_to_follow
from kraftlite.replication.hw_checkpoint import HwCheckpoint
from kraftlite.replication.markers import write_markers
from kraftlite.replication.partition import Partition, PartitionEnv
from kraftlite.replication.ports import ControllerChannel, LogProvider
from kraftlite.replication.produce import ProducePath
from kraftlite.replication.purgatory import Deadlines
from kraftlite.replication.role_queue import LOOKS_PER_ROLE, RoleQueue
from kraftlite.replication.service import ReplicaService
from kraftlite.replication.states import Looks, state_of
from kraftlite.replication.table import PartitionTable
from kraftlite.replication.throttle import ReplicationThrottles
from kraftlite.runtime.ports import Handlers, Ports, TaskHandle

if TYPE_CHECKING:
    from kraftlite.metadata.delta import LocalPartition, TopicsDelta

__all__ = [
    "FetchEntry",
    "FetchParams",
    "FetchResult",
    "LeaderHint",
    "OffsetResult",
    "ProduceEntry",
    "ProduceResult",
    "ReplicaManager",
]

_STEPS_PER_FETCH: Final = 32
"""So many times `partitions_per_step` partitions are named to their leaders together."""


class ReplicaManager:
    """All local replicas. Every method is called on the node's loop.

    A delta and `handle_image` come from the metadata publisher, in that order, once per update. A replica whose log cannot
    be opened or written is offline: its clients get KAFKA_STORAGE_ERROR, the others are not affected. `on_hosted` is told of each
    replica that metadata has changed, and of the log directory it has there. `trace_hot` also emits what happens per produce.
    Limits: a request waits at most its own time; followers wait at most `fetch_wait_max_ms`.
    """

    def __init__(
        self,
        ports: Ports,
        config: ReplicationConfig,
        logs: LogProvider,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int | None],
        *,
        trace_hot: bool = False,
        on_hosted: Callable[[TopicPartition, UUID, UUID | None], None] = lambda tp, topic_id, assigned: None,
    ) -> None:
        self._ports = ports
        self._config = config
        self._logs = logs
        self._on_hosted = on_hosted
        self._clock = ports.clock
        self._table = table = PartitionTable(config.broker_id, config.inter_broker_listener_name)
        self._deadlines = Deadlines(ports.clock, ports.tuning.deadline_granularity_ms)
        self._alter = AlterPartitionDriver(
            config, ports.clock, controller, AlterPartitionCore(config, ports.tuning), broker_epoch
        )
        self._env = PartitionEnv(
            broker_id=config.broker_id,
            lag_time_max_ms=config.lag_time_max_ms,
            eligible=table.eligible,
            directory_online=table.directory_online,
            broker_epoch=broker_epoch,
            on_isr_proposed=self._alter.submit,
            tracer=ports.tracer,
            trace_hot=trace_hot,
        )
        hot_tracer = ports.tracer if trace_hot else None
        self.enroller = Enroller(table, ports.clock, config)
        self._produce = ProducePath(
            table, ports.clock, ports.tasks, self._deadlines, hot_tracer, self.handle_io_error, ports.tuning, self.enroller
        )
        self.counts = ReplicaCounts(table, ports.clock, config.transaction_max_timeout_ms)
        self._consume = ConsumePath(table, self._deadlines, self.handle_io_error, rack_aware=config.rack_aware)
        self._delete_records = DeleteRecordsPath(table, self._deadlines, logs, self.handle_io_error)
        self._hws = HwCheckpoint(table, logs)
        self.throttles = ReplicationThrottles(config.broker_id, config.throttle_windows, config.move_windows, ports.clock.now_ms)
        self._service = ReplicaService(ports, config.cluster_id, table, self.handle_io_error, self.throttles.leader)
        self._fetchers = FetcherManager(
            ports,
            config,
            endpoint=table.endpoint,
            broker_epoch=broker_epoch,
            on_io_error=self.handle_io_error,
            throttle=self.throttles.follower,
        )
        self.max_lag, self.lags, self.fetch_counts = self._fetchers.max_lag, self._fetchers.lags, self._fetchers.requests
        self.fetch_times = self._service.times
        self._tasks: list[TaskHandle] = []
        self._failed_directories = 0
        """The number of those whose replicas were taken offline."""
        self._known_brokers: Mapping[NodeId, BrokerRegistration] | None = None
        self._roles = RoleQueue(
            config.broker_id,
            lambda: table.by_tp,
            ports.tuning,
            lead=self._lead,
            follow=self._follow,
            delete=self._delete,
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        spawn = self._ports.tasks.spawn
        self._tasks.append(spawn(self._alter.run(), name="alter-partition"))
        self._tasks.append(spawn(self._check_isrs(), name="isr-check"))

    def start_hw_checkpoints(self) -> None:
        self._tasks.append(self._ports.tasks.spawn(self._checkpoint_hws(), name="hw-checkpoint"))

    async def stop(self) -> None:
        """Stop pulling and serving, and lead nothing any more. Requests that wait, and those that come or whose checks end later,
        are answered with NOT_LEADER_OR_FOLLOWER. The HWs are on disk afterwards."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._fetchers.close()
        for partition in self._table.by_tp.values():
            partition.leader = None  # a produce whose check ends later finds a log that is closed
            partition.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            partition.wake_waiters()
        self._service.close()
        self._deadlines.close()
        self._hws.write()

    async def _check_isrs(self) -> None:
        """Every half of the allowed lag, so that a laggard leaves within one and a half of it (RP-19)."""
        while True:
            await self._clock.sleep(max(1, self._config.lag_time_max_ms // 2))
            self.drop_failed_logs()
            for count, partition in enumerate(list(self._table.by_tp.values()), 1):
                partition.check_isr(self._clock.now_ms())
                if count % (LOOKS_PER_ROLE * self._ports.tuning.roles_per_step) == 0:
                    await self._clock.sleep(0)

    async def _checkpoint_hws(self) -> None:
        while True:
            await self._clock.sleep(self._config.hw_checkpoint_interval_ms)
            self.drop_failed_logs()
            self._hws.write()

    # --- metadata -----------------------------------------------------------------------------------------------------

    def apply_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Delete, lead and follow what changed for this broker (ML-17). `image` is the one after `delta`."""
        for _ in self.apply_delta_steps(delta, image):
            pass

    def apply_delta_steps(self, delta: TopicsDelta, image: MetadataImage) -> Iterator[None]:
        """Apply a delta as `apply_delta` does, but stop after every `partitions_per_step` replicas, or `roles_per_step`
        that get a new leader, when more are to come.

        In between everything may happen, and `add_delta` adds what comes next: a replica that has its turn later is as before, a
        new one unknown (NOT_LEADER_OR_FOLLOWER, and clients come again).
        """
        self.add_delta(delta, image)
        gathered = _STEPS_PER_FETCH * self._ports.tuning.partitions_per_step
        spent = 0
        try:
            for cost, action in self._roles:
                if spent >= self._roles.per_step:
                    spent = 0
                    self._fetchers.gather(gathered)
                    yield
                action()
                spent += cost
        finally:
            self._roles.clear()
        self._fetchers.settle()
        self._service.sessions.metadata_changed()

    def add_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """The delta that follows the one that is being applied becomes one with it: its new leaders come before all that is
        left."""
        self._table.image = image
        self._roles.add(delta)

    @property
    def elections_left(self) -> bool:
        """Return whether replicas here are yet to lead, or to follow somebody new."""
        return self._roles.elections_left

    def handle_image(self, image: MetadataImage) -> None:
        """Brokers may have come, gone, moved or been fenced: who may join an ISR, and where leaders are found."""
        for _ in self.handle_image_steps(image):
            pass

    def handle_image_steps(self, image: MetadataImage) -> Iterator[None]:
        """Do as `handle_image` does, but stop after every `roles_per_step` partitions that are led here. No other metadata may
        come in between."""
        known = self._known_brokers
        self._table.image, self._known_brokers = image, image.cluster.brokers
        if known is image.cluster.brokers:
            return
        self._fetchers.wake_all()
        at_once, count = self._ports.tuning.roles_per_step, 0
        for partition in list(self._table.by_tp.values()):
            if partition.leader is not None:
                if count and count % at_once == 0:
                    yield
                count += 1
                now_ms = self._clock.now_ms()
                self._guarded(partition, lambda p=partition, now_ms=now_ms: p.recheck(now_ms))  # type: ignore[misc]

    def _lead(self, tp: TopicPartition, local: LocalPartition) -> None:
        registration = local.registration
        partition = self._obtain(tp, local.topic_id, registration)
        if partition.leader is None:
            self._fetchers.forget(partition)
        if partition.log is None:
            return
        try:
            partition.become_leader(registration, self._clock.now_ms(), _cause(local))
        except OSError as error:
            self.handle_io_error(error, tp)

    def _follow(self, tp: TopicPartition, local: LocalPartition) -> None:
        """A fetcher restarts only with a new leader epoch, not with every change of the ISR (RP-33)."""
        registration = local.registration
        partition = self._obtain(tp, local.topic_id, registration)
        log, leader_id = partition.log, registration.leader
        if log is None:
            return
        try:
            if not partition.become_follower(registration, _cause(local)):
                return
            self._fetchers.forget(partition)
            if leader_id is not None and leader_id != self._config.broker_id:
                prepare_to_follow(log)
                self._fetchers.follow(partition, leader_id, registration.leader_epoch)
        except OSError as error:
            self.handle_io_error(error, tp)

    def _obtain(self, tp: TopicPartition, topic_id: UUID, registration: PartitionRegistration) -> Partition:
        """The partition object with its log, if that can be had."""
        partition = self._table.by_tp.get(tp)
        if partition is not None and partition.topic_id is not topic_id and partition.topic_id != topic_id:
            self._delete(tp, partition.topic_id)
            partition = None
        if partition is None:
            partition = Partition(tp, topic_id, self._env)
            self._table.add(partition)
        assigned = registration.directory_of(self._config.broker_id)
        if partition.log is None:
            try:
                partition.attach_log(self._open_log(tp, topic_id, assigned), self._logs.checkpointed_hw(tp))
            except (StorageFault, ApiError) as error:
                partition.fail_to_open(registration, str(error))
            except OSError as error:
                partition.fail_to_open(registration, str(error))
                self.handle_io_error(error, tp)
        self._on_hosted(tp, topic_id, assigned)
        return partition

    def _open_log(self, tp: TopicPartition, topic_id: UUID, assigned: UUID) -> Log:
        """A log that another topic of the same name left behind is deleted first: never mix two incarnations (RP-38)."""
        existing = self._logs.get(tp)
        if existing is not None and existing.topic_id is not None and existing.topic_id != topic_id:
            self._logs.delete(tp)
        return self._logs.get_or_create(tp, topic_id, assigned)

    def _delete(self, tp: TopicPartition, topic_id: UUID) -> None:
        partition = self._table.by_tp.get(tp)
        if partition is not None and partition.topic_id == topic_id:
            self._fetchers.forget(partition)
            self._table.remove(partition)
            partition.remove()
        log = self._logs.get(tp)
        if log is not None and log.topic_id in (None, topic_id):
            self._logs.delete(tp)

    def announce_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]:
        """Take over what matters to changes of this topic's partitions, before them: see `Partition.announce_config`."""
        for partition in self._table.of_topic(topic):
            if partition.log is not None:
                partition.announce_config(config)
                yield

    def update_log_config_steps(self, topic: str, config: LogConfig) -> Iterator[None]:
        for partition in self._table.of_topic(topic):
            if partition.log is not None:
                now_ms = self._clock.now_ms()
                self._guarded(partition, lambda p=partition, at=now_ms: p.update_config(config, at))  # type: ignore[misc]
                yield

    # --- failing disks ------------------------------------------------------------------------------------------------

    def update_broker_values(self, values: Mapping[str, str]) -> None:
        """Take over what may change while the broker runs, of the values in force for it (CM-49)."""
        self.enroller.update_broker_values(values)
        self.throttles.update_rates(values)

    def _guarded(self, partition: Partition, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self.handle_io_error(error, partition.tp)

    def handle_io_error(self, error: OSError, tp: TopicPartition) -> None:
        """The log directory of `tp` goes offline, and with it every replica in it."""
        with changing(f"taking {tp} and its log directory offline"):
            self._logs.handle_failure(error, tp)
            partition = self._table.by_tp.get(tp)
            if partition is not None:
                self._take_offline(partition, str(error))
            self.drop_failed_logs()

    def drop_failed_logs(self) -> None:
        """Take replicas offline whose directory failed, whoever noticed it."""
        failed = self._logs.failed_directories
        if failed == self._failed_directories:
            return
        self._failed_directories = failed
        for tp, partition in list(self._table.by_tp.items()):
            if partition.log is not None and self._logs.get(tp) is not partition.log:
                self._take_offline(partition, "its log directory is offline")

    def _take_offline(self, partition: Partition, reason: str) -> None:
        self._fetchers.forget(partition)
        partition.go_offline(reason)

    # --- clients ------------------------------------------------------------------------------------------------------

    def append(
        self,
        entries: Sequence[ProduceEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        origin: AppendOrigin = AppendOrigin.CLIENT,
        lease: Lease | None = None,
        transaction: ProduceTransaction | None = None,
        on_late: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        """Append as leader; `on_done` is called exactly once with one result per entry: before the return for acks 0 and 1, at
        the latest after `timeout_ms` for acks -1; later when a client's batches take long to check, or when the coordinator of
        their transaction must be asked. Other acks: INVALID_REQUIRED_ACKS.

        With `on_late` the fate is waited for: `on_done` is called when the records are below the HW, or when this broker does not
        lead any more; `on_late` before that, at most once, with what is not the last word (`purgatory.UNDECIDED`)."""
        self._produce.append(
            entries,
            acks=acks,
            timeout_ms=timeout_ms,
            on_done=on_done,
            origin=origin,
            lease=lease,
            transaction=transaction,
            on_late=on_late,
        )

    def write_markers(
        self,
        markers: Sequence[MarkerEntry],
        *,
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
        on_late: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        """Write the ends of transactions, acks=all; `on_done` is called exactly once with one code per marker, when the last has
        its verdict (TP-20 to TP-26); `on_late` is as `append` has it. A partition that is not here, or is of another topic of
        that name by now, is UNKNOWN_TOPIC_OR_PARTITION or, when another broker has it, NOT_LEADER_OR_FOLLOWER."""
        write_markers(
            self._produce, markers, timeout_ms=timeout_ms, wall_ms=self._clock.wall_ms(), on_done=on_done, on_late=on_late
        )

    def fetch_now(self, params: FetchParams, partitions: Sequence[FetchEntry]) -> list[FetchResult]:
        """Read what there is, without waiting; in the order of `partitions`."""
        return self._consume.fetch_now(params, partitions)

    def fetch_some(self, room: FetchRoom, partitions: Sequence[FetchEntry]) -> list[FetchResult]:
        """Read the next partitions of a fetch that is read in parts, as `fetch_now` does."""
        return self._consume.fetch_some(room, partitions)

    def fetch_wait(self, params: FetchParams, ready: Callable[[], None]) -> FetchWait:
        """Wait on behalf of a fetch that `fetch_now` has answered and that may wait: `ready` is called when it is worth
        another look."""
        return self._consume.wait(params, ready)

    def list_offset(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        timestamp: int,
        *,
        current_leader_epoch: int | None,
        read_committed: bool,
        debug: bool = False,
        version5_plus: bool = True,
        seeker: Seeker | None = None,
    ) -> OffsetResult:
        """-1 latest, -2 and -4 earliest, -3 of the largest timestamp, else the first at or after `timestamp` (CP-22).
        `seeker` bounds what is done here and now for a time; then Unfinished may be raised."""
        return self._consume.list_offset(
            tp,
            topic_id,
            timestamp,
            current_leader_epoch=current_leader_epoch,
            read_committed=read_committed,
            debug=debug,
            version5_plus=version5_plus,
            seeker=seeker,
        )

    def offset_for_leader_epoch(
        self, tp: TopicPartition, *, current_leader_epoch: int | None, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """(error, largest known epoch <= `leader_epoch`, where it ends); -1, -1 when undefined (RP-29, RP-30)."""
        return self._consume.offset_for_leader_epoch(tp, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch)

    async def delete_records(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> list[DeleteRecordsResult]:
        """Move the log starts up to these offsets (-1: the HW) and wait for the live followers; in the order of `offsets`."""
        return await self._delete_records.delete(offsets, timeout_ms)

    def active_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...]:
        """Return the producers that this replica knows, whether it leads or follows. Raises ApiError unless the partition is
        here and online."""
        return self._table.find(tp, None).online_log().active_producers()

    # --- other brokers ------------------------------------------------------------------------------------------------

    def handlers(self) -> Handlers:
        """The methods for the inter-broker listener."""
        return self._service.handlers()

    # --- introspection ------------------------------------------------------------------------------------------------

    def partition(self, tp: TopicPartition) -> Partition | None:
        return self._table.by_tp.get(tp)

    def partitions(self) -> tuple[Partition, ...]:
        return tuple(self._table.by_tp[tp] for tp in sorted(self._table.by_tp))

    def fetched_from(self, tp: TopicPartition) -> int | None:
        """Return the broker from which a follower pulls the partition."""
        return self._fetchers.leader_of(tp)

    def replica_states(self, topics: tuple[str, ...] | None) -> tuple[ReplicaState, ...]:
        """Return the states of the online replicas, in name order."""
        wanted = (it for it in self.partitions() if topics is None or it.tp.topic in topics)
        return tuple(state for it in wanted if (state := state_of(it)) is not None)

    def looks(self) -> Looks:
        """Return what one who watches is told from."""
        return Looks(self._table.by_tp.values, self._table.by_tp.get)


def _cause(local: LocalPartition) -> str | None:
    return None if local.offset is None else f"record@{local.offset}"
