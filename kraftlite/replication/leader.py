"""The consequences of a leader's knowledge of its followers: who may join or must leave the ISR, and how far the HW may go.

Source: Kafka's Partition and Replica;
RP-11, RP-19 to RP-21, RP-25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.follower_progress import FollowerProgress
from kraftlite.replication.isr import IsrState
from kraftlite.replication.partition_trace import PartitionTrace

Eligible = Callable[[NodeId, int | None], bool]
"""(broker, broker epoch of its last fetch) -> may it be in an ISR: registered under that epoch, unfenced, not shutting down."""
DirectoryOnline = Callable[[NodeId, Sequence[NodeId], Sequence[UUID]], bool]
"""(broker, replicas, their log directories) -> is the directory of the broker's replica online."""


class LeaderState:
    """State that exists only while this broker leads the partition, for one leader epoch."""

    __slots__ = ("epoch_start_offset", "followers", "isr", "leader_epoch", "struck", "struck_ms", "trace")

    def __init__(self, isr: IsrState, trace: PartitionTrace) -> None:
        self.leader_epoch = trace.leader_epoch
        self.epoch_start_offset = trace.start_offset
        self.isr = isr
        self.trace = trace
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.struck: tuple[NodeId, ...] = ()
        """Those whom the controller has taken out of the ISR without being asked, because their broker fails: until metadata
        says what has become of it, or they fetch, and no longer than a follower may lag: metadata that brings a fencing together
        with its end tells of no change of the broker."""
        self.struck_ms = 0

    def strike(self, out: Iterable[NodeId], isr: tuple[NodeId, ...], now_ms: int) -> None:
        """Note whom the controller has taken out by itself; who is in the ISR again is forgotten."""
        new = tuple(out)
        if new:
            self.struck_ms = now_ms
        self.struck = tuple([it for it in (*new, *self.struck) if it not in isr])

    def forget_struck(self, until_ms: int) -> None:
        """Forget who was taken out, if the last of them was so by then."""
        if self.struck_ms <= until_ms:
            self.struck = ()

    def assign(self, followers: Iterable[NodeId], now_ms: int) -> None:
        """Track exactly these. One that is new starts from nothing; ISR members get a fresh lag clock (RP-25)."""
        committed = self.isr.committed
        self.followers = {
            broker_id: self.followers.get(broker_id) or FollowerProgress(broker_id, now_ms if broker_id in committed else None)
            for broker_id in followers
        }

    def check(
        self, tp: TopicPartition, broker_id: NodeId, replicas: tuple[NodeId, ...], epochs: tuple[int, int], leo: int
    ) -> None:
        """Raise AssertionError when an invariant does not hold on this broker, whose log ends at `leo`.

        `epochs`: leader epoch and partition epoch.
        """
        start, committed, pending = self.epoch_start_offset, self.isr.committed, self.isr.pending
        assert self.leader_epoch == epochs[0], f"{tp}: epoch {self.leader_epoch} is led, the partition is in {epochs[0]}"
        assert start <= leo, f"{tp}: leader epoch {self.leader_epoch} starts at {start}, behind the log's end {leo}"
        asked = epochs if pending is None else (pending.item.leader_epoch, pending.item.partition_epoch)
        assert asked == epochs, f"{tp}: the pending ISR is of (leader epoch, partition epoch) {asked}, the partition in {epochs}"
        assert broker_id in committed, f"{tp}: leader {broker_id} is not in its ISR {committed}"
        others = [replica for replica in replicas if replica != broker_id]
        assert list(self.followers) == others, f"{tp}: the progress is of {set(self.followers)}, the followers are {set(others)}"
        for follower in self.followers.values():
            end = follower.leo
            assert end is None or end <= leo, f"{tp}: follower {follower.broker_id} has confirmed {end}, the leader ends at {leo}"

    def hw_bound(self, leo: int, now_ms: int, lag_time_max_ms: int, eligible: Eligible) -> int:
        """The smallest LEO over the maximal ISR and over replicas that are about to join it (RP-11).

        -1 while a member has not yet fetched in this leader epoch. Waiting for joiners keeps a replica that is caught up from
        being left behind by every produce of a single-member ISR.
        """
        bound = leo
        maximal = self.isr.maximal
        for broker_id, follower in self.followers.items():
            follower_leo = follower.leo
            if follower_leo is not None and follower_leo >= bound:
                continue
            if broker_id in maximal:
                bound = -1 if follower_leo is None else follower_leo
            elif (
                follower_leo is not None
                and follower.is_caught_up(leo, now_ms, lag_time_max_ms)
                and eligible(broker_id, follower.replica_epoch)
            ):
                bound = follower_leo
        return bound

    def joining(
        self,
        leo: int,
        hw: int,
        now_ms: int,
        lag_time_max_ms: int,
        eligible: Eligible,
        fetched_by: NodeId | None,
    ) -> tuple[NodeId, ...]:
        """List who is to be proposed for the ISR of a log that ends at `leo`.

        Without a fetch at hand only those may join that are caught up: old progress of a silent replica proves nothing. Nor may
        those whom the controller has `struck`: the record that fences their broker comes last, and is refused until then.
        """
        found: tuple[NodeId, ...] = ()
        maximal = self.isr.maximal
        for broker_id, follower in self.followers.items():
            if follower.leo is None or broker_id in maximal or broker_id in self.struck:
                continue  # the usual ones, without a question
            caught_up = broker_id == fetched_by or follower.is_caught_up(leo, now_ms, lag_time_max_ms)
            if caught_up and self.may_join(follower, hw, eligible):
                found += (broker_id,)
        return found

    def may_join(self, follower: FollowerProgress, hw: int, eligible: Eligible) -> bool:
        """Return whether a follower may join the ISR (RP-21). `leo` is of this leader epoch, because progress is forgotten
        when a new one begins."""
        leo = follower.leo
        return (
            leo is not None
            and leo >= hw
            and leo >= self.epoch_start_offset
            and follower.broker_id not in self.isr.maximal
            and eligible(follower.broker_id, follower.replica_epoch)
        )

    def lagging(self, leo: int, now_ms: int, lag_time_max_ms: int) -> tuple[NodeId, ...]:
        """List the members of the committed ISR that are not caught up, in assignment order."""
        found = []
        for broker_id in self.isr.committed:
            follower = self.followers.get(broker_id)
            if follower is not None and not follower.is_caught_up(leo, now_ms, lag_time_max_ms):
                found.append(broker_id)
        return tuple(found)
