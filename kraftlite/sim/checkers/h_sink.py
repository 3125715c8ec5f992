"""The rows of queries that write exactly once, as readers of committed records see them. Source: SX-01, SX-03."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import LivenessViolation
from kraftlite.sim.checkers.h_transactions import Committed, TransactionsSeen
from kraftlite.sim.checkers.transaction_log import transaction_facts
from kraftlite.sim.workloads.transactions_history import Sunk


class SinkExact(TransactionsSeen):
    """Each row of a batch that a driver has committed is there once, whatever became of it and of others; a row of the batch that
    was under way at the end is there at most once. The batches of a query follow each other in every partition. When all is well
    again, its last batch can be completed. Nobody is told that what was decided is lost, or that the rows have changed."""

    def at_end(self) -> None:
        if transaction_facts(self.world).unjudged or not self.seen.sunk:
            return
        if any(tp.topic in (TRANSACTION_TOPIC, *self.names) for tp in self.world.losses.excused):
            return
        committed = {tp: records for tp, records in self._final() if tp.topic in self.names}
        for sunk in self.seen.sunk:
            if len([tp for tp in committed if tp.topic == sunk.topic]) == self._partitions(sunk.topic):
                self._judge(sunk, committed)

    @property
    def names(self) -> tuple[str, ...]:
        """The topics of rows and of states."""
        return ("sink-state", *(sunk.topic for sunk in self.seen.sunk))

    def _partitions(self, topic: str) -> int:
        metadata = self.metadata
        found = None if metadata is None else metadata.history.latest.topic_named(topic)
        return -1 if found is None else len(found[1].partitions)

    def _judge(self, sunk: Sunk, committed: Committed) -> None:
        if sunk.wrong:
            self.fail(f"{sunk.query}: {sunk.wrong[0]}")
        known = {row for rows in sunk.rows.values() for row in rows}
        count: Counter[str] = Counter()
        for tp, records in committed.items():
            rows = [row for _, value in records if (row := value.rpartition("#")[0]) in known]
            count.update(rows)
            self._check_order(sunk, tp, [int(row.split("/")[1]) for row in rows])
        for row, times in count.items():
            if times > 1:
                self.fail(f"{sunk.query}: row {row} is there {times} times")
        for batch in sunk.complete:
            missing = [row for row in sunk.rows[batch] if row not in count]
            if missing:
                self.fail(f"{sunk.query}: batch {batch} was committed, and row {missing[0]} is not there")
        if max(sunk.rows, default=-1) not in sunk.complete and sunk.rows:
            raise LivenessViolation(self.name, f"{sunk.query}: batch {max(sunk.rows)} could not be completed when all was well")

    def _check_order(self, sunk: Sunk, tp: TopicPartition, batches: list[int]) -> None:
        for before, after in pairwise(batches):
            if after < before:
                self.fail(f"{sunk.query}: {tp} has rows of batch {after} behind those of batch {before}")
