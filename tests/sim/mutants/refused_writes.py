"""Writes that the log of a coordinator refuses while it goes on leading: only where `workloads/minimum` is do seeds get there."""

from __future__ import annotations

from kraftlite.coordinator.modern.journal import Journal
from kraftlite.coordinator.offsets import Offsets
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.sim.themes import GROUPS
from kraftlite.sim.workloads import group_passing, minimum
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


def groups_pass(patch: Patch) -> None:
    """In every run a group changes its protocol while the minimum of its topic changes."""
    patch.set(group_passing, "ONE_SEED_IN", 1)
    patch.set(minimum, "ONE_SEED_IN", {**minimum.ONE_SEED_IN, GROUPS: 1})


@mutant(
    "refused-change-forgotten",
    "what the log does not take of a consumer group is not written again",
    expects=("40", "41", "43", "44"),
)
def refused_change_forgotten(patch: Patch) -> None:
    """KIP-848: the coordinator goes on from a state that the next one does not find. Kafka takes the change back instead."""
    patch.edit(Journal, "failed", ("self._unwritten.setdefault(group_id, {}).update(dict.fromkeys(keys))", "pass"))


@mutant("refused-commit-counts", "a commit that the log does not take is there until the next load", expects=("42", "44"))
def refused_commit_counts(patch: Patch) -> None:
    """CP-37: an offset is read that nobody was told of, and that is gone with the coordinator."""
    patch.edit(Offsets, "commit", ("in accepted if error is _NONE else ():", "in accepted:"))


@mutant(
    "refused-tombstones-forgotten",
    "what the log does not take of an empty group to which another one succeeds is not written again",
    expects=("41", "44"),
    lens=groups_pass,
)
def refused_tombstones_forgotten(patch: Patch) -> None:
    """CG-08: when the other group is deleted, the next coordinator finds the one that was there before it."""
    patch.edit(OwedTombstones, "owe", ("if tombstones:", "if False:"))
