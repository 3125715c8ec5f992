"""Offsets of a query: their one JSON form, and the planning of what a batch reads.

Spark compares offsets as text, so there is one form: topics sorted, partitions sorted by number, no spaces. All ends are
exclusive.

An initial offset may be symbolic. Spark asks a source for it anew until the first batch has ended, and does not store it, so it
must not move: `EARLIEST` stands for wherever the log starts when the first batch is planned, and `LATEST` for the end of the
first batch, which Spark does store. "From latest" therefore means: from what the first batch recorded, and that batch is empty. A
partition that begins to exist under a query is read from offset 0.

Source: Spark's Kafka source (names and meaning); delta-io/delta#7547 tells of the same trap.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.model.topic_partition import TopicPartition

log = logging.getLogger("kraftlite.spark")

LATEST: Final = -1
EARLIEST: Final = -2
SMALL_OFFSETS: Final = 2_000
"""A stream's task reads at least this many offsets if there are so many: a task costs 15 to 30 ms, in each of which it could
read about 20."""


Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets [start, end) of a partition, which one task reads."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class DataLoss(Exception):
    """Offsets that the query was to read next are not there any more, and `failOnDataLoss` is true."""


def report_loss(what: str, fail: bool) -> None:
    """DataLoss, or a warning where the query may go on (`failOnDataLoss`)."""
    if fail:
        raise DataLoss(
            f"{what}. Some data may have been missed: it was aged out, truncated, or its topic was deleted. "
            'To go on in such cases, set the option "failOnDataLoss" to "false"'
        )
    log.warning("%s; the query goes on, since failOnDataLoss is false", what)


def to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """The canonical text."""
    return json.dumps(to_tree(offsets), separators=(",", ":"))


def to_tree(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Nested dicts in canonical order, as Python data sources hand offsets to Spark."""
    tree: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        tree.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return tree


def from_tree(tree: Any, what: str = "offsets") -> Offsets:
    """Raises ValueError for anything but {"topic":{"0":23}}."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    if not isinstance(tree, dict):
        raise ValueError(f"{what}: expected e.g. {example}, got {json.dumps(tree)}")
    found: Offsets = {}
    for topic, partitions in tree.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{what}: expected e.g. {example}, got {json.dumps(tree)}")
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError(f"{what}: expected e.g. {example}, got {json.dumps(tree)}")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def from_json(text: str, what: str = "offsets") -> Offsets:
    """Raises ValueError naming `what` for anything but {"topic":{"0":23}}."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'{what}: expected e.g. {{"topicA":{{"0":23,"1":-1}}}}, got {text!r}: {error}') from None
    return from_tree(tree, what)


def limit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_rows: int | None) -> Offsets:
    """Ends with at most `max_rows` offsets before them, split in proportion to each backlog; every partition with a backlog gets
    at least one, as with `maxOffsetsPerTrigger` of Spark's Kafka source. None: no limit."""
    backlog = {tp: max(0, end - starts[tp]) for tp, end in ends.items()}
    total = sum(backlog.values())
    if max_rows is None or total <= max_rows:
        return dict(ends)
    found: Offsets = {}
    for tp in sorted(ends):
        share = backlog[tp] * max_rows // total
        found[tp] = starts[tp] + min(backlog[tp], max(share, 1 if backlog[tp] else 0))
    return found


def split(ranges: list[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Cut ranges so that there are about `min_partitions` tasks and none has more than `max_records` offsets.

    The same input gives the same tasks, in order of topic and partition: a batch that is run again is split the same way.
    Source: Spark's KafkaOffsetRangeCalculator.
    """
    ranges = sorted((it for it in ranges if it.size > 0), key=lambda it: (it.tp, it.start))
    if max_records is not None:
        ranges = [part for it in ranges for part in _cut(it, -(-it.size // max_records))]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(it.size for it in ranges)
    if not total:
        return ranges
    # As Spark: what comes to one task is left whole, with all that its partition has; the others share what is left.
    whole = [it for it in ranges if _parts(it.size, total, min_partitions) == 1]
    names = {it.tp for it in whole}
    left, big = max(min_partitions - len(whole), 1), total - sum(it.size for it in whole)
    cut: list[Range] = []
    for it in ranges:
        cut += _cut(it, 1 if it.tp in names else _parts(it.size, big, left))
    return cut


def together(ranges: Sequence[Range], offsets: int = SMALL_OFFSETS) -> list[list[Range]]:
    """Ranges that one task reads one after the other: neighbours, as long as they have at most so many offsets in all.

    The same input gives the same tasks.
    """
    found: list[list[Range]] = []
    size = 0
    for it in ranges:
        size += it.size
        if found and size <= offsets:
            found[-1].append(it)
        else:
            found.append([it])
            size = it.size
    return found


def _parts(size: int, total: int, tasks: int) -> int:
    """Its share of the tasks, rounded half up in doubles, as Spark's; at least one, and never more than it has offsets."""
    return min(max(math.floor(size / total * tasks + 0.5), 1), size)


def _cut(whole: Range, parts: int) -> list[Range]:
    """Cut a range as Spark does: each part takes its share of what is left, so the larger ones come last."""
    found, first = [], whole.start
    for left in range(parts, 0, -1):
        end = first + (whole.end - first) // left
        found.append(Range(whole.tp, first, end))
        first = end
    return [it for it in found if it.size]
