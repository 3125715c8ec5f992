"""No record of an idempotent producer is there twice (LG-16)."""

from __future__ import annotations

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.replica_facts import may_forget_producers


class NoDuplicates(HistoryChecker):
    """Neither in a final log nor among what consumers read at different offsets. Sent again as often as it likes: an idempotent
    producer numbers its records, and gives one up rather than to send it under another producer id."""

    def at_end(self) -> None:
        if may_forget_producers(self.world):
            return
        idempotent = {(it.tp, it.value) for it in self.history.produces if it.idempotent}
        for tp, values in self.final_values().items():
            for value, offsets in values.items():
                if len(offsets) > 1 and (tp, value) in idempotent:
                    self.fail(f"{tp}: {value} is there {len(offsets)} times, at {offsets}")
        read: dict[tuple[TopicPartition, str | None, str], int] = {}
        for it in self.consumed():
            for offset, value in it.records:
                if (it.tp, value) not in idempotent:
                    continue
                known = read.setdefault((it.tp, it.topic_id, value), offset)
                if known != offset:
                    self.fail(f"{it.tp}: {value} was consumed at offset {known} and at offset {offset} ({it.client})")
