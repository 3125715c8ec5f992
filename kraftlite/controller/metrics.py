"""Numbers of the controller, as plain attributes. Names: Kafka's, in snake case (CE-30)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlite.raft.client import LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlite.controller.core import ControllerCore


@dataclass(slots=True)
class DurationSummary:
    """How often, how long in all, and how long at most; in microseconds."""

    count: int = 0
    total_us: int = 0
    max_us: int = 0

    def note(self, took_us: int) -> None:
        self.count += 1
        self.total_us += took_us
        self.max_us = max(self.max_us, took_us)


class ControllerMetrics:
    """Counters are kept here, gauges are read from the state when asked."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self.last_applied_record_offset = -1
        self.last_applied_record_timestamp_ms = -1
        self.new_active_controllers_count = 0
        self.timed_out_broker_heartbeat_count = 0
        self.queue_time = DurationSummary()
        """Of events that were to run at once; one that was deferred waits on purpose."""
        self.processing_time = DurationSummary()
        """Of every event, deferred ones too."""
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
        return int(self._core.active)

    @property
    def last_committed_record_offset(self) -> int:
        return self._core.offsets.committed_offset

    @property
    def event_queue_size(self) -> int:
        return len(self._core.queue)

    @property
    def fenced_broker_count(self) -> int:
        return sum(registration.fenced for registration in self._core.state.cluster.brokers.values())

    @property
    def active_broker_count(self) -> int:
        return sum(not registration.fenced for registration in self._core.state.cluster.brokers.values())

    @property
    def global_topic_count(self) -> int:
        return len(self._core.state.replication.topics)

    @property
    def global_partition_count(self) -> int:
        return self._core.state.replication.partition_count.get()

    @property
    def offline_partitions_count(self) -> int:
        return self._core.state.replication.leaderless_count

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return self._core.state.replication.imbalanced_count

    @property
    def unclean_elections_count(self) -> int:
        return self._core.state.replication.unclean_elections
