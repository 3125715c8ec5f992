"""Committing, fetching, forgetting."""

from __future__ import annotations

from itertools import chain

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.group_world import GroupWorld, subscription

NONE = ErrorCode.NONE
HOUR_MS = 3_600_000


# --- commit --------------------------------------------------------------------------------------------------------------


def test_kip_98_the_end_of_a_transaction_does_not_take_back_a_later_commit() -> None:
    """The last record counts, as in Kafka, and not the last transaction to end; the same after a change of coordinator."""
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=Producer(77, 0))
    w.commit({("t", 0): 6})
    assert w.offset("t", 0, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), "the transaction is open all the same"
    w.end_transaction(77, committed=True)
    assert w.offset("t", 0, stable=True) == (6, ErrorCode.NONE)
    w.commit({("t", 0): 7}, producer=Producer(77, 0))
    w.commit({("t", 0): 8}, producer=Producer(78, 0))
    w.end_transaction(78, committed=True)
    w.end_transaction(77, committed=True)
    assert w.offset("t", 0) == (8, ErrorCode.NONE)
    w.commit({("t", 0): 9}, producer=Producer(77, 0))
    w.commit({("t", 0): 10}, producer=Producer(78, 0))
    w.end_transaction(77, committed=True)
    assert w.offset("t", 0) == (9, ErrorCode.NONE)
    w.end_transaction(78, committed=True)
    assert w.offset("t", 0) == (10, ErrorCode.NONE)
    w.commit({("t", 0): 11})
    w.commit({("t", 0): 12}, producer=Producer(77, 0))
    w.end_transaction(77, committed=True)
    w.fail_over()
    assert w.offset("t", 0) == (12, ErrorCode.NONE)


def test_kip_98_a_tombstone_takes_the_pending_offsets_before_it() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5, ("t", 1): 5})
    w.commit({("t", 0): 6, ("t", 1): 6}, producer=Producer(77, 0))
    w.delete_offsets(("t", 0))
    assert w.offset("t", 0, stable=True) == (-1, ErrorCode.NONE)
    w.commit({("t", 2): 7}, producer=Producer(77, 0))
    w.end_transaction(77, committed=True)
    for _ in range(2):
        assert [w.offset("t", number)[0] for number in range(3)] == [-1, 6, 7]
        w.fail_over()


def test_cp_36_from_outside_of_a_group() -> None:
    w = GroupWorld()
    assert w.answers[w.commit({("t", 0): 5, ("t", 1): 6})] == (NONE, NONE)
    assert w.offset("t", 0) == (5, NONE)
    assert w.state() == "Empty"
    ids = w.stable(1)
    assert w.error(w.commit({("t", 0): 9})) is ErrorCode.UNKNOWN_MEMBER_ID, "the group has members now"
    assert w.offset("t", 0) == (5, NONE)
    w.leave(*ids)
    assert w.answers[w.commit({("t", 0): 9})] == (NONE,)


