"""Controllers over a `FakeQuorum`, driven step by step; requests are built in one line."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.core import ControllerCore
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
from kraftlite.runtime.trace import ListTracer
from tests.harness.controller_raft import FakeQuorum, FakeRaft

CLUSTER_ID = "kraftlite-test-cluster"
MV = 30
BOOTSTRAP: tuple[MetadataRecord, ...] = (FeatureLevelRecord(name=METADATA_VERSION, level=MV),)


class Answer:
    """What a submitted operation came back with."""

    def __init__(self) -> None:
        self.done = False
        self.error: ApiError | None = None
        self.response: Any = None

    def __call__(self, outcome: Any) -> None:
        assert not self.done, "answered twice"
        self.done = True
        if isinstance(outcome, ApiError):
            self.error = outcome
        else:
            self.response = outcome

    @property
    def value(self) -> Any:
        assert self.done, "not answered yet"
        if self.error is not None:
            raise self.error
        return self.response

    @property
    def code(self) -> ErrorCode | None:
        if not self.done:
            return None
        return ErrorCode.NONE if self.error is None else self.error.code


class Node:
    """One controller: core, raft and trace; the RaftListener that enqueues into the core."""

    def __init__(self, world: World, node_id: int, config: ControllerConfig, bootstrap: Sequence[MetadataRecord] | None) -> None:
        self.world = world
        self.raft: FakeRaft = world.quorum.node(node_id)
        self.tracer = ListTracer()
        self.core = ControllerCore(config, self.raft, bootstrap, random.Random(node_id), self.tracer)
        self.raft.register(self)

    def holds_back(self) -> bool:
        return False

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.core.on_commit(tuple(batches), self.world.now_ms)

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.core.on_load_snapshot(
            snapshot.snapshot_id.offset, snapshot.snapshot_id.epoch, tuple(snapshot.batches()), self.world.now_ms
        )

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.core.on_leader_change(leader, self.world.now_ms)

    def run(self) -> None:
        while self.core.step(self.world.now_ms):
            pass


class World:
    """A quorum of controllers. `commit_at_once`: everything appended is committed as soon as the events are run."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        bootstrap: Sequence[MetadataRecord] | None = BOOTSTRAP,
        elect: bool = True,
        commit_at_once: bool = True,
        log: Sequence[Sequence[MetadataRecord]] = (),
        **config: Any,
    ) -> None:
        self.quorum = FakeQuorum()
        self.now_ms = 1_000
        if log:
            self.quorum.load(log)
        config.setdefault("max_idle_interval_ms", 0)
        self.nodes: dict[int, Node] = {}
        self.commit_at_once = commit_at_once
        for index in range(nodes):
            node_id = 100 + index
            settings = {"node_id": NodeId(node_id), "cluster_id": CLUSTER_ID, **config}
            self.nodes[node_id] = Node(self, node_id, ControllerConfig(**settings), bootstrap)
        self.epochs: dict[int, int] = {}
        if elect:
            self.quorum.elect(100)
            self.settle()

    @property
    def active(self) -> Node:
        return next(node for node in self.nodes.values() if node.core.active)

    @property
    def state(self) -> Any:
        return self.active.core.state

    def settle(self) -> None:
        """Run all events; with `commit_at_once`, until nothing is left to commit."""
        while True:
            for node in self.nodes.values():
                node.run()
            if not self.commit_at_once or not self.quorum.uncommitted:
                return
            self.quorum.commit()

    def commit(self) -> None:
        self.quorum.commit()
        for node in self.nodes.values():
            node.run()

    def advance(self, delay_ms: int, step_ms: int = 100) -> None:
        """Let time pass in small steps, as a driver with timers would."""
        until = self.now_ms + delay_ms
        while self.now_ms < until:
            self.now_ms = min(until, self.now_ms + step_ms)
            self.settle()

    # --- operations

    def submit(
        self,
        name: str,
        operation: Callable[[int], ControllerResult[Any]],
        *,
        after: Callable[[int, int], None] | None = None,
        node: Node | None = None,
    ) -> Answer:
        answer = Answer()
        core = (node or self.active).core
        core.submit(name, operation, answer, self.now_ms, after=after)
        self.settle()
        return answer

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        rack: str | None = None,
        features: tuple[m.FeatureRange, ...] = SUPPORTED_FEATURES,
        cluster_id: str = CLUSTER_ID,
        log_dirs: tuple[UUID, ...] | None = None,
        previous_epoch: int | None = None,
    ) -> Answer:
        node = self.active
        state = node.core.state
        request = m.BrokerRegistrationRequest(
            broker_id=NodeId(broker_id),
            cluster_id=cluster_id,
            incarnation_id=UUID(int=10_000 * broker_id + incarnation),
            listeners=(m.ListenerInfo(name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol="PLAINTEXT"),),
            features=features,
            rack=rack,
            log_dirs=(UUID(int=1_000_000 + broker_id),) if log_dirs is None else log_dirs,
            previous_broker_epoch=previous_epoch,
        )

        def after(_last: int, now_ms: int) -> None:
            registration = state.cluster.brokers[request.broker_id]
            state.cluster.live.tracker.touch(request.broker_id, registration.broker_epoch, now_ms)

        answer = self.submit(
            "register_broker",
            lambda now: state.brokers.register(request, now, node.raft.log_end_offset()),
            after=after,
        )
        if answer.done and answer.error is None:
            self.epochs[broker_id] = answer.response.broker_epoch
        return answer

    def heartbeat(
        self,
        broker_id: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offset: int | None = None,
        epoch: int | None = None,
        offline: tuple[UUID, ...] = (),
    ) -> Answer:
        state = self.state
        request = m.BrokerHeartbeatRequest(
            broker_id=NodeId(broker_id),
            broker_epoch=self.epochs.get(broker_id, -1) if epoch is None else epoch,
            current_metadata_offset=self.quorum.high_watermark - 1 if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=offline,
        )
        state.cluster.tracker.touch(request.broker_id, request.broker_epoch, self.now_ms)
        return self.submit(
            "broker_heartbeat",
            lambda _now: state.brokers.heartbeat(request),
            after=lambda last, _now: state.brokers.after_heartbeat(request, last),
        )

    def start_brokers(self, *broker_ids: int, **registration: Any) -> None:
        for broker_id in broker_ids:
            _ = self.register(broker_id, **registration).value
            assert not self.heartbeat(broker_id).value.is_fenced

    def fence(self, broker_id: int) -> None:
        assert self.heartbeat(broker_id, want_fence=True).value.is_fenced

    def create(
        self,
        name: str = "t",
        partitions: int = 1,
        rf: int = 1,
        *,
        assignments: Sequence[Sequence[int]] = (),
        configs: dict[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> m.CreatableTopicResult:
        answer = self.create_many(
            self.topic(name, partitions, rf, assignments=assignments, configs=configs), validate_only=validate_only
        )
        found: m.CreatableTopicResult = answer.value.topics[0]
        return found

    @staticmethod
    def topic(
        name: str,
        partitions: int = 1,
        rf: int = 1,
        *,
        assignments: Sequence[Sequence[int]] = (),
        configs: dict[str, str | None] | None = None,
    ) -> m.CreatableTopic:
        manual = tuple(
            m.ReplicaAssignment(partition=index, broker_ids=tuple(NodeId(b) for b in brokers))
            for index, brokers in enumerate(assignments)
        )
        return m.CreatableTopic(
            name=name,
            num_partitions=-1 if manual else partitions,
            replication_factor=-1 if manual else rf,
            assignments=manual,
            configs=tuple(m.ConfigPair(name=key, value=value) for key, value in (configs or {}).items()),
        )

    def create_many(self, *topics: m.CreatableTopic, validate_only: bool = False) -> Answer:
        state = self.state
        request = m.CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=1_000)
        return self.submit("create_topics", lambda _now: state.topics.create(request))

    def delete(self, *names: str) -> Answer:
        state = self.state
        selectors = tuple(m.TopicSelector(name=name, topic_id=None) for name in names)
        request = m.DeleteTopicsRequest(topics=selectors, timeout_ms=1_000)
        return self.submit("delete_topics", lambda _now: state.topics.delete(request))

    def partition(self, topic: str = "t", index: int = 0, node: Node | None = None) -> PartitionRegistration:
        info = (node or self.active).core.state.replication.topic(topic)
        assert info is not None, f"no topic {topic}"
        found: PartitionRegistration = info.partitions[index]
        return found

    def alter_partition(
        self,
        isr: Sequence[int | tuple[int, int | None]],
        *,
        topic: str = "t",
        index: int = 0,
        broker: int | None = None,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovering: bool = False,
        topic_id: UUID | None = None,
    ) -> Answer:
        state = self.state
        info = state.replication.topic(topic)
        current = info.partitions.get(index)
        leader = (current.leader or 0) if broker is None else broker
        members = tuple(
            m.IsrMember(broker_id=NodeId(entry[0]), broker_epoch=entry[1])
            if isinstance(entry, tuple)
            else m.IsrMember(broker_id=NodeId(entry), broker_epoch=self.epochs.get(entry))
            for entry in isr
        )
        item = m.AlterPartitionItem(
            topic_id=info.topic_id if topic_id is None else topic_id,
            partition=index,
            leader_epoch=(current.leader_epoch if current else 0) if leader_epoch is None else leader_epoch,
            partition_epoch=(current.partition_epoch if current else 0) if partition_epoch is None else partition_epoch,
            new_isr=members,
            recovering=recovering,
        )
        request = m.AlterPartitionRequest(
            broker_id=NodeId(leader),
            broker_epoch=self.epochs.get(leader, -1) if broker_epoch is None else broker_epoch,
            partitions=(item,),
        )
        return self.submit("alter_partition", lambda _now: state.isr.alter(request))

    def elect(self, election_type: int, *partitions: tuple[str, int], everything: bool = False) -> Answer:
        state = self.state
        names = None if everything else tuple(m.PartitionName(topic=topic, partition=index) for topic, index in partitions)
        request = m.ElectLeadersRequest(election_type=election_type, partitions=names, timeout_ms=1_000)
        return self.submit("elect_leaders", lambda _now: state.elections.elect(request))

    def set_config(self, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Answer:
        state = self.state
        request = m.IncrementalAlterConfigsRequest(
            resources=(
                m.ConfigResourceChange(
                    resource_type=kind,
                    resource_name=name,
                    changes=tuple(m.ConfigChange(name=key, op=op, value=value) for key, op, value in changes),
                ),
            ),
            validate_only=validate_only,
            timeout_ms=1_000,
        )
        return self.submit("incremental_alter_configs", lambda _now: state.configs.incremental_alter(request))

    # --- invariants 18 to 23

    def check(self) -> None:
        for node in self.nodes.values():
            check_invariants(node.core)


def check_invariants(core: ControllerCore) -> None:
    """Invariants 19 and 20, and that every index agrees with what it indexes."""
    state = core.state
    state.check()
    epochs = list(state.registry.epochs)
    assert epochs == sorted(set(epochs))
