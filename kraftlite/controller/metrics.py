"""Numbers of the controller, as plain attributes. Names: Kafka's, in snake case (CE-30, TM-12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kraftlite.controller.offset_control import OffsetControl
from kraftlite.controller.performance import EventPerformance
from kraftlite.controller.state import ControllerState
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.durations import DurationSummary


@dataclass(slots=True)
class EventTimes:
    """The times of the events of one name. `waited`: in the queue, or behind the time for which it was deferred."""

    waited: DurationSummary = field(default_factory=DurationSummary)
    worked: DurationSummary = field(default_factory=DurationSummary)


class ControllerView(Protocol):
    """The part of a `ControllerCore` from which the numbers are read."""

    state: ControllerState
    offsets: OffsetControl

    @property
    def active(self) -> bool: ...

    @property
    def queue_size(self) -> int: ...


class ControllerMetrics:
    """Counters are kept here, gauges are read from the state when asked."""

    def __init__(self, view: ControllerView) -> None:
        self._view = view
        self.last_applied_record_offset = -1
        self.last_applied_record_timestamp_ms = -1
        self.new_active_controllers_count = 0
        self.timed_out_broker_heartbeat_count = 0
        self.operations_started_count = 0
        self.operations_timed_out_count = 0
        self.metadata_error_count = 0
        self.queue_time = DurationSummary()
        """Only events that were to run at once; one that was deferred waits on purpose."""
        self.deferred_delay = DurationSummary()
        """By how much events that were deferred ran late."""
        self.processing_time = DurationSummary()
        """All events, deferred ones too."""
        self.events: dict[str, EventTimes] = {}
        """The times by the name of the event; names are those of operations, not of what they are about."""
        self.clock_us: Callable[[], int] = lambda: 0
        """Monotonic microseconds; the driver sets it."""
        self.wall_ms: Callable[[], int] = lambda: 0
        """Milliseconds since 1970; the driver sets it."""
        self.performance = EventPerformance()
        self._leader_epoch = -1
        self._busy_us = 0
        self._idle_since: tuple[int, int] | None = None

    def note_event(self, name: str, waited_us: int | None, delayed_us: int | None, took_us: int, *, expired: bool) -> None:
        """An event ran, or was `expired` before it could. `waited_us`: in the queue; `delayed_us`: behind the time for which it
        was deferred."""
        self._busy_us += took_us
        if expired:
            self.operations_timed_out_count += 1
            return
        self.operations_started_count += 1
        times = self.events.get(name)
        if times is None:
            times = self.events[name] = EventTimes()
        if waited_us is not None:
            self.queue_time.note(waited_us)
            times.waited.note(waited_us)
        if delayed_us is not None:
            self.deferred_delay.note(delayed_us)
            times.waited.note(delayed_us)
        self.processing_time.note(took_us)
        times.worked.note(took_us)

    def idle_ratio(self) -> float:
        """The share of the time since the last reading in which no event was worked on; 1 at the first."""
        now = (self.clock_us(), self._busy_us)
        since, self._idle_since = self._idle_since, now
        if since is None or now[0] <= since[0]:
            return 1.0
        return max(0.0, 1.0 - (now[1] - since[1]) / (now[0] - since[0]))

    def note_applied(self, offset: int, timestamp_ms: int) -> None:
        """A record was replayed: on the active controller when it was made, on a standby when it was committed."""
        self.last_applied_record_offset, self.last_applied_record_timestamp_ms = offset, timestamp_ms

    @property
    def last_applied_record_lag_ms(self) -> int | None:
        applied_ms = self.last_applied_record_timestamp_ms
        return None if applied_ms < 0 else self.wall_ms() - applied_ms

    def silences_ms(self) -> list[tuple[str, int]]:
        """For how long nothing was heard of each broker, a session at most: on the active controller, which listens to them."""
        cluster, now_ms = self._view.state.cluster, self.clock_us() // 1000
        heartbeats = cluster.heartbeats
        if heartbeats is None:
            return []
        tracker, found = heartbeats.tracker, []
        for broker_id, registration in sorted(cluster.brokers.items()):
            heard_ms = tracker.last_contact_ms(broker_id, registration.broker_epoch)
            silent_ms = tracker.session_timeout_ms if heard_ms is None else now_ms - heard_ms
            found.append((str(broker_id), max(0, min(silent_ms, tracker.session_timeout_ms))))
        return found

    def note_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is not None and leader.epoch > self._leader_epoch:
            self._leader_epoch = leader.epoch
            self.new_active_controllers_count += 1

    @property
    def active_controller_count(self) -> int:
        return int(self._view.active)

    @property
    def last_committed_record_offset(self) -> int:
        return self._view.offsets.committed_offset

    @property
    def event_queue_size(self) -> int:
        return self._view.queue_size

    @property
    def fenced_broker_count(self) -> int:
        return sum(registration.fenced for registration in self._view.state.cluster.brokers.values())

    @property
    def active_broker_count(self) -> int:
        return sum(not registration.fenced for registration in self._view.state.cluster.brokers.values())

    @property
    def controlled_shutdown_broker_count(self) -> int:
        return sum(registration.in_controlled_shutdown for registration in self._view.state.cluster.brokers.values())

    @property
    def global_topic_count(self) -> int:
        return len(self._view.state.replication.topics)

    @property
    def global_partition_count(self) -> int:
        return self._view.state.replication.partition_count.get()

    @property
    def offline_partitions_count(self) -> int:
        return self._view.state.replication.leaderless_count

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return self._view.state.replication.imbalanced_count

    @property
    def unclean_elections_count(self) -> int:
        return self._view.state.replication.unclean_elections

    @property
    def elections_from_elr_count(self) -> int:
        return self._view.state.replication.elections_from_elr
