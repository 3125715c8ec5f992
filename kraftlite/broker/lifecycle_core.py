"""The broker's lifecycle at the controller: registration, heartbeats, fencing, controlled shutdown. No I/O.

Source: KIP-631; Kafka's BrokerLifecycleManager;
BL-01 to BL-11, BL-16, BL-17.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from kraftlite.model.messages.controller import BrokerHeartbeatResponse

REGISTRATION_BACKOFF_MS: Final = 100
STARTING_HEARTBEAT_MS: Final = 10
PENDING_SHUTDOWN_HEARTBEAT_MS: Final = 50
CONTROLLED_SHUTDOWN_MAX_MS: Final = 300_000


class BrokerState(Enum):
    """States of BL-01, with the numbers that Kafka's `BrokerState` metric has."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    initial_registration_timeout_ms: int = 60_000
    log_dir_failure_timeout_ms: int = 30_000
    controlled_shutdown_enable: bool = True


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to register."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline has come."""


@dataclass(frozen=True, slots=True)
class Registered:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    response: BrokerHeartbeatResponse


@dataclass(frozen=True, slots=True)
class HeartbeatFailed:
    """No answer, or a refusal: neither has renewed the lease."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadyToUnfence:
    """Logs are recovered and the first image is applied: stop asking to be fenced."""


@dataclass(frozen=True, slots=True)
class BeginControlledShutdown:
    """SIGTERM: hand over leadership first, if we run."""


@dataclass(frozen=True, slots=True)
class BeginShutdown:
    """Stop at once."""


@dataclass(frozen=True, slots=True)
class DirectoryFailed:
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class Cordoned:
    """These directories get no new replicas: from now on each heartbeat says so."""

    directory_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class MetadataApplied:
    """Much metadata has been carried out: the controller may wait for it."""


@dataclass(frozen=True, slots=True)
class ResendRegistration:
    """Register again with the same incarnation id, e.g. because what the registration says has changed (ML-25)."""


Event = (
    Start
    | Tick
    | Registered
    | RegistrationFailed
    | HeartbeatAnswered
    | HeartbeatFailed
    | ReadyToUnfence
    | BeginControlledShutdown
    | BeginShutdown
    | DirectoryFailed
    | Cordoned
    | MetadataApplied
    | ResendRegistration
)


# --- output -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRegistration:
    """Send a registration and report `Registered` or `RegistrationFailed`."""


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat and report `HeartbeatAnswered` or `HeartbeatFailed`."""

    broker_epoch: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None


@dataclass(frozen=True, slots=True)
class StateChanged:
    previous: BrokerState
    state: BrokerState
    cause: str


@dataclass(frozen=True, slots=True)
class FencedChanged:
    """A running broker learns that the controller has fenced it, or has unfenced it again."""

    fenced: bool


