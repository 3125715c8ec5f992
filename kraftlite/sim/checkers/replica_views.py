"""One running replica as the checkers remember it, and what is known to be committed of its partition."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from kraftlite.log.batch import BatchHeader
from kraftlite.log.log import Log
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition
from kraftlite.simhost.host import Incarnation, SimHost


class Batch(NamedTuple):
    """The identity of a batch and its content: the CRC covers the records. Equal batches of one partition are one object."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    size_bytes: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    is_control: bool

    @classmethod
    def of(cls, header: BatchHeader) -> Batch:
        return cls(
            header.base_offset,
            header.next_offset,
            header.partition_leader_epoch,
            header.crc,
            header.size_bytes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.is_control,
        )

    def alike(self, other: Batch) -> bool:
        """Return whether the two are one batch, of which compaction may have taken records."""
        return self._replace(crc=other.crc, size_bytes=other.size_bytes) == other

    def __repr__(self) -> str:
        who = f" producer {self.producer_id} sequence {self.first_sequence}" if self.producer_id >= 0 else ""
        return f"[{self.base_offset},{self.next_offset})@{self.epoch} crc {self.crc:08x}{who}"


class Stamp(NamedTuple):
    """A replica at one moment."""

    leo: int
    hw: int
    leader: LeaderState | None
    leader_epoch: int
    partition_epoch: int
    maximal: tuple[NodeId, ...]
    min_isr: int


class Truth:
    """The committed part of one partition, over all leaders: [0, `hw`) is below the HW of some leader, and whoever may be elected
    must have it. `by_base` holds its batches from `begin` to `end`.

    `floor`: after a loss that was allowed only leaders from this leader epoch on count.
    """

    __slots__ = (
        "before",
        "begin",
        "by_base",
        "compacted",
        "end",
        "floor",
        "hw",
        "hw_by_epoch",
        "key",
        "known",
        "start",
        "tp",
        "was",
    )

    def __init__(self, key: TopicIdPartition, tp: TopicPartition) -> None:
        self.key = key
        self.tp = tp
        self.floor = -1
        self.start = 0
        """The highest log start that a replica was seen with."""
        self.compacted = False
        """Its topic is compacted, or once was: batches may have lost records, or be gone."""
        self.known: dict[tuple[int, int], Batch] = {}
        """Every batch that any replica ever had, by epoch and base offset: in one epoch one leader wrote, once at each offset."""
        self.before: dict[Batch, Batch] = {}
        """The batch that comes before it, in every log."""
        self.reset(-1)

    def reset(self, floor: int) -> None:
        self.floor = floor
        self.hw = self.was = self.begin = self.end = 0
        self.by_base: dict[int, Batch] = {}
        self.hw_by_epoch: dict[int, int] = {}

    def commit(self, batch: Batch) -> None:
        if not self.by_base:
            self.begin = batch.base_offset
        self.by_base[batch.base_offset] = batch
        self.end = batch.next_offset

    def known_as(self, batch: Batch, view: ReplicaView) -> Batch:
        """The object for a batch that was found in a replica. Notes in the view what contradicts another replica."""
        key = (batch.epoch, batch.base_offset)
        found = self.known.setdefault(key, batch)
        if self.compacted and found.alike(batch):
            return found
        if found != batch:
            view.problems.append(f"has {batch} where another replica has {found}")
            return batch
        last = view.batches[-1] if view.batches else None
        if last is not None:
            known = self.before.setdefault(found, last)
            if known is not last:
                view.problems.append(f"has {last} before {found}, another replica {known}")
        return found


class ReplicaView:
    """A replica of an incarnation. `batches` is its log; below `verified` it is known to agree with what is committed.

    `problems` collects what is wrong with the log by itself; `was_cut`: it was truncated in the step that is looked at.
    """

    __slots__ = (
        "bases", "batches", "ctx", "dirty", "here", "hw", "key", "leader", "leader_epoch", "leo", "log", "looked", "maximal",
        "min_isr", "node", "node_id", "partition", "partition_epoch", "problems", "producers", "producers_end", "scanned",
        "sparse_below", "tp", "verified", "was_cut",
    )  # fmt: skip

    def __init__(self, node: SimHost, here: Incarnation, partition: Partition) -> None:
        self.node = node
        self.here = here
        self.node_id = node.node_id
        self.partition = partition
        self.tp = partition.tp
        self.key = TopicIdPartition(partition.topic_id, partition.tp.partition)
        self.looked = False
        self.dirty = False
        self.was_cut = False
        self.log: Log | None = None
        self.problems: list[str] = []
        self.attach(None)
        self.read_state()

    def attach(self, log: Log | None) -> None:
        """Another log, or none: nothing is known of it."""
        self.log = log
        self.ctx = None if log is None else log._ctx  # asked after each step, without a property in between
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.scanned = self.verified = 0
        self.sparse_below = 0
        """From here on no batch is missing."""
        self.producers: dict[int, Batch] = {}
        """Last batch of each producer id in the first `producers_end` batches."""
        self.producers_end = 0

    def read_state(self) -> None:
        partition, log = self.partition, self.log
        leader = partition.leader
        self.leo, self.hw = (log.leo, log.hw) if log is not None else (-1, -1)
        self.leader = leader
        self.maximal = leader.isr.maximal if leader is not None else ()
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.min_isr = partition.min_isr

    def stamp(self) -> Stamp:
        return Stamp(self.leo, self.hw, self.leader, self.leader_epoch, self.partition_epoch, self.maximal, self.min_isr)

    def add(self, batch: Batch, *, gaps: bool = False) -> None:
        """`gaps`: compaction may have removed what came before it."""
        if gaps and batch.base_offset > self.scanned:
            self.sparse_below = batch.base_offset
        elif self.batches and batch.base_offset != self.scanned:
            self.problems.append(f"has {batch} where offset {self.scanned} should be")
        elif batch.base_offset > self.scanned:
            self.problems.append(f"begins with {batch}, but its log start is {self.scanned}")
        if self.batches and batch.epoch < self.batches[-1].epoch:
            self.problems.append(f"has {batch} behind {self.batches[-1]}")
        self.batches.append(batch)
        self.bases.append(batch.base_offset)
        self.scanned = batch.next_offset

    def forget_below(self, start: int) -> None:
        """The log begins at `start` now: what lies wholly below is not in it any more."""
        gone = 0
        while gone < len(self.batches) and self.batches[gone].next_offset <= start:
            gone += 1
        if gone:
            del self.batches[:gone], self.bases[:gone]
            self.producers_end = max(0, self.producers_end - gone)

    def cut(self, leo: int) -> None:
        self.dirty = True
        keep = bisect_left(self.bases, leo)
        if keep and self.batches[keep - 1].next_offset > leo:
            keep -= 1
        del self.batches[keep:], self.bases[keep:]
        self.scanned = min(self.scanned, leo)
        self.verified = min(self.verified, leo)
        if keep < self.producers_end or not keep:
            self.producers, self.producers_end = {}, 0

    @property
    def text(self) -> str:
        """The replica's name, for messages."""
        role = "leads" if self.leader is not None else "follows"
        return f"{self.tp} on node {self.node_id}, which {role} in leader epoch {self.leader_epoch},"
