"""The driver of the broker's lifecycle: sends what the core asks for and tells the start and stop sequences."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kraftlite.broker.lifecycle_core import (
    Action,
    BeginControlledShutdown,
    BeginShutdown,
    BrokerLifecycleCore,
    BrokerState,
    Cordoned,
    DirectoryFailed,
    Event,
    FencedChanged,
    GiveUp,
    HeartbeatAnswered,
    HeartbeatFailed,
    LifecycleConfig,
    MetadataApplied,
    ReadyToUnfence,
    Registered,
    RegistrationFailed,
    ResendRegistration,
    RetryRegistration,
    SendHeartbeat,
    SendRegistration,
    Start,
    StateChanged,
    Tick,
)
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import NodeId, random_uuid, uuid_to_str
from kraftlite.model.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    FeatureRange,
    ListenerInfo,
)
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REGISTER_BROKER
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Ports, TimerHandle
from kraftlite.runtime.trace.broker import (
    BrokerFenced,
    BrokerHeartbeatFailed,
    BrokerRegistered,
    BrokerRegistrationRefused,
    BrokerStateChanged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationFacts:
    """The facts that a registration states about this broker; the same for every attempt of one incarnation."""

    broker_id: NodeId
    cluster_id: str
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[UUID, ...]
    previous_broker_epoch: int | None


class BrokerLifecycle:
    """Registers this incarnation, keeps its lease, and hands over before it stops.

    `wait_caught_up` and `wait_unfenced` return when the controller said so, and raise Fault when the broker is shutting down
    instead. `wait_finished` returns when the broker may stop. Giving up is reported through `Ports.fault`.
    Source: BL-01 to BL-11.
    """

    def __init__(
        self, ports: Ports, config: LifecycleConfig, channel: ControllerChannel, metadata_offset: Callable[[], int]
    ) -> None:
        self._ports = ports
        self._config = config
        self._channel = channel
        self._metadata_offset = metadata_offset
        self._core = BrokerLifecycleCore(config, random_uuid(ports.entropy), ports.entropy)
        self._facts: RegistrationFacts | None = None
        self._timer: TimerHandle | None = None
        self._failure: str | None = None
        self._changed: asyncio.Event | None = None
        self._events: deque[Event] = deque()
        self._stepping = False

    @property
    def state(self) -> BrokerState:
        return self._core.state

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch; None until the first registration."""
        return self._core.broker_epoch

    @property
    def incarnation_id(self) -> UUID:
        return self._core.incarnation_id

    def start(self, facts: RegistrationFacts) -> None:
        self._facts = facts
        self._changed = asyncio.Event()
        self._step(Start())

    def ready_to_unfence(self) -> None:
        self._step(ReadyToUnfence())

    def begin_controlled_shutdown(self) -> None:
        self._step(BeginControlledShutdown())

    def begin_shutdown(self) -> None:
        self._step(BeginShutdown())

    def directory_failed(self, directory_id: UUID) -> None:
        self._step(DirectoryFailed(directory_id))

    def cordoned(self, directory_ids: tuple[UUID, ...]) -> None:
        """Tell the controller which directories get no new replicas."""
        self._step(Cordoned(directory_ids))

    def metadata_applied(self) -> None:
        """Tell the controller soon up to where this broker acts on metadata."""
        self._step(MetadataApplied())

    def listeners_changed(self, listeners: tuple[ListenerInfo, ...]) -> None:
        """Register these from now on (CB-06)."""
        if self._facts is not None and listeners != self._facts.listeners:
            self._facts = replace(self._facts, listeners=listeners)
            self._step(ResendRegistration())

    def resend_registration(self) -> None:
        self._step(ResendRegistration())

    async def wait_caught_up(self) -> None:
        await self._wait(lambda: self._core.caught_up)

    async def wait_unfenced(self) -> None:
        await self._wait(lambda: self._core.unfenced)

    async def wait_finished(self) -> None:
        changed = self._changed
        while changed is not None and not self._core.finished:
            changed.clear()
            await changed.wait()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        assert self._changed is not None, "not started"
        while not condition():
            if self._core.finished:
                raise Fault(self._failure or "the broker was stopped while it started")
            self._changed.clear()
            await self._changed.wait()

    # --- performing ---------------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        """Run the core to rest. Reentrant calls queue behind: an action's consequence is never stepped inside it."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for action in self._core.step(self._events.popleft(), self._ports.clock.now_ms()):
                    self._perform(action)
        finally:
            self._stepping = False
        self._arm_timer()
        if self._changed is not None:
            self._changed.set()

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._core.next_deadline_ms()
        if deadline_ms is not None:
            self._timer = self._ports.clock.call_later(max(0, deadline_ms - self._ports.clock.now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step(Tick())

    def _perform(self, action: Action) -> None:
        emit = self._ports.tracer.emit
        match action:
            case SendRegistration():
                self._ports.tasks.spawn(self._register(), name="broker-registration")
            case SendHeartbeat():
                self._ports.tasks.spawn(self._heartbeat(action), name="broker-heartbeat")
            case StateChanged(previous, state, cause):
                emit(BrokerStateChanged(previous=previous.name, state=state.name, cause=cause))
            case FencedChanged(fenced):
                emit(BrokerFenced(fenced=fenced))
            case RetryRegistration(reason, delay_ms):
                emit(BrokerRegistrationRefused(reason=reason, retry_in_ms=delay_ms))
            case GiveUp(reason):
                self._failure = reason
                self._ports.fault(Fault(reason), "broker lifecycle")

    async def _register(self) -> None:
        facts = self._facts
        assert facts is not None
        request = BrokerRegistrationRequest(
            broker_id=facts.broker_id,
            cluster_id=facts.cluster_id,
            incarnation_id=self._core.incarnation_id,
            listeners=facts.listeners,
            features=facts.features,
            rack=facts.rack,
            log_dirs=tuple(sorted(it for it in facts.log_dirs if not self._core.has_failed(it))),
            previous_broker_epoch=facts.previous_broker_epoch,
        )
        try:
            response = await self._channel.call(REGISTER_BROKER, request, self._config.session_timeout_ms)
        except ApiError as error:
            self._step(RegistrationFailed(_why_refused(error, facts.broker_id)))
            return
        self._ports.tracer.emit(
            BrokerRegistered(broker_epoch=response.broker_epoch, incarnation_id=uuid_to_str(self._core.incarnation_id))
        )
        self._step(Registered(response.broker_epoch))

    async def _heartbeat(self, action: SendHeartbeat) -> None:
        facts = self._facts
        assert facts is not None
        request = BrokerHeartbeatRequest(
            broker_id=facts.broker_id,
            broker_epoch=action.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=action.want_fence,
            want_shut_down=action.want_shut_down,
            offline_log_dirs=action.offline_log_dirs,
            cordoned_log_dirs=action.cordoned_log_dirs,
        )
        try:
            response = await self._channel.call(BROKER_HEARTBEAT, request, self._config.session_timeout_ms)
        except ApiError as error:
            self._ports.tracer.emit(BrokerHeartbeatFailed(reason=str(error)))
            self._step(HeartbeatFailed(str(error)))
            return
        self._step(HeartbeatAnswered(response))

    def close(self) -> None:
        """No more timers. The outstanding RPC, if any, is cancelled with the node's tasks."""
        self.begin_shutdown()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _why_refused(error: ApiError, broker_id: NodeId) -> str:
    """Explain the refusal in words that say what to do."""
    if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return (
            f"{error}: a broker with node.id={broker_id} is alive. Stop it, or give this node a node.id of its own; "
            "after a kill the old one's session ends by itself (broker.session.timeout.ms)"
        )
    return str(error)
