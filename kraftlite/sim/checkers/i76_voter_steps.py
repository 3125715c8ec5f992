"""Invariant 76: of two committed sets of voters in a row, at most one replica was added and one removed."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.quorum import Keys, described, one_step


class VoterSteps(MetadataChecker):
    """So a majority of each set meets one of the other. The first set in the log is that with which the cluster began."""

    numbers: ClassVar[tuple[int, ...]] = (76,)

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        if entry.voters is None:
            return
        sets = self.facts.voter_sets
        was = sets.before(len(sets.committed) - 1)
        if not entry.voters:
            self.fail(f"nobody votes behind offset {entry.voters_offset}")
        if len(sets.committed) == 1 and [it for it, _ in entry.voters] == [it for it, _ in was]:
            return  # configured voters have no directories yet
        added, removed = one_step(was, entry.voters)
        if len(added) > 1 or len(removed) > 1 or not _meet(was, entry.voters):
            self.fail(f"offset {entry.voters_offset}: the voters {described(was)} are followed by {described(entry.voters)}")


def _meet(one: Keys, other: Keys) -> bool:
    """Return whether some majority of each has a replica in common with one of the other."""
    return any(key in other for key in one)
