"""Records keep their order (RP-08)."""

from __future__ import annotations

from collections import defaultdict

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.replica_facts import may_forget_producers
from kraftlite.sim.history import Produce, Verdict


class OrderKept(HistoryChecker):
    """The records of one producer id come, in a final log, in the order of their numbers, which their sequences follow. Of two
    records that all in-sync replicas acknowledged, the one whose answer was there before the other was sent comes first, whoever
    sent them."""

    def at_end(self) -> None:
        if not may_forget_producers(self.world):
            self._check_sequences()
        self._check_real_time()

    def _check_sequences(self) -> None:
        by_value = {(it.tp, it.value): it for it in self.history.produces if it.idempotent}
        for tp, records in self.history.final_logs.items():
            last: dict[tuple[int, int], tuple[int, Produce]] = {}
            for offset, value in records:
                it = by_value.get((tp, value))
                if it is None:
                    continue
                before = last.get((it.producer_id, it.producer_epoch))
                if before is not None and before[1].number >= it.number:
                    self.fail(
                        f"{tp}: {before[1].value} (sequence {before[1].sequence}) at offset {before[0]} comes before "
                        f"{value} (sequence {it.sequence}) at {offset}"
                    )
                last[(it.producer_id, it.producer_epoch)] = (offset, it)

    def _check_real_time(self) -> None:
        acked: dict[TopicPartition, list[Produce]] = defaultdict(list)
        for it in self.judged(self.history.produces):
            if it.acks == -1 and it.verdict is Verdict.OK and it.offset >= 0 and it.returned_us is not None:
                acked[it.tp].append(it)
        for tp, produces in acked.items():
            returned = sorted(produces, key=lambda it: it.returned_us or 0)
            highest: Produce | None = None
            done = 0
            for it in sorted(produces, key=lambda it: it.invoked_us):
                while done < len(returned) and (returned[done].returned_us or 0) < it.invoked_us:
                    if highest is None or returned[done].offset > highest.offset:
                        highest = returned[done]
                    done += 1
                if highest is not None and highest.offset >= it.offset:
                    self.fail(
                        f"{tp}: {it.value} was sent at {it.invoked_us} us and got offset {it.offset}; {highest.value} had been "
                        f"acknowledged at offset {highest.offset} at {highest.returned_us} us"
                    )
