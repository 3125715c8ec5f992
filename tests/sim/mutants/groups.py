"""Consumer groups: generations, epochs, sessions, static members, offsets, and what the next coordinator loads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.coordinator.classic.group import Group
from kraftlite.coordinator.classic.groups import Groups
from kraftlite.coordinator.classic.rebalance import Rebalances
from kraftlite.coordinator.core.effects import Effects
from kraftlite.coordinator.core.loader import PartitionLoader
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.modern import assignors, reconcile, steps
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.groups import ConsumerGroups
from kraftlite.coordinator.modern.journal import Journal
from kraftlite.coordinator.offsets import Offsets
from kraftlite.sim import schedule
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms
from kraftlite.sim.workloads import groups as workload
from kraftlite.sim.workloads.group_classic import ClassicMember
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing, slow_publishing
from tests.sim.mutants.patching import Patch


@mutant(
    "old-generation-commits",
    "a member of an older generation commits",
    expects=("43",),
)
def old_generation_commits(patch: Patch) -> None:
    """A consumer that missed a rebalance takes the offsets of its partitions' new owner back."""
    patch.edit(Offsets, "_check_commit", ("if request.generation != group.generation:", "if False:"))


@mutant("stale-epoch-commits", "a member of the consumer protocol commits in an epoch that is over", expects=("43",))
def stale_epoch_commits(patch: Patch) -> None:
    """KIP-848: who has not heard of its new epoch may not own any more what it commits."""
    patch.edit(Offsets, "_check_consumer_commit", ("if epoch == member.epoch:", "if True:"))


@mutant("late-write-forgotten", "a write that is late for its client changes nothing in memory", expects=("71", "44"))
def late_write_forgotten(patch: Patch) -> None:
    """CP-37: its record is in the log, so that the offset counts after the next load, and not before."""
    patch.edit(Effects, "late", ("self._say(token, error)", "self._say(token, error)\n    self._then[token] = nothing"))


@mutant("heartbeat-of-any-generation", "a heartbeat is fine in any generation", expects=("43", "liveness"))
def heartbeat_of_any_generation(patch: Patch) -> None:
    """A member that slept through a rebalance is never told, and goes on with what others own."""
    patch.edit(Groups, "heartbeat", ("_check_generation(group, request.generation)", "pass"))


@mutant(
    "replaced-instance-not-fenced",
    "a static member that was replaced is served as its successor",
    expects=("43",),
)
def replaced_instance_not_fenced(patch: Patch) -> None:
    """KIP-345: the former self of a static member is let in by its instance id."""
    patch.edit(
        Group,
        "check_member",
        ("if current != member_id:", "if False:"),
        ("member = self.members.get(member_id)", "member = self.members.get(self.static.get(instance_id, member_id))"),
    )


@mutant(
    "commit-before-hw",
    "a commit is acknowledged when it is written, not when it is replicated",
    expects=("42", "44"),
)
def commit_before_hw(patch: Patch) -> None:
    """CP-37: the offsets that a failover takes back are read twice, or never."""
    patch.edit(ShardDriver, "_append", ("acks=-1", "acks=1"))


@mutant(
    "member-told-before-committed",
    "a member of the consumer protocol is told before it is committed",
    expects=("40", "41", "42", "43", "44", "38", "crash", "liveness"),
)
def member_told_before_committed(patch: Patch) -> None:
    """KIP-848: what a coordinator tells and the next one does not know is owned twice."""
    patch.edit(
        Journal,
        "write",
        ("write = self._last[group_id] = _Write([tell])", "tell(ErrorCode.NONE)\n    write = self._last[group_id] = _Write()"),
    )


@mutant(
    "tombstones-not-replayed",
    "a coordinator that loads passes over the tombstones of offsets",
    expects=("44", "42"),
)
def tombstones_not_replayed(patch: Patch) -> None:
    """CP-39, CP-40: deleted and expired offsets are back after a failover."""
    patch.edit(Offsets, "replay", ("self._drop(group_id, (tp,))", "pass"))


@mutant(
    "group-tombstones-not-replayed",
    "a coordinator that loads passes over the tombstones of members",
    expects=("44", "liveness"),
)
def group_tombstones_not_replayed(patch: Patch) -> None:
    """CG-04: members that left are there again, and hold their partitions for a session."""
    patch.edit(
        ConsumerGroup,
        "_replay_member",
        ("elif member is not None:", "elif member is not None and member.instance_id is not None:"),
    )


