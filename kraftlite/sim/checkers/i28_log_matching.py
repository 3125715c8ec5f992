"""Invariant 28: replicas are the same below the smaller HW, and every log is whole."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp


class LogMatching(ReplicaChecker):
    """Each log is dense, in order of leader epochs, and every CRC in it is right. Two logs that have a batch of one epoch at one
    offset have the same one, and the same before it (KIP-101), whatever the HW is. Below its HW a replica has what is committed.
    The epochs that a log remembers are those of its batches (RP-28)."""

    numbers: ClassVar[tuple[int, ...]] = (28,)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        if view.problems:
            self.fail(f"{view.text} {view.problems[0]}")
        if view.log is None:
            return
        truth = self.facts.truth(view.key, view.tp)
        if self.facts.settled(view, truth):
            wrong = self.facts.differs(view, truth, view.hw)
            if wrong is not None:
                self.fail(f"{view.text} has the HW {view.hw}, but {wrong}")
        if view.was_cut or was is None or (view.leader is not None and view.leader is not was.leader):
            self._check_epochs(view)

    def _check_epochs(self, view: ReplicaView) -> None:
        log = view.log
        if log is None or not view.batches:
            return
        starts = [view.batches[0]]
        starts += [batch for last, batch in pairwise(view.batches) if batch.epoch != last.epoch]
        for batch in starts:
            offset = max(batch.base_offset, log.log_start_offset)
            if offset < batch.next_offset and log.epoch_at(offset) != batch.epoch:
                self.fail(f"{view.text} has {batch}, but takes {offset} for epoch {log.epoch_at(offset)}: {log.epoch_entries}")
        for batch in starts[1:]:
            if batch.base_offset > view.sparse_below and (batch.epoch, batch.base_offset) not in log.epoch_entries:
                self.fail(f"{view.text} has {batch} first of its epoch, but remembers {log.epoch_entries}")
