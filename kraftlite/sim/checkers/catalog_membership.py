"""The checkers of who votes: invariants 76 to 79, 84, and 87 to 89. (78 is looked at where 6 is.)"""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.added_voters import AddedVoters
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i76_voter_steps import VoterSteps
from kraftlite.sim.checkers.i77_effective_voters import EffectiveVoters
from kraftlite.sim.checkers.i79_counted_votes import CountedVotes
from kraftlite.sim.checkers.i84_office import OfficeLeft
from kraftlite.sim.checkers.i87_voters_in_snapshots import VotersInSnapshots
from kraftlite.sim.checkers.i88_voter_changes import VoterChanges
from kraftlite.sim.checkers.i89_one_change import OneChange

MEMBERSHIP: Final[tuple[CheckerFactory, ...]] = (
    VoterSteps,
    AddedVoters,
    EffectiveVoters,
    CountedVotes,
    OfficeLeft,
    VotersInSnapshots,
    VoterChanges,
    OneChange,
)
