"""Writes that are not replicated while their client waits: it is told so, and the state follows the log all the same (CP-37)."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode
from tests.harness.group_world import GroupWorld

NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
LATE = pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])


@LATE
def test_cp_37_a_commit_that_was_late_counts_when_it_is_replicated(error: ErrorCode) -> None:
    """Its record is in the log: what the next coordinator will find is what this one answers."""
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    late = w.commit({("t", 0): 2, ("t", 1): 2})
    w.be_late(error)
    assert w.answers[late] == (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2
    assert w.offset("t", 0) == (1, NONE)
    again = w.commit({("t", 0): 3})
    w.commit_held()
    assert w.answers[again] == (NONE,)
    for _ in range(2):
        assert w.offset("t", 0) == (3, NONE) and w.offset("t", 1) == (2, NONE)
        w.fail_over()


def test_cp_37_a_commit_that_was_late_and_is_lost_with_the_leader_counts_nowhere() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    w.commit({("t", 0): 2})
    w.be_late()
    w.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert w.offset("t", 0) == (1, NONE)


def test_cp_39_a_commit_that_is_late_does_not_expire() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.advance(30 * 60_000)
    w.hold = True
    w.commit({("t", 0): 2})
    w.be_late()
    w.advance(31 * 60_000)
    w.hold = False
    w.commit_held()
    for _ in range(2):
        assert w.offset("t", 0) == (2, NONE), "half an hour old"
        assert w.offset("t", 1) == (-1, NONE), "an hour old"
        w.fail_over()
    w.advance(30 * 60_000)
    assert "g" not in w.shard.groups.by_id


def test_cp_40_a_deleted_group_leaves_no_commit_that_was_late() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    w.commit({("t", 1): 1})
    w.be_late()
    deleted = w.delete_group()
    w.commit_held()
    assert w.answers[deleted] is NONE
    for _ in range(2):
        assert "g" not in w.shard.groups.by_id and w.offset("t", 1) == (-1, NONE)
        w.fail_over()


def test_cp_40_a_deletion_that_was_late_is_one_when_it_is_replicated() -> None:
    """Until then the group is neither there nor gone: a commit would come behind its tombstones."""
    w = GroupWorld()
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.commit({("t", 0): 1}, group_id="other")
    w.hold = True
    deleting, offset = w.delete_group(), w.delete_offsets(("t", 0), group_id="other")
    w.be_late()
    assert w.answers[deleting] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert w.answers[offset] == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    assert w.state() == "Dead" and w.error(w.commit({("t", 0): 2})) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    w.commit_held()
    for _ in range(2):
        assert "g" not in w.shard.groups.by_id and w.offset("t", 0, "other") == (-1, NONE)
        w.fail_over()


def test_cp_40_a_deletion_in_several_batches_is_told_once() -> None:
    w = GroupWorld()
    w.commit({("t", n): n for n in range(2_500)})
    w.hold = True
    late = w.delete_group()
    w.be_late()
    assert w.answers[late] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    w.commit_held()
    assert "g" not in w.shard.groups.by_id


def test_cp_31_an_assignment_that_is_late_ends_its_generation() -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(2)]
    w.advance(9_000)
    leader, follower = (w.answers[r].member_id for r in requests)
    w.hold = True
    syncs = [w.sync(follower, 1), w.sync(leader, 1, {leader: b"1"})]
    w.be_late()
    assert [w.error(r) for r in syncs] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert w.state() == "PreparingRebalance"
    w.commit_held()
    assert w.state() == "PreparingRebalance" and w.group().generation == 1, "it comes too late for anybody"


def test_cp_34_a_static_member_whose_return_is_late_keeps_its_place() -> None:
    w = GroupWorld()
    (old,) = w.stable(1, instance_id="i")
    w.hold = True
    back = w.join(instance_id="i")
    w.be_late()
    assert w.error(back) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert w.heartbeat(old, 1, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    w.commit_held()
    (now,) = w.group().members
    assert now != old and w.state() == "Stable"
    w.fail_over()
    assert list(w.group().members) == [now], "the log says so, too"
