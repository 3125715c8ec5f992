"""A cluster of replica managers in one process, driven step by step: no loop, no tasks, no time but a `FakeClock`.

The managers, logs, deltas and images are the real ones. What the drivers would do (send a fetch, deliver an answer, ask the
controller) is done by the test, one message at a time, so that a message can be delayed, lost, or overtaken by a crash.
The controller is a model: enough of CM-26 to CM-36 to be trusted by replicas, in memory, never wrong and never down.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from kraftlite.log import checkpoints
from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log, OpenLog
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode, StorageFault
from kraftlite.model.ids import UNCHANGED, Endpoint, NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    ListenerInfo,
)
from kraftlite.model.messages.methods import REPLICA_FETCH, REPLICA_OFFSETS
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult, ProduceEntry, ProduceResult
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Ports, Tasks, Transport, TransportError
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk

TOPIC = "orders"
TOPIC_ID = UUID(int=1001)
TP = TopicPartition(TOPIC, 0)
DATA = "/data"
LISTENER = "REPLICATION"


def make_batch(values: Sequence[str], *, pid: int = -1, seq: int = -1) -> bytearray:
    records = [Record(None, value.encode()) for value in values]
    options = {"producer_id": pid, "producer_epoch": 0, "base_sequence": seq} if pid >= 0 else {}
    return bytearray(build_batch(records, timestamp_ms=1_700_000_000_000, **options))  # type: ignore[arg-type]


def read_values(data: bytes) -> list[tuple[int, str]]:
    """(offset, value) of every record."""
    return [
        (header.base_offset + record.offset_delta, (record.value or b"").decode())
        for header, view in iter_batches(data)
        if not header.is_control
        for record in iter_records(view)
    ]


def log_values(log: Log) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    offset = log.log_start_offset
    while offset < log.leo:
        values = read_values(log.read(offset, 1 << 20, up_to=log.leo))
        if not values:
            break
        found += values
        offset = values[-1][0] + 1
    return found


class MemLogs:
    """`LogProvider` over one MemDisk with one log directory."""

    failed_directories = property(lambda self: int(self.failed))

    def __init__(self, disk: MemDisk, clock: FakeClock, tracer: ListTracer, config: LogConfig) -> None:
        self.disk, self.clock, self.tracer = disk, clock, tracer
        self.configs, self.default_config = dict[str, LogConfig](), config
        self.open_logs: dict[TopicPartition, Log] = {}
        self.failed, self.hws_filed, self.deleted = False, True, list[TopicPartition]()
        disk.makedirs(DATA)
        self.hws = checkpoints.read_offset_checkpoint(disk, f"{DATA}/replication-offset-checkpoint")
        self.log_starts = checkpoints.read_offset_checkpoint(disk, f"{DATA}/{checkpoints.LOG_START_CHECKPOINT}")

    def get(self, tp: TopicPartition) -> Log | None:
        return None if self.failed else self.open_logs.get(tp)

    def get_or_create(self, tp: TopicPartition, topic_id: UUID, assigned: UUID | None = None) -> Log:
        if self.failed:
            raise StorageFault(f"{DATA} is offline", DATA)
        log = self.open_logs.get(tp)
        if log is None:
            log = self.open_logs[tp] = Log(
                OpenLog(
                    disk=self.disk,
                    directory=f"{DATA}/{tp}",
                    tp=tp,
                    topic_id=topic_id,
                    config=self.configs.get(tp.topic, self.default_config),
                    log_start_offset=self.log_starts.get(tp, 0),
                    wall_ms=self.clock.wall_ms(),
                    tracer=self.tracer,
                )
            )
        return log

    def delete(self, tp: TopicPartition) -> None:
        self.deleted.append(tp)
        log = self.open_logs.pop(tp)
        log.close_files()
        self.disk.rmtree(log.directory)

    def checkpointed_hw(self, tp: TopicPartition) -> int:
        return self.hws.get(tp, 0)

    def write_hw_checkpoint(self, hws: Mapping[TopicPartition, int]) -> None:
        self.hws = dict(hws)
        checkpoints.write_offset_checkpoint(self.disk, f"{DATA}/replication-offset-checkpoint", self.hws)

    def write_log_starts(self) -> None:
        starts = {tp: log.log_start_offset for tp, log in self.open_logs.items()}
        checkpoints.write_offset_checkpoint(self.disk, f"{DATA}/{checkpoints.LOG_START_CHECKPOINT}", starts)

    def handle_failure(self, error: OSError, tp: TopicPartition) -> None:
        self.failed = True


class StepTasks:
    """`Tasks` that never run: the test does what they would do."""

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> Any:
        coro.close()
        return _NoTask()

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        return function()

    async def cancel_all(self) -> None:
        return None


class _NoTask:
    def cancel(self) -> bool:
        return True

    def done(self) -> bool:
        return True

    def __await__(self) -> Any:
        yield from ()


class NoTransport:
    async def call(self, peer: Endpoint, method: Method, request: Any, timeout_ms: int) -> Any:
        raise TransportError("messages are delivered by the test")

    async def reserve(self, listen: Endpoint) -> None:
        pass

    async def serve(self, listen: Endpoint, handlers: Mapping[Method, Any]) -> Endpoint:
        return listen

    async def close(self, grace_ms: int = 0) -> None:
        return None


class NoController:
    async def call(self, method: Method, request: Any, timeout_ms: int) -> Any:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


def run_now(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never has to wait."""
    try:
        coro.send(None)
    except StopIteration as done:
        return done.value
    coro.close()
    raise AssertionError("the coroutine waits")


