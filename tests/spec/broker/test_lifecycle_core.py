"""The broker's lifecycle at the controller, step by step."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kraftlite.broker.lifecycle_core import (
    Action,
    BeginControlledShutdown,
    BeginShutdown,
    BrokerLifecycleCore,
    BrokerState,
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
from kraftlite.model.messages.controller import BrokerHeartbeatResponse

INCARNATION = UUID(int=12345)
DIRECTORY = UUID(int=777)


class Broker:
    """Steps a core through time and remembers what it did."""

    def __init__(self, config: LifecycleConfig | None = None, seed: int = 1) -> None:
        self.core = BrokerLifecycleCore(config or LifecycleConfig(), INCARNATION, random.Random(seed))
        self.now = 0
        self.states: list[BrokerState] = []

    def step(self, event: Event) -> tuple[Action, ...]:
        actions = self.core.step(event, self.now)
        self.states += [action.state for action in actions if isinstance(action, StateChanged)]
        return actions

    def until_due(self) -> tuple[int, tuple[Action, ...]]:
        """Wait for the next deadline; returns the wait and what it brought."""
        due = self.core.next_deadline_ms()
        assert due is not None
        waited, self.now = due - self.now, due
        return waited, self.step(Tick())

    def answer(self, *, caught_up: bool = True, fenced: bool = True, shut_down: bool = False) -> tuple[Action, ...]:
        return self.step(
            HeartbeatAnswered(BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down))
        )


def registered(config: LifecycleConfig | None = None) -> Broker:
    broker = Broker(config)
    assert sends(broker.step(Start())) == [SendRegistration()]
    assert sends(broker.step(Registered(41))) == [heartbeat()]
    return broker


def running(config: LifecycleConfig | None = None) -> Broker:
    broker = registered(config)
    broker.answer()
    broker.step(ReadyToUnfence())
    if not broker.core._in_flight:
        broker.until_due()
    broker.answer(fenced=False)
    assert broker.core.state is BrokerState.RUNNING
    return broker


def heartbeat(*, fence: bool = True, shut_down: bool = False, offline: tuple[UUID, ...] = (), epoch: int = 41) -> SendHeartbeat:
    return SendHeartbeat(epoch, fence, shut_down, offline, None)


def sends(actions: tuple[Action, ...]) -> list[Action]:
    return [action for action in actions if isinstance(action, SendRegistration | SendHeartbeat)]


def test_bl_01_states_follow_what_the_controller_says() -> None:
    broker = registered()
    assert broker.core.state is BrokerState.STARTING
    broker.answer(caught_up=False)
    assert broker.core.state is BrokerState.STARTING
    broker.until_due()
    broker.answer(caught_up=True)
    assert broker.core.state is BrokerState.RECOVERY and broker.core.caught_up
    broker.until_due()
    broker.answer(fenced=True)
    assert broker.core.state is BrokerState.RECOVERY and not broker.core.unfenced
    broker.step(ReadyToUnfence())
    broker.answer(fenced=False)
    assert broker.core.unfenced
    broker.step(BeginControlledShutdown())
    broker.answer(fenced=False, shut_down=False)
    broker.until_due()
    broker.answer(shut_down=True)
    assert broker.states == [
        BrokerState.STARTING,
        BrokerState.RECOVERY,
        BrokerState.RUNNING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
    ]


@pytest.mark.parametrize("answers", [0, 1])
def test_bl_01_a_stop_before_running_goes_straight_to_shutting_down(answers: int) -> None:
    broker = registered()
    for _ in range(answers):
        broker.answer()
    broker.step(BeginControlledShutdown())
    assert broker.core.finished and BrokerState.PENDING_CONTROLLED_SHUTDOWN not in broker.states


def test_bl_01_should_shut_down_means_nothing_to_a_running_broker() -> None:
    broker = running()
    broker.until_due()
    broker.answer(fenced=False, shut_down=True)
    assert broker.core.state is BrokerState.RUNNING


def test_bl_02_the_incarnation_stays_the_same_over_retries_and_registering_again() -> None:
    broker = Broker()
    broker.step(Start())
    broker.step(RegistrationFailed("no controller"))
    broker.until_due()
    broker.step(Registered(7))
    broker.answer()
    assert sends(broker.step(ResendRegistration())) == [SendRegistration()]
    broker.step(Registered(9))
    assert broker.core.incarnation_id == INCARNATION and broker.core.broker_epoch == 9


def test_cb_06_what_changes_while_a_registration_is_on_its_way_is_registered_after_it() -> None:
    broker = Broker()
    assert sends(broker.step(Start())) == [SendRegistration()]
    assert sends(broker.step(ResendRegistration())) == [], "one at a time"
    assert sends(broker.step(Registered(41))) == [SendRegistration()], "the answer was to the old one"
    assert sends(broker.step(Registered(41))) == [heartbeat()]
    broker.answer()
    assert sends(broker.step(ResendRegistration())) == [SendRegistration()]
    broker.step(ResendRegistration())
    broker.step(RegistrationFailed("no controller"))
    _, actions = broker.until_due()
    assert sends(actions) == [SendRegistration()], "it says what is true by now"
    assert sends(broker.step(Registered(41))) == [heartbeat()], "so once is enough"


def test_cb_06_a_change_during_a_heartbeat_waits_for_its_answer() -> None:
    broker = registered()
    assert sends(broker.step(ResendRegistration())) == [], "the heartbeat is outstanding"
    assert sends(broker.step(ResendRegistration())) == []
    assert sends(broker.answer(caught_up=False)) == [SendRegistration()]
    assert sends(broker.step(Registered(41))) == [heartbeat()], "both changes are in the one"


def test_bl_03_registration_is_retried_ever_more_slowly_with_jitter() -> None:
    delays = {}
    for seed in (1, 2):
        broker = Broker(seed=seed)
        broker.step(Start())
        delays[seed] = []
        for _ in range(8):
            actions = broker.step(RegistrationFailed("DUPLICATE_BROKER_REGISTRATION"))
            assert sends(actions) == []
            retry = next(action for action in actions if isinstance(action, RetryRegistration))
            waited, actions = broker.until_due()
            assert waited == retry.delay_ms and sends(actions) == [SendRegistration()]
            delays[seed].append(waited)
    for attempt, delay in enumerate(delays[1]):
        base = min(100 << attempt, 9_000)
        assert base * 8 // 10 <= delay <= base * 12 // 10
    assert delays[1] != delays[2]


def test_bl_03_it_gives_up_after_the_initial_registration_timeout() -> None:
    broker = Broker(LifecycleConfig(initial_registration_timeout_ms=60_000))
    broker.step(Start())
    actions: tuple[Action, ...] = ()
    while not any(isinstance(action, GiveUp) for action in actions):
        assert broker.now <= 60_000
        actions = broker.step(RegistrationFailed("wrong cluster"))
        if not any(isinstance(action, GiveUp) for action in actions):
            _, actions = broker.until_due()
    assert broker.now == 60_000 and broker.core.finished
    assert "initial.broker.registration.timeout.ms" in next(a for a in actions if isinstance(a, GiveUp)).reason


def test_bl_03_the_timeout_strikes_while_a_registration_is_outstanding() -> None:
    broker = Broker(LifecycleConfig(initial_registration_timeout_ms=5_000))
    broker.step(Start())
    waited, actions = broker.until_due()
    assert waited == 5_000 and isinstance(actions[-1], GiveUp)


def test_bl_03_once_registered_the_timeout_is_off() -> None:
    broker = registered(LifecycleConfig(initial_registration_timeout_ms=5_000))
    broker.answer()
    for _ in range(10):
        broker.until_due()
        broker.step(HeartbeatFailed("timeout"))
    assert broker.now > 5_000 and not broker.core.finished


def test_bl_05_the_first_heartbeat_follows_registration_at_once_and_while_starting_every_10_ms() -> None:
    broker = registered()
    for _ in range(3):
        broker.answer(caught_up=False)
        waited, actions = broker.until_due()
        assert waited == 10 and sends(actions) == [heartbeat()]


def test_bl_05_a_running_broker_beats_every_2_seconds() -> None:
    broker = running()
    for _ in range(3):
        waited, actions = broker.until_due()
        assert waited == 2_000 and sends(actions) == [heartbeat(fence=False)]
        broker.answer(fenced=False)


def test_bl_05_ready_shutdown_and_a_failed_directory_are_said_at_once() -> None:
    broker = registered()
    broker.answer()
    broker.until_due()
    broker.answer()
    assert sends(broker.step(ReadyToUnfence())) == [heartbeat(fence=False)]
    broker.answer(fenced=False)
    assert sends(broker.step(DirectoryFailed(DIRECTORY))) == [heartbeat(fence=False, offline=(DIRECTORY,))]
    broker.answer(fenced=False)
    assert sends(broker.step(BeginControlledShutdown())) == [heartbeat(fence=False, shut_down=True, offline=(DIRECTORY,))]


def test_bl_05_pending_shutdown_asks_again_after_50_ms_then_at_the_usual_pace() -> None:
    broker = running()
    broker.step(BeginControlledShutdown())
    waits = []
    for _ in range(3):
        broker.answer(fenced=False)
        waited, actions = broker.until_due()
        assert sends(actions) == [heartbeat(fence=False, shut_down=True)]
        waits.append(waited)
    assert waits == [50, 2_000, 2_000]


def test_bl_06_one_rpc_at_a_time_and_a_wish_makes_the_next_one_immediate() -> None:
    broker = registered()
    assert sends(broker.step(ReadyToUnfence())) == []
    broker.now += 5
    assert sends(broker.step(Tick())) == []
    assert sends(broker.answer()) == [heartbeat(fence=False)]


def test_bl_06_nothing_is_sent_at_once_after_a_failure() -> None:
    broker = registered()
    broker.step(ReadyToUnfence())
    assert sends(broker.step(HeartbeatFailed("connection refused"))) == []
    waited, actions = broker.until_due()
    assert waited == 2_000 and sends(actions) == [heartbeat(fence=False)]


def test_bl_08_a_fenced_broker_that_lives_asks_to_be_unfenced_with_the_same_epoch() -> None:
    broker = running()
    broker.until_due()
    assert FencedChanged(True) in broker.answer(fenced=True)
    assert broker.core.state is BrokerState.RUNNING
    _, actions = broker.until_due()
    assert sends(actions) == [heartbeat(fence=False, epoch=41)]
    assert FencedChanged(False) in broker.answer(fenced=False)


def test_bl_08_a_refused_heartbeat_is_repeated_but_never_registers_again() -> None:
    broker = running()
    for _ in range(3):
        broker.until_due()
        broker.step(HeartbeatFailed("STALE_BROKER_EPOCH"))
    _, actions = broker.until_due()
    assert sends(actions) == [heartbeat(fence=False)]


def test_bl_10_it_asks_until_the_controller_lets_it_go() -> None:
    broker = running()
    broker.step(BeginControlledShutdown())
    for _ in range(20):
        broker.answer(fenced=False)
        broker.until_due()
        assert not broker.core.finished
    broker.answer(shut_down=True)
    assert broker.core.finished


def test_bl_10_even_a_controller_that_never_lets_go_holds_it_for_5_minutes_at_most() -> None:
    broker = running()
    began = broker.now
    broker.step(BeginControlledShutdown())
    while not broker.core.finished:
        broker.answer(fenced=False)
        broker.until_due()
    assert broker.now - began == 300_000


def test_bl_11_without_a_controller_it_stops_within_a_session_timeout() -> None:
    broker = running(LifecycleConfig(session_timeout_ms=9_000))
    broker.until_due()
    broker.answer(fenced=False)
    began = broker.now
    broker.step(BeginControlledShutdown())
    while not broker.core.finished:
        if broker.core._in_flight:
            broker.step(HeartbeatFailed("no controller"))
        broker.until_due()
    assert broker.now - began == 9_000


def test_bl_11_when_the_controllers_have_long_been_gone_one_interval_is_enough() -> None:
    broker = running()
    for _ in range(10):
        broker.until_due()
        broker.step(HeartbeatFailed("no controller"))
    began = broker.now
    broker.step(BeginControlledShutdown())
    while not broker.core.finished:
        broker.until_due()
    assert broker.now - began == 2_000


@pytest.mark.parametrize("refusal", ["BROKER_ID_NOT_REGISTERED", "STALE_BROKER_EPOCH", "UNKNOWN_SERVER_ERROR"])
@pytest.mark.parametrize(("refused_before", "patience_ms"), [(0, 9_000), (2, 5_000), (10, 2_000)])
def test_bl_11_a_broker_that_the_controller_refuses_does_not_wait_for_it(
    refusal: str, refused_before: int, patience_ms: int
) -> None:
    """Unregistered while it ran, or replaced by a newer incarnation: no answer will ever let it go. The lease ends a session
    timeout (9 s) after the last heartbeat that was taken."""
    broker = running()
    broker.until_due()
    broker.answer(fenced=False)
    for _ in range(refused_before):
        broker.until_due()
        broker.step(HeartbeatFailed(refusal))
    began = broker.now
    broker.step(BeginControlledShutdown())
    while not broker.core.finished:
        if broker.core._in_flight:
            broker.step(HeartbeatFailed(refusal))
        broker.until_due()
    assert broker.now - began == patience_ms


def test_bl_11_a_broker_that_never_registered_stops_at_once() -> None:
    broker = Broker()
    broker.step(Start())
    broker.step(RegistrationFailed("no controller"))
    broker.step(BeginControlledShutdown())
    assert broker.core.finished and broker.core.next_deadline_ms() is None


def test_bl_11_controlled_shutdown_can_be_switched_off() -> None:
    broker = running(LifecycleConfig(controlled_shutdown_enable=False))
    broker.step(BeginControlledShutdown())
    assert broker.core.finished


def test_bl_16_a_failed_directory_is_in_every_heartbeat() -> None:
    broker = running()
    broker.step(DirectoryFailed(DIRECTORY))
    for _ in range(3):
        broker.answer(fenced=False)
        _, actions = broker.until_due()
        assert sends(actions) == [heartbeat(fence=False, offline=(DIRECTORY,))]


def test_bl_17_a_failed_directory_that_nobody_acknowledges_stops_the_broker() -> None:
    broker = running(LifecycleConfig(log_dir_failure_timeout_ms=30_000))
    began = broker.now
    broker.step(DirectoryFailed(DIRECTORY))
    actions: tuple[Action, ...] = ()
    while not broker.core.finished:
        if broker.core._in_flight:
            broker.step(HeartbeatFailed("no controller"))
        _, actions = broker.until_due()
    assert broker.now - began == 30_000 and isinstance(actions[-1], GiveUp)


def test_bl_17_an_acknowledged_one_does_not() -> None:
    broker = running(LifecycleConfig(log_dir_failure_timeout_ms=30_000))
    broker.step(DirectoryFailed(DIRECTORY))
    broker.answer(fenced=False)
    for _ in range(40):
        broker.until_due()
        broker.step(HeartbeatFailed("no controller"))
    assert not broker.core.finished


def test_much_metadata_that_is_applied_is_told_at_once() -> None:
    broker = running()
    assert sends(broker.step(MetadataApplied())) == [heartbeat(fence=False)]
    broker.step(MetadataApplied())
    assert sends(broker.answer(fenced=False)) == [heartbeat(fence=False)], "right behind the one that was on its way"
    broker.answer(fenced=False)
    waited_ms, _ = broker.until_due()
    assert waited_ms == 2_000


def test_metadata_that_is_applied_before_the_broker_runs_is_not_news() -> None:
    broker = Broker()
    broker.step(Start())
    assert broker.step(MetadataApplied()) == ()


def test_a_finished_broker_does_nothing_more() -> None:
    broker = running()
    (change,) = broker.step(BeginShutdown())
    assert change == StateChanged(BrokerState.RUNNING, BrokerState.SHUTTING_DOWN, "stopped without waiting for the controller")
    assert broker.core.next_deadline_ms() is None
    assert broker.step(ReadyToUnfence()) == () and broker.step(Tick()) == ()
