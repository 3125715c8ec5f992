"""The active controller's numbers under the names that Kafka's stock boards expect.

Source: CE-30; MBeans `kafka.controller:type=KafkaController` and `type=ControllerEventManager` as jmx_exporter writes them.
"""

from __future__ import annotations

from typing import Final, Protocol

from kraftlite.obs.metrics import Metrics

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_QUEUE: Final = "kafka_controller_controllereventmanager_"


class ControllerNumbers(Protocol):
    """What a controller counts (`controller/metrics`)."""

    last_applied_record_offset: int
    last_applied_record_timestamp_ms: int
    new_active_controllers_count: int
    timed_out_broker_heartbeat_count: int
    event_queue_time_ms_total: int
    event_queue_time_ms_max: int
    event_count: int
    event_processing_time_ms_total: int
    event_processing_time_ms_max: int

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


def register_controller(metrics: Metrics, numbers: ControllerNumbers) -> None:
    """Gauges and counters of one controller, read when the page is asked for."""
    gauge, counter = metrics.gauge, metrics.counter
    gauge(f"{_CONTROLLER}activecontrollercount", "1 on the active controller.", lambda: numbers.active_controller_count)
    gauge(f"{_CONTROLLER}newactivecontrollerscount", "Changes seen.", lambda: numbers.new_active_controllers_count)
    gauge(f"{_CONTROLLER}lastappliedrecordoffset", "Last record replayed.", lambda: numbers.last_applied_record_offset)
    gauge(f"{_CONTROLLER}lastappliedrecordtimestamp", "Its append time.", lambda: numbers.last_applied_record_timestamp_ms)
    gauge(f"{_CONTROLLER}lastcommittedrecordoffset", "Last record committed.", lambda: numbers.last_committed_record_offset)
    gauge(f"{_CONTROLLER}timedoutbrokerheartbeatcount", "Late heartbeats.", lambda: numbers.timed_out_broker_heartbeat_count)
    gauge(f"{_CONTROLLER}fencedbrokercount", "Brokers that are fenced.", lambda: numbers.fenced_broker_count)
    gauge(f"{_CONTROLLER}activebrokercount", "Brokers that are not fenced.", lambda: numbers.active_broker_count)
    gauge(f"{_CONTROLLER}globaltopiccount", "Topics.", lambda: numbers.global_topic_count)
    gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions.", lambda: numbers.global_partition_count)
    gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without a leader.", lambda: numbers.offline_partitions_count)
    gauge(
        f"{_CONTROLLER}preferredreplicaimbalancecount",
        "Partitions not led by their preferred replica.",
        lambda: numbers.preferred_replica_imbalance_count,
    )
    gauge(f"{_CONTROLLER}eventqueuesize", "Events that wait.", lambda: numbers.event_queue_size)
    for name, total, largest, doc in (
        ("eventqueuetimems", "event_queue_time_ms_total", "event_queue_time_ms_max", "Wait in the event queue."),
        ("eventqueueprocessingtimems", "event_processing_time_ms_total", "event_processing_time_ms_max", "Time at work."),
    ):
        counter(f"{_QUEUE}{name}_count", doc, lambda: numbers.event_count)
        counter(f"{_QUEUE}{name}_sum", doc, lambda total=total: int(getattr(numbers, total)))  # type: ignore[misc]
        gauge(f"{_QUEUE}{name}_max", doc, lambda largest=largest: int(getattr(numbers, largest)))  # type: ignore[misc]
