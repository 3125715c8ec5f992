"""Invariant 45: compaction removes what was superseded, and tombstones when their time is over, and changes nothing else."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kraftlite.log.batch import iter_records, parse_header
from kraftlite.log.control import ControlType, control_type
from kraftlite.log.log import Log
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import (
    LogCleaned,
    LogCleaningAborted,
    LogOpened,
    LogRestarted,
    LogTruncated,
    LogUncleanable,
)
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.log_files import Rec, batches_in, files_of, running_log, stored, wall_ms
from kraftlite.sim.checkers.replica_facts import ReplicaChecker, may_forget_producers
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.simhost.host import SimHost

DAY_MS: Final = 86_400_000
_THROTTLE: Final = "log.cleaner.io.max.bytes.per.second"


@dataclass(slots=True)
class Content:
    """The records of a partition. `committed`: by offset, up to `end`; `by_key`: the offsets of each key, in order, without those
    of transactions that are open or were aborted."""

    sent: dict[tuple[int, int], Rec] = field(default_factory=dict)
    """(leader epoch, offset) → the record as its leader wrote it."""
    committed: dict[int, Rec] = field(default_factory=dict)
    by_key: dict[bytes, list[int]] = field(default_factory=dict)
    end: int = 0
    transactional: set[tuple[int, int]] = field(default_factory=set)
    """(leader epoch, offset) of the batches that belong to transactions."""
    outcomes: dict[tuple[int, int], bool] = field(default_factory=dict)
    """(leader epoch, offset) of a marker → whether it commits."""
    open: dict[int, list[int]] = field(default_factory=dict)
    """Producer → the offsets of its records whose transaction has not ended before `end`."""
    aborted: dict[int, None] = field(default_factory=dict)
    ended_at: dict[int, int] = field(default_factory=dict)
    """Offset of a record → that of the marker that ended its transaction."""
    gone: dict[int, None] = field(default_factory=dict)
    """Offsets that some replica was entitled to remove."""
    horizons: dict[int, int] = field(default_factory=dict)
    """Offset of a tombstone → the earliest time that a replica has noted for its removal."""

    def add(self, batch: Batch, raw: memoryview) -> None:
        """A batch as its leader wrote it."""
        header = parse_header(raw)
        place = batch.epoch, batch.base_offset
        if header.is_control:
            self.outcomes[place] = control_type(next(iter_records(raw)).key) == ControlType.COMMIT
        elif header.is_transactional:
            self.transactional.add(place)
        for it in stored(header, raw).records:
            self.sent[batch.epoch, it.offset] = it

    def extend(self, truth: Truth) -> None:
        for base, batch in truth.by_base.items():
            if base < self.end:
                continue
            place = batch.epoch, batch.base_offset
            if batch.is_control:
                self._end(batch.producer_id, batch.base_offset, commits=self.outcomes.get(place, False))
            for offset in range(batch.base_offset, batch.next_offset):
                found = self.sent.get((batch.epoch, offset))
                if found is None:
                    continue
                self.committed[offset] = found
                if place in self.transactional:
                    self.open.setdefault(batch.producer_id, []).append(offset)
                elif found.key is not None:
                    self.by_key.setdefault(found.key, []).append(offset)
            self.end = batch.next_offset

    def _end(self, producer_id: int, marker: int, *, commits: bool) -> None:
        for offset in self.open.pop(producer_id, ()):
            self.ended_at[offset] = marker
            key = self.committed[offset].key
            if not commits:
                self.aborted[offset] = None
            elif key is not None:
                insort(self.by_key.setdefault(key, []), offset)

    def next_of(self, it: Rec) -> int | None:
        """The offset of the next committed record of the same key."""
        offsets = self.by_key.get(it.key or b"", [])
        at = bisect_right(offsets, it.offset)
        return offsets[at] if at < len(offsets) else None


@dataclass(slots=True)
class Replica:
    """A replica's log when it was looked at last: it had every committed record of [start, leo) but those in `missing`."""

    start: int = 0
    leo: int = 0
    missing: dict[int, None] = field(default_factory=dict)
    wall_ms: int = 0
    """The time of its broker then."""


