"""Moves that are taken back when only what they add is in sync; brokers that are unregistered while they vouch for records."""

from __future__ import annotations

from kraftlite.controller import reassignment_control
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.reassignment_control import ReassignmentControl
from kraftlite.replication.partition import Partition
from kraftlite.sim.elr_scenes import one_after_another
from kraftlite.sim.workloads import moves as workload
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.elr import of_all_replicas
from tests.sim.mutants.lenses import playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import parted_replicas


def moves_that_are_stranded(patch: Patch) -> None:
    """Every run has the administrator who leaves only what a move adds in sync."""
    patch.set(workload, "comes_with", lambda seed: True)


@mutant(
    "cancelled-without-recovering",
    "a move that is cancelled uncleanly does not say that records may be lost",
    expects=("50", "24", "LossesKeeper"),
    lens=moves_that_are_stranded,
)
def cancelled_without_recovering(patch: Patch) -> None:
    """CM-44: its first replica may lack everything, and counts as in sync."""
    rule = "isr, recovering = replicas[:1], True"
    patch.edit(ReassignmentControl, "_cancel", (rule, "isr, recovering = replicas[:1], None"))


@mutant(
    "cancelled-uncleanly-unasked",
    "a move is cancelled by an unclean election, whatever the topic says",
    expects=("50", "LossesKeeper", "24"),
    lens=moves_that_are_stranded,
)
def cancelled_uncleanly_unasked(patch: Patch) -> None:
    """CM-44: the only replica in sync is one that the move has added."""
    patch.edit(ReassignmentControl, "_cancel", ("if not unclean:", "if False:"))


@mutant(
    "another-move-empties-the-isr",
    "another move drops what the first one was adding, also the only replica in sync",
    expects=("50", "20", "74", "SelfCheck", "14"),
    lens=moves_that_are_stranded,
)
def another_move_empties_the_isr(patch: Patch) -> None:
    """CM-45: nobody is left who may lead."""
    patch.edit(reassignment_control, "_plan", ("abandoned, isr = (), partition.isr", "pass"))


@mutant(
    "unregistered-stays-eligible",
    "a broker that is unregistered stays an eligible leader",
    expects=("74",),
    lens=together(of_all_replicas, playing(one_after_another)),
)
def unregistered_stays_eligible(patch: Patch) -> None:
    """EL-05: it will not come back, or with another disk, and is waited for or elected."""
    rule = "yield from self.broker_lost(broker_id, records)"
    patch.edit(ElectionControl, "unregister", (rule, "yield from self.broker_leaves(broker_id, records)"))


@mutant(
    "removed-replica-answers-nobody",
    "a produce that waits at a replica that is removed is not answered before its time is over",
    expects=("96",),
    lens=playing(parted_replicas, pause_ms=300),
)
def removed_replica_answers_nobody(patch: Patch) -> None:
    """RP-09: the topic was deleted, or has moved away, and its producers wait on."""
    patch.edit(Partition, "remove", ("self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)", "pass"))