def test_cp_36_from_members() -> None:
    w = GroupWorld()
    assert w.error(w.commit({("t", 0): 1}, member_id="m", generation=1)) is ErrorCode.GROUP_ID_NOT_FOUND
    leader, follower = w.stable(2)
    assert w.answers[w.commit({("t", 0): 1}, member_id=follower, generation=1)] == (NONE,)
    assert w.error(w.commit({("t", 0): 2}, member_id=follower, generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert w.error(w.commit({("t", 0): 2}, member_id="somebody", generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    w.join(leader)
    assert w.answers[w.commit({("t", 0): 3}, member_id=follower, generation=1)] == (NONE,), "still allowed while preparing"
    w.join(follower)
    assert w.error(w.commit({("t", 0): 4}, member_id=follower, generation=2)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert w.offset("t", 0) == (3, NONE)


def test_cp_36_a_commit_keeps_the_session() -> None:
    w = GroupWorld()
    ids = w.stable(1, session_ms=10_000)
    for offset in range(3):
        w.advance(9_000)
        assert w.answers[w.commit({("t", 0): offset}, member_id=ids[0], generation=1)] == (NONE,)
    assert w.state() == "Stable"


def test_cp_36_metadata_too_large_is_one_partitions_error() -> None:
    w = GroupWorld(offset_metadata_max_bytes=4)
    assert w.answers[w.commit({("t", 0): 1}, metadata="éé")] == (NONE,)
    assert w.answers[w.commit({("t", 0): 2}, metadata="ééé")] == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert w.offset("t", 0) == (1, NONE)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_cp_37_a_commit_counts_once_it_is_replicated(error: ErrorCode, told: ErrorCode) -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    failing = w.commit({("t", 0): 2})
    assert failing not in w.answers and w.offset("t", 0) == (1, NONE)
    w.fail_held(error)
    assert w.answers[failing] == (told,) and w.offset("t", 0) == (1, NONE)
    good = w.commit({("t", 0): 3})
    w.commit_held()
    assert w.answers[good] == (NONE,) and w.offset("t", 0) == (3, NONE)


def test_cp_37_commits_survive_the_coordinator() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1, ("t", 1): 2}, metadata="here")
    w.commit({("t", 0): 7}, metadata="there")
    w.commit({("t", 0): 9}, group_id="other")
    w.fail_over()
    found = w.shard.fetch_offsets("g", None, require_stable=False)
    assert [(f.tp.partition, f.offset, f.leader_epoch, f.metadata) for f in found] == [(0, 7, 7, "there"), (1, 2, 7, "here")]
    assert w.offset("t", 0, "other") == (9, NONE)
    assert w.state("other") == "Empty"


# --- fetch ---------------------------------------------------------------------------------------------------------------


def test_cp_38_missing_is_no_error() -> None:
    w = GroupWorld()
    assert w.offset("t", 0) == (-1, NONE)
    assert w.shard.fetch_offsets("nobody", None, require_stable=False) == ()
    w.commit({("t", 0): 1})
    assert w.offset("t", 1) == (-1, NONE)


def test_cp_38_unstable_while_a_transaction_is_open() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.commit({("t", 0): 5}, producer=Producer(77, 0))
    assert w.offset("t", 0) == (1, NONE)
    assert w.offset("t", 0, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert w.offset("t", 1, stable=True) == (1, NONE)
    w.end_transaction(77, committed=True)
    assert w.offset("t", 0, stable=True) == (5, NONE)
    w.commit({("t", 0): 9}, producer=Producer(77, 0))
    w.end_transaction(77, committed=False)
    assert w.offset("t", 0, stable=True) == (5, NONE)


def test_cp_38_an_open_transaction_survives_the_coordinator() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=Producer(77, 0))
    w.fail_over()
    assert w.offset("t", 0, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    w.end_transaction(77, committed=True)
    assert w.offset("t", 0) == (5, NONE)


# --- expiry --------------------------------------------------------------------------------------------------------------


def test_cp_39_standalone_offsets_expire_after_their_commit() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1})
    w.advance(30 * 60_000)
    w.commit({("t", 1): 1})
    w.advance(31 * 60_000)
    assert w.offset("t", 0) == (-1, NONE) and w.offset("t", 1) == (1, NONE)
    w.advance(30 * 60_000)
    assert "g" not in w.shard.groups.by_id, "a group with nothing left is gone"
    w.fail_over()
    assert "g" not in w.shard.groups.by_id


def test_cp_39_a_groups_offsets_expire_after_it_became_empty() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    ids = w.stable(1, session_ms=1_000_000_000)
    w.commit({("t", 0): 1}, member_id=ids[0], generation=1)
    w.advance(5 * HOUR_MS)
    assert w.offset("t", 0) == (1, NONE), "it has members"
    w.leave(*ids)
    w.advance(HOUR_MS - 60_000)
    assert w.offset("t", 0) == (1, NONE)
    w.advance(2 * 60_000)
    assert w.offset("t", 0) == (-1, NONE)
    assert "g" not in w.shard.groups.by_id
    w.fail_over()
    assert "g" not in w.shard.groups.by_id, "tombstones for the group and its offsets"


def test_cp_39_topics_that_a_live_group_no_longer_subscribes_to() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    ids = w.stable(1, session_ms=1_000_000_000, protocols={"range": subscription("kept")})
    w.commit({("kept", 0): 1, ("old", 0): 1}, member_id=ids[0], generation=1)
    w.advance(HOUR_MS + 60_000)
    assert w.offset("kept", 0) == (1, NONE) and w.offset("old", 0) == (-1, NONE)


def test_cp_39_a_retention_of_its_own() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1}, retention_ms=10_000)
    w.commit({("t", 1): 1}, retention_ms=10 * HOUR_MS)
    w.fail_over()
    w.advance(60_000)
    assert w.offset("t", 0) == (-1, NONE)
    w.advance(2 * HOUR_MS)
    assert w.offset("t", 1) == (1, NONE)


