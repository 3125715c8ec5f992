"""Numbers of the controller, as plain attributes. Names: Kafka's, in snake case (CE-30)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kraftlite.controller.offset_control import OffsetControl
from kraftlite.controller.state import ControllerState
from kraftlite.raft.client import LeaderAndEpoch


@dataclass(slots=True)
class DurationSummary:
    """A summary of durations: how many, their sum, and the longest; in microseconds."""

    count: int = 0
    total_us: int = 0
    max_us: int = 0

    def note(self, took_us: int) -> None:
        self.count += 1
        self.total_us += took_us
        self.max_us = max(self.max_us, took_us)


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
        self.queue_time = DurationSummary()
        """Only events that were to run at once; one that was deferred waits on purpose."""
        self.processing_time = DurationSummary()
        """All events, deferred ones too."""
        self.clock_us: Callable[[], int] = lambda: 0
        """Monotonic microseconds; the driver sets it."""
        self._leader_epoch = -1

    def note_event(self, waited_us: int | None, took_us: int) -> None:
        if waited_us is not None:
            self.queue_time.note(waited_us)
        self.processing_time.note(took_us)

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
