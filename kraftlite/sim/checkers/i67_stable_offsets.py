"""Invariant 67: the last stable offset and the index of aborted transactions are what the batches of a log say (TP-30, TP-34)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

from kraftlite.log.indexes import AbortedTransaction
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.sim.checkers.transaction_log import transaction_facts


@dataclass(eq=False, slots=True)
class _Scan:
    """The transactions in the first `seen` batches of a replica's log."""

    log: object
    seen: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """Producer id → first offset."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, offset of the marker), in the order of the markers."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    checked: int = 0
    lso: int = -1
    leader: LeaderState | None = None

    def undecided(self, hw: int) -> list[tuple[int, int]]:
        """Those whose marker is not below the HW, which may have gone back."""
        return list(takewhile(lambda it: it[1] >= hw, reversed(self.ended)))


class StableOffsets(ReplicaChecker):
    """On every replica, after every append, truncation, start and move of the HW, the LSO is the first offset of the earliest
    transaction that is open or whose marker is not below the HW, and the HW without one. It never goes back while the replica
    leads in one epoch. The index has each aborted transaction of the log once, with the LSO behind its marker, and no other."""

    numbers: ClassVar[tuple[int, ...]] = (67,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.transactions = transaction_facts(world)
        self._scans: dict[ReplicaView, _Scan] = {}

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        log = view.log
        known = self.transactions.in_log.get(view.key)
        if log is None or known is None or view.sparse_below or log.log_start_offset > 0:
            return
        scan = self._scans.get(view)
        if scan is None or scan.log is not log or view.was_cut or scan.seen > len(view.batches):
            scan = self._scans[view] = _Scan(log)
        for batch in view.batches[scan.seen :]:
            if batch in known:
                self._follow(scan, view.key, batch.base_offset, batch.producer_id, known[batch].marker)
        scan.seen = len(view.batches)
        undecided = scan.undecided(log.hw)
        first = min([*scan.open.values(), *(first for first, _ in undecided)], default=log.hw)
        wanted, lso = min(first, log.hw), log.last_stable_offset
        if lso != wanted:
            self.fail(
                f"{view.text} has the LSO {lso} at the HW {log.hw}; open are {scan.open}, not yet decided are {undecided}: it "
                f"is {wanted}"
            )
        if view.leader is not None and scan.leader is view.leader and lso < scan.lso:
            self.fail(f"{view.text} takes its LSO back from {scan.lso} to {lso}")
        scan.lso, scan.leader = lso, view.leader
        if scan.checked != len(scan.aborted) or was is None or view.was_cut:
            scan.checked = len(scan.aborted)
            found = sorted(log.aborted_between(0, log.leo), key=lambda it: it.last_offset)
            if found != scan.aborted:
                self.fail(f"{view.text} has the aborted transactions {found} in its index; its batches have {scan.aborted}")

    def _follow(self, scan: _Scan, key: TopicIdPartition, offset: int, producer_id: int, marker: object) -> None:
        if marker is None:
            scan.open.setdefault(producer_id, offset)
            return
        first = scan.open.pop(producer_id, None)
        if first is None:
            return
        scan.ended.append((first, offset))
        if not getattr(marker, "commit", True):
            scan.aborted.append(AbortedTransaction(producer_id, first, offset, min(scan.open.values(), default=offset + 1)))