class Node:
    """One broker: its disk outlives its manager."""

    def __init__(self, cluster: StepCluster, broker_id: NodeId) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.disk = MemDisk(wall_ms=cluster.clock.wall_ms)
        self.tracer = cluster.tracer_for(broker_id)
        self.clock = cluster.clock
        self.broker_epoch = -1
        self.up = False
        self.image = MetadataImage.EMPTY
        self.applied = 0
        """Number of records of the metadata log that this broker has applied."""

    def boot(self) -> None:
        cluster = self.cluster
        self.logs = MemLogs(self.disk, self.clock, self.tracer, cluster.log_config)
        self.ports = Ports(
            node_id=self.id,
            clock=self.clock,
            disk=self.disk,
            transport=cluster.transport_for(self.id),
            tracer=self.tracer,
            tasks=cluster.tasks_for(self.id),
            entropy=random.Random(int(self.id)),
            fault=cluster.fault,
        )
        self.manager = ReplicaManager(
            self.ports,
            replace(cluster.config, broker_id=self.id),
            self.logs,
            cluster.channel_for(self.id),
            lambda: self.broker_epoch,
            trace_hot=cluster.trace_hot,
        )
        self.image, self.applied, self.up = MetadataImage.EMPTY, 0, True

    def crash(self, rng: random.Random | None = None, *, lose_page_cache: bool = True) -> None:
        """The process dies; with `lose_page_cache` the machine does. With `rng` unsynced bytes are torn, without all are lost."""
        self.up = False
        if lose_page_cache:
            self.disk.crash(rng)

    def partition(self, tp: TopicPartition = TP) -> Any:
        found = self.manager.partition(tp)
        assert found is not None
        return found

    def log(self, tp: TopicPartition = TP) -> Log:
        return self.partition(tp).online_log()  # type: ignore[no-any-return]

    # metadata

    def catch_up(self, up_to: int | None = None) -> None:
        """Apply the controller's records, all of them in one delta."""
        delta = self.load(up_to)
        if delta is None:
            return
        if delta.topics is not None:
            self.manager.apply_delta(delta.topics, self.image)
        self.manager.handle_image(self.image)

    def load(self, up_to: int | None = None) -> MetadataDelta | None:
        """What is new in the controller's records; `image` is the one after it, and who calls applies both."""
        records = self.cluster.controller.records
        end = len(records) if up_to is None else up_to
        if end <= self.applied:
            return None
        delta = MetadataDelta(self.image)
        for record in records[self.applied : end]:
            delta.replay(record)
        self.applied = end
        self.image = delta.apply(
            MetadataProvenance(
                last_contained_offset=end - 1,
                last_contained_epoch=1,
                last_contained_log_time_ms=0,
                is_offset_batch_aligned=True,
            )
        )
        return delta

    # replication

    def fetchers(self) -> dict[NodeId, FetcherCore]:
        return {key[0]: driver.core for key, (driver, _) in self.manager._fetchers._drivers.items()}

    def fetch_request(self, leader: NodeId) -> ReplicaFetchRequest | None:
        core = self.fetchers().get(leader)
        return None if core is None else core.request(self.broker_epoch, self.clock.now_ms())

    def serve_fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        found = run_now(self.manager.handlers()[REPLICA_FETCH](replace(request, max_wait_ms=0)))  # type: ignore[arg-type]
        assert isinstance(found, ReplicaFetchResponse)
        return found

    def take_response(self, leader: NodeId, response: ReplicaFetchResponse) -> bool:
        core = self.fetchers().get(leader)
        return core is not None and core.handle_response(response, self.clock.now_ms(), self.clock.wall_ms())

    def fail_fetch(self, leader: NodeId) -> None:
        core = self.fetchers().get(leader)
        if core is not None:
            core.handle_failure("lost")

    def fetch_once(self, leader: NodeId) -> tuple[ReplicaFetchRequest, ReplicaFetchResponse] | None:
        """One whole exchange with `leader`, and what an out-of-range answer asks for."""
        request = self.fetch_request(leader)
        if request is None:
            return None
        target = self.cluster.nodes[leader]
        if not target.up:
            self.fail_fetch(leader)
            return None
        response = target.serve_fetch(request)
        self.take_response(leader, response)
        core = self.fetchers().get(leader)
        offsets = None if core is None else core.offsets_request()
        if core is not None and offsets is not None:
            answer = run_now(target.manager.handlers()[REPLICA_OFFSETS](offsets))  # type: ignore[arg-type]
            core.handle_offsets(answer.partitions, self.clock.now_ms())
        return request, response

    def alter_request(self) -> AlterPartitionRequest | None:
        return self.manager._alter._core.request(self.broker_epoch)

    def take_alter(self, response: AlterPartitionResponse | None) -> None:
        core = self.manager._alter._core
        if response is None:
            core.handle_failure()
        else:
            core.handle_response(response, self.clock.now_ms())

    # clients

    def produce(
        self,
        values: Sequence[str],
        *,
        acks: int = 1,
        timeout_ms: int = 30_000,
        tp: TopicPartition = TP,
        on_done: Callable[[ProduceResult], None] | None = None,
        batch: bytearray | None = None,
        topic_id: UUID | None = None,
    ) -> list[ProduceResult]:
        """The results list fills when the verdict is there."""
        done: list[ProduceResult] = []

        def finish(results: list[ProduceResult]) -> None:
            done.extend(results)
            if on_done is not None:
                on_done(results[0])

        entry = ProduceEntry(tp=tp, topic_id=topic_id, records=batch if batch is not None else make_batch(values))
        self.manager.append([entry], acks=acks, timeout_ms=timeout_ms, on_done=finish)
        return done

    def consume(self, offset: int = 0, *, tp: TopicPartition = TP, **options: Any) -> FetchResult:
        entry = FetchEntry(
            tp=tp,
            topic_id=None,
            fetch_offset=offset,
            current_leader_epoch=options.pop("leader_epoch", None),
            last_fetched_epoch=options.pop("last_fetched_epoch", None),
            max_bytes=options.pop("partition_max_bytes", 1 << 20),
        )
        params = FetchParams(
            max_wait_ms=0, min_bytes=1, max_bytes=options.pop("max_bytes", 1 << 22), **options
        )  # fmt: skip
        return self.manager.fetch_now(params, [entry])[0]


