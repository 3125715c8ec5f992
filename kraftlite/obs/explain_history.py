"""Recorded events put in order and indexed: by node, by partition, by record of the metadata log, by operation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftlite.model.limits import MAX_INT32
from kraftlite.model.numbers import whole
from kraftlite.obs import faults
from kraftlite.obs.explain_events import Recorded

RECORD = "controller.record_appended"
RECORDS = "controller.records_appended"
METADATA_LOG = "__cluster_metadata-0"
_LEADS = "partition.leader_started"
_REGISTRATIONS = ("RegisterBroker", "BrokerRegistrationChange", "UnregisterBroker")
_LAST_WORDS_MS = 500
"""An event of a node within this time of a kill or a pause may have begun before it."""
_ORDER_MS = 10_000
"""A node that is told to stop begins to within this time."""
HOT = frozenset(
    {
        "controller.stable_advanced",
        "metadata.image_published",
        "partition.hw_advanced",
        "partition.produce_completed",
        "partition.produce_parked",
        "raft.batch_appended",
        "raft.hw_advanced",
    }
)
"""The events that a simulation records per produce or per batch. No story needs them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """One record of a partition: what it was before (None: not known, or new) and what it is after. `leader` None: nobody leads.

    `record` is the record as the active controller traced it. Where that is missing (it was one of many, or the controller's
    trace is gone) the change is known from what brokers made of it: `record` is then the event of a broker, or of the operation.
    """

    ms: int
    node: int
    offset: int | None
    partition: str
    new: bool
    old_leader: int | None
    leader: int | None
    old_leader_epoch: int | None
    leader_epoch: int
    old_isr: tuple[int, ...] | None
    isr: tuple[int, ...]
    partition_epoch: int
    record: Recorded
    old_elr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    unclean: bool = False

    @property
    def moves_leader(self) -> bool:
        return not self.new and (self.old_leader != self.leader or self.old_leader_epoch != self.leader_epoch)

    @property
    def lost(self) -> tuple[int, ...]:
        """The replicas that left the ISR."""
        return tuple(member for member in self.old_isr or () if member not in self.isr)

    @property
    def joined(self) -> tuple[int, ...]:
        return tuple(member for member in self.isr if member not in self.old_isr) if self.old_isr is not None else ()


