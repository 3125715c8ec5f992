"""The driver over a fake clock and a fake quorum: handlers, deadlines, timers, faults."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.driver import ControllerDriver, Policies
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord, TopicRecord
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.controller_raft import FakeQuorum, FakeSnapshot
from tests.harness.controller_world import BOOTSTRAP, CLUSTER_ID
from tests.harness.disk import MemDisk
from tests.harness.transport import MemNetwork


class LoopTasks:
    """The Tasks port on the test's loop."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> TaskHandle:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.tasks.append(task)
        return task

    async def run_blocking(self, function: Any) -> Any:
        return function()

    async def cancel_all(self) -> None:
        for task in self.tasks:
            task.cancel()


class Rig:
    def __init__(self, nodes: int = 1, *, policies: Policies | None = None, **config: Any) -> None:
        self.clock = FakeClock(now_ms=1_000)
        self.network = MemNetwork(self.clock)
        self.quorum = FakeQuorum()
        self.faults: list[BaseException] = []
        self.drivers: list[ControllerDriver] = []
        self.transports = []
        for index in range(nodes):
            node_id = NodeId(100 + index)
            transport = self.network.transport(f"node{node_id}")
            self.transports.append(transport)
            ports = Ports(
                node_id=node_id,
                clock=self.clock,
                disk=MemDisk(),
                transport=transport,
                tracer=ListTracer(),
                tasks=LoopTasks(),
                entropy=random.Random(index),
                fault=lambda error, _where: self.faults.append(error),
            )
            raft = self.quorum.node(node_id)
            raft.auto_commit = True
            settings = {"node_id": node_id, "cluster_id": CLUSTER_ID, "max_idle_interval_ms": 0, **config}
            if "listeners" in settings:
                settings["listeners"] = (m.ListenerInfo(name="C", host=f"node{node_id}", port=9093, security_protocol="GRPC"),)
            self.drivers.append(ControllerDriver(ports, ControllerConfig(**settings), raft, BOOTSTRAP, policies))

    async def start(self) -> Rig:
        for driver, transport in zip(self.drivers, self.transports, strict=True):
            await driver.start()
            await transport.serve(Endpoint(f"node{driver.core.config.node_id}", 9093), driver.handlers())
        self.quorum.elect(100)
        await self.settle()
        return self

    async def settle(self) -> None:
        await self.clock.run_for(0)
        await self.clock.run_for(0)

    async def call(self, method: Any, request: Any) -> Any:
        task = asyncio.ensure_future(self.drivers[0].handlers()[method](request))
        await self.settle()
        assert task.done(), "not answered"
        return task.result()

    async def broker(self, broker_id: int = 1) -> int:
        request = m.BrokerRegistrationRequest(
            broker_id=NodeId(broker_id),
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=broker_id + 10**6),
            listeners=(),
            features=SUPPORTED_FEATURES,
            rack=None,
            log_dirs=(UUID(int=broker_id + 10**7),),
            previous_broker_epoch=None,
        )
        epoch: int = (await self.call(methods.REGISTER_BROKER, request)).broker_epoch
        await self.call(methods.BROKER_HEARTBEAT, beat(broker_id, epoch))
        return epoch


def beat(broker_id: int, epoch: int, offset: int = 10**6) -> m.BrokerHeartbeatRequest:
    return m.BrokerHeartbeatRequest(
        broker_id=NodeId(broker_id),
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
    )


def create(name: str = "t", timeout_ms: int = 500) -> m.CreateTopicsRequest:
    topic = m.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    return m.CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=timeout_ms)


async def test_it_serves_every_controller_method() -> None:
    rig = Rig()
    assert set(rig.drivers[0].handlers()) == {method for method in methods.ALL_METHODS if method.service == "Controller"}


async def test_register_heartbeat_create() -> None:
    rig = await Rig().start()
    assert rig.drivers[0].active
    await rig.broker()
    result = await rig.call(methods.CREATE_TOPICS, create())
    assert result.topics[0].error is ErrorCode.NONE
    assert rig.faults == []


async def test_ce_06_an_uncommitted_change_times_out_and_never_succeeds() -> None:
    rig = await Rig().start()
    await rig.broker()
    rig.quorum.nodes[NodeId(100)].auto_commit = False
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.CREATE_TOPICS](create(timeout_ms=500)))
    await rig.settle()
    assert not task.done()
    await rig.clock.run_for(499)
    assert not task.done()
    await rig.clock.run_for(2)
    with pytest.raises(ApiError) as caught:
        task.result()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    rig.quorum.commit()
    await rig.settle()
    assert rig.faults == []


async def test_periodic_fencing_runs_by_the_clock() -> None:
    rig = await Rig().start()
    await rig.broker()
    await rig.clock.run_for(9_000)
    assert not rig.drivers[0].core.state.cluster.brokers[NodeId(1)].fenced
    await rig.clock.run_for(1_500)
    assert rig.drivers[0].core.state.cluster.brokers[NodeId(1)].fenced


