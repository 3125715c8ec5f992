"""Writes that the log of a coordinator refuses while it goes on leading: only where `workloads/minimum` is do seeds get there."""

from __future__ import annotations

from kraftlite.coordinator.modern.journal import Journal
from kraftlite.coordinator.offsets import Offsets
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


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
