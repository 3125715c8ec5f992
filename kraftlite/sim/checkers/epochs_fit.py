"""A replica knows where each leader epoch begins in its log, and of no epoch that is not in it (RP-28, RP-29)."""

from __future__ import annotations

from kraftlite.log.log import Log
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp


class EpochsFit(ReplicaChecker):
    """Each batch lies where the log says that its leader epoch is, which tells a follower where its log and the leader's part. No
    epoch begins beyond the end of the log; and when it was just opened or truncated, none begins at its end, but that of a
    replica that leads and has written nothing yet."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[ReplicaView, tuple[Log, tuple[tuple[int, int], ...], int]] = {}
        """The log, its epochs, and the number of its batches, when they were looked at last."""

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        log, batches = view.log, view.batches
        if log is None or (view.node_id, view.tp) in self.world.losses.damaged:
            return
        known, before, seen = self._seen.get(view, (None, (), 0))
        epochs, afresh = log.epoch_entries, known is not log or view.was_cut
        self._seen[view] = log, epochs, len(batches)
        first = 0 if afresh or epochs[: len(before)] != before else min(seen, len(batches))
        start = log.log_start_offset
        for batch in batches[first:]:
            if batch.next_offset > start and log.epoch_at(max(batch.base_offset, start)) != batch.epoch:
                self.fail(f"{view.text} has {batch}, and knows the epochs {epochs}")
        begins = epochs[-1][1] if epochs else 0
        if begins > log.leo or (begins == log.leo and epochs and afresh and view.leader is None):
            self.fail(f"{view.text} knows the epochs {epochs}, and its log ends at {log.leo}")