@mutant(
    "sessions-not-started-on-load",
    "a loaded classic group has no sessions until its members come",
    expects=("14", "liveness", "crash"),
)
def sessions_not_started_on_load(patch: Patch) -> None:
    """CP-32: a member that died with its coordinator stays for ever, and its partitions with it."""
    patch.edit(Groups, "settle", ("self.rebalances.expect_heartbeat(group, member)", "pass"))


@mutant(
    "member-sessions-not-started-on-load",
    "a loaded consumer group has no sessions until its members come",
    expects=("liveness",),
)
def member_sessions_not_started_on_load(patch: Patch) -> None:
    """CG-03: the same in the consumer protocol."""
    patch.edit(ConsumerGroups, "settle", ("self.schedule(group, member)", "pass"))


@mutant(
    "rebalance-without-end",
    "a join waits for members that do not come again",
    expects=("liveness", "14", "crash"),
)
def rebalance_without_end(patch: Patch) -> None:
    """KIP-62: the rebalance timeout is not applied; one member that died stops the group."""
    patch.edit(
        Rebalances,
        "prepare",
        (
            "self._wait_for_members(group, patience_ms)",
            "self._wait_for_members(group, patience_ms if group.first_round else 100_000_000)",
        ),
    )
    patch.edit(
        Rebalances,
        "session_expired",
        ("if member is not None and", "if group.state is not GroupState.PREPARING_REBALANCE and member is not None and"),
    )


@mutant("revoked-at-once", "a partition is free as soon as its owner is told to give it up", expects=("40", "crash"))
def revoked_at_once(patch: Patch) -> None:
    """KIP-848, CG-01: double assignment during revocation."""
    patch.edit(reconcile, "_still_owns", ("return aim.owned is None or overlaps(aim.owned, parts)", "return False"))


@mutant("held-partitions-assigned", "a member gets what another has yet to give up", expects=("40", "crash"))
def held_partitions_assigned(patch: Patch) -> None:
    """CG-01: the partition epochs of a group forget those that are being revoked."""
    patch.set(
        ConsumerGroup,
        "is_held",
        lambda self, topic_id, partition: any(partition in it.assigned.get(topic_id, ()) for it in self.members.values()),
    )


@mutant("expires-what-is-read", "offsets expire although members read their topics", expects=("42",))
def expires_what_is_read(patch: Patch) -> None:
    """KAFKA-4682, KIP-211: an active group with a quiet topic began anew, after a day."""
    patch.edit(
        Offsets,
        "_past_retention",
        ("and tp.topic not in kept", "and True"),
    )


@mutant("generation-begins-anew", "a loaded group counts its generations from zero", expects=("41", "43", "44"))
def generation_begins_anew(patch: Patch) -> None:
    """ML-22: members of two generations have one number."""
    rule = "Group.from_value(group_id, value, self._effects.wall_ms)"
    patch.edit(Groups, "replay", (rule, f"{rule}; self.by_id[group_id].generation = 0"))


@mutant("instance-taken-over", "a static member takes the place of one that is there", expects=("43", "38"))
def instance_taken_over(patch: Patch) -> None:
    """CG-07, KIP-848: two processes with one group.instance.id throw each other out for ever."""
    rule = "if former.classic is None and former.epoch != STATIC_LEAVE_EPOCH:"
    patch.edit(ConsumerGroups, "_find", (rule, "if False:"))


def patient_sessions(patch: Patch) -> None:
    """All members speak the classic protocol, and their sessions last longer than a rebalance waits for them."""
    patch.set(workload, "ConsumerMember", ClassicMember)
    times = ("rng.choice((1_000, 2_000, 4_000))", "6_000"), ("rng.choice((1_000, 3_000))", "1_000")
    patch.edit(workload, "_group", *times)


@mutant(
    "static-member-dropped",
    "a rebalance drops static members that are away",
    expects=("43", "40"),
    lens=patient_sessions,
)
def static_member_dropped(patch: Patch) -> None:
    """CP-34, KAFKA-10284: a rolling restart of static members makes a rebalance of each, which they are there to avoid."""
    patch.edit(Rebalances, "_complete_join", (" and member.instance_id is None", ""))


