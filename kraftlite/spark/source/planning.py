"""A query's plan: which partitions there are, where the query starts, how far a batch goes.

Symbols in offsets are explained in `offsets.py`. Offsets that were to be read and are gone are `DataLoss` when
`failOnDataLoss` is true; otherwise they are a warning, and the query goes on with what there is.

Source: Spark's Kafka source; KIP-207 (a leader that does not know its high watermark yet says so, and is asked again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from uuid import UUID

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import EARLIEST, LATEST, Offsets, Range, limit, report_loss, split
from kraftlite.spark.source.options import At, SourceOptions


class Found(Protocol):
    """The place of a time in a partition; offset -1: no record is as late."""

    @property
    def offset(self) -> int: ...


class Topic(Protocol):
    """A topic as the cluster describes it."""

    @property
    def internal(self) -> bool: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...
    @property
    def topic_id(self) -> UUID | None: ...


class Cluster(Protocol):
    """The questions that planning asks the cluster."""

    def topics(self) -> Mapping[str, Topic]: ...
    def describe(self, names: Iterable[str]) -> Mapping[str, Topic]: ...
    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Mapping[TopicPartition, Found]: ...


class Planner:
    """Not for more than one thread.

    Raises DataLoss, ValueError for options that do not fit what is there, and the client's errors.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster, now_ms: Callable[[], int], pause_ms: Callable[[int], None]
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._now_ms = now_ms
        self._pause_ms = pause_ms
        self._target: Offsets | None = None
        self._last_trigger_ms: int | None = None
        self._found: dict[str, UUID | None] = {}
        self._ids: dict[str, UUID | None] = {}

    # what there is

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions of the topics that exist, sorted."""
        options = self._options
        if options.pattern is not None:
            found = {name: it for name, it in self._cluster.topics().items() if options.matches(name) and not it.internal}
        else:
            found = dict(self._cluster.describe(options.topics))
        self._found = {name: topic.topic_id for name, topic in found.items()}
        every = sorted(TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions)
        return tuple(tp for tp in every if not options.assigned or tp in options.assigned)

    def demanded(self) -> tuple[TopicPartition, ...]:
        """Return the same as `partitions`, after a check that every topic and partition that was named is there."""
        found = self.partitions()
        topics = {tp.topic for tp in found}
        missing = [str(tp) for tp in self._options.assigned if tp not in found]
        missing = missing or [name for name in self._options.topics if name not in topics]
        if missing:
            raise ValueError(f"there is no {', '.join(missing)} in the cluster")
        return found

    def heads(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Return where each partition ends for this query: the high watermark, or with read_committed the last stable offset."""
        return self._offsets(dict.fromkeys(tps, LATEST))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        found = self._cluster.list_offsets(wanted, read_committed=self._options.settings.read_committed)
        return {tp: found[tp].offset for tp in wanted}

    # streaming

    def initial(self) -> Offsets:
        """The same whenever it is asked, for as long as the cluster has the records: see `offsets.py`."""
        tps = self.demanded()
        at = self._options.starting
        return self._where(tps, at, "starting") | self._within(at.offsets or {}, "startingOffsets")

    def prepare_available_now(self) -> None:
        """From now on nothing behind what is there now is planned."""
        self._target = self.heads(self.partitions())

    def latest(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """The end of the next batch; `start` itself when it is to wait (minOffsetsPerTrigger)."""
        tps = self.partitions()
        again = self._made_again(start)
        tps = tuple(tp for tp in tps if tp.topic not in again)
        if gone := sorted(tp for tp in set(start) - set(tps) if tp.topic not in again):
            self._loss(f"{', '.join(map(str, gone))} are gone, and records that were not read with them")
        heads = self._heads_not_behind(tps, start)
        starts = self._resolve({tp: start.get(tp, EARLIEST) for tp in tps}, heads)
        ends: Offsets = {}
        for tp in tps:
            ends[tp] = heads[tp] if self._target is None else self._up_to_target(tp, start.get(tp), starts[tp], heads[tp])
            if heads[tp] < starts[tp]:
                self._loss(f"{tp} ends at offset {heads[tp]}, though it was read up to {starts[tp]}")
                ends[tp] = heads[tp]
        if not again and self._waits(starts, ends):
            return dict(start)
        self._last_trigger_ms = self._now_ms()
        shortened = limit(starts, {tp: end for tp, end in ends.items() if end >= starts[tp]}, self._options.max_offsets)
        return {tp: shortened.get(tp, ends[tp]) for tp in tps}

    def _up_to_target(self, tp: TopicPartition, told: int | None, first: int, head: int) -> int:
        """An end that is not behind what was read: the leader that told the target may have been. Only where "latest" was the
        start is the target the end, and the start, however far the log goes by now."""
        assert self._target is not None
        end = min(self._target.get(tp, first), max(head, first))
        return end if told == LATEST else max(end, first)

    def _made_again(self, start: Mapping[TopicPartition, int]) -> tuple[str, ...]:
        """Topics that were deleted and made again since they were first seen, which is a loss: another topic has their name.

        One end leaves them out. From then on they are partitions that come into being, which are read from their beginning: so
        the checkpoint knows it, too.
        """
        read = {tp.topic for tp in start}
        again = []
        for name, topic_id in self._found.items():
            known = self._ids.get(name)
            if name not in read or known is None:
                self._ids[name] = topic_id
            elif topic_id is not None and topic_id != known:
                again.append(name)
        if again:
            self._loss(f"{', '.join(again)} was deleted and made again, and records that were not read are gone")
        return tuple(again)

    def _heads_not_behind(self, tps: Iterable[TopicPartition], start: Mapping[TopicPartition, int]) -> Offsets:
        """A leader may be behind what was read already, for a moment: it is asked again (`fetchOffset.numRetries`)."""
        heads = self.heads(tps)
        for _ in range(self._options.offset_retries):
            behind = [tp for tp, head in heads.items() if head < start.get(tp, 0)]
            if not behind:
                break
            self._pause_ms(self._options.offset_retry_ms)
            heads.update(self.heads(behind))
        return heads

    def _resolve(self, starts: Mapping[TopicPartition, int], heads: Mapping[TopicPartition, int]) -> Offsets:
        earliest = self._offsets({tp: EARLIEST for tp, offset in starts.items() if offset == EARLIEST})
        return {tp: heads[tp] if offset == LATEST else earliest.get(tp, offset) for tp, offset in starts.items()}

    def _waits(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        minimum, last = self._options.min_offsets, self._last_trigger_ms
        if minimum is None or self._target is not None or last is None:
            return False
        backlog = sum(max(0, end - starts[tp]) for tp, end in ends.items())
        return backlog < minimum and self._now_ms() - last < self._options.max_trigger_delay_ms

    def plan(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
        """The tasks of a batch. The same for the same offsets, but for a start that is `EARLIEST`."""
        unsure = {tp: EARLIEST for tp in end if start.get(tp, EARLIEST) == EARLIEST}
        earliest = self._offsets(unsure)
        ranges = []
        for tp, last in end.items():
            first = start.get(tp)
            if first is None:
                first = earliest[tp]
                if first > 0:
                    self._loss(f"{tp} came into being under the query, and begins at offset {first} instead of 0")
            elif first == EARLIEST:
                first = earliest[tp]
            elif first == LATEST:
                first = last
            ranges.append(Range(tp, first, last))
        return split(ranges, self._options.min_partitions, self._options.max_records)

    # batch

    def plan_batch(self) -> list[Range]:
        """Everything that a batch query reads, before it is split."""
        tps = self.demanded()
        options = self._options
        starts = self._where(tps, options.starting, "starting")
        ends = self._where(tps, options.ending, "ending")
        heads = self.heads(tps)  # behind the starts: what they have found is there
        starts, ends = self._resolve(starts, heads), self._resolve(ends, heads)
        for tp in tps:
            if starts[tp] > ends[tp]:
                raise ValueError(f"{tp}: the starting offset {starts[tp]} is greater than the ending offset {ends[tp]}")
        starts |= self._within(options.starting.offsets or {}, "startingOffsets")
        ends |= self._within(options.ending.offsets or {}, "endingOffsets")
        return [Range(tp, starts[tp], ends[tp]) for tp in tps]

    # where

    def _where(self, tps: tuple[TopicPartition, ...], at: At, which: str) -> Offsets:
        """Return the offsets as the option says them, symbols included."""
        if at.symbol is not None:
            return dict.fromkeys(tps, at.symbol)
        if at.offsets is not None:
            self._check_all_named(tps, at.offsets, f"{which}Offsets")
            return {tp: at.offsets[tp] for tp in tps}
        if at.timestamps_ms is not None:
            self._check_all_named(tps, at.timestamps_ms, f"{which}OffsetsByTimestamp")
            wanted = {tp: at.timestamps_ms[tp] for tp in tps}
        else:
            assert at.timestamp_ms is not None
            wanted = dict.fromkeys(tps, at.timestamp_ms)
        found = self._offsets(wanted)
        late = sorted(tp for tp, offset in found.items() if offset < 0)
        if late and which == "starting" and not self._options.no_match_is_latest:
            told = ", ".join(f"{tp} (from {wanted[tp]})" for tp in late)
            raise ValueError(
                f"no offset matched the starting time of {told}; "
                "with startingOffsetsByTimestampStrategy=latest such a partition is read from its end"
            )
        return {tp: LATEST if offset < 0 else offset for tp, offset in found.items()}

    def _check_all_named(self, tps: tuple[TopicPartition, ...], named: Mapping[TopicPartition, int], option: str) -> None:
        if set(named) != set(tps):
            raise ValueError(
                f"{option} must name all partitions that are read (-1 is latest, -2 earliest). "
                f"Named: {', '.join(map(str, sorted(named)))}. Read: {', '.join(map(str, tps))}"
            )

    def _within(self, offsets: Mapping[TopicPartition, int], option: str) -> Offsets:
        """Return the offsets that are numbers, moved to what the partitions have; each one that had to be moved is a loss."""
        explicit = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        earliest, heads = self._offsets(dict.fromkeys(explicit, EARLIEST)), self.heads(explicit)
        for tp, offset in explicit.items():
            if not earliest[tp] <= offset <= heads[tp]:
                self._loss(f"{option} for {tp} is {offset}, which has offsets {earliest[tp]} to {heads[tp]}")
                explicit[tp] = min(max(offset, earliest[tp]), heads[tp])
        return explicit

    def _loss(self, what: str) -> None:
        report_loss(what, self._options.fail_on_data_loss)
