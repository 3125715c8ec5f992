"""Whoever reads a compacted partition from its beginning ends with the last value of every key (LG-42, LG-44)."""

from __future__ import annotations

from bisect import bisect_left

from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.i45_compaction import DAY_MS, Content
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.workloads.logs_history import Reading


class CompactedReadings(ReplicaChecker):
    """A reading from offset 0 knows of each key the last committed record below where it ended. A key whose last record is a
    tombstone may be missing, but no older value may be in its place, if one leader answered the whole reading within
    delete.retention.ms."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.notes = world.notes

    def at_end(self) -> None:
        contents = self.notes.get("contents", {})
        for it in self.world.history.logs.readings:
            if it.start != 0 or it.tp in self.world.losses.excused:
                continue
            for key, truth in self.facts.truths.items():
                content = contents.get(key)
                if truth.tp == it.tp and content is not None and truth.floor < 0:
                    content.extend(truth)
                    self._check(it, content)

    def _check(self, it: Reading, content: Content) -> None:
        began_ms = (it.ended_us - it.began_us) // 1000
        least_ms = min(self.facts.numbers_of.get((it.tp.topic, "delete.retention.ms"), ()), default=DAY_MS)
        for key, offsets in content.by_key.items():
            at = bisect_left(offsets, it.end)
            if not at:
                continue
            last = content.committed[offsets[at - 1]]
            found, is_value = it.last.get(key, (-1, False))
            if found == last.offset:
                continue
            who = f"{it.tp}: {it.client} read [0,{it.end}) within {began_ms} ms from {it.leaders}"
            if last.value is not None:
                self.fail(f"{who} and found {found} the last of its key, it is {last}")
            elif is_value and len(it.leaders) == 1 and began_ms < least_ms:
                self.fail(f"{who} and found the value at {found}, which was deleted by {last}")
