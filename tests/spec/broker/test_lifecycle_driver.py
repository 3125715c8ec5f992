"""The lifecycle's driver against a scripted controller, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.lifecycle_core import BrokerState, LifecycleConfig
from kraftlite.broker.lifecycle_driver import BrokerLifecycle, RegistrationFacts
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ListenerInfo,
)
from kraftlite.model.messages.methods import REGISTER_BROKER
from kraftlite.model.method import Method
from tests.harness.broker_ports import TestBed

FACTS = RegistrationFacts(
    broker_id=NodeId(1),
    cluster_id="cluster",
    listeners=(ListenerInfo(name="PLAINTEXT", host="localhost", port=9092, security_protocol="PLAINTEXT"),),
    features=(),
    rack="a",
    log_dirs=(UUID(int=900), UUID(int=800)),
    previous_broker_epoch=17,
)


class Controller:
    """Registers with epoch 50; caught up at metadata offset 50; unfences who does not want to be fenced."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.refusal: ApiError | None = None
        self.lets_go = True
        self.pending = 0

    async def call(self, method: Method, request: Any, timeout_ms: int) -> Any:
        assert self.pending == 0, "two lifecycle RPCs at a time"
        self.pending += 1
        await asyncio.sleep(0)
        self.pending -= 1
        if self.refusal is not None:
            raise self.refusal
        if method is REGISTER_BROKER:
            self.registrations.append(request)
            return BrokerRegistrationResponse(broker_epoch=50)
        self.heartbeats.append(request)
        caught_up = request.current_metadata_offset >= 50
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=request.want_fence or not caught_up,
            should_shut_down=request.want_shut_down and self.lets_go,
        )


class Scene:
    def __init__(self, config: LifecycleConfig | None = None) -> None:
        self.bed = TestBed()
        self.controller = Controller()
        self.offset = 0
        self.lifecycle = BrokerLifecycle(self.bed.ports, config or LifecycleConfig(), self.controller, lambda: self.offset)


async def test_bl_01_the_whole_way_from_start_to_stop() -> None:
    scene = Scene()
    scene.lifecycle.start(FACTS)
    caught_up = asyncio.ensure_future(scene.lifecycle.wait_caught_up())
    await scene.bed.clock.run_for(100)
    assert not caught_up.done() and scene.lifecycle.state is BrokerState.STARTING
    scene.offset = 50
    await scene.bed.clock.run_for(20)
    await caught_up
    scene.lifecycle.ready_to_unfence()
    await scene.bed.clock.run_for(0)
    await scene.lifecycle.wait_unfenced()
    scene.lifecycle.begin_controlled_shutdown()
    await scene.bed.clock.run_for(0)
    await scene.lifecycle.wait_finished()
    assert [event.state for event in scene.bed.events("broker.state_changed")] == [
        "STARTING",
        "RECOVERY",
        "RUNNING",
        "PENDING_CONTROLLED_SHUTDOWN",
        "SHUTTING_DOWN",
    ]
    assert scene.lifecycle.broker_epoch == 50 and not scene.bed.faults


@pytest.mark.parametrize("code", [ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH])
async def test_bl_11_a_broker_that_was_unregistered_while_it_ran_does_not_wait_for_the_controller(
    code: ErrorCode,
) -> None:
    """As it was, each refusal counted as a sign of life of the controller, and the stop took 300 s."""
    scene = Scene()
    scene.offset = 50
    scene.lifecycle.start(FACTS)
    await scene.bed.clock.run_for(20)
    scene.lifecycle.ready_to_unfence()
    await scene.bed.clock.run_for(3_000)
    assert scene.lifecycle.state is BrokerState.RUNNING
    scene.controller.refusal = ApiError(code)
    scene.lifecycle.begin_controlled_shutdown()
    stopped = asyncio.ensure_future(scene.lifecycle.wait_finished())
    await scene.bed.clock.run_for(9_001)
    assert stopped.done() and not scene.bed.faults