class ModelController:
    """Partition and broker state as records; `state` is the truth that the checkers compare with."""

    def __init__(self) -> None:
        self.records: list[MetadataRecord] = []
        self.image = MetadataImage.EMPTY
        self.unclean = False

    def write(self, *records: MetadataRecord) -> int:
        """Append atomically; returns the offset of the last record."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.records.extend(records)
        self.image = delta.apply(
            MetadataProvenance(
                last_contained_offset=len(self.records) - 1,
                last_contained_epoch=1,
                last_contained_log_time_ms=0,
                is_offset_batch_aligned=True,
            )
        )
        return len(self.records) - 1

    def registration(self, topic_id: UUID = TOPIC_ID, index: int = 0) -> PartitionRegistration:
        found = self.image.topics.partition(topic_id, index)
        assert found is not None
        return found

    def partitions(self) -> list[tuple[UUID, int, PartitionRegistration]]:
        return [
            (topic.topic_id, index, registration)
            for topic in self.image.topics
            for index, registration in sorted(topic.partitions.items())
        ]

    # brokers

    def register(self, broker_id: NodeId, *, fenced: bool = False) -> int:
        """A new incarnation; as after an unclean restart it leaves every ISR it may leave (CM-36). Returns its broker epoch."""
        if broker_id in self.image.cluster.brokers:
            self.leave_isrs(broker_id)
        epoch = len(self.records)
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=UUID(int=epoch + 1),
                broker_epoch=epoch,
                listeners=(ListenerInfo(name=LISTENER, host=f"b{broker_id}", port=9192, security_protocol="GRPC"),),
                features=(),
                rack=f"r{broker_id}",
                fenced=fenced,
                in_controlled_shutdown=False,
                log_dirs=(),
            )
        )
        if not fenced:
            self.elect_where_needed()
        return epoch

    def set_fenced(self, broker_id: NodeId, fenced: bool) -> None:
        broker = self.image.cluster.brokers[broker_id]
        if broker.fenced == fenced:
            return
        self.write(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=fenced))
        if fenced:
            self.leave_isrs(broker_id)
        else:
            self.elect_where_needed()

    def live(self, broker_id: NodeId) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.active

    def leave_isrs(self, broker_id: NodeId) -> None:
        """Without ELR the last member stays, as the only one that may come back (CM-28)."""
        for topic_id, index, state in self.partitions():
            isr = tuple(member for member in state.isr if member != broker_id)
            if broker_id in state.isr and isr:
                leader = state.leader
                if leader == broker_id:
                    leader = next((r for r in state.replicas if r in isr and self.live(r)), None)
                self._change(topic_id, index, isr=isr, leader=UNCHANGED if leader == state.leader else leader)
            elif state.leader == broker_id:
                self._change(topic_id, index, leader=None)

    def elect_where_needed(self) -> None:
        for topic_id, index, state in self.partitions():
            if state.leader is None:
                found = next((r for r in state.replicas if r in state.isr and self.live(r)), None)
                if found is not None:
                    self._change(topic_id, index, leader=found)
                elif self.unclean:
                    self.elect_unclean(topic_id, index)

    def elect(self, leader: NodeId, topic_id: UUID = TOPIC_ID, index: int = 0) -> None:
        self._change(topic_id, index, leader=leader)

    def elect_unclean(self, topic_id: UUID = TOPIC_ID, index: int = 0, leader: NodeId | None = None) -> bool:
        state = self.registration(topic_id, index)
        found = leader or next((r for r in state.replicas if self.live(r)), None)
        if found is None:
            return False
        self._change(topic_id, index, leader=found, isr=(found,), recovering=True)
        return True

    def _change(self, topic_id: UUID, index: int, **fields: Any) -> int:
        return self.write(PartitionChangeRecord(topic_id=topic_id, partition=index, **fields))

    # topics

    def create(
        self,
        replicas: Sequence[int],
        *,
        name: str = TOPIC,
        topic_id: UUID = TOPIC_ID,
        index: int = 0,
        isr: Sequence[int] | None = None,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
    ) -> None:
        ids = tuple(NodeId(replica) for replica in replicas)
        members = ids if isr is None else tuple(NodeId(member) for member in isr)
        records: list[MetadataRecord] = []
        if self.image.topics.topic_by_id(topic_id) is None:
            records.append(TopicRecord(name=name, topic_id=topic_id))
        records.append(
            PartitionRecord(
                topic_id=topic_id,
                partition=index,
                replicas=ids,
                isr=members,
                leader=members[0],
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
            )
        )
        self.write(*records)

    def delete(self, topic_id: UUID = TOPIC_ID) -> None:
        self.write(RemoveTopicRecord(topic_id=topic_id))

    # AlterPartition

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Raises ApiError(STALE_BROKER_EPOCH) for the whole (CM-30)."""
        broker = self.image.cluster.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
        return AlterPartitionResponse(partitions=tuple(self._alter(request.broker_id, item) for item in request.partitions))

    def _alter(self, broker_id: NodeId, item: AlterPartitionItem) -> AlterPartitionResult:
        state = self.image.topics.partition(item.topic_id, item.partition)
        error = self._alter_problem(broker_id, item, state)
        if error is not None:
            return AlterPartitionResult(topic_id=item.topic_id, partition=item.partition, error=error)
        assert state is not None
        isr = tuple(member.broker_id for member in item.new_isr)
        changed = {"isr": isr if isr != state.isr else UNCHANGED, "recovering": item.recovering}
        if isr == state.isr and item.recovering == state.recovering:
            self._change(item.topic_id, item.partition, isr=isr)
        else:
            if item.recovering == state.recovering:
                changed["recovering"] = UNCHANGED
            self._change(item.topic_id, item.partition, **changed)
        now = self.registration(item.topic_id, item.partition)
        return AlterPartitionResult(
            topic_id=item.topic_id,
            partition=item.partition,
            error=ErrorCode.NONE,
            leader_id=now.leader,
            leader_epoch=now.leader_epoch,
            isr=now.isr,
            recovering=now.recovering,
            partition_epoch=now.partition_epoch,
        )

    def _alter_problem(
        self, broker_id: NodeId, item: AlterPartitionItem, state: PartitionRegistration | None
    ) -> ErrorCode | None:
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if item.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if state.leader != broker_id:
            return ErrorCode.INVALID_REQUEST
        if item.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if {member.broker_id for member in item.new_isr} == set(state.isr):
            return None
        for member in item.new_isr:
            broker = self.image.cluster.brokers.get(member.broker_id)
            if broker is None or not broker.active or member.broker_epoch not in (None, broker.broker_epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return None


class StepCluster:
    """Brokers 1 to `count`, registered and unfenced, with nothing created yet."""

    def __init__(
        self,
        count: int = 3,
        *,
        lag_time_max_ms: int = 10_000,
        log_config: LogConfig | None = None,
        **config: Any,
    ) -> None:
        self.clock = FakeClock()
        self.log_config = log_config or LogConfig()
        self.config = ReplicationConfig(
            broker_id=NodeId(0),
            cluster_id="test",
            inter_broker_listener_name=LISTENER,
            lag_time_max_ms=lag_time_max_ms,
            **config,
        )
        self.tracers: dict[NodeId, ListTracer] = {}
        self.controller = ModelController()
        self.faults: list[tuple[BaseException, str]] = []
        self.nodes = {NodeId(n): Node(self, NodeId(n)) for n in range(1, count + 1)}
        for node in self.nodes.values():
            node.boot()
            node.broker_epoch = self.controller.register(node.id)

    trace_hot = True

    def transport_for(self, broker_id: NodeId) -> Transport:
        return NoTransport()

    def tasks_for(self, broker_id: NodeId) -> Tasks:
        return StepTasks()

    def channel_for(self, broker_id: NodeId) -> ControllerChannel:
        return NoController()

    def tracer_for(self, broker_id: NodeId) -> ListTracer:
        return self.tracers.setdefault(broker_id, ListTracer())

    def fault(self, error: BaseException, where: str) -> None:
        self.faults.append((error, where))

    def __getitem__(self, broker_id: int) -> Node:
        return self.nodes[NodeId(broker_id)]

    def create(self, replicas: Sequence[int] = (1, 2, 3), **options: Any) -> None:
        self.controller.create(replicas, **options)
        self.publish()

    def publish(self) -> None:
        for node in self.nodes.values():
            if node.up:
                node.catch_up()

    def restart(self, broker_id: int, *, unfence: bool = True) -> Node:
        node = self[broker_id]
        node.boot()
        node.broker_epoch = self.controller.register(node.id, fenced=not unfence)
        self.publish()
        return node

    def leader(self, topic_id: UUID = TOPIC_ID, index: int = 0) -> Node:
        found = self.controller.registration(topic_id, index).leader
        assert found is not None
        return self.nodes[found]

    def fetch(self, follower: int, leader: int | None = None) -> tuple[ReplicaFetchRequest, ReplicaFetchResponse] | None:
        target = self.leader().id if leader is None else NodeId(leader)
        return self[follower].fetch_once(target)

    def replicate(self, rounds: int = 3) -> None:
        """Let every follower fetch from whom it follows, a few times."""
        for _ in range(rounds):
            for node in self.nodes.values():
                if node.up:
                    for leader in list(node.fetchers()):
                        node.fetch_once(leader)

    def settle_isr(self) -> None:
        """Carry ISR changes to the controller and its answers and records back, until nobody wants one."""
        for _ in range(20):
            quiet = True
            for node in self.nodes.values():
                request = node.alter_request() if node.up else None
                if request is not None:
                    quiet = False
                    try:
                        node.take_alter(self.controller.alter_partition(request))
                    except ApiError:
                        node.take_alter(None)
            self.publish()
            if quiet:
                return

    def tick(self, delta_ms: int) -> None:
        """Time passes, and every leader looks at its followers, as it does each half of the allowed lag."""
        self.clock.advance(delta_ms)
        for node in self.nodes.values():
            if node.up:
                self.check_isrs(node)

    def check_isrs(self, node: Node) -> None:
        for partition in node.manager.partitions():
            partition.check_isr(self.clock.now_ms())
