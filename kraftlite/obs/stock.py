"""The active controller's numbers under the names that Kafka's stock boards expect.

Source: CE-30; MBeans `kafka.controller:type=KafkaController` and `type=ControllerEventManager` as jmx_exporter writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftlite.obs.metrics import Metrics

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_QUEUE: Final = "kafka_controller_controllereventmanager_"


class Durations(Protocol):
    """A count, and microseconds."""

    count: int
    total_us: int
    max_us: int


class ControllerNumbers(Protocol):
    """The numbers that a controller counts (`controller/metrics`)."""

    last_applied_record_offset: int
    last_applied_record_timestamp_ms: int
    new_active_controllers_count: int
    timed_out_broker_heartbeat_count: int

    @property
    def queue_time(self) -> Durations: ...
    @property
    def processing_time(self) -> Durations: ...
    @property
    def active_controller_count(self) -> int: ...
    @property
    def last_committed_record_offset(self) -> int: ...
    @property
    def event_queue_size(self) -> int: ...
    @property
    def fenced_broker_count(self) -> int: ...
    @property
    def active_broker_count(self) -> int: ...
    @property
    def global_topic_count(self) -> int: ...
    @property
    def global_partition_count(self) -> int: ...
    @property
    def offline_partitions_count(self) -> int: ...
    @property
    def preferred_replica_imbalance_count(self) -> int: ...
    @property
    def unclean_elections_count(self) -> int: ...
    @property
    def elections_from_elr_count(self) -> int: ...


def register_controller(metrics: Metrics, numbers: ControllerNumbers) -> None:
    """Gauges and summaries of one controller, read when the page is asked for."""
    for name, doc, read in (
        ("activecontrollercount", "1 on the active controller, 0 on the others.", lambda: numbers.active_controller_count),
        (
            "newactivecontrollerscount",
            "Changes of the active controller that this node has seen since it started.",
            lambda: numbers.new_active_controllers_count,
        ),
        ("lastappliedrecordoffset", "Offset of the last metadata record replayed.", lambda: numbers.last_applied_record_offset),
        (
            "lastappliedrecordtimestamp",
            "When the last metadata record replayed was appended, in milliseconds since 1970.",
            lambda: numbers.last_applied_record_timestamp_ms,
        ),
        (
            "lastcommittedrecordoffset",
            "Offset of the last metadata record that is committed.",
            lambda: numbers.last_committed_record_offset,
        ),
        (
            "timedoutbrokerheartbeatcount",
            "Heartbeats of brokers that this controller answered too late, since it started.",
            lambda: numbers.timed_out_broker_heartbeat_count,
        ),
        ("fencedbrokercount", "Registered brokers that are fenced.", lambda: numbers.fenced_broker_count),
        ("activebrokercount", "Registered brokers that are not fenced.", lambda: numbers.active_broker_count),
        ("globaltopiccount", "Topics of the cluster.", lambda: numbers.global_topic_count),
        ("globalpartitioncount", "Partitions of the cluster.", lambda: numbers.global_partition_count),
        ("offlinepartitionscount", "Partitions of the cluster without a leader.", lambda: numbers.offline_partitions_count),
        (
            "preferredreplicaimbalancecount",
            "Partitions of the cluster that their preferred replica does not lead.",
            lambda: numbers.preferred_replica_imbalance_count,
        ),
    ):
        metrics.gauge(f"{_CONTROLLER}{name}", doc, read)
    metrics.counter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders elected from outside of the ISR, of those in the metadata log that this node has replayed since it started.",
        lambda: numbers.unclean_elections_count,
    )
    metrics.counter(
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas",
        "Leaders elected from the eligible leader replicas, of those in the metadata log that this node has replayed since it "
        "started.",
        lambda: numbers.elections_from_elr_count,
    )
    metrics.gauge(f"{_QUEUE}eventqueuesize", "Events that wait in the controller's queue.", lambda: numbers.event_queue_size)
    _register_durations(
        metrics,
        "eventqueuetimems",
        "that events waited in the controller's queue, without deferred ones",
        lambda: numbers.queue_time,
    )
    _register_durations(
        metrics, "eventqueueprocessingtimems", "that the controller worked on an event", lambda: numbers.processing_time
    )


def _register_durations(metrics: Metrics, name: str, doc: str, of: Callable[[], Durations]) -> None:
    """Kafka's histograms in milliseconds: count and sum, and the largest one as a gauge of its own."""
    metrics.summary(f"{_QUEUE}{name}", f"Milliseconds {doc}.", lambda: (of().count, of().total_us / 1000))
    metrics.gauge(f"{_QUEUE}{name}_max", f"Most milliseconds {doc}, since the start.", lambda: of().max_us / 1000)
