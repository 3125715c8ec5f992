"""The records that consumers read were produced, stay what they are, and are committed (RP-13, RP-43)."""

from __future__ import annotations

from itertools import pairwise

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.history import Consumed, Produce, Verdict
from kraftlite.sim.workloads.stranger import MAYBE, ZOMBIE_VALUE


class ConsumptionConsistent(HistoryChecker):
    """Every record that was read is below the HW that came with it, was produced before and for this partition, and no other read
    and no final log has another value at its offset. At the end everything that was ever below a HW is there.

    The record of a producer's zombie counts as produced where the leader may have forgotten the producer."""

    def at_end(self) -> None:
        produced = {(it.tp, it.value): it for it in self.history.produces}
        for it in self.history.consumed:
            self._check_read(it, produced)
        self._check_final(produced)
        self._check_offsets()

    def _check_read(self, it: Consumed, produced: dict[tuple[TopicPartition, str], Produce]) -> None:
        where = f"{it.tp}: {it.client} at {it.at_us // 1000} ms from node {it.broker}"
        for before, after in pairwise(it.records):
            if after[0] != before[0] + 1:
                self.fail(f"{where} was given {after} behind {before}")
        for offset, value in it.records:
            if offset >= it.hw:
                self.fail(f"{where} was given {value} at offset {offset}, the HW was {it.hw}")
            made = produced.get((it.tp, value))
            invoked_us = self._zombie_us(it.tp, value) if made is None else made.invoked_us
            if invoked_us is None or invoked_us > it.at_us:
                self.fail(f"{where} was given {value} at offset {offset}, which nobody had produced")

    def _check_final(self, produced: dict[tuple[TopicPartition, str], Produce]) -> None:
        for tp, records in self.history.final_logs.items():
            for before, after in pairwise(records):
                if after[0] != before[0] + 1:
                    self.fail(f"{tp}: at the end {after} comes behind {before}")
            for offset, value in records:
                made = produced.get((tp, value))
                if made is None and self._zombie_us(tp, value) is None:
                    self.fail(f"{tp}: at the end there is {value} at offset {offset}, which nobody has produced")
                elif made is not None and made.verdict is Verdict.FAILED:
                    self.fail(f"{tp}: at the end there is {value} at offset {offset}, which was refused with {made.error}")

    def _zombie_us(self, tp: TopicPartition, value: str) -> int | None:
        """Return when the record was first sent, if it is that of a zombie who may have been welcome."""
        if value != ZOMBIE_VALUE:
            return None
        zombies = (it.invoked_us for it in self.history.strange if it.kind in MAYBE and it.tp == tp and self.may_be_welcome(it))
        return min(zombies, default=None)

    def _check_offsets(self) -> None:
        known: dict[tuple[TopicPartition, str | None, int], tuple[str, str]] = {}
        for tp, records in self.history.final_logs.items():
            if not self.is_excused(tp):
                current = self.current_id(tp.topic)
                known |= {(tp, current, offset): (value, "at the end") for offset, value in records}
        ends: dict[tuple[TopicPartition, NodeId], int] = {}
        for it in self.consumed():
            # Without an id the only topic of that name is meant, if there was no other.
            topic_id = it.topic_id or (self.current_id(it.tp.topic) if self.is_current(it.tp, None) else None)
            who = f"by {it.client} at {it.at_us // 1000} ms from node {it.broker}"
            for offset, value in it.records:
                other = known.setdefault((it.tp, topic_id, offset), (value, who))
                if other[0] != value:
                    self.fail(f"{it.tp}: offset {offset} was read as {value} {who}, as {other[0]} {other[1]}")
            if it.tp in self.history.final_logs and topic_id == self.current_id(it.tp.topic):
                ends[(it.tp, it.broker)] = max(it.hw, ends.get((it.tp, it.broker), 0))
        for (tp, broker), hw in ends.items():
            records = self.history.final_logs[tp]
            end = records[-1][0] + 1 if records else 0
            if hw > end:
                self.fail(f"{tp}: node {broker} told the HW {hw}, at the end the log ends at {end}")
