"""Invariant 52: partitions only become more, replicas move as a reassignment says, and who is unregistered is in nothing."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState, awaited, target_of
from kraftlite.sim.checkers.views import Entry


class Moves(MetadataChecker):
    """Every committed record. That a move begins as it was asked for is checked by `i50_admin_outcomes`; here, how it goes on:
    with the same replicas until all of its target are in sync, and then with exactly these."""

    numbers: ClassVar[tuple[int, ...]] = (52,)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        wrong: str | None = None
        if isinstance(record, r.PartitionRecord):
            wrong = _new(record, before)
        elif isinstance(record, r.PartitionChangeRecord):
            old = before.partition(record.topic_id, record.partition)
            new = after.partition(record.topic_id, record.partition)
            assert old is not None and new is not None, "the record was replayed"
            wrong = _changed(record, old, new) or _absent(old, new, before)
        elif isinstance(record, r.UnregisterBrokerRecord):
            wrong = _left_behind(record, before)
        if wrong is not None:
            self.fail(f"offset {offset}: {wrong}: {record}")


def _new(record: r.PartitionRecord, before: MetadataState) -> str | None:
    known = before.topics[record.topic_id].partitions
    if record.partition != len(known):
        return f"a new partition {record.partition} of {before.topics[record.topic_id].name}, which has 0 to {len(known) - 1}"
    gone = [it for it in record.replicas if it not in before.brokers]
    return f"a new partition on {gone}, which are not registered" if gone else None


def _changed(record: r.PartitionChangeRecord, old: PartitionRegistration, new: PartitionRegistration) -> str | None:
    fields: tuple[Any, ...] = (record.replicas, record.adding_replicas, record.removing_replicas)
    if not any(isinstance(it, tuple) for it in fields):
        return None
    if any(it in new.removing_replicas for it in new.adding_replicas):
        return "a replica is both added and removed"
    if new.adding_replicas or new.removing_replicas or not (old.adding_replicas or old.removing_replicas):
        return None
    target = target_of(old)
    late = [it for it in awaited(old.adding_replicas, old.removing_replicas, target) if it not in new.isr]
    if new.replicas == target and not new.recovering and late:
        return f"a move to {target} ends, though only {new.isr} are in sync"
    return None


def _absent(old: PartitionRegistration, new: PartitionRegistration, before: MetadataState) -> str | None:
    joined = [it for it in new.isr if it not in old.isr and it not in before.brokers]
    taken_back = old.adding_replicas and not new.adding_replicas and new.isr == new.replicas[:1] and new.leader is None
    if joined and not taken_back:  # a move that is cancelled when only what it adds is in sync: the first replica, as in Kafka
        return f"{joined} join the ISR, but are not registered"
    if new.leader is not None and new.leader != old.leader and new.leader not in before.brokers:
        return f"{new.leader} leads, but is not registered"
    return None


def _left_behind(record: r.UnregisterBrokerRecord, before: MetadataState) -> str | None:
    """CM-28: the last member of an ISR stays in it, without leading."""
    broker = record.broker_id
    for topic in before.topics.values():
        for index, it in topic.partitions.items():
            if it.leader == broker or (broker in it.isr and len(it.isr) > 1):
                return f"{topic.name}-{index} still has broker {broker} as leader or in its ISR"
    return None