async def test_ce_25_a_heartbeat_that_expires_in_the_queue_still_counts() -> None:
    rig = await Rig(heartbeat_timeout_ms=50).start()
    epoch = await rig.broker()
    driver = rig.drivers[0]
    core_step, driver.core.step = driver.core.step, lambda *_a, **_k: False  # type: ignore[method-assign]
    task = asyncio.ensure_future(driver.handlers()[methods.BROKER_HEARTBEAT](beat(1, epoch, 2 * 10**6)))
    await rig.clock.run_for(60)
    driver.core.step = core_step  # type: ignore[method-assign]
    assert isinstance(task.exception(), ApiError)
    driver.core.step(rig.clock.now_ms())
    assert driver.metrics.timed_out_broker_heartbeat_count == 1
    tracker = driver.core.state.cluster.tracker
    assert tracker is not None
    assert tracker.last_contact_ms(NodeId(1), epoch) == rig.clock.now_ms() - 60
    assert driver.core.state.cluster.live.brokers[NodeId(1)].metadata_offset == 2 * 10**6, "what it reported counts too"


async def test_ce_25_a_node_that_stood_still_does_not_fence_whom_it_could_not_hear() -> None:
    rig = await Rig().start()
    await rig.broker()
    tracker = rig.drivers[0].core.state.cluster.tracker
    assert tracker is not None
    rig.clock.stall(12_000)
    await rig.clock.run_for(100)
    assert not rig.drivers[0].core.state.cluster.brokers[NodeId(1)].fenced
    await rig.clock.run_for(10_500)
    assert rig.drivers[0].core.state.cluster.brokers[NodeId(1)].fenced, "from then on silence counts"


async def test_ce_31_empty_requests_answer_without_the_queue() -> None:
    rig = Rig()
    handlers = rig.drivers[0].handlers()
    empty = (
        (methods.CREATE_TOPICS, m.CreateTopicsRequest(topics=(), validate_only=False, timeout_ms=1)),
        (methods.DELETE_TOPICS, m.DeleteTopicsRequest(topics=(), timeout_ms=1)),
        (methods.CREATE_PARTITIONS, m.CreatePartitionsRequest(topics=(), validate_only=False, timeout_ms=1)),
        (
            methods.INCREMENTAL_ALTER_CONFIGS,
            m.IncrementalAlterConfigsRequest(resources=(), validate_only=False, timeout_ms=1),
        ),
        (methods.ALTER_CONFIGS, m.AlterConfigsRequest(resources=(), validate_only=False, timeout_ms=1)),
        (methods.ELECT_LEADERS, m.ElectLeadersRequest(election_type=0, partitions=(), timeout_ms=1)),
    )
    for method, request in empty:
        await handlers[method](request)
    assert len(rig.drivers[0].core.queue) == 0


async def test_ce_14_start_refuses_without_bootstrap_metadata() -> None:
    rig = Rig()
    rig.drivers[0]._bootstrap = None
    with pytest.raises(Fault, match="formatted"):
        await rig.drivers[0].start()


async def test_a_fault_goes_to_the_node_and_stops_the_loop() -> None:
    rig = await Rig().start()
    record = TopicRecord(name="x", topic_id=UUID(int=5))

    def twice(_now: int) -> ControllerResult[None]:
        return ControllerResult(records=[record, record], response=None)

    with pytest.raises(ApiError):
        task = asyncio.ensure_future(rig.drivers[0]._submit("twice", twice, 1_000))
        await rig.settle()
        task.result()
    assert [type(error) for error in rig.faults] == [Fault]


async def test_a_snapshot_is_read_during_the_callback() -> None:
    rig = await Rig(nodes=2).start()
    standby = rig.drivers[1]
    batches = [(BOOTSTRAP[0], TopicRecord(name="x", topic_id=UUID(int=5)))]
    rig.quorum.nodes[NodeId(101)].load_snapshot(FakeSnapshot(OffsetAndEpoch(epoch=1, offset=40), batches))
    await rig.settle()
    assert list(standby.core.state.replication.topic_ids) == ["x"]


async def test_cm_13_controllers_register_themselves() -> None:
    rig = await Rig(nodes=2, listeners=()).start()
    await rig.clock.run_for(1_100)
    assert sorted(rig.drivers[1].core.state.cluster.controllers) == [100, 101]
    for driver in rig.drivers:
        await driver.stop()


