"""The in-sync replicas of one partition as its leader sees them: committed, proposed, and the union that the HW obeys.

Source: Kafka's Partition; KIP-497, KIP-841,
KIP-903; RP-12, RP-22 to RP-24, RP-26.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionItem, IsrMember


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

    def revert(self) -> None:
        """The controller did not carry the change out, and will not."""
        self.pending = None
        self.maximal = self.committed


def in_order(members: Iterable[NodeId], replicas: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """`members` in the order of the assignment; those that are not assigned come last."""
    wanted = tuple(members)
    return (*(r for r in replicas if r in wanted), *(m for m in wanted if m not in replicas))
