"""The in-sync replicas of one partition as its leader sees them: committed, proposed, and the union that the HW obeys.

Source: Kafka's Partition; KIP-497, KIP-841,
KIP-903; RP-12, RP-22 to RP-24, RP-26.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionItem, IsrMember
from kraftlite.model.topic_partition import TopicPartition

KEEP_PENDING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller knows something that this leader does not: newer metadata is on its way and will settle the change (RP-23)."""

REVERT = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIsr:
    """A change that the controller has been asked for. Exactly one of `added` and `removed` has members.

    `withdrawn`: an expansion that was refused. An earlier copy of it may still be under way, and would be carried out when the
    replica is eligible again; so `item` now asks for the ISR as it is, which makes a new partition epoch and every copy void. The
    HW waits for `added` until that is answered.
    """

    item: AlterPartitionItem
    added: tuple[NodeId, ...]
    removed: tuple[NodeId, ...]
    withdrawn: bool = False


class IsrState:
    """`committed` is what the controller said last; `maximal` = committed ∪ proposed (RP-12), both in assignment order.

    An expansion counts at once: the HW must wait for a replica that the controller may already have made electable. A shrink
    does not count before it is confirmed: until then the replica may still be elected. At most one change is pending (RP-22).
    """

    __slots__ = ("committed", "maximal", "pending", "recovering")

    def __init__(self, committed: tuple[NodeId, ...], recovering: bool) -> None:
        self.committed = self.maximal = committed
        self.recovering = recovering
        self.pending: PendingIsr | None = None

    def commit(self, isr: tuple[NodeId, ...], recovering: bool) -> None:
        """The controller has spoken; whatever was pending is settled by it."""
        self.committed = self.maximal = isr
        self.recovering = recovering
        self.pending = None

    def propose(self, pending: PendingIsr, replicas: tuple[NodeId, ...]) -> None:
        assert self.pending is None, "one ISR change at a time"
        assert bool(pending.added) != bool(pending.removed), pending
        self.pending = pending
        self.maximal = in_order((*self.committed, *pending.added), replicas)

    def withdraw(self, members: tuple[IsrMember, ...]) -> None:
        """`members`: the committed ISR, to be confirmed."""
        assert self.pending is not None and self.pending.added, "only an expansion is withdrawn"
        item = replace(self.pending.item, new_isr=members)
        self.pending = replace(self.pending, item=item, withdrawn=True)

    def check(self, tp: TopicPartition, said: tuple[NodeId, ...]) -> None:
        """Raise AssertionError when an invariant does not hold. `said`: the ISR that the controller said last."""
        committed, maximal, pending = self.committed, self.maximal, self.pending
        assert committed == said, f"{tp}: the leader has the ISR {committed}, the controller said {said}"
        if pending is None:
            assert maximal == committed, f"{tp}: the maximal ISR is {maximal}, committed {committed}, and nothing is asked for"
            return
        assert len(set(maximal)) == len(maximal), f"{tp}: the maximal ISR {maximal} has a member twice"
        added, removed = pending.added, pending.removed
        assert not set(added) & set(committed), f"{tp}: {added} are to be added to the ISR {committed}, which has them"
        assert set(removed) <= set(committed), f"{tp}: {removed} are to be removed from the ISR {committed}, which has them not"
        union = {*committed, *added}
        assert set(maximal) == union, f"{tp}: the maximal ISR is {maximal}, committed {committed}, about to join {added}"

    def revert(self) -> None:
        """The controller did not carry the change out, and will not."""
        self.pending = None
        self.maximal = self.committed


def in_order(members: Iterable[NodeId], replicas: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """`members` in the order of the assignment; those that are not assigned come last."""
    wanted = tuple(members)
    ordered = tuple([replica for replica in replicas if replica in wanted])
    return ordered if len(ordered) == len(wanted) else (*ordered, *(member for member in wanted if member not in replicas))
