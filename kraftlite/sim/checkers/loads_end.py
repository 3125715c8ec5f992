"""Invariants 44 and 68, of loading: a coordinator begins when all that it has read is committed (CP-31)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupsLoaded
from kraftlite.runtime.trace.transaction import TransactionsLoaded
from kraftlite.sim.checkers.base import Checker
from kraftlite.simhost.host import SimHost


class LoadsEnd(Checker):
    """Whoever has loaded a partition of `__consumer_offsets` or `__transaction_state` has read it up to an end that lies at its
    high watermark or below, and that is not before the end of the log when this broker became its leader: what a predecessor has
    written may be committed still, and is missing for good where the loading did not wait for it."""

    numbers: ClassVar[tuple[int, ...]] = (44, 68)
    only_events = (GroupsLoaded, TransactionsLoaded)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        broker = None if node.node is None else node.node.broker
        if broker is None or not isinstance(event, GroupsLoaded | TransactionsLoaded):
            return
        partition = broker.replicas.partition(event.tp)
        if partition is None or partition.log is None or partition.leader is None or partition.leader_epoch != event.leader_epoch:
            return  # it does not lead any more, and is told so
        where = f"node {node.node_id} has loaded {event.tp} in leader epoch {event.leader_epoch} up to {event.end_offset}"
        if partition.log.hw < event.end_offset:
            self.fail(f"{where}; its high watermark is {partition.log.hw}")
        if event.end_offset < partition.leader.epoch_start_offset:
            self.fail(f"{where}; when it became the leader, the log ended at {partition.leader.epoch_start_offset}")
