"""Sessions and timeouts of members of groups, and answers that are owed."""

from __future__ import annotations

from kraftlite.coordinator.classic.groups import Groups
from kraftlite.coordinator.classic.rebalance import Rebalances
from kraftlite.coordinator.modern.classic_members import ClassicMembers
from kraftlite.coordinator.modern.groups import ConsumerGroups
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant(
    "heartbeat-renews-nothing",
    "a heartbeat of the classic protocol does not begin the session anew",
    expects=("RemovalsDeserved",),
)
def heartbeat_renews_nothing(patch: Patch) -> None:
    """CP-32: who lives is dropped once a session, and the group rebalances for ever."""
    patch.edit(Groups, "heartbeat", ("self.touch(group, member)", "pass"))


@mutant(
    "session-lasts-from-the-join",
    "a heartbeat of the consumer protocol does not begin the session anew",
    expects=("RemovalsDeserved", "SelfCheckCoordinators"),
)
def session_lasts_from_the_join(patch: Patch) -> None:
    """KIP-848: the same in the consumer protocol."""
    rule = "self.schedule(group, after, revokes_anew=after.revoking != before.revoking)"
    patch.edit(ConsumerGroups, "heartbeat", (rule, f"{rule} if joins else None"))


@mutant(
    "synced-and-dropped",
    "a classic member of a consumer group is dropped for not syncing although it has synced",
    expects=("RemovalsDeserved",),
)
def synced_and_dropped(patch: Patch) -> None:
    """KIP-848, CG-08: the time that the sync had to come in is not taken back."""
    patch.edit(ClassicMembers, "sync", ("self._groups.came(Timer.RESYNC, group, member.member_id)", "pass"))


@mutant(
    "kept-for-ever",
    "a member of the consumer protocol may keep what it is to give up for as long as it likes",
    expects=("SelfCheckCoordinators",),
)
def kept_for_ever(patch: Patch) -> None:
    """KIP-848: the rebalance timeout is not applied; one member that hangs in its callback stops the others."""
    patch.edit(ConsumerGroups, "schedule", ("deadlines.set(key, now_ms + member.rebalance_timeout_ms)", "pass"))


@mutant(
    "first-join-unanswered",
    "a join that is asked for again takes the place of the first one, which is never answered",
    expects=("SelfCheckCoordinators",),
)
def first_join_unanswered(patch: Patch) -> None:
    """CP-28: the connection of a client that pipelines stands still."""
    patch.edit(Rebalances, "wait_for_join", ("if member.waiting_join is not None:", "if False:"))