async def test_stop_answers_everyone_with_a_timeout() -> None:
    rig = await Rig().start()
    await rig.broker()
    rig.quorum.nodes[NodeId(100)].auto_commit = False
    handler = rig.drivers[0].handlers()[methods.CREATE_TOPICS]
    parked = asyncio.ensure_future(handler(create("a", 10_000)))
    await rig.settle()
    await rig.drivers[0].stop()
    for task in (parked, asyncio.ensure_future(handler(create("b", 10_000)))):
        with pytest.raises(ApiError) as caught:
            await task
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_cm_13_a_registration_that_is_refused_or_fails_is_told() -> None:
    rig = Rig(2, listeners=True)
    sent = [event for driver in rig.drivers for event in driver._ports.tracer.events]  # type: ignore[attr-defined]
    assert sent == []
    rig.network.cut("node100", "node101")
    await rig.start()
    tracer = rig.drivers[1]._ports.tracer
    assert isinstance(tracer, ListTracer)
    for _ in range(4):
        await rig.clock.run_for(500)
    names = [event.event for event in tracer.events if event.event.startswith("node.controller_registration")]
    assert names == ["node.controller_registration_sent", "node.controller_registration_failed"], "the same reason is told once"
    rig.network.heal()
    registrar = rig.drivers[1].registrar
    await rig.clock.run_for(600)
    assert registrar.registered

    refused = Rig(2, listeners=True)
    refused.drivers[1].registrar._config = dataclasses.replace(refused.drivers[1].core.config, cluster_id="other")
    await refused.start()
    tracer = refused.drivers[1]._ports.tracer
    assert isinstance(tracer, ListTracer)
    for _ in range(50):
        await refused.clock.run_for(500)
    told = [event for event in tracer.events if event.event == "node.controller_registration_failed"]
    assert [event.retry_in_ms for event in told] == [10_000] * 3 and "Expected cluster ID" in told[0].reason


@pytest.mark.parametrize(("attempts", "told"), [(3, 0), (10**9, 1)], ids=["until it has claimed", "for ever"])
async def test_cm_13_a_leader_that_has_not_claimed_the_controller_yet_is_told_of_only_when_it_never_does(
    attempts: int, told: int
) -> None:
    """A sole controller meets itself in that state at each of its starts."""
    rig = Rig(1, listeners=True)
    registrar, asked = rig.drivers[0].registrar, 0
    register = registrar._register_here

    async def not_yet(request: m.ControllerRegistrationRequest) -> None:
        nonlocal asked
        asked += 1
        if asked <= attempts:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "node 100 appears to be")
        await register(request)

    registrar._register_here = not_yet
    await rig.start()
    for _ in range(40):
        await rig.clock.run_for(500)
    tracer = rig.drivers[0]._ports.tracer
    assert isinstance(tracer, ListTracer)
    failed = [event for event in tracer.events if event.event == "node.controller_registration_failed"]
    assert (len(failed), registrar.registered) == (told, not told)


def publish(driver: ControllerDriver, image: MetadataImage, *records: MetadataRecord) -> MetadataImage:
    """Tell the registrar of these records, as the loader does."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    after = delta.apply(MetadataProvenance.EMPTY)
    driver.registrar.on_metadata_update(delta, after, Manifest(kind="log", provenance=after.provenance))
    return after


async def test_fv_09_a_controller_registers_at_once_when_the_level_has_registrations() -> None:
    rig = Rig(2, listeners=True)
    standby = rig.drivers[1]
    image = publish(standby, MetadataImage.EMPTY, FeatureLevelRecord(name=METADATA_VERSION, level=14))
    await rig.start()
    await rig.clock.run_for(30_000)
    assert not standby.registrar.registered, "it waits: nobody takes registrations at this level"
    assert not [event for event in standby._ports.tracer.events if "registration_failed" in event.event]  # type: ignore[attr-defined]
    image = publish(standby, image, FeatureLevelRecord(name=METADATA_VERSION, level=15))
    await rig.settle()
    assert standby.registrar.registered


async def test_fv_09_a_controller_registers_again_when_another_incarnation_has_its_place() -> None:
    rig = await Rig(2, listeners=True).start()
    standby = rig.drivers[1]
    await rig.clock.run_for(1_100)
    assert standby.registrar.registered
    mine = standby.core.state.cluster.controllers[NodeId(101)].to_record()
    other = dataclasses.replace(mine, incarnation_id=UUID(int=9))
    image = publish(standby, MetadataImage.EMPTY, FeatureLevelRecord(name=METADATA_VERSION, level=30), other)
    assert standby.registrar.registered, "an older registration, which its own follows"
    image = publish(standby, image, mine)
    end = rig.quorum.leo
    image = publish(standby, image, other)
    await rig.clock.run_for(100)
    assert standby.registrar.registered and rig.quorum.leo == end + 1


async def test_a_heartbeat_of_nobody_is_not_remembered() -> None:
    """A flood of heartbeats with made-up epochs must not grow the table of who was heard of."""
    rig = await Rig().start()
    epoch = await rig.broker()
    tracker = rig.drivers[0].core.state.cluster.live.tracker
    for number in range(50):
        with pytest.raises(ApiError) as refused:
            await rig.call(methods.BROKER_HEARTBEAT, beat(number, epoch + 7))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert list(tracker._contact_ms) == [(1, epoch)]
