"""The offsets that open transactions have written, and the commits whose fate is not known.

An offset of a transaction is *pending* from the moment its record is appended until the transaction's marker is committed. Which
of two offsets counts is said by the order of their records in the log, and not by the order in which transactions end. Orders
are those of a shard's own puts, which come in the order of the log. Source: KIP-98, KIP-447, KIP-890; TG-04 to TG-11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from kraftlite.coordinator.records import CommittedOffset
from kraftlite.model.topic_partition import TopicPartition

T = TypeVar("T")


class PendingOffset(NamedTuple):
    """An offset of an open transaction. `order`: of its record among those of the shard. `committed` None: a later record counts
    already, whatever becomes of the transaction."""

    order: int
    committed: CommittedOffset | None


class PendingOffsets:
    """The pending offsets of one shard, and the commits whose fate is not known yet.

    Nothing here looks at all open transactions: there may be as many as a client likes, and a request names thousands of
    partitions.
    """

    def __init__(self) -> None:
        self._pending: dict[str, dict[TopicPartition, dict[int, PendingOffset]]] = {}
        """By group and partition, of each producer id. Nothing in it is empty."""
        self._open: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        """The groups and partitions of each producer id."""
        self._unwritten: dict[str, Counter[TopicPartition]] = {}
        """Per group, of all commits whose fate is not known yet."""
        self._unstable: Counter[tuple[str, TopicPartition]] = Counter()
        """Those of them that are in transactions."""

    def groups(self) -> Iterable[str]:
        """The groups with pending offsets."""
        return self._pending.keys()

    # --- commits whose fate is not known yet

    def appended(self, group_id: str, partitions: Sequence[TopicPartition], *, in_transaction: bool) -> None:
        """A commit is appended; `written` follows when its fate is known."""
        self._unwritten.setdefault(group_id, Counter()).update(partitions)
        if in_transaction:
            self._unstable.update((group_id, tp) for tp in partitions)

    def written(self, group_id: str, partitions: Sequence[TopicPartition], *, in_transaction: bool) -> None:
        _subtract(self._unwritten[group_id], partitions)
        if not self._unwritten[group_id]:
            del self._unwritten[group_id]
        if in_transaction:
            _subtract(self._unstable, [(group_id, tp) for tp in partitions])

    def is_unwritten(self, group_id: str, tp: TopicPartition) -> bool:
        """Return whether the fate of a commit is not known yet."""
        return tp in self._unwritten.get(group_id, ())

    # --- pending offsets

    def put(self, group_id: str, tp: TopicPartition, pending: PendingOffset, producer_id: int) -> None:
        self._pending.setdefault(group_id, {}).setdefault(tp, {})[producer_id] = pending
        self._open.setdefault(producer_id, {})[group_id, tp] = None

    def overtake(self, group_id: str, tp: TopicPartition, order: int) -> None:
        """A record of this order counts: what open transactions wrote before it never will (TG-05)."""
        found = self._pending.get(group_id, {}).get(tp, {})
        for producer_id, pending in found.items():
            if pending.order < order:
                found[producer_id] = PendingOffset(order, None)

    def drop(self, group_id: str, tp: TopicPartition) -> None:
        """A tombstone takes what open transactions wrote before it (TG-06)."""
        for producer_id in tuple(self._pending.get(group_id, {}).get(tp, ())):
            self._take(group_id, tp, producer_id)
            self._forget(group_id, tp, producer_id)

    def drop_group(self, group_id: str) -> None:
        for tp in tuple(self._pending.get(group_id, ())):
            self.drop(group_id, tp)

    def end(self, producer_id: int) -> list[tuple[str, TopicPartition, PendingOffset]]:
        """The producer's transaction is over: forget it, and return what it wrote."""
        found = self._open.pop(producer_id, {})
        return [(group_id, tp, self._take(group_id, tp, producer_id)) for group_id, tp in found]

    def _take(self, group_id: str, tp: TopicPartition, producer_id: int) -> PendingOffset:
        of_group = self._pending[group_id]
        taken = of_group[tp].pop(producer_id)
        if not of_group[tp]:
            del of_group[tp]
        if not of_group:
            del self._pending[group_id]
        return taken

    def _forget(self, group_id: str, tp: TopicPartition, producer_id: int) -> None:
        del self._open[producer_id][group_id, tp]
        if not self._open[producer_id]:
            del self._open[producer_id]

    def is_pending(self, group_id: str, tp: TopicPartition) -> bool:
        return (group_id, tp) in self._unstable or tp in self._pending.get(group_id, ())

    def has_any(self, group_id: str) -> bool:
        """Return whether a group has pending offsets, or commits whose fate is not known yet."""
        return group_id in self._unwritten or group_id in self._pending

    def partitions_of(self, group_id: str) -> dict[TopicPartition, None]:
        """The partitions of a group whose offsets are pending, or of a fate that is not known yet: a tombstone must name them."""
        return dict.fromkeys(self._unwritten.get(group_id, ())) | dict.fromkeys(self._pending.get(group_id, ()))


def _subtract(counts: Counter[T], keys: Iterable[T]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]
