"""The replicas of a broker, counted: for its metrics."""

from __future__ import annotations

from kraftlite.replication.markers import LATE_TRANSACTION_BUFFER_MS
from kraftlite.replication.table import PartitionTable
from kraftlite.replication.traffic import Traffic
from kraftlite.runtime.ports import Clock


class ReplicaCounts:
    """Each number is counted when it is asked for."""

    def __init__(self, table: PartitionTable, clock: Clock, transaction_max_timeout_ms: int) -> None:
        self._table = table
        self._clock = clock
        self._transaction_max_timeout_ms = transaction_max_timeout_ms

    def partitions(self) -> int:
        return len(self._table.by_tp)

    def leaders(self) -> int:
        return sum(partition.leader is not None for partition in self._table.by_tp.values())

    def under_replicated(self) -> int:
        return sum(partition.under_replicated for partition in self._table.by_tp.values())

    def late_transactions(self) -> int:
        """Partitions led here that have a transaction which should have been ended long ago (TP-41)."""
        wall_ms, limit_ms = self._clock.wall_ms(), self._transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return sum(
            partition.leader is not None and partition.log is not None and partition.log.has_late_transaction(wall_ms, limit_ms)
            for partition in self._table.by_tp.values()
        )

    def under_min_isr(self) -> int:
        return sum(partition.under_min_isr for partition in self._table.by_tp.values())

    def at_min_isr(self) -> int:
        return sum(it.leader is not None and len(it.committed_isr) == it.min_isr for it in self._table.by_tp.values())

    def reassigning(self) -> int:
        """Partitions led here whose replicas are being changed, as the metadata says."""
        topics = self._table.image.topics
        led = (partition.tp for partition in self._table.by_tp.values() if partition.leader is not None)
        found = ((topics.topic(tp.topic), tp.partition) for tp in led)
        told = (topic.partitions.get(index) for topic, index in found if topic is not None)
        return sum(it is not None and bool(it.adding_replicas or it.removing_replicas) for it in told)

    def offline(self) -> int:
        return sum(partition.log is None for partition in self._table.by_tp.values())

    def traffic(self) -> Traffic:
        """Return the traffic of all replicas since the start, those that are gone included."""
        found = Traffic()
        found.add(self._table.removed)
        for partition in self._table.by_tp.values():
            found.add(partition.traffic)
        return found
