"""Transactions as clients see them: all or nothing, once, and nothing of who was replaced. Source: KIP-98, KIP-447."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import EndTxnMarker, decode_control
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import LivenessViolation, World
from kraftlite.sim.checkers.group_log import group_facts
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.replica_facts import may_forget_producers, replica_facts
from kraftlite.sim.checkers.transaction_log import transaction_facts
from kraftlite.sim.workloads.transactions_history import COMPACTED, Outcome, Tried, copy_of

Committed = dict[TopicPartition, list[tuple[int, str]]]


class TransactionsSeen(HistoryChecker):
    """No two instances were given one producer, and no two transactional ids one producer id.

    A record that a read_committed reader was given is in a transaction that its client asked to commit, and what it was given
    below its position is all that is committed there, in order. Of a transaction whose commit was acknowledged each record is
    there, once; of one that was not committed, none; of one whose fate its client does not know, all or none. A copier's output
    has each record of its input up to the group's offset once, and no other.

    Nothing is asked of the records that a repeated marker has ended before their time, where invariant 66 excuses it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ended_early: set[str] = set()
        self.seen = world.history.transactions

    def at_end(self) -> None:
        if transaction_facts(self.world).unjudged:
            return
        self._check_given()
        if not self.seen.topics:
            return
        self._check_last_words()
        committed = {tp: list(records) for tp, records in self._final()}
        self._check_readings(committed)
        self._check_outcomes(committed)

    # --- identities

    def _check_given(self) -> None:
        owners: dict[Producer, tuple[str, int]] = {}
        ids: dict[int, str] = {}
        for it in self.seen.given:
            owner = owners.setdefault(it.producer, (it.transactional_id, it.instance))
            if owner != (it.transactional_id, it.instance):
                self.fail(
                    f"instance {it.instance} of {it.transactional_id} was given {tuple(it.producer)} by {it.by} at "
                    f"{it.at_us // 1000} ms, which instance {owner[1]} of {owner[0]} has"
                )
            other = ids.setdefault(it.producer.producer_id, it.transactional_id)
            if other != it.transactional_id:
                self.fail(f"{it.transactional_id} was given producer id {it.producer.producer_id} of {other}")

    # --- the end

    def _check_last_words(self) -> None:
        """Each id is of use when all is well again: its coordinator, and every partition that it was last in."""
        if any(tp.topic in (*self.seen.topics, COMPACTED, OFFSETS_TOPIC) for tp in self.world.losses.excused):
            return
        for transactional_id, could in self.seen.last_words.items():
            if not could:
                raise LivenessViolation(self.name, f"a fresh producer of {transactional_id} could not commit when all was well")

    # --- records

    def _final(self) -> Iterator[tuple[TopicPartition, list[tuple[int, str]]]]:
        """The committed records in the log of each leader, by its markers alone."""
        facts = replica_facts(self.world)
        for topic_id, topic in facts.metadata.history.latest.topics.items():
            for index, registration in topic.partitions.items():
                tp = TopicPartition(topic.name, index)
                view = None if registration.leader is None else facts.view(registration.leader, tp)
                if tp.topic not in self.seen.topics or view is None or view.log is None:
                    continue
                if self.is_excused(tp, str(topic_id)):
                    continue
                early = transaction_facts(self.world).ended_early.get(TopicIdPartition(topic_id, index), ())
                yield (
                    tp,
                    self._committed_in(bytes(view.log.read(0, 1 << 30, up_to=view.log.hw)), {it.base_offset for it in early}),
                )

    def _committed_in(self, data: bytes, early: Collection[int]) -> list[tuple[int, str]]:
        """`early`: the batches that were ended early, by their base offsets."""
        open_: dict[int, list[tuple[int, str]]] = defaultdict(list)
        found: list[tuple[int, str]] = []
        for header, raw in iter_batches(data):
            for record in iter_records(raw):
                if header.is_control:
                    marker = decode_control(record)
                    ended = open_.pop(header.producer_id, [])
                    if isinstance(marker, EndTxnMarker) and marker.commit:
                        found += ended
                else:
                    offset = header.base_offset + record.offset_delta
                    value = (record.value or b"").decode()
                    open_[header.producer_id].append((offset, value))
                    if header.base_offset in early:
                        self._ended_early.add(value)
        return sorted(found)

    def _check_readings(self, committed: Committed) -> None:
        made: dict[str, Tried] = {sent.value: tried for tried in self.seen.tried for sent in tried.sends}
        for reading in self.seen.readings:
            where = f"{reading.tp}: {reading.client}, which has read up to {reading.end},"
            for offset, value in reading.records:
                tried = made.get(value)
                if tried is None and value in self.seen.outside and self._may_be_outside(reading.tp):
                    continue
                if tried is None:
                    self.fail(f"{where} was given {value} at offset {offset}, which nobody has sent in a transaction")
                elif value in self._ended_early:
                    continue
                elif tried.outcome is Outcome.NOT_COMMITTED and not self.is_excused(reading.tp):
                    self.fail(
                        f"{where} was given {value} at offset {offset} of a transaction that was not committed: {tried.name}"
                    )
            wanted = committed.get(reading.tp)
            if wanted is None:
                continue
            below = [it for it in wanted if it[0] < reading.end]
            if reading.records != below:
                missing = [it for it in below if it not in reading.records]
                more = [it for it in reading.records if it not in below]
                self.fail(f"{where} was not given {missing[:5]} and was given {more[:5]}, which is not what is committed there")

    def _may_be_outside(self, tp: TopicPartition) -> bool:
        """Return whether a batch outside of its producer's transaction may be taken: where the partition has lost what was open
        there, or has forgotten the producer before the batch came, late."""
        return self.is_excused(tp) or may_forget_producers(self.world)

    def _check_outcomes(self, committed: Committed) -> None:
        count: dict[tuple[TopicPartition, str], int] = defaultdict(int)
        for tp, records in committed.items():
            for _, value in records:
                count[(tp, value)] += 1
        for tried in self.seen.tried:
            here = [sent for sent in tried.sends if sent.tp in committed and sent.value not in self._ended_early]
            there = [sent for sent in here if count[(sent.tp, sent.value)]]
            for sent in there:
                if count[(sent.tp, sent.value)] > 1:
                    self.fail(f"{sent.tp}: {sent.value} is committed {count[(sent.tp, sent.value)]} times")
            if tried.outcome is Outcome.COMMITTED and len(there) != len(here):
                lost = next(sent for sent in here if sent not in there)
                self.fail(f"{lost.tp}: {lost.value} is not there; its commit was acknowledged: {tried.name}")
            if tried.outcome is Outcome.NOT_COMMITTED and there:
                self.fail(
                    f"{there[0].tp}: {there[0].value} is committed by a transaction that was not: {tried.name}, {tried.error}"
                )
            if there and len(there) != len(here):
                lost = next(sent for sent in here if sent not in there)
                self.fail(f"{there[0].tp}: {there[0].value} is committed and {lost.value} of {lost.tp} is not: {tried.name}")
        self._check_copies(committed)

    def _check_copies(self, committed: Committed) -> None:
        """Each copier has copied, once, every record of its input up to where its group is. A coordinator that was replaced and
        does not know it yet tells offsets of the past: who begins from them copies again. It is the same in Kafka, where a stable
        fetch is a write without records, which waits for what its coordinator has written and for nobody else (TG-04).

        The rows of queries that write exactly once are `h_sink`'s."""
        if any(tp.topic in (*self.seen.topics, COMPACTED, OFFSETS_TOPIC) for tp in self.world.losses.excused):
            return
        rows = {sunk.topic for sunk in self.seen.sunk}
        values = (value for tp, records in committed.items() if tp.topic not in rows for _, value in records if "#" in value)
        copies = Counter(it.partition("#")[0] for it in values if it not in self._ended_early)
        early = {it.partition("#")[0] for it in self._ended_early}
        ends: dict[tuple[str | None, TopicPartition], int] = {}
        for tried in self.seen.tried:
            for tp, (_, end) in tried.moved.items() if tried.copier and tried.outcome is Outcome.COMMITTED else ():
                ends[(tried.copier, tp)] = max(end, ends.get((tried.copier, tp), 0))
        stale = group_facts(self.world).stale
        for name, times in copies.items():
            who = name.partition(":")[0]
            if times > 1 and who not in stale and f"{who}-group" not in stale:
                self.fail(f"{name} was copied {times} times")
        known = copies.keys() | early
        for (copier, tp), end in ends.items():
            for offset, _ in committed.get(tp, ()):
                if copier and offset < end and copy_of(copier, tp, offset) not in known:
                    self.fail(f"{copy_of(copier, tp, offset)} was never copied; the offset of the group is {end}")