def test_cp_39_deleting_a_topic_removes_its_offsets() -> None:
    w = GroupWorld()
    w.commit({("gone", 0): 1, ("gone", 1): 1, ("t", 0): 1})
    w.commit({("gone", 0): 1}, group_id="other")
    w.delete_topics("gone", "unrelated")
    w.fail_over()
    assert [w.offset("gone", 0)[0], w.offset("gone", 1)[0], w.offset("gone", 0, "other")[0], w.offset("t", 0)[0]] == [
        -1,
        -1,
        -1,
        1,
    ]


def test_cp_39_an_offset_that_is_being_committed_anew_does_not_expire() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.hold = True
    w.advance(HOUR_MS - 60_000)
    again = w.commit({("t", 0): 2})
    w.advance(2 * 60_000)
    w.hold = False
    w.commit_held()
    assert w.answers[again] == (NONE,) and w.offset("t", 1) == (-1, NONE)
    for _ in range(2):
        assert w.offset("t", 0) == (2, NONE), "a tombstone behind the commit would take it"
        w.fail_over()


def test_expiry_that_cannot_be_written_is_tried_again() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1})
    w.hold = True
    w.advance(HOUR_MS)
    assert w.state() == "Dead"
    assert w.error(w.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert w.error(w.commit({("t", 0): 2})) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert w.state() == "Empty" and w.offset("t", 0) == (1, NONE)
    w.hold = False
    w.advance(60_000)
    assert "g" not in w.shard.groups.by_id


# --- administration ------------------------------------------------------------------------------------------------------


def test_cp_40_describe_and_list() -> None:
    w = GroupWorld()
    ids = w.stable(2)
    w.commit({("t", 0): 1}, group_id="simple")
    described = w.shard.describe("g")
    assert described is not None
    assert (described.state, described.protocol_type, described.protocol_name) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in sorted(described.members, key=lambda m: ids.index(m.member_id))] == [
        (ids[0], subscription("t"), b"0"),
        (ids[1], subscription("t"), b"1"),
    ]
    assert described.members[0].client_host == "/127.0.0.1"
    w.join(ids[0])
    preparing = w.shard.describe("g")
    assert preparing is not None and preparing.protocol_name == "" and preparing.members[0].assignment == b""
    assert w.shard.describe("nobody") is None
    assert sorted(chain.from_iterable(w.shard.overviews())) == [
        ("g", "consumer", "PreparingRebalance", "classic"),
        ("simple", "", "Empty", "classic"),
    ]


