"""Errors that are easily made where voters change, each put into the code: the seeds of `test_voters_sim` find every one of them.

KRAFTLITE_VOTERS_MUTANT_SEEDS is how many seeds one may take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kraftlite.log.control import ControlRecord
from kraftlite.raft.changes import Changes
from kraftlite.raft.context import RaftContext
from kraftlite.raft.following import Following
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.membership import Membership
from kraftlite.raft.voters import VoterSet
from tests.sim.mutants.patching import Patch
from tests.sim.raft.test_voters_sim import run_seed

SEEDS = int(os.environ.get("KRAFTLITE_VOTERS_MUTANT_SEEDS", "100"))


def a_removed_leader_counts_itself(patch: Patch) -> None:
    """KAFKA-16530."""
    patch.edit(Leadership, "update_hw", ("hw = min(ctx.voters.majority_offset(offsets), ctx.metalog.leo)", REMOVED_COUNTS))


REMOVED_COUNTS = """offsets[ctx.node_id] = min(ctx.metalog.log.recovery_point, ctx.metalog.leo)
    ends = sorted((offsets.get(it, -1) for it in {*ctx.voters.ids, ctx.node_id}), reverse=True)
    hw = min(ends[len(ctx.voters) // 2], ctx.metalog.leo)"""


def directories_do_not_count(patch: Patch) -> None:
    """A node that has lost its disk still votes and acknowledges under its old name."""
    patch.edit(
        VoterSet, "contains", ("voter is not None and (voter.directory_id is None or voter.directory_id == key.directory_id)",
                               "voter is not None"),
    )  # fmt: skip


def a_truncated_record_stays_in_force(patch: Patch) -> None:
    patch.edit(Membership, "truncate_to", ("self._voters.truncate_to(end)", "pass"))


def a_change_begins_before_the_last_is_committed(patch: Patch) -> None:
    patch.edit(Changes, "_is_settled", ("leader.hw is not None and leader.hw > last", "True"))


def a_snapshot_has_the_newest_voters(patch: Patch) -> None:
    def newest(original: Callable[..., Any], self: Membership, end_offset: int) -> Any:
        return original(self, self.next_offset)

    patch.around(Membership, "snapshot_controls", newest)


def a_loaded_snapshot_says_nothing_of_voters(patch: Patch) -> None:
    def without(original: Callable[..., Any], self: Membership, controls: Iterable[ControlRecord], end_offset: int) -> Any:
        return original(self, controls if end_offset == 0 else (), end_offset)

    patch.around(Membership, "load", without)


def a_removed_leader_never_resigns(patch: Patch) -> None:
    patch.edit(Leadership, "poll", ("if not ctx.is_voter and leader.hw is not None", "if False and leader.hw is not None"))


def an_observer_acknowledges_what_is_not_durable(patch: Patch) -> None:
    """It may be a voter already, and not have read so."""
    patch.edit(RaftContext, "acknowledges", ("self.is_voter or (self.config.may_become_voter and not self.membership.is_static)",
                                             "self.is_voter"))  # fmt: skip


def an_observer_takes_a_silent_leader_for_a_living_one(patch: Patch) -> None:
    """It may be a voter that has not read so, and refuses its pre-vote for ever."""
    patch.edit(Following, "poll", ("state.fetch_timed_out, state.leader_is_live = True, False", "state.fetch_timed_out = True"))


MUTANTS = {
    a_removed_leader_counts_itself: 4,
    directories_do_not_count: 1,
    a_truncated_record_stays_in_force: 6,
    a_change_begins_before_the_last_is_committed: 84,
    a_snapshot_has_the_newest_voters: 12,
    a_loaded_snapshot_says_nothing_of_voters: 2,
    a_removed_leader_never_resigns: 15,
    an_observer_acknowledges_what_is_not_durable: 1,
    an_observer_takes_a_silent_leader_for_a_living_one: 5,
}
"""The seed that found it last is tried first; all others follow when it finds it no more."""


@pytest.mark.parametrize(("mutant", "first"), MUTANTS.items(), ids=[it.__name__ for it in MUTANTS])
def test_every_mutant_is_caught(mutant: Callable[[Patch], None], first: int) -> None:
    with Patch() as patch:
        mutant(patch)
        for seed in (first, *range(SEEDS)):
            try:
                run_seed(seed)
            except Exception as found:  # noqa: BLE001 whatever ends a run has found it
                print(f"{mutant.__name__}: seed {seed}: {type(found).__name__}: {str(found)[:200]}")
                return
    pytest.fail(f"{mutant.__name__} survives {SEEDS} seeds")
