"""Series of single partitions and topics of a broker, under the names that Kafka's stock boards expect.

Topics are chosen by clients, and a page must not grow with them without a bound: the first `kraftlite.metrics.partitions.max`
replicas by name have series of their own, and a gauge says how many are left out. Sums over all of them are never cut.

Source: CE-30, TM-11; MBeans `kafka.log:type=Log`, `kafka.cluster:type=Partition`, `kafka.server:type=BrokerTopicMetrics` as
jmx_exporter and Strimzi's rules write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from kraftlite.coordinator.coordinator import GroupCoordinator
from kraftlite.log.log import Log
from kraftlite.obs.metrics import Metrics, Texts
from kraftlite.obs.outages import Outages
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.partition import Partition
from kraftlite.replication.traffic import Traffic

_LABELS: Final = ("topic", "partition")
_LOG: Final[tuple[tuple[str, str, Callable[[Log], float]], ...]] = (
    ("size", "Bytes of the replica's segments.", lambda log: log.size_bytes),
    ("logstartoffset", "First offset of the replica.", lambda log: log.log_start_offset),
    ("logendoffset", "Offset behind the last record of the replica.", lambda log: log.leo),
    ("numlogsegments", "Segments of the replica.", lambda log: len(log.segment_base_offsets)),
)
_PARTITION: Final[tuple[tuple[str, str, Callable[[Partition], float]], ...]] = (
    ("underreplicated", "1 where this broker leads and the ISR is smaller than the replicas.", lambda it: it.under_replicated),
    ("underminisr", "1 where this broker leads and the ISR is below min.insync.replicas.", lambda it: it.under_min_isr),
    ("atminisr", "1 where this broker leads and the ISR is at min.insync.replicas.", lambda it: _is_at_min_isr(it)),
    ("insyncreplicascount", "Replicas in sync, where this broker leads; else 0.", lambda it: _if_led(it, len(it.committed_isr))),
    ("replicascount", "Replicas, where this broker leads; else 0.", lambda it: _if_led(it, len(it.replicas))),
    (
        "laststableoffsetlag",
        "Offsets from the last stable offset to the high watermark, where this broker leads; else 0.",
        lambda it: 0 if it.leader is None or it.log is None else it.log.hw - it.log.last_stable_offset,
    ),
)
_TRAFFIC: Final[tuple[tuple[str, str, Callable[[Traffic], int]], ...]] = (
    ("messagesin", "Records appended for producers.", lambda it: it.messages_in),
    ("bytesin", "Bytes of batches appended for producers.", lambda it: it.bytes_in),
    ("bytesout", "Bytes of batches answered to consumers.", lambda it: it.bytes_out),
    ("totalproducerequests", "Batches appended for producers, one for each partition of a request.", lambda it: it.produces),
    ("totalfetchrequests", "Reads of consumers that found records, one for each partition of a request.", lambda it: it.fetches),
    (
        "failedproducerequests",
        "Batches of producers that were refused, but for the reasons that are usual: no leader here, too large, damaged.",
        lambda it: it.failed_produces,
    ),
    (
        "failedfetchrequests",
        "Reads of consumers that were refused, but for the reasons that are usual: no leader here, another epoch, out of range.",
        lambda it: it.failed_fetches,
    ),
)


def _if_led(partition: Partition, count: int) -> int:
    return count if partition.leader is not None else 0


def _is_at_min_isr(partition: Partition) -> bool:
    return partition.leader is not None and len(partition.committed_isr) == partition.min_isr


class _Look:
    """The replicas of one page: those that have series of their own, and the traffic of all of them and of each topic."""

    def __init__(self, replicas: ReplicaManager, most: int) -> None:
        self._replicas = replicas
        self._most = most
        self.shown: tuple[Partition, ...] = ()
        self.traffic: dict[str | None, Traffic] = {}
        """By topic; None: the sum of all."""

    def take(self) -> None:
        self.shown = self._replicas.partitions()[: self._most]
        self.traffic = {None: self._replicas.counts.traffic()}
        for partition in self.shown:
            self.traffic.setdefault(partition.tp.topic, Traffic()).add(partition.traffic)


def register_partitions(metrics: Metrics, replicas: ReplicaManager, most: int, now_ms: Callable[[], int]) -> None:
    """`most`: replicas with series of their own."""
    look = _Look(replicas, most)
    metrics.before(look.take)

    def of_logs(read: Callable[[Log], float]) -> Callable[[], Iterable[tuple[Texts, float]]]:
        return lambda: ((_texts(it), read(it.log)) for it in look.shown if it.log is not None)

    def of_partitions(read: Callable[[Partition], float]) -> Callable[[], Iterable[tuple[Texts, float]]]:
        return lambda: ((_texts(it), read(it)) for it in look.shown)

    def of_topics(count: Callable[[Traffic], int]) -> Callable[[], Iterable[tuple[Texts, float]]]:
        """One family, as in Kafka, where the sum has no label `topic`."""
        return lambda: (((topic,), count(traffic)) for topic, traffic in look.traffic.items())

    for name, doc, log_read in _LOG:
        metrics.samples(f"kafka_log_log_{name}", doc, _LABELS, of_logs(log_read))
    for name, doc, read in _PARTITION:
        metrics.samples(f"kafka_cluster_partition_{name}", doc, _LABELS, of_partitions(read))
    for name, doc, count in _TRAFFIC:
        metrics.samples(f"kafka_server_brokertopicmetrics_{name}", doc, ("topic",), of_topics(count), counter=True)
    metrics.gauge(
        "kraftlite_metrics_partitions_left_out",
        "Replicas without series of their own, because kraftlite.metrics.partitions.max others come before them by name.",
        lambda: max(0, replicas.counts.partitions() - most),
    )
    _register_outages(metrics, look, now_ms)
    metrics.samples(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Offsets by which a replica here is behind the high watermark that its leader has told.",
        ("clientid", *_LABELS),
        lambda: (
            ((f"ReplicaFetcherThread-{number}-{leader}", tp.topic, str(tp.partition)), lag)
            for leader, number, tp, lag in islice(replicas.lags(), most)
        ),
    )


def _register_outages(metrics: Metrics, look: _Look, now_ms: Callable[[], int]) -> None:
    outages = Outages(now_ms)
    metrics.listen(outages)
    metrics.before(lambda: outages.look(look.shown))
    metrics.samples(
        "kraftlite_partition_unwritable_seconds",
        "Seconds in which this broker led and could acknowledge nothing to acks=all, as its ISR was too small or the high "
        "watermark stood still.",
        _LABELS,
        lambda: ((_texts(it), outages.seconds(it.tp)) for it in look.shown),
        counter=True,
    )
    metrics.gauge(
        "kraftlite_hw_stalled_partitions",
        "Partitions led here with records above a high watermark that has stood still for longer than usual.",
        outages.stalled,
    )


def register_group_offsets(metrics: Metrics, groups: GroupCoordinator, replicas: ReplicaManager, most: int) -> None:
    """Under the names of kafka_exporter. A lag needs a replica here: of other partitions nobody here knows the end."""
    found: list[tuple[tuple[str, str, str], int, int | None]] = []

    def look() -> None:
        found.clear()
        for group_id, tp, offset in groups.committed_offsets(most):
            partition = replicas.partition(tp)
            end = None if partition is None or partition.log is None else partition.log.hw
            found.append(((group_id, tp.topic, str(tp.partition)), offset, end))

    metrics.before(look)
    labels = ("consumergroup", "topic", "partition")
    metrics.samples(
        "kafka_consumergroup_current_offset",
        "Offset that a group has committed, of the groups that this broker coordinates.",
        labels,
        lambda: ((texts, offset) for texts, offset, _ in found),
    )
    metrics.samples(
        "kafka_consumergroup_lag",
        "Offsets from what a group has committed to the high watermark, as the replica on this broker knows it.",
        labels,
        lambda: ((texts, max(0, end - offset)) for texts, offset, end in found if end is not None),
    )
    metrics.gauge(
        "kraftlite_metrics_group_offsets_left_out",
        "Committed offsets without series of their own, because kraftlite.metrics.partitions.max others are older.",
        lambda: max(0, groups.offset_count() - most),
    )


def _texts(partition: Partition) -> tuple[str, str]:
    return partition.tp.topic, str(partition.tp.partition)