async def test_bl_13_the_registration_says_all_there_is_to_say() -> None:
    scene = Scene()
    scene.lifecycle.start(FACTS)
    await scene.bed.clock.run_for(0)
    (request,) = scene.controller.registrations
    assert request.previous_broker_epoch == 17
    assert request.log_dirs == (UUID(int=800), UUID(int=900))
    assert (request.broker_id, request.cluster_id, request.rack) == (1, "cluster", "a")
    assert request.listeners == FACTS.listeners


async def test_bl_02_every_process_has_an_incarnation_of_its_own() -> None:
    first, second = Scene(), TestBed(seed=2)
    other = BrokerLifecycle(second.ports, LifecycleConfig(), Controller(), lambda: 0)
    assert first.lifecycle.incarnation_id != other.incarnation_id


async def test_bl_03_giving_up_is_a_fault_of_the_node() -> None:
    scene = Scene(LifecycleConfig(initial_registration_timeout_ms=3_000))
    scene.controller.refusal = ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, "expected x")
    scene.lifecycle.start(FACTS)
    waiting = asyncio.ensure_future(scene.lifecycle.wait_caught_up())
    await scene.bed.clock.run_for(3_001)
    (fault,) = scene.bed.faults
    assert isinstance(fault[0], Fault) and "3000 ms" in str(fault[0])
    with pytest.raises(Fault):
        await waiting
    refused = scene.bed.events("broker.registration_refused")
    assert refused and "INCONSISTENT_CLUSTER_ID" in refused[0].reason


async def test_bl_03_a_node_id_that_is_taken_is_told_with_the_first_refusal_and_tried_again() -> None:
    scene = Scene()
    scene.controller.refusal = ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with broker id 1.")
    scene.lifecycle.start(FACTS)
    await scene.bed.clock.run_for(0)
    (told,) = scene.bed.events("broker.registration_refused")
    assert "a broker with node.id=1 is alive. Stop it, or give this node a node.id of its own" in told.reason
    assert told.retry_in_ms <= 120 and not scene.bed.faults
    await scene.bed.clock.run_for(10_000)
    delays = [event.retry_in_ms for event in scene.bed.events("broker.registration_refused")]
    assert len(delays) < 12 and delays[-1] > 3_000, "less and less often"
    scene.controller.refusal = None
    await scene.bed.clock.run_for(10_000)
    assert len(scene.controller.registrations) == 1


async def test_bl_07_it_wants_to_be_fenced_until_it_is_ready() -> None:
    scene = Scene()
    scene.offset = 50
    scene.lifecycle.start(FACTS)
    await scene.bed.clock.run_for(5_000)
    assert scene.lifecycle.state is BrokerState.RECOVERY
    assert all(request.want_fence for request in scene.controller.heartbeats)
    scene.lifecycle.ready_to_unfence()
    await scene.bed.clock.run_for(0)
    assert not scene.controller.heartbeats[-1].want_fence
    assert scene.lifecycle.state is BrokerState.RUNNING


async def test_bl_23_a_stale_epoch_changes_nothing_here() -> None:
    scene = Scene()
    scene.offset = 50
    scene.lifecycle.start(FACTS)
    scene.lifecycle.ready_to_unfence()
    await scene.bed.clock.run_for(100)
    scene.controller.refusal = ApiError(ErrorCode.STALE_BROKER_EPOCH, "51 is newer")
    await scene.bed.clock.run_for(10_000)
    assert len(scene.controller.registrations) == 1 and scene.lifecycle.broker_epoch == 50
    assert scene.bed.events("broker.heartbeat_failed") and not scene.bed.faults


async def test_closing_leaves_no_timer() -> None:
    scene = Scene()
    scene.lifecycle.start(FACTS)
    await scene.bed.clock.run_for(0)
    scene.lifecycle.close()
    await scene.bed.tasks.cancel_all()
    assert scene.bed.clock.next_deadline_ms is None
    with pytest.raises(Fault, match="stopped"):
        await scene.lifecycle.wait_unfenced()