def test_cp_40_delete_groups() -> None:
    w = GroupWorld()
    assert w.error(w.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND
    ids = w.stable(2)
    assert w.error(w.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    w.commit({("t", n): n for n in range(3)}, member_id=ids[0], generation=1)
    w.leave(*ids)
    w.hold = True
    deleting = w.delete_group()
    assert deleting not in w.answers
    w.commit_held()
    assert w.answers[deleting] is NONE
    assert w.offset("t", 1) == (-1, NONE)
    w.fail_over()
    assert w.shard.group_count == 0 and w.shard.offset_count == 0


def test_cp_40_a_group_that_could_not_be_deleted_lives_on() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    deleting = w.delete_group()
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert w.answers[deleting] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert w.state() == "Empty" and w.offset("t", 0) == (1, NONE)


def test_cp_40_many_offsets_are_deleted_in_bounded_batches() -> None:
    w = GroupWorld()
    w.commit({("t", n): n for n in range(2_500)})
    w.hold = True
    deleting = w.delete_group()
    assert [len(append.records) for append in w.held] == [1_000, 1_000, 500]
    w.commit_held()
    assert w.answers[deleting] is NONE and w.shard.offset_count == 0


def test_cp_40_offsets_of_a_group_with_a_long_id_are_deleted_in_batches_that_the_topic_takes() -> None:
    w = GroupWorld()
    group = "g" * 2_000
    for first in range(0, 1_000, 100):
        w.commit({("t", n): n for n in range(first, first + 100)}, group_id=group)
    w.hold = True
    deleting = w.delete_group(group)
    assert all(sum(len(record.key) for record in append.records) <= 256 << 10 for append in w.held)
    assert sum(len(append.records) for append in w.held) == 1_000
    w.commit_held()
    assert w.answers[deleting] is NONE and w.shard.offset_count == 0


@pytest.mark.parametrize("whole", [True, False], ids=["the group", "its offsets"])
def test_cp_40_offsets_whose_tombstones_are_written_are_gone_when_those_of_others_are_not(whole: bool) -> None:
    """What is remembered is what the log says, now as after a failover."""
    w = GroupWorld()
    names = [("t", n) for n in range(1_500)]
    w.commit(dict.fromkeys(names, 7))
    w.hold = True
    deleting = w.delete_group() if whole else w.delete_offsets(*names)
    second = w.held.pop()
    w.commit_held()
    w.held.append(second)
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    failed = w.answers[deleting]
    assert failed is ErrorCode.COORDINATOR_NOT_AVAILABLE or set(failed) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    for _ in range(2):
        assert (w.offset("t", 999), w.offset("t", 1_000), w.state()) == ((-1, NONE), (7, NONE), "Empty")
        w.fail_over()


def test_cp_40_delete_offsets() -> None:
    w = GroupWorld()
    assert w.error(w.delete_offsets(("t", 0))) is ErrorCode.GROUP_ID_NOT_FOUND
    ids = w.stable(1, protocols={"range": subscription("read")})
    w.commit({("read", 0): 1, ("old", 0): 1, ("old", 1): 1}, member_id=ids[0], generation=1)
    assert w.answers[w.delete_offsets(("read", 0), ("old", 0), ("old", 7))] == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        NONE,
        NONE,
    )
    w.fail_over()
    assert [w.offset("read", 0)[0], w.offset("old", 0)[0], w.offset("old", 1)[0]] == [1, -1, 1]


def test_cp_40_consumers_whose_subscriptions_are_not_known_may_read_any_topic() -> None:
    """Kafka answers it for each partition, and not for the group: metadata that cannot be read, or no protocol chosen yet."""
    w = GroupWorld()
    ids = w.stable(1, protocols={"range": b"\xff"})
    w.commit({("t", 0): 1}, member_id=ids[0], generation=1)
    refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert w.answers[w.delete_offsets(("t", 0), ("u", 0))] == (refused, refused)
    w.leave(*ids)
    assert w.answers[w.delete_offsets(("t", 0))] == (NONE,)


def test_cp_40_delete_offsets_of_other_protocols_only_when_empty() -> None:
    w = GroupWorld()
    ids = w.stable(1, protocol_type="connect", protocols={"v1": b"opaque"})
    w.commit({("t", 0): 1}, member_id=ids[0], generation=1)
    assert w.error(w.delete_offsets(("t", 0))) is ErrorCode.NON_EMPTY_GROUP
    w.leave(*ids)
    assert w.answers[w.delete_offsets(("t", 0))] == (NONE,)
    assert w.offset("t", 0) == (-1, NONE)


def test_a_record_that_cannot_be_read_is_not_passed_over() -> None:
    w = GroupWorld()
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        w.shard.replay(b"\x00\x01\x00\x05abc", b"", wall_ms=0)
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        w.shard.replay(None, b"", wall_ms=0)
    w.shard.replay(b"\x00\x63whatever a newer coordinator wrote", b"", wall_ms=0)
    assert TopicPartition("t", 0) not in [f.tp for f in w.shard.fetch_offsets("g", None, require_stable=False)]
