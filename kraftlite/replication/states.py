"""The words of a broker on its replicas: at once, or as what has changed since somebody was told last. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from kraftlite.log.log import Log
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.introspection import REPLICA_FIELDS, ReplicaState
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition

LOOKS_A_SECOND: Final = 2_500
"""Replicas that one who watches has looked at in a second, at least `AT_ONCE` at a time: less than half a percent of a core where
nothing changes, about two where each of them does."""
AT_ONCE: Final = 250
FIRST_AT_ONCE: Final = 2_000
"""Replicas in one answer while not all of them were told."""
_Values = tuple[Any, ...]
_Known = tuple[tuple[NodeId, ...], tuple[int, ...], tuple[NodeId, ...], int | None]
_NOTHING: Final[_Known] = ((), (), (), None)


def _values(partition: Partition, log: Log) -> _Values:
    """The values of `REPLICA_FIELDS`, in their order: they are cheaper to compare than a ReplicaState is to make."""
    leader = partition.leader
    return (
        partition.topic_id,
        leader is not None,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.committed_isr,
        log.log_start_offset,
        log.hw,
        log.leo,
        log.size_bytes,
        partition.leader_id,
        partition.replicas,
        partition.min_isr,
        *(_NOTHING if leader is None else _known(leader)),
    )


def _known(leader: LeaderState) -> _Known:
    """The knowledge of a leader: who its followers are, how far each is, the maximal ISR, and where its epoch starts."""
    followers = leader.followers
    ends = tuple([-1 if it.leo is None else it.leo for it in followers.values()])
    return tuple(followers), ends, leader.isr.maximal, leader.epoch_start_offset


def _state(tp: TopicPartition, values: _Values) -> ReplicaState:
    return ReplicaState(topic=tp.topic, partition=tp.partition, **dict(zip(REPLICA_FIELDS, values, strict=True)))


def state_of(partition: Partition) -> ReplicaState | None:
    """None: the replica is offline."""
    return None if partition.log is None else _state(partition.tp, _values(partition, partition.log))


class Looks:
    """The replicas of a broker as one who watches knows them. A look takes a part of them where there are many, so that it never
    holds the loop for long; what is kept is one tuple for each replica, however slowly it is told."""

    def __init__(self, held: Callable[[], Collection[Partition]], find: Callable[[TopicPartition], Partition | None]) -> None:
        self._held = held
        self._find = find
        self._told: dict[TopicPartition, _Values] = {}
        self._left: list[Partition] = []
        self._round_ms: int | None = None
        """The time at which the round began that is under way; None: there is none."""
        self.whole_ms = -1
        """The time after which every replica was looked at; -1: not all were yet."""

    @property
    def count(self) -> int:
        """Replicas that were told and are not gone."""
        return len(self._told)

    def look(self, now_ms: int, since_ms: int) -> tuple[list[ReplicaState], list[TopicPartition]]:
        """Return those that have changed, and those that are gone. `since_ms`: the time since the look before."""
        if self._round_ms is None:
            self._round_ms, self._left = now_ms, list(self._held())
        most = FIRST_AT_ONCE if self.whole_ms < 0 else max(AT_ONCE, LOOKS_A_SECOND * since_ms // 1_000)
        part, self._left = self._left[:most], self._left[most:]
        changed = [state for partition in part if (state := self._news(partition)) is not None]
        gone: list[TopicPartition] = []
        if not self._left:
            gone = self._gone()
            self.whole_ms, self._round_ms = self._round_ms, None
        return changed, gone

    def _news(self, partition: Partition) -> ReplicaState | None:
        tp, log = partition.tp, partition.log
        if log is None or self._find(tp) is not partition:
            return None  # the end of the round tells that it is gone
        values = _values(partition, log)
        if self._told.get(tp) == values:
            return None
        self._told[tp] = values
        return _state(tp, values)

    def _gone(self) -> list[TopicPartition]:
        found = [tp for tp in self._told if (now := self._find(tp)) is None or now.log is None]
        for tp in found:
            del self._told[tp]
        return found