def cut_off_successors(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker goes just when the others cannot reach each other: what its successor leads is not committed for a while."""
    brokers = node_ids(shape, "broker")
    for_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(1_500, 3_000)
    pairs = itertools.combinations(brokers, 2)
    return [
        FaultPlan(at_ms=at_ms + 20, kind="kill", target=rng.choice(brokers), for_ms=for_ms),
        *(FaultPlan(at_ms=at_ms, kind="refuse", target=a, other=b, for_ms=for_ms) for a, b in pairs),
    ]


@mutant(
    "loads-what-is-committed-now",
    "a coordinator that loads does not wait for what is not committed yet",
    expects=("44", "68"),
    shape="3+3",
    lens=playing(cut_off_successors, 1_500),
)
def loads_what_is_committed_now(patch: Patch) -> None:
    """ML-22, KAFKA-9807's class: the high watermark of a new leader is behind, and offsets that are committed in the end are not
    in its memory."""
    patch.edit(PartitionLoader, "load", ("if not records and hw >= end:", "if not records:"))


def without_faults(patch: Patch) -> None:
    """Nothing fails, so that coordinators stay."""

    def none(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        return []

    patch.set(schedule, "draw", none)


@mutant(
    "deleted-topic-keeps-offsets",
    "the offsets of a topic that is deleted stay",
    expects=("42",),
    lens=without_faults,
)
def deleted_topic_keeps_offsets(patch: Patch) -> None:
    """CP-39: whoever reads a topic of the same name passes over its first records."""
    patch.edit(Offsets, "_delete_topics", ("if gone:", "if False:"))


@mutant(
    "coordinators-miss-what-joined",
    "of updates of the metadata that become one while they are applied coordinators are told the first only",
    expects=("16",),
    lens=slow_publishing,
)
def coordinators_miss_what_joined(patch: Patch) -> None:
    """ML-22: kraftlite's own. Nobody coordinates the partitions that the broker came to lead meanwhile."""
    joined = "update = yield from self._apply_topics(update, update.topics)"
    told = "coordinator.replicas_applied(update.topics, update.image)"
    first = told.replace("update.topics", "began.topics")
    patch.edit(BrokerMetadataPublisher, "_apply", (joined, f"began = update; {joined}"), (told, first))


@mutant(
    "metadata-told-as-assignment",
    "DescribeGroups tells what a member of a classic group subscribes to for what it was assigned",
    expects=("GroupsDescribed",),
)
def metadata_told_as_assignment(patch: Patch) -> None:
    """CP-40: both are bytes of the clients' own, side by side in the answer."""
    patch.edit(Group, "describe", ('m.assignment if stable else b""', 'm.metadata(name) if stable else b""'))


@mutant(
    "all-told-in-the-groups-epoch",
    "each member of the consumer protocol is described in the epoch of its group",
    expects=("GroupsDescribed",),
)
def all_told_in_the_groups_epoch(patch: Patch) -> None:
    """KIP-848: an administrator does not see who holds a rebalance up."""
    patch.edit(ConsumerGroup, "describe", ("member_epoch=member.epoch", "member_epoch=self.epoch"))


@mutant(
    "changed-topics-unnoticed",
    "a group of the consumer protocol looks at its topics once an hour, and not when they change",
    expects=("TopicsNoticed",),
)
def changed_topics_unnoticed(patch: Patch) -> None:
    """KIP-848: nobody reads the partitions that a topic has got."""
    patch.edit(ConsumerGroups, "topics_changed", ("group.metadata_stale_at_ms = 0", "pass"))


@mutant(
    "unreleased-is-stable",
    "a member is stable before others have given up what it is to get",
    expects=("StableMembers",),
)
def unreleased_is_stable(patch: Patch) -> None:
    """KIP-848: nobody leads a stable member further, so that it never gets it."""
    change = ("MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE", "MemberState.STABLE")
    patch.edit(reconcile, "_advance", change)


@mutant(
    "leaving-changes-nothing",
    "a group whose member is gone stays in its epoch",
    expects=("LeaversNoticed",),
)
def leaving_changes_nothing(patch: Patch) -> None:
    """KIP-848: the partitions of who is gone are nobody's until something else changes the group."""
    patch.edit(ConsumerGroups, "drop", ("self.steps.bump_epoch(change)", "pass"))


@mutant(
    "range-leaves-the-rest",
    "the partitions that cannot be divided by the number of members are nobody's, by range",
    expects=("TopicsShared",),
)
def range_leaves_the_rest(patch: Patch) -> None:
    """KIP-848: what is written there is read by nobody, and no member knows."""
    patch.edit(assignors, "range_", ("quota + (position < extra)", "quota"))
    patch.set(assignors, "ASSIGNORS", {**assignors.ASSIGNORS, assignors.RANGE: assignors.range_}, also=(steps,))


@mutant(
    "uniform-leaves-the-rest",
    "the partitions that cannot be divided by the number of members are nobody's, when they are new",
    expects=("TopicsShared",),
)
def uniform_leaves_the_rest(patch: Patch) -> None:
    """KIP-848: what is written there is read by nobody, and no member knows."""
    patch.edit(assignors, "_share_equally", ("quota + (1 if extra else 0)", "quota"))
