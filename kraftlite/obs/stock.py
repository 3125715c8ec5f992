"""The active controller's numbers under the names that Kafka's stock boards expect.

Source: CE-30, TM-11, TM-12; MBeans `kafka.controller:type=KafkaController` and `type=ControllerEventManager` as jmx_exporter
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from kraftlite.obs.metrics import QUANTILES, Metrics

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_QUEUE: Final = "kafka_controller_controllereventmanager_"
_US: Final = 1_000_000


class Durations(Protocol):
    """A count, and microseconds."""

    count: int
    total_us: int
    max_us: int

    def quantiles(self, wanted: Sequence[float]) -> Sequence[int]: ...


class Times(Protocol):
    """The times of the events of one name."""

    @property
    def waited(self) -> Durations: ...
    @property
    def worked(self) -> Durations: ...


class ControllerNumbers(Protocol):
    """The numbers that a controller counts (`controller/metrics`)."""

    last_applied_record_offset: int
    last_applied_record_timestamp_ms: int
    new_active_controllers_count: int
    timed_out_broker_heartbeat_count: int
    operations_started_count: int
    operations_timed_out_count: int
    metadata_error_count: int

    @property
    def events(self) -> Mapping[str, Times]: ...
    @property
    def deferred_delay(self) -> Durations: ...
    @property
    def last_applied_record_lag_ms(self) -> int | None: ...
    @property
    def controlled_shutdown_broker_count(self) -> int: ...
    def idle_ratio(self) -> float: ...
    def silences_ms(self) -> Iterable[tuple[str, int]]: ...

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
    metrics.gauge(
        f"{_QUEUE}avgidleratio", "Share of the time since the last look in which the controller had no event.", numbers.idle_ratio
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
    _register_progress(metrics, numbers)
    _register_events(metrics, numbers)


def _register_progress(metrics: Metrics, numbers: ControllerNumbers) -> None:
    """Register what tells whether the controller keeps up, and whom it hears of (TM-12)."""
    for name, doc, read in (
        (
            "lastappliedrecordlagms",
            "Milliseconds since the last metadata record replayed was appended.",
            lambda: numbers.last_applied_record_lag_ms,
        ),
        (
            "controlledshutdownbrokercount",
            "Registered brokers in controlled shutdown.",
            lambda: numbers.controlled_shutdown_broker_count,
        ),
        (
            "eventqueueoperationsstartedcount",
            "Events that this controller has begun, since it started.",
            lambda: numbers.operations_started_count,
        ),
        (
            "eventqueueoperationstimedoutcount",
            "Events whose time was over before this controller came to them, since it started.",
            lambda: numbers.operations_timed_out_count,
        ),
        (
            "metadataerrorcount",
            "Operations of this controller that broke, since it started.",
            lambda: numbers.metadata_error_count,
        ),
    ):
        metrics.gauge(f"{_CONTROLLER}{name}", doc, read)
    metrics.family(
        f"{_CONTROLLER}timesincelastheartbeatreceivedms",
        "Milliseconds since the active controller heard of a broker, a session at most.",
        "broker",
        numbers.silences_ms,
    )


def _register_durations(metrics: Metrics, name: str, doc: str, of: Callable[[], Durations]) -> None:
    """Kafka's histograms in milliseconds: count, quantiles of the latest thousand, sum, and the largest as a gauge of its own."""

    def read() -> tuple[int, float, list[float]]:
        found = of()
        return found.count, found.total_us / 1000, [value / 1000 for value in found.quantiles(QUANTILES)]

    metrics.histogram(f"{_QUEUE}{name}", f"Milliseconds {doc}.", read)
    metrics.gauge(f"{_QUEUE}{name}_max", f"Most milliseconds {doc}, since the start.", lambda: of().max_us / 1000)


def _register_events(metrics: Metrics, numbers: ControllerNumbers) -> None:
    """Kafka does not tell these: the times by the name of the event, and how late deferred ones were, in seconds."""

    def each(of: Callable[[Times], float]) -> Callable[[], list[tuple[str, float]]]:
        return lambda: [(name, of(times)) for name, times in sorted(numbers.events.items())]

    def delay() -> tuple[int, float, list[float]]:
        found = numbers.deferred_delay
        return found.count, found.total_us / _US, [value / _US for value in found.quantiles(QUANTILES)]

    event, own = "kraftlite_controller_event", "event"
    metrics.family(f"{event}s", "Events that the controller has run.", own, each(lambda it: it.worked.count), counter=True)
    metrics.family(
        f"{event}_work_seconds",
        "Seconds that the controller worked on events.",
        own,
        each(lambda it: it.worked.total_us / _US),
        counter=True,
    )
    metrics.family(
        f"{event}_work_seconds_max", "Most seconds of work on one event.", own, each(lambda it: it.worked.max_us / _US)
    )
    metrics.family(
        f"{event}_wait_seconds",
        "Seconds that events waited in the queue, or ran behind the time for which they were deferred.",
        own,
        each(lambda it: it.waited.total_us / _US),
        counter=True,
    )
    metrics.family(
        f"{event}_wait_seconds_max",
        "Most seconds that one event waited in the queue, or ran behind the time for which it was deferred.",
        own,
        each(lambda it: it.waited.max_us / _US),
    )
    metrics.histogram(
        "kraftlite_controller_deferred_delay_seconds", "Seconds by which deferred events of the controller ran late.", delay
    )
