"""State that no longer fits together inside one object: nothing is wrong outside yet, and perhaps never in this run."""

from __future__ import annotations

from kraftlite.controller.topics_state import TopicsState
from kraftlite.raft.context import RaftContext
from kraftlite.raft.leadership import Leadership
from kraftlite.replication.isr import IsrState
from kraftlite.replication.leader import LeaderState
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant(
    "leader-forgets-who-is-out",
    "a new leader keeps the progress of the in-sync replicas only",
    expects=("SelfCheck", "14", "crash"),
)
def leader_forgets_who_is_out(patch: Patch) -> None:
    """RP-25: the ISR is who is caught up, the assignment is who may be; a replica that nobody looks at never comes back."""
    patch.edit(LeaderState, "assign", ("for broker_id in followers", "for broker_id in followers if broker_id in committed"))


@mutant(
    "former-leader-keeps-its-batches",
    "a leader that lost its office still hands out what it had appended",
    expects=("SelfCheck", "14", "crash"),
)
def former_leader_keeps_its_batches(patch: Patch) -> None:
    """RF-36: the batches of the lost epoch may be truncated, and a state machine is then given what is not in the log."""
    patch.edit(Leadership, "left_office", ("self.own_batches.clear()", "pass"))


@mutant(
    "settled-isr-change-stays-pending",
    "an ISR change that newer metadata has settled is still waited for",
    expects=("SelfCheck", "14", "crash"),
)
def settled_isr_change_stays_pending(patch: Patch) -> None:
    """KAFKA-13091's class: a leader that waits for an answer to a question that was settled otherwise asks no other."""
    patch.edit(IsrState, "commit", ("self.pending = None", "pass"))


@mutant(
    "isr-index-keeps-who-left",
    "the controller still counts who left an ISR among its members",
    expects=("SelfCheck",),
)
def isr_index_keeps_who_left(patch: Patch) -> None:
    """An index beside the data, and one of the ways in which it changes forgets it: fencing touches the wrong partitions."""
    patch.edit(TopicsState, "_move", ("members[broker_id].pop(key)", "pass"))


@mutant(
    "requests-outlive-a-role",
    "what a node asked in an earlier role is still answered, and holds up what it asks in this one",
    expects=("SelfCheck", "14", "crash"),
)
def requests_outlive_a_role(patch: Patch) -> None:
    """RF-24: a candidate asks nobody for a vote whom it asked anything as a follower, until that is too late."""
    patch.edit(RaftContext, "become", ("    self.requests.clear()\n", ""))