class History:
    """All events by time. Events of the same millisecond stay in the order in which they were given."""

    def __init__(
        self, events: Iterable[Recorded], *, log_only: bool = False, ended: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """`log_only`: the events are those of a metadata log, and there is no trace of any node. `ended`: the times at which the
        process of a node was seen to have ended, where somebody has looked."""
        self.log_only = log_only
        self.damage: str | None = None
        """The damage of the files that the events are from, in words."""
        self.ended = ended or {}
        found = sorted((event for event in events if event.event not in HOT), key=lambda event: event.ms)
        self.events = [event for event in found if event.event not in faults.EVENTS]
        self.faults = faults.faults_of(found, found[-1].ms if found else None)
        """The faults of the ledger, which are no word of any node."""
        self.by_node: dict[int, list[Recorded]] = {}
        self.by_partition: dict[str, list[Recorded]] = {}
        self.by_name: dict[str, list[Recorded]] = {}
        self.records: dict[int, Recorded] = {}
        """The records by offset, without those that were lost with the controller that wrote them."""
        self._offsets: list[int] = []
        """Those of `records`, in order."""
        self.by_cause: dict[int, list[Recorded]] = {}
        """The records by the offset of the record that caused them."""
        self._batches: list[Recorded] = []
        self._places: dict[tuple[int | None, str], list[int]] = {}
        """The positions in `events` of those of a node, or of all, that have a name."""
        self._epochs: dict[int, int] = {}
        """The raft epoch in which a node was elected last."""
        self._newest = (-1, 0)
        """The newest raft epoch that somebody was elected in, and the offset from which on the log is its own."""
        for position, event in enumerate(self.events):
            self._index(event)
            for node in (None, event.node):
                self._places.setdefault((node, event.event), []).append(position)
        self._siblings: dict[int, list[Recorded]] = {}
        self._registrations: dict[int, list[Recorded]] = {}
        self._fencings: dict[tuple[int, bool], list[Recorded]] = {}
        self._controllers: Container[int] | None = None
        for _, record in sorted(self.records.items()):
            if record.get("first_offset") is not None:
                self._siblings.setdefault(int(record.get("first_offset")), []).append(record)
            if record.get("record") in _REGISTRATIONS:
                self._registrations.setdefault(record.detail.get("broker_id", -1), []).append(record)
        self.changes = {name: list(_changes(name, self, found)) for name, found in self.by_partition.items()}
        self._starts = {node: [e for e in found if e.event == "node.starting"] for node, found in self.by_node.items()}

    def _index(self, event: Recorded) -> None:
        self.by_node.setdefault(event.node, []).append(event)
        self.by_name.setdefault(event.event, []).append(event)
        partition = event.partition
        if partition is not None and partition != METADATA_LOG:
            self.by_partition.setdefault(partition, []).append(event)
        offset = event.caused_by_record
        if offset is not None:
            self.by_cause.setdefault(offset, []).append(event)
        if event.event == RECORD:
            if not self._deposed(event):
                offset = int(event.get("offset"))
                if offset not in self.records:
                    insort(self._offsets, offset)
                self.records[offset] = event
        elif event.event == RECORDS:
            self._batches.append(event)
        elif event.event == "raft.leader_elected":
            # What the new leader's log does not have was never committed; the offsets are used anew.
            start = int(event.get("epoch_start_offset", 0))
            kept = bisect_left(self._offsets, start)
            for offset in self._offsets[kept:]:
                del self.records[offset]
            del self._offsets[kept:]
            epoch = self._epochs[event.node] = int(event.get("raft_epoch", 0))
            self._newest = max(self._newest, (epoch, start))

    def _deposed(self, record: Recorded) -> bool:
        """Return whether a controller wrote it that does not know yet that another one leads: it cannot be committed any more."""
        epoch, (newest, start) = self._epochs.get(record.node), self._newest
        return epoch is not None and epoch < newest and int(record.get("offset")) >= start

    # --- what there is

    def nodes(self) -> list[int]:
        return sorted(self.by_node)

    def partitions(self) -> list[str]:
        """The partitions of topics, in order of name and number."""
        return sorted(self.by_partition, key=_split)

    def topics(self) -> list[str]:
        named = [e.detail.get("name") if e.get("record") == "Topic" else e.get("detail") for e in self.topic_records()]
        return sorted({_split(name)[0] for name in self.by_partition} | {str(name) for name in named if name is not None})

    def topic_records(self) -> list[Recorded]:
        """Creations and deletions of topics, by offset."""
        return [e for _, e in sorted(self.records.items()) if e.get("record") in ("Topic", "RemoveTopic")]

    def partitions_of(self, topic: str) -> list[str]:
        return [name for name in self.partitions() if _split(name)[0] == topic]

    @property
    def begin_ms(self) -> int:
        return self.events[0].ms if self.events else 0

    @property
    def end_ms(self) -> int:
        last = self.events[-1].ms if self.events else 0
        return max([last, *(fault.ended_ms or fault.seen_ms or fault.asked_ms for fault in self.faults)])

    # --- finding

    def order_on(self, node: int, ms: int) -> faults.Fault | None:
        """The stop or restart of the ledger that the node obeyed at `ms`."""
        for fault in reversed(self.faults):
            if fault.node == node and fault.kind in ("stop", "restart") and 0 <= ms - fault.asked_ms <= _ORDER_MS:
                return fault
        return None

    def fault_on(self, node: int, from_ms: int, until_ms: int, others: Container[int] = ()) -> faults.Fault | None:
        """The fault of the ledger for which the node was silent in this time; None when it was heard of after it, so that the
        fault must have ended in a way that the ledger does not know. `others`: the nodes that missed it; what kept it from them,
        or from its disk, counts, too."""
        for fault in reversed(self.faults):
            if fault.node == node and fault.silences(from_ms, until_ms):
                heard = self.own(node, fault.asked_ms + _LAST_WORDS_MS + 1, from_ms)
                if not heard:
                    return fault
                break
        disturbing = (it for it in reversed(self.faults) if others and it.disturbs(node, from_ms, until_ms, others))
        return next(disturbing, None)

    def controllers(self) -> Container[int]:
        """The nodes that say that they are controllers; all, when none has said what it is."""
        if self._controllers is None:
            starts = (event for found in self._starts.values() for event in found)
            self._controllers = {it.node for it in starts if "controller" in str(it.get("roles"))} or set(self.nodes())
        return self._controllers

    def named(self, *names: str, node: int | None = None, since_ms: int = 0, until_ms: int | None = None) -> Iterator[Recorded]:
        """Events of these names by time; `until_ms` inclusive."""
        found = [self._window(self._places.get((node, name), ()), since_ms, until_ms) for name in names]
        return (self.events[at] for at in (found[0] if len(found) == 1 else sorted(at for places in found for at in places)))

    def _window(self, places: Sequence[int], since_ms: int, until_ms: int | None) -> Sequence[int]:
        """Those of the positions that are of this time."""
        start = bisect_left(places, since_ms, key=self._ms)
        return places[start : len(places) if until_ms is None else bisect_right(places, until_ms, key=self._ms)]

    def _ms(self, position: int) -> int:
        return self.events[position].ms

    def own(self, node: int, from_ms: int, until_ms: int) -> Sequence[Recorded]:
        """All that the node recorded in this time, both ends included."""
        found = self.by_node.get(node, [])
        return found[bisect_left(found, from_ms, key=_ms_of) : bisect_right(found, until_ms, key=_ms_of)]

    def before(self, node: int, ms: int) -> Recorded | None:
        """The last that the node recorded before `ms`."""
        found = self.by_node.get(node, [])
        return _at(found, bisect_left(found, ms, key=_ms_of) - 1)

    def after(self, node: int, ms: int) -> Recorded | None:
        """The first that the node recorded after `ms`."""
        found = self.by_node.get(node, [])
        return _at(found, bisect_right(found, ms, key=_ms_of))

    def of_partition(self, name: str, since_ms: int) -> Iterator[Recorded]:
        """All that is recorded of a partition from `since_ms` on."""
        found = self.by_partition.get(name, [])
        return (found[at] for at in range(bisect_left(found, since_ms, key=_ms_of), len(found)))

    def last(self, *names: str, node: int | None = None, until_ms: int, since_ms: int = 0, **facts: Any) -> Recorded | None:
        """The last such event at or before `until_ms`, with these facts."""
        events = reversed(list(self.named(*names, node=node, since_ms=since_ms, until_ms=until_ms)))
        return next((e for e in events if all(e.get(name) == value for name, value in facts.items())), None)

    def first(
        self, *names: str, node: int | None = None, since_ms: int, until_ms: int | None = None, **facts: Any
    ) -> Recorded | None:
        """The first such event at or after `since_ms`, with these facts."""
        events = self.named(*names, node=node, since_ms=since_ms, until_ms=until_ms)
        return next((e for e in events if all(e.get(name) == value for name, value in facts.items())), None)

    def start_before(self, node: int, ms: int) -> Recorded | None:
        """The start of the process that ran on this node at `ms`."""
        found = self._starts.get(node, [])
        return _at(found, bisect_right(found, ms, key=_ms_of) - 1)

    def start_after(self, node: int, ms: int) -> Recorded | None:
        found = self._starts.get(node, [])
        return _at(found, bisect_right(found, ms, key=_ms_of))

    def siblings(self, record: Recorded) -> list[Recorded]:
        """The records of the operation that wrote this one, by offset, itself included, as far as they are traced by themselves.
        `record` may stand for an operation with many: the last of them is traced."""
        if record.event == RECORDS:
            record = self.records.get(int(record.get("last_offset")), record)
        return self._siblings.get(record.get("first_offset", -1), [record])

    def sibling(self, record: Recorded, kind: str, **detail: Any) -> Recorded | None:
        """The record of this kind that the same operation wrote, with these words in its detail."""
        for found in self.siblings(record):
            words = found.detail
            if found.get("record") == kind and all(words.get(name) == value for name, value in detail.items()):
                return found
        return None

    def fencings(self, broker: int, *, fenced: bool) -> list[Recorded]:
        """Those of its records that fenced it, or unfenced it, by time."""
        key = (broker, fenced)
        if key not in self._fencings:
            changes = (it for it in self.registrations(broker) if it.get("record") == "BrokerRegistrationChange")
            self._fencings[key] = sorted((it for it in changes if it.detail.get("fenced") is fenced), key=_ms_of)
        return self._fencings[key]

    def unfencing(self, broker: int, broker_epoch: object, since_ms: int) -> Recorded | None:
        """The first record from `since_ms` on that unfenced this incarnation of it."""
        found = self.fencings(broker, fenced=False)
        later = (found[at] for at in range(bisect_left(found, since_ms, key=_ms_of), len(found)))
        return next((it for it in later if it.detail.get("broker_epoch") == broker_epoch), None)

    def fenced_before(self, broker: int, ms: int) -> Recorded | None:
        """The last record at or before `ms` that fenced it."""
        found = self.fencings(broker, fenced=True)
        position = bisect_right(found, ms, key=_ms_of)
        return found[position - 1] if position else None

    def registrations(self, broker: int) -> list[Recorded]:
        """The records of a broker: registrations and their changes, by offset."""
        return self._registrations.get(broker, [])

    def batch_of(self, offset: int) -> Recorded | None:
        """The operation with many records of which this is one that was not traced by itself."""
        for event in reversed(self._batches):
            last = int(event.get("last_offset"))
            if last - int(event.get("count")) < offset <= last:
                return event
        return None

    def change_at(self, offset: int) -> Change | None:
        record = self.records.get(offset)
        name = record.partition if record is not None else None
        return next((c for c in self.changes.get(name, ()) if c.offset == offset), None) if name is not None else None


def _ms_of(event: Recorded) -> int:
    return event.ms


def _at(found: Sequence[Recorded], position: int) -> Recorded | None:
    return found[position] if 0 <= position < len(found) else None


def _split(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    number = whole(index, MAX_INT32)
    return (name, -1) if number is None else (topic, number)


def _ids(value: Sequence[Any] | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(int(member) for member in value)


def _changes(name: str, history: History, events: Sequence[Recorded]) -> Iterator[Change]:
    """The changes of a partition by partition epoch; a partition that was deleted and created anew starts over. A record that was
    one of many is not traced: what brokers made of it stands for it."""
    last: Change | None = None
    leads = {(event.get("partition_epoch"), event.caused_by_record): event for event in events if event.event == _LEADS}
    traced = {event.get("partition_epoch") for event in events if event.event == RECORD}
    for event in events:
        if event.event == RECORD:
            offset = int(event.get("offset"))
            if history.records.get(offset) is not event:
                continue  # lost with its controller
            found = _from_record(name, event, offset, last)
        elif event.event in (_LEADS, "partition.follower_started"):
            if event.caused_by_record is None or event.caused_by_record in history.records:
                continue
            if last is not None and int(event.get("partition_epoch")) <= last.partition_epoch:
                continue
            # The leader knows more of it than a follower, whoever was first to hear of it.
            found = _from_broker(name, leads.get((event.get("partition_epoch"), event.caused_by_record), event), history, last)
        elif event.event == "partition.isr_committed":
            epoch = int(event.get("partition_epoch"))
            if last is None or event.node != last.leader or epoch <= last.partition_epoch or epoch in traced:
                continue
            found = _from_broker(name, event, history, last)
        else:
            if event.event == "partition.removed":
                last = None  # what comes under this name next may be another topic
            continue
        last = found
        yield found


def _from_record(name: str, event: Recorded, offset: int, last: Change | None) -> Change:
    new = event.get("record") == "Partition" and event.get("old_leader_epoch") is None
    isr = _ids(event.get("isr"))
    return Change(
        ms=event.ms,
        node=event.node,
        offset=offset,
        partition=name,
        new=new,
        old_leader=event.get("old_leader"),
        leader=event.get("leader"),
        old_leader_epoch=event.get("old_leader_epoch"),
        leader_epoch=int(event.get("leader_epoch", -1)),
        old_isr=_ids(event.get("old_isr")) or (None if new or last is None else last.isr),
        isr=isr if isr is not None else (),
        partition_epoch=int(event.get("partition_epoch", -1)),
        record=event,
        old_elr=_ids(event.get("old_elr")) or (),
        elr=_ids(event.get("elr")) or (),
        unclean=bool(event.get("unclean")),
    )


def _from_broker(name: str, event: Recorded, history: History, last: Change | None) -> Change:
    """Make the change of a leader or a follower that began in it, or of the ISR with which a leader goes on after it."""
    offset = event.caused_by_record
    isr = _ids(event.get("isr"))
    batch = None if offset is None else history.batch_of(offset)
    leads = event.event != "partition.follower_started"
    return Change(
        ms=batch.ms if batch is not None else event.ms,
        node=batch.node if batch is not None else event.node,
        offset=offset,
        partition=name,
        new=int(event.get("partition_epoch")) == 0,
        old_leader=None if last is None else last.leader,
        leader=event.node if leads else event.get("leader_id"),
        old_leader_epoch=None if last is None else last.leader_epoch,
        leader_epoch=int(event.get("leader_epoch", -1 if last is None else last.leader_epoch)),
        old_isr=None if last is None else last.isr,
        isr=isr if isr is not None else (last.isr if last is not None else ()),
        partition_epoch=int(event.get("partition_epoch")),
        record=batch if batch is not None else event,
        old_elr=() if last is None else last.elr,
        unclean=event.get("recovering") is True,
    )
