"""Numbers of the controller, as plain attributes. Names: Kafka's, in snake case (CE-30)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlite.raft.client import LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlite.controller.core import ControllerCore


class ControllerMetrics:
    """Counters are kept here, gauges are read from the state when asked."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self.last_applied_record_offset = -1
        self.last_applied_record_timestamp_ms = -1
        self.new_active_controllers_count = 0
        self.timed_out_broker_heartbeat_count = 0
        self.event_queue_time_ms_total = 0
        self.event_queue_time_ms_max = 0
        self.event_count = 0
        self.event_processing_time_ms_total = 0
        self.event_processing_time_ms_max = 0
        self._leader_epoch = -1

    def note_queue_time(self, waited_ms: int) -> None:
        self.event_count += 1
        self.event_queue_time_ms_total += waited_ms
        self.event_queue_time_ms_max = max(self.event_queue_time_ms_max, waited_ms)

    def note_processing_time(self, took_ms: int) -> None:
        self.event_processing_time_ms_total += took_ms
        self.event_processing_time_ms_max = max(self.event_processing_time_ms_max, took_ms)

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
