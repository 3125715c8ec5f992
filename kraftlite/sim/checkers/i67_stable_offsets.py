"""Invariant 67: the last stable offset and the index of aborted transactions are what the batches of a log say (TP-30, TP-34)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import ClassVar, Final

from kraftlite.log.batch import iter_batches
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.api import FetchResult
from kraftlite.replication.leader import LeaderState
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import Batch, ReplicaView, Stamp
from kraftlite.sim.checkers.transaction_log import transaction_facts
from kraftlite.sim.service import FETCH, FetchAsk

_LATEST: Final = 4
"""So many of the last aborted transactions give the offsets between which a log is asked for them."""


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
    unknown: bool = False
    """The log has lost the marker of a transaction of which the cleaner had taken some batches, and the others look like all."""

    def undecided(self, hw: int) -> list[tuple[int, int]]:
        """Those whose marker is not below the HW, which may have gone back."""
        return list(takewhile(lambda it: it[1] >= hw, reversed(self.ended)))

    def wrong(self, start: int, up_to: int, told: Iterable[tuple[int, int]], cleaned: int) -> str | None:
        """Say what is wrong with these (producer id, first offset) for a consumer that is given [start, up_to); None: nothing.
        One that begins behind does no harm; one that had ended before takes its producer's next records away. One that ended
        below `cleaned` may have no records any more."""
        told = set(told)
        ending = {(it.producer_id, it.first_offset): it.last_offset for it in self.aborted if it.last_offset >= start}
        missing = {it for it, last in ending.items() if it not in told and it[1] < up_to and last >= cleaned}
        ended = told - ending.keys()
        if not missing and not ended:
            return None
        return f"of the aborted transactions between {start} and {up_to} {sorted(missing)} are missing; over are {sorted(ended)}"


class StableOffsets(ReplicaChecker):
    """On every replica, after every append, truncation, start and move of the HW, the LSO is the first offset of the earliest
    transaction that is open or whose marker is not below the HW, and the HW without one. It never goes back while the replica
    leads in one epoch. The index has each aborted transaction of the log once, with the LSO behind its marker, and no other;
    but in a compacted topic, below the active segment, those of which records are left.

    A log that is asked for those that overlap a part of it, and a consumer of committed records, are told all of them, and none
    that had ended before (LG-23): they may overlap each other, and then a later marker aborts what begins before an earlier one.
    """

    numbers: ClassVar[tuple[int, ...]] = (67,)
    only_methods = (FETCH,)

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
            unknown = scan is not None and scan.log is log and (scan.unknown or self._may_have_cleaned_too_much(view))
            scan = self._scans[view] = _Scan(log, unknown=unknown)
        if scan.unknown:
            return
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
            cleaned = self._cleaned(view, log)
            aborted = [it for it in scan.aborted if it.last_offset >= cleaned or it in found]
            if found != aborted:
                self.fail(f"{view.text} has the aborted transactions {found} in its index; its batches have {aborted}")
            latest = scan.aborted[-_LATEST:]
            bounds = {offset for it in latest for end in it[1:3] for offset in (end, end + 1)}
            for start, up_to in pairwise(sorted(bounds)):
                wrong = scan.wrong(start, up_to, log.aborted_transactions(start, up_to), cleaned)
                if wrong is not None:
                    self.fail(f"{view.text} is asked: {wrong}")

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if not isinstance(request, FetchAsk) or not isinstance(response, FetchResult) or not request.read_committed:
            return
        view = self.facts.view(target, request.tp)
        scan = None if view is None else self._scans.get(view)
        if response.error is not ErrorCode.NONE or not response.records or view is None or scan is None:
            return
        log = view.log
        if log is None or scan.log is not log or scan.unknown or view.sparse_below or log.log_start_offset > 0:
            return
        *_, (header, _) = iter_batches(bytes(response.records))
        last = Batch.of(header)
        at = bisect_left(view.bases, last.base_offset)
        if view.batches[at : at + 1] != [last] or at >= scan.seen:
            return  # its node has another log by now
        wrong = scan.wrong(request.offset, last.next_offset, response.aborted or (), self._cleaned(view, log))
        if wrong is not None:
            self.fail(f"{source}, which reads what is committed, is answered by {view.text[:-1]}: {wrong}")

    def _may_have_cleaned_too_much(self, view: ReplicaView) -> bool:
        """Return whether the cleaner has gone by what was taken back: where a power cut took what all replicas had."""
        return view.was_cut and self.facts.truth(view.key, view.tp).compacted and view.tp in self.world.losses.excused

    def _cleaned(self, view: ReplicaView, log: Log) -> int:
        """The offset below which the cleaner may have taken whole transactions."""
        return log.active_base_offset if self.facts.truth(view.key, view.tp).compacted else 0

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