@dataclass(slots=True)
class Pass:
    """The bounds that a pass over a log has had: its log's HW and the first offset of its active segment. None: what is looked
    at is a log that was just opened."""

    hw: int
    active: int
    up_to: int | None


class CompactionSound(ReplicaChecker):
    """After each pass over a log, and at each start, its files are compared with what leaders have written.

    What is there is what was sent (key, value, time, headers), at its offset and in order. What is missing was superseded by a
    committed record of the same key, which the pass knew: below the HW and not in the active segment (LG-42); or its
    transaction was aborted; or it is a
    tombstone that an earlier pass has met, at least delete.retention.ms before, and nothing that it deleted is there any more
    (LG-44). Nothing younger than min.compaction.lag.ms goes. Below the point that a pass has cleaned each key is there once,
    and of each producer that its log knows the last batch, if need be empty: a new replica knows the producer by that (LG-45).
    When the faults are over nothing superseded stays in segments that began max.compaction.lag.ms ago, or earlier (LG-43).
    A start finds a log before or after, never half of a swap (LG-46). No log is uncleanable but for want of memory (LG-47).
    """

    numbers: ClassVar[tuple[int, ...]] = (45,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._contents: dict[TopicIdPartition, Content] = {}
        world.notes["contents"] = self._contents
        self._keys: dict[TopicPartition, TopicIdPartition] = {}
        self._replicas: dict[tuple[NodeId, TopicIdPartition], Replica] = {}
        self._latest_ms: dict[NodeId, int] = {}
        self._uncleanable: dict[tuple[NodeId, int, TopicPartition], None] = {}
        """Node, its incarnation, and a log that it leaves alone."""

    def on_batch(self, truth: Truth, batch: Batch, raw: memoryview) -> None:
        if not truth.compacted and truth.tp.topic not in self.world.history.logs.topics:
            return
        content = self._contents.get(truth.key)
        if content is None:
            content = self._contents[truth.key] = Content()
            self._keys[truth.tp] = truth.key
        content.add(batch, raw)

    def on_death(self, node: SimHost, how: str) -> None:
        if how == "wiped":
            for known in [it for it in self._replicas if it[0] == node.node_id]:
                del self._replicas[known]

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is LogCleaned or kind is LogCleaningAborted:
            assert isinstance(event, LogCleaned | LogCleaningAborted)
            self._passed(node, event.tp, event.up_to if isinstance(event, LogCleaned) else None)
        elif kind is LogOpened or kind is LogTruncated or kind is LogRestarted:
            assert isinstance(event, LogOpened | LogTruncated | LogRestarted)
            self._changed(node, event)
        elif kind is LogUncleanable:
            assert isinstance(event, LogUncleanable)
            self._uncleanable[node.node_id, node.boots, event.tp] = None
            if "too small" not in event.reason and (node.node_id, event.tp) not in self.world.losses.damaged:
                self.fail(f"{event.tp} on node {node.node_id} cannot be cleaned: {event.reason}")

    def _passed(self, node: SimHost, tp: TopicPartition, up_to: int | None) -> None:
        log, key = running_log(node, tp), self._keys.get(tp)
        if log is not None and key is not None and log.topic_id == key.topic_id:
            hw = max(log.hw, self.facts.truth(key, tp).hw)  # a follower's may go back while a pass runs
            self._judge(node, key, log.directory, log.log_start_offset, log.leo, Pass(hw, log.active_base_offset, up_to))
            truth = self.facts.truth(key, tp)
            if up_to is not None and not self._excused(node, key, tp) and not may_forget_producers(self.world):
                self._check_last_words(f"{tp} on node {node.node_id}", node, log, truth, up_to)

    def _changed(self, node: SimHost, event: LogOpened | LogTruncated | LogRestarted) -> None:
        key = self._keys.get(event.tp)
        if key is None:
            return
        if isinstance(event, LogOpened):
            paths = [f"{it}/{event.tp}" for it in node.config.all_log_dirs]
            for path in paths:
                if node.disk.stat(path) is not None and self.facts.truth(key, event.tp).compacted:
                    self._judge(node, key, path, event.log_start_offset, event.leo, None)
            return
        known = self._replicas.get((node.node_id, key))
        if known is not None:
            end = event.leo if isinstance(event, LogTruncated) else 0
            known.leo = min(known.leo, end)
            known.missing = {it: None for it in known.missing if it < end}

    # --- judging

    def _excused(self, node: SimHost, key: TopicIdPartition, tp: TopicPartition) -> bool:
        truth = self.facts.truth(key, tp)
        losses = self.world.losses
        lossy = (node.node_id, tp) in losses.damaged or node.node_id in losses.tainted.get(tp, ())
        return lossy or truth.floor >= 0 or tp in losses.excused

    def _judge(self, node: SimHost, key: TopicIdPartition, directory: str, start: int, leo: int, bounds: Pass | None) -> None:
        tp = next(it for it, known in self._keys.items() if known == key)
        content, truth = self._contents[key], self.facts.truth(key, tp)
        content.extend(truth)
        now_ms = self._latest_ms[node.node_id] = max(self._latest_ms.get(node.node_id, 0), wall_ms(node))
        known = self._replicas.setdefault((node.node_id, key), Replica(wall_ms=0))
        where = f"{tp} on node {node.node_id}"
        found, markers = self._read(node, directory, where, content, truth, known)
        end = min(leo, content.end)
        missing = {
            offset: None
            for offset, it in content.committed.items()
            if start <= offset < end and offset not in found and markers.get(offset, it.epoch) == it.epoch
        }
        if self._excused(node, key, tp):
            content.gone.update(missing)  # whoever fetches from it has them no more than it has
            known.start, known.leo, known.missing, known.wall_ms = start, leo, missing, now_ms
            return
        for offset in missing:
            if offset in known.missing:
                continue
            fetched = offset >= known.leo or offset < known.start
            if fetched and offset in content.gone:
                continue
            self._check_removed(where, content.committed[offset], content, found, bounds, now_ms, truth)
            content.gone[offset] = None
        if bounds is not None and bounds.up_to is not None:
            self._check_once(where, found, start, bounds.up_to)
            self._check_markers(where, content, found, markers, end)
            self._check_durable(node, directory, where, bounds.up_to)
            self._check_sizes(node, directory, where, truth.tp.topic)
        known.start, known.leo, known.missing, known.wall_ms = start, leo, missing, now_ms

    def _read(
        self, node: SimHost, directory: str, where: str, content: Content, truth: Truth, known: Replica
    ) -> tuple[Mapping[int, Rec], Mapping[int, int]]:
        """The records by offset, and the leader epochs of markers by theirs. Where a record was committed in another epoch, the
        marker's leader had been replaced and did not know it: its log diverges there."""
        found: dict[int, Rec] = {}
        markers: dict[int, int] = {}
        next_offset = -1
        for base, data in files_of(node, directory):
            for header, records in batches_in(data):
                if header.base_offset < max(next_offset, base):
                    self.fail(f"{where} has a batch at {header.base_offset} behind offset {next_offset}, in segment {base}")
                next_offset = header.next_offset
                if header.is_control:
                    markers[header.base_offset] = header.partition_leader_epoch
                for it in records:
                    sent = content.sent.get((it.epoch, it.offset))
                    if sent is not None and sent != it:
                        self.fail(f"{where} has {it}, written was {sent}")
                    found[it.offset] = it
                    if header.has_delete_horizon and it.value is None:
                        self._note_horizon(where, it, header.base_timestamp, content, truth, known)
        return found, markers

    def _note_horizon(self, where: str, it: Rec, horizon_ms: int, content: Content, truth: Truth, known: Replica) -> None:
        if it.offset in content.horizons and content.horizons[it.offset] <= horizon_ms:
            return
        content.horizons[it.offset] = horizon_ms
        least_ms = self._least(truth.tp.topic, "delete.retention.ms", DAY_MS)
        if known.wall_ms and horizon_ms < known.wall_ms + least_ms and self._clocks_run():
            self.fail(
                f"{where}: the tombstone {it} may go at {horizon_ms}; the pass before this one ended at {known.wall_ms}, and "
                f"delete.retention.ms never was below {least_ms}"
            )

    def _clocks_run(self) -> bool:
        """No clock was set: times of one node can be compared."""
        return not any(self.world.cluster.wall_offset_ms.values())

    def _check_removed(
        self,
        where: str,
        it: Rec,
        content: Content,
        found: Mapping[int, Rec],
        bounds: Pass | None,
        now_ms: int,
        truth: Truth,
    ) -> None:
        if it.key is None:
            return  # such records were there before the topic was compacted
        if bounds is not None and it.offset >= min(bounds.hw, bounds.active):
            self.fail(f"{where}: {it} is gone; the HW is {bounds.hw}, the active segment begins at {bounds.active}")
        lag_ms = self._least(truth.tp.topic, "min.compaction.lag.ms", 0)
        if it.timestamp > now_ms - lag_ms and lag_ms and bounds is not None and self._clocks_run():
            self.fail(f"{where}: {it} is gone at {now_ms}, min.compaction.lag.ms never was below {lag_ms}")
        if it.offset in content.aborted:
            return
        if any(it.offset in them for them in content.open.values()):
            self.fail(f"{where}: {it} is gone, and its transaction is open")
        later = content.next_of(it)
        if later is not None and (bounds is None or later < min(bounds.hw, bounds.active)):
            return
        if it.value is not None:
            of = "" if bounds is None else f"; the HW is {bounds.hw}, the active segment begins at {bounds.active}"
            self.fail(f"{where}: {it} is gone, the next of its key is at {later}{of}")
        horizon_ms = content.horizons.get(it.offset)
        if horizon_ms is None:
            self.fail(f"{where}: the tombstone {it} is gone, and no pass had met it before")
        elif horizon_ms > now_ms:
            self.fail(f"{where}: the tombstone {it} is gone at {now_ms}, it was to stay until {horizon_ms}")
        older = [o for o in content.by_key[it.key] if o < it.offset and o in found and found[o].key == it.key]
        if older:
            self.fail(f"{where}: the tombstone {it} is gone, and what it deleted is still there: {found[older[-1]]}")

    def _check_once(self, where: str, found: Mapping[int, Rec], start: int, up_to: int) -> None:
        last: dict[bytes, Rec] = {}
        for offset, it in found.items():
            if offset >= up_to:
                return
            if it.key is None or offset < start:
                continue
            before = last.get(it.key)
            if before is not None:
                self.fail(f"{where} was cleaned up to {up_to}, and has both {before} and {it}")
            last[it.key] = it

    def _check_markers(
        self, where: str, content: Content, found: Mapping[int, Rec], markers: Mapping[int, int], end: int
    ) -> None:
        """A marker stays as long as anything of the transaction that it ends."""
        for offset, it in found.items():
            marker = content.ended_at.get(offset, end)
            if marker < end and marker not in markers and content.committed.get(offset) == it:
                self.fail(f"{where} has {it}, and not the marker at {marker} that ended its transaction")

    def _check_durable(self, node: SimHost, directory: str, where: str, up_to: int) -> None:
        """A power cut leaves what was compacted, if need be under the name that it had before (LG-46)."""
        surviving = node.disk.surviving(directory)
        for base, data in files_of(node, directory)[:-1]:
            if base < up_to and data not in (surviving.get(f"{base:020d}.log"), surviving.get(f"{base:020d}.log.swap")):
                self.fail(f"{where} was cleaned up to {up_to}, and a power cut would not leave segment {base} as it is")

    def _check_sizes(self, node: SimHost, directory: str, where: str, topic: str) -> None:
        """Segments that become one are no larger together than a segment may be."""
        most = max(self.facts.numbers_of.get((topic, "segment.bytes"), ()), default=0)
        for base, data in files_of(node, directory)[:-1] if most and topic in self.world.history.logs.topics else ():
            if len(data) > most and len(list(batches_in(data))) > 1:
                self.fail(f"{where} has segment {base} of {len(data)} bytes; segment.bytes never was above {most}")

    def _check_last_words(self, where: str, node: SimHost, log: Log, truth: Truth, up_to: int) -> None:
        last: dict[int, Batch] = {}
        for batch in truth.known.values():
            known = last.get(batch.producer_id)
            if batch.producer_id >= 0 and (known is None or batch.base_offset > known.base_offset):
                last[batch.producer_id] = batch
        ends = {it.header.last_offset for _, data in files_of(node, log.directory) for it in batches_in(data)}
        for producer_id in log.last_words():
            word = last.get(producer_id)
            if word is None or word.is_control or truth.by_base.get(word.base_offset) != word:
                continue
            if log.log_start_offset <= word.base_offset < up_to and word.next_offset - 1 not in ends:
                self.fail(f"{where} was cleaned up to {up_to}, and {word}, the last of producer {producer_id}, is gone")

    def _least(self, topic: str, key: str, default: int) -> int:
        """The smallest value that this topic ever had, as far as the metadata log tells."""
        return min(self.facts.numbers_of.get((topic, key), ()), default=default)

    # --- at the end

    def unsettled(self) -> str | None:
        for node in self.world.cluster.brokers:
            broker = None if node.node is None else node.node.broker
            if broker is None or _THROTTLE in self.world.cluster.shape.config:
                continue  # a pass may take as long as it likes
            for log in broker.log_dirs.logs():
                damaged = (node.node_id, log.tp) in self.world.losses.damaged
                if log.tp.topic not in self.world.history.logs.topics or not log.config.compacted or damaged:
                    continue
                left = self._uncompacted(node, log)
                if left is not None and (node.node_id, node.boots, log.tp) not in self._uncleanable:
                    return left
        return None

    def _uncompacted(self, node: SimHost, log: Log) -> str | None:
        """A record that a pass that is due would remove: another one of its key comes later, in a closed segment."""
        config, now_ms = log.config, wall_ms(node)
        files, bound = files_of(node, log.directory), min(log.hw, log.last_stable_offset)
        last: dict[bytes, Rec] = {}
        for (_, data), (end, _) in itertools.pairwise(files):
            batches = list(batches_in(data))
            newest = max((it.header.max_timestamp for it in batches), default=-1)
            if end > bound or newest > now_ms - config.min_compaction_lag_ms:
                return None
            began_ms = batches[0].header.max_timestamp if batches else -1
            is_due = 0 < began_ms < now_ms - config.max_compaction_lag_ms
            for it in (it for batch in batches for it in batch.records if it.offset >= log.log_start_offset):
                if it.key is None:
                    continue
                before = last.get(it.key)
                if before is not None and is_due:
                    return (
                        f"{log.tp} on node {node.node_id} has both {before} and {it}, in a segment of {began_ms}; now is "
                        f"{now_ms}, max.compaction.lag.ms is {config.max_compaction_lag_ms}"
                    )
                last[it.key] = it
        return None

    def at_end(self) -> None:
        """Whatever a producer was told to be there has the content that was sent (LG-11)."""
        for it in self.world.history.produces:
            known = self.world.history.logs.sent.get((it.tp, it.value))
            key = self._keys.get(it.tp)
            if known is None or key is None or it.offset < 0 or it.acks != -1 or it.tp in self.world.losses.excused:
                continue
            record, timestamp = known
            content = self._contents[key]
            content.extend(self.facts.truth(key, it.tp))
            found = content.committed.get(it.offset)
            if found is None or self.facts.truth(key, it.tp).floor >= 0:
                continue
            if (found.key, found.value, found.headers) != (record.key, record.value, record.headers):
                self.fail(f"{it.tp}: {it.value} was acknowledged at offset {it.offset}; sent was {record}, there was {found}")
            if found.timestamp != timestamp and not self.facts.is_restamped(it.tp.topic):
                self.fail(f"{it.tp}: {it.value} has the time {found.timestamp}, sent was {timestamp}")
