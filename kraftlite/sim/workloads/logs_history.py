"""The records that the workload of the logs sends, and the readings of its readers: the input of the checks of compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlite.log.batch import Record
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition


@dataclass(eq=False, slots=True, kw_only=True)
class Reading:
    """One reading of a partition from its beginning up to the high watermark of its last fetch. `leaders`: each broker that
    answered with the leader epoch that the reader knew, once."""

    client: str
    tp: TopicPartition
    topic_id: str | None
    began_us: int
    start: int
    """The first offset that was asked for with success."""
    end: int = 0
    ended_us: int = 0
    leaders: list[tuple[NodeId, int | None]] = field(default_factory=list)
    last: dict[bytes, tuple[int, bool]] = field(default_factory=dict)
    """Key → offset of the last record that was read of it, and whether that was a value (no tombstone)."""


@dataclass(eq=False, slots=True)
class LogsHistory:
    sent: dict[tuple[TopicPartition, str], tuple[Record, int]] = field(default_factory=dict)
    """(partition, id) → the record that was sent, and its timestamp. The id is in the record's first header."""
    readings: list[Reading] = field(default_factory=list)
    """Those that came to their end."""
    topics: list[str] = field(default_factory=list)
    """The topics of the workload that exist for certain."""