@dataclass(frozen=True, slots=True)
class RetryRegistration:
    reason: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The broker cannot go on: the process must exit non-zero."""

    reason: str


Action = SendRegistration | SendHeartbeat | StateChanged | FencedChanged | RetryRegistration | GiveUp


class BrokerLifecycleCore:
    """One broker incarnation as the controller sees it.

    At most one RPC is outstanding (BL-06): between a `SendRegistration`/`SendHeartbeat` and its result no other is emitted, and a
    wish raised meanwhile makes the next one immediate. Failures never cause an immediate retry. Times are monotonic ms.
    `caught_up`, `unfenced` and `finished` are the three moments that the start and stop sequences wait for.

    A heartbeat that is refused (STALE_BROKER_EPOCH included) is only repeated after the heartbeat interval, as Kafka does: it is
    the newer incarnation that owns the id, and this one must not take it back.
    """

    def __init__(self, config: LifecycleConfig, incarnation_id: UUID, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self.incarnation_id = incarnation_id
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch: int | None = None
        self.caught_up = False
        self.unfenced = False
        self._registered = False
        self._registering = False
        """A registration is outstanding."""
        self._again = False
        """It must be followed by another one."""
        self._ever_registered = False
        self._in_flight = False
        self._immediate = False
        self._ready = False
        self._fenced = True
        self._answered_pending_shutdown = False
        self._attempts = 0
        self._sent_offline: tuple[UUID, ...] = ()
        self._offline: dict[UUID, int | None] = {}  # unacknowledged: deadline; acknowledged: None
        self._cordoned: tuple[UUID, ...] | None = None
        self._next_communication_ms: int | None = None
        self._registration_deadline_ms: int | None = None
        self._shutdown_deadline_ms: int | None = None
        self._begun_shutdown_ms = 0
        self._last_contact_ms: int | None = None
        self._refused: str | None = None
        self._out: list[Action] = []

    @property
    def finished(self) -> bool:
        return self.state is BrokerState.SHUTTING_DOWN

    def has_failed(self, directory_id: UUID) -> bool:
        """Return whether a log directory has failed since the start."""
        return directory_id in self._offline

    def next_deadline_ms(self) -> int | None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return None
        deadlines = [self._registration_deadline_ms, self._shutdown_deadline_ms, *self._offline.values()]
        if not self._in_flight:
            deadlines.append(self._next_communication_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, event: Event, now_ms: int) -> tuple[Action, ...]:
        self._out = []
        if self.state is BrokerState.SHUTTING_DOWN:
            return ()
        match event:
            case Start():
                self._start(now_ms)
            case Registered(broker_epoch):
                self._on_registered(broker_epoch, now_ms)
            case RegistrationFailed(reason):
                self._on_registration_failed(reason, now_ms)
            case HeartbeatAnswered(response):
                self._on_heartbeat(response, now_ms)
            case HeartbeatFailed():
                self._in_flight = False
                self._immediate = False
                self._schedule(now_ms, self._config.heartbeat_interval_ms)
            case ReadyToUnfence():
                self._ready = True
                self._wish(now_ms)
            case BeginControlledShutdown():
                self._begin_controlled_shutdown(now_ms)
            case BeginShutdown():
                self._move(BrokerState.SHUTTING_DOWN, "stopped without waiting for the controller")
            case DirectoryFailed(directory_id):
                if directory_id not in self._offline:
                    self._offline[directory_id] = now_ms + self._config.log_dir_failure_timeout_ms
                    self._wish(now_ms)
            case Cordoned(directory_ids):
                if directory_ids != self._cordoned:
                    self._cordoned = directory_ids
                    self._wish(now_ms)
            case MetadataApplied():
                if self.state is BrokerState.RUNNING:
                    self._wish(now_ms)
            case ResendRegistration():
                if self._registered:
                    self._registered = False
                    self._wish(now_ms)
                else:
                    # The one that is on its way says what was true before. A later attempt says what is true then.
                    self._again = self._registering
            case Tick():
                pass
        self._run_due(now_ms)
        return tuple(self._out)

    # --- registration -------------------------------------------------------------------------------------------------

    def _start(self, now_ms: int) -> None:
        assert self.state is BrokerState.NOT_RUNNING, f"started twice: {self.state}"
        self._move(BrokerState.STARTING, "started")
        self._registration_deadline_ms = now_ms + self._config.initial_registration_timeout_ms
        self._schedule(now_ms, 0)

    def _on_registered(self, broker_epoch: int, now_ms: int) -> None:
        self._in_flight = False
        self._touch(now_ms)
        self.broker_epoch = broker_epoch
        self._registered, self._ever_registered = not self._again, True
        self._registering = self._again = False
        self._registration_deadline_ms = None
        self._attempts = 0
        self._schedule(now_ms, 0)

    def _on_registration_failed(self, reason: str, now_ms: int) -> None:
        self._in_flight = self._registering = self._again = False
        self._immediate = False
        self._refused = reason
        delay = min(REGISTRATION_BACKOFF_MS << min(self._attempts, 20), self._config.session_timeout_ms)
        self._attempts += 1
        spread = delay // 5
        delay += self._rng.randint(-spread, spread)
        self._schedule(now_ms, delay)
        self._out.append(RetryRegistration(reason, delay))

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _on_heartbeat(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        self._in_flight = False
        self._touch(now_ms)
        for directory_id in self._sent_offline:
            self._offline[directory_id] = None
        interval = self._config.heartbeat_interval_ms
        match self.state:
            case BrokerState.STARTING:
                if response.is_caught_up:
                    self._move(BrokerState.RECOVERY, "caught up with the metadata log")
                    self.caught_up = True
                self._schedule(now_ms, STARTING_HEARTBEAT_MS)
            case BrokerState.RECOVERY:
                self._note_fenced(response.is_fenced, tell=False)
                if not response.is_fenced:
                    self.unfenced = True
                    self._move(BrokerState.RUNNING, "unfenced")
                self._schedule(now_ms, interval)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                if response.should_shut_down:
                    self._move(BrokerState.SHUTTING_DOWN, "the controller lets us go")
                    return
                first = not self._answered_pending_shutdown
                self._answered_pending_shutdown = True
                self._schedule(now_ms, min(interval, PENDING_SHUTDOWN_HEARTBEAT_MS) if first else interval)
            case _:
                self._note_fenced(response.is_fenced, tell=True)
                self._schedule(now_ms, interval)

    def _note_fenced(self, fenced: bool, *, tell: bool) -> None:
        if fenced != self._fenced:
            self._fenced = fenced
            if tell:
                self._out.append(FencedChanged(fenced))

    # --- stopping -----------------------------------------------------------------------------------------------------

    def _begin_controlled_shutdown(self, now_ms: int) -> None:
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return
        if self.state is not BrokerState.RUNNING or not self._config.controlled_shutdown_enable:
            cause = "not running yet" if self.state is not BrokerState.RUNNING else "controlled.shutdown.enable=false"
            self._move(BrokerState.SHUTTING_DOWN, cause)
            return
        self._move(BrokerState.PENDING_CONTROLLED_SHUTDOWN, "asked to stop")
        self._begun_shutdown_ms = now_ms
        self._set_shutdown_deadline()
        self._wish(now_ms)

    def _set_shutdown_deadline(self) -> None:
        """There is nothing to wait for when the quorum has not renewed our lease for a session timeout: it has moved our
        leaderships away, or does not know us any more (we were unregistered, or a newer incarnation has the id)."""
        begun = self._begun_shutdown_ms
        heard = begun if self._last_contact_ms is None else self._last_contact_ms
        unreachable = max(heard + self._config.session_timeout_ms, begun + self._config.heartbeat_interval_ms)
        self._shutdown_deadline_ms = min(unreachable, begun + CONTROLLED_SHUTDOWN_MAX_MS)

    # --- scheduling ---------------------------------------------------------------------------------------------------

    def _touch(self, now_ms: int) -> None:
        self._last_contact_ms = now_ms
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._set_shutdown_deadline()

    def _wish(self, now_ms: int) -> None:
        """Note that something is to be said now; with an RPC outstanding, right after it."""
        if self._in_flight:
            self._immediate = True
        elif self._ever_registered:
            self._next_communication_ms = now_ms

    def _schedule(self, now_ms: int, delay_ms: int) -> None:
        self._next_communication_ms = now_ms + (0 if self._immediate else delay_ms)
        self._immediate = False

    def _run_due(self, now_ms: int) -> None:
        if self._registration_deadline_ms is not None and now_ms >= self._registration_deadline_ms:
            waited = self._config.initial_registration_timeout_ms
            last = f"; the last attempt: {self._refused}" if self._refused is not None else ""
            self._give_up(
                f"could not register with the controller quorum within {waited} ms (initial.broker.registration.timeout.ms){last}"
            )
        for directory_id, deadline in self._offline.items():
            if deadline is not None and now_ms >= deadline:
                waited = self._config.log_dir_failure_timeout_ms
                self._give_up(f"no controller acknowledged the failed log directory {directory_id} within {waited} ms")
        if self._shutdown_deadline_ms is not None and now_ms >= self._shutdown_deadline_ms:
            self._move(BrokerState.SHUTTING_DOWN, "no controller has let us go in time")
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN) or self._in_flight:
            return
        if self._next_communication_ms is None or now_ms < self._next_communication_ms:
            return
        self._next_communication_ms = None
        self._in_flight = True
        if not self._registered:
            self._registering = True
            self._out.append(SendRegistration())
            return
        assert self.broker_epoch is not None
        self._sent_offline = tuple(sorted(self._offline))
        want_shut_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._out.append(SendHeartbeat(self.broker_epoch, not self._ready, want_shut_down, self._sent_offline, self._cordoned))

    def _give_up(self, reason: str) -> None:
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        self._move(BrokerState.SHUTTING_DOWN, reason)
        self._out.append(GiveUp(reason))

    def _move(self, state: BrokerState, cause: str) -> None:
        if state is not self.state:
            self._out.append(StateChanged(self.state, state, cause))
            self.state = state
