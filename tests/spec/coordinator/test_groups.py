"""Joining, syncing, heartbeats and leaving, as members see them."""

from __future__ import annotations

import pytest

from kraftlite.coordinator.api import JoinResult, LeavingMember
from kraftlite.coordinator.core.placement import java_hash, partition_for
from kraftlite.model.errors import ErrorCode
from tests.harness.group_world import GroupWorld, subscription

NONE = ErrorCode.NONE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-1", 35782224),
        ("grüße", 98768023),
        ("😀", 1772899),
        ("Hello World", -862545276),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_cp_25_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_cp_25_partition_of_the_smallest_hash_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("a", 50) == 47
    assert partition_for("Hello World", 50) == 26


# --- join ----------------------------------------------------------------------------------------------------------------


def test_cp_26_who_may_not_join() -> None:
    w = GroupWorld()
    assert w.error(w.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.error(w.join(protocols={})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.error(w.join(protocol_type="")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    w.stable(2)
    assert w.error(w.join(protocols={"roundrobin": b""})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.error(w.join(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.error(w.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.state() == "Stable"


def test_cp_26_full_group() -> None:
    w = GroupWorld(max_size=2)
    ids = w.stable(2)
    refused = w.answers[w.join()]
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert w.state() == "Stable"
    w.join(ids[0])  # the leader wants a rebalance: there is room for who is there
    assert w.state() == "PreparingRebalance"
    third = w.join()
    fourth = w.join(ids[1])
    assert w.error(fourth) is ErrorCode.GROUP_MAX_SIZE_REACHED, "who comes last finds the seats taken"
    assert w.answers[third].error is NONE
    assert len(w.group().members) == 2


def test_cp_27_member_id_required_and_forgotten_after_a_session() -> None:
    w = GroupWorld(initial_rebalance_delay_ms=0)
    given = w.answers[w.join(require_id=True, session_ms=10_000)]
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("c-")
    w.advance(9_999)
    assert w.error(w.join(given.member_id, require_id=True)) is NONE
    late = w.answers[w.join(require_id=True)]
    w.advance(10_000)
    assert w.error(w.join(late.member_id, require_id=True)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_cp_27_a_promised_member_is_waited_for() -> None:
    w = GroupWorld()
    ids = w.stable(1)
    promised = w.answers[w.join(require_id=True, session_ms=10_000)]
    again = w.join(ids[0])
    assert again not in w.answers, "the promised member may still come"
    w.advance(10_000)
    assert w.answers[again].generation == 2
    assert promised.member_id not in w.group().members


def test_cp_28_first_rebalance_waits_and_is_extended_while_members_come() -> None:
    w = GroupWorld()  # 3000 ms
    first = w.join(rebalance_ms=7_000)
    w.advance(2_999)
    second = w.join(rebalance_ms=7_000)
    w.advance(1)
    assert first not in w.answers, "extended: somebody came"
    w.advance(2_999)
    third = w.join(rebalance_ms=7_000)
    w.advance(1)
    assert first not in w.answers, "extended by what is left of the rebalance timeout"
    w.advance(999)
    assert first not in w.answers
    w.advance(1)
    assert [w.answers[r].generation for r in (first, second, third)] == [1, 1, 1]
    assert w.now_ms == 7_000


def test_cp_28_first_rebalance_is_not_extended_without_newcomers() -> None:
    w = GroupWorld()
    first, second = w.join(), w.join()
    w.advance(3_000)
    assert first not in w.answers, "the second came within the first period"
    w.advance(3_000)
    assert {w.answers[first].generation, w.answers[second].generation} == {1}


def test_cp_28_without_a_delay_the_first_member_is_alone() -> None:
    w = GroupWorld(initial_rebalance_delay_ms=0)
    assert w.answers[w.join()].generation == 1


def test_cp_28_later_rebalances_end_when_all_are_back_or_time_is_up() -> None:
    w = GroupWorld()
    ids = w.stable(3, rebalance_ms=60_000, session_ms=100_000)
    joining = [w.join(ids[0], session_ms=100_000), w.join(ids[1], session_ms=100_000)]
    assert not any(request in w.answers for request in joining)
    last = w.join(ids[2], session_ms=100_000)
    assert [w.answers[r].generation for r in (*joining, last)] == [2, 2, 2]
    w.sync_all(ids)
    joining = [w.join(ids[0], session_ms=100_000, rebalance_ms=5_000), w.join(ids[1], session_ms=100_000, rebalance_ms=20_000)]
    w.advance(59_999)  # the longest timeout of all members counts
    assert not any(request in w.answers for request in joining)
    w.advance(1)
    assert [w.answers[r].generation for r in joining] == [3, 3]
    assert sorted(w.group().members) == sorted(ids[:2])
    assert w.heartbeat(ids[2], 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_cp_29_one_leader_who_alone_sees_the_members() -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(3)]
    w.advance(9_000)
    results: list[JoinResult] = [w.answers[r] for r in requests]
    assert {r.leader_id for r in results} == {results[0].member_id}
    assert [len(r.members) for r in results] == [3, 0, 0]
    assert [m.metadata for m in results[0].members] == [subscription("t")] * 3
    assert {r.generation for r in results} == {1}


def test_cp_29_protocol_by_vote_among_the_common_ones() -> None:
    w = GroupWorld()
    requests = [
        w.join(protocols={"sticky": b"1", "range": b"2", "rr": b"3"}),
        w.join(protocols={"rr": b"4", "range": b"5"}),
        w.join(protocols={"rr": b"6", "range": b"7"}),
    ]
    w.advance(12_000)
    results = [w.answers[r] for r in requests]
    assert {r.protocol_name for r in results} == {"rr"}, "sticky is not common; rr has two votes of three"
    assert [m.metadata for m in results[0].members] == [b"3", b"4", b"6"]
    assert results[0].protocol_type == "consumer"


# --- sync ----------------------------------------------------------------------------------------------------------------


def test_cp_30_followers_wait_for_the_leaders_assignment() -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(3)]
    w.advance(12_000)
    leader, second, third = (w.answers[r].member_id for r in requests)
    waiting = w.sync(second, 1)
    assert waiting not in w.answers
    assert w.error(w.sync(second, 7)) is ErrorCode.ILLEGAL_GENERATION
    assert w.error(w.sync("somebody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.error(w.sync(second, 1, protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.error(w.sync(second, 1, protocol_name="rr")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.error(w.sync(second, 1, group_id="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    leading = w.sync(leader, 1, {leader: b"L", second: b"S"}, protocol_type="consumer", protocol_name="range")
    assert (w.answers[leading].assignment, w.answers[waiting].assignment) == (b"L", b"S")
    assert w.answers[leading].protocol_name == "range"
    late = w.sync(third, 1)
    assert w.answers[late].assignment == b"", "the leader forgot it"
    again = w.sync(second, 1)
    assert w.answers[again].assignment == b"S", "a stable group gives the stored assignment again"


def test_cp_30_rebalance_in_progress() -> None:
    w = GroupWorld()
    ids = w.stable(2)
    w.join(ids[0])
    assert w.error(w.sync(ids[1], 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_cp_30_a_rebalance_ends_the_wait_for_the_assignment() -> None:
    w = GroupWorld()
    ids = w.stable(2)
    joins = [w.join(member) for member in ids]
    assert all(r in w.answers for r in joins)
    waiting = w.sync(ids[1], 2)
    w.join()
    assert w.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_cp_30_who_does_not_sync_in_time_is_dropped() -> None:
    w = GroupWorld()
    ids = w.stable(2, session_ms=100_000, rebalance_ms=30_000)
    for member in ids:
        w.join(member, session_ms=100_000, rebalance_ms=30_000)
    generation = w.group().generation
    leading = w.sync(ids[0], generation, {ids[0]: b"1", ids[1]: b"2"})
    assert w.error(leading) is NONE and w.state() == "Stable"
    w.advance(29_999)
    assert ids[1] in w.group().members
    w.advance(1)
    assert list(w.group().members) == [ids[0]]
    assert w.state() == "PreparingRebalance"


def test_cp_31_the_assignment_is_committed_before_it_is_answered() -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(2)]
    w.advance(9_000)
    leader, follower = (w.answers[r].member_id for r in requests)
    w.hold = True
    syncs = [w.sync(follower, 1), w.sync(leader, 1, {leader: b"1", follower: b"2"})]
    assert not any(r in w.answers for r in syncs)
    assert w.heartbeat(follower, 1) is NONE, "a group that completes is alive"
    w.commit_held()
    assert [w.answers[r].assignment for r in syncs] == [b"2", b"1"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_cp_31_what_members_are_told_when_it_cannot_be_stored(error: ErrorCode, told: ErrorCode) -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(2)]
    w.advance(9_000)
    leader, follower = (w.answers[r].member_id for r in requests)
    w.hold = True
    syncs = [w.sync(follower, 1), w.sync(leader, 1, {leader: b"1"})]
    w.fail_held(error)
    assert [w.error(r) for r in syncs] == [told, told]
    assert w.state() == "PreparingRebalance", "the next attempt is another generation"


def test_cp_31_a_successor_has_the_same_generation_and_assignment() -> None:
    w = GroupWorld()
    ids = w.stable(3)
    w.fail_over()
    assert w.state() == "Stable"
    assert [w.heartbeat(member, 1) for member in ids] == [NONE] * 3
    assert [w.answers[w.sync(member, 1)].assignment for member in ids] == [b"0", b"1", b"2"]
    assert w.group().leader_id == ids[0]


def test_cp_31_an_assignment_that_was_not_committed_is_lost() -> None:
    w = GroupWorld()
    ids = w.stable(2)
    for member in ids:
        w.join(member)
    w.hold = True
    waiting = w.sync(ids[0], 2, {ids[0]: b"x"})
    w.fail_over()
    assert w.error(waiting) is ErrorCode.NOT_COORDINATOR
    assert w.error(w.sync(ids[0], 2)) is ErrorCode.ILLEGAL_GENERATION
    assert w.group().generation == 1


# --- heartbeat -----------------------------------------------------------------------------------------------------------


def test_cp_32_heartbeats() -> None:
    w = GroupWorld()
    assert w.heartbeat("somebody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    ids = w.stable(2, session_ms=10_000)
    assert w.heartbeat(ids[1], 1) is NONE
    assert w.heartbeat(ids[1], 0) is ErrorCode.ILLEGAL_GENERATION
    assert w.heartbeat("somebody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    w.join(ids[0])
    assert w.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_cp_32_silence_removes_a_member_and_rebalances() -> None:
    w = GroupWorld()
    ids = w.stable(2, session_ms=10_000)
    w.advance(9_000)
    assert w.heartbeat(ids[0], 1) is NONE
    w.advance(999)
    assert w.state() == "Stable"
    w.advance(1)
    assert list(w.group().members) == [ids[0]]
    assert w.state() == "PreparingRebalance"
    assert w.answers[w.join(ids[0])].generation == 2


def test_cp_32_a_heartbeat_while_preparing_keeps_the_session() -> None:
    w = GroupWorld()
    ids = w.stable(2, session_ms=10_000)
    w.join(ids[0])
    for _ in range(3):
        w.advance(9_000)
        assert w.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert ids[1] in w.group().members


def test_cp_32_who_waits_for_an_answer_cannot_lose_the_session() -> None:
    w = GroupWorld()
    ids = w.stable(2, session_ms=10_000, rebalance_ms=60_000)
    waiting = w.join(ids[0])
    w.advance(9_999)
    assert w.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    w.advance(9_999)
    assert waiting not in w.answers
    w.join(ids[1])
    assert w.answers[waiting].generation == 2


def test_a_new_member_is_not_waited_for_for_ever() -> None:
    """Kafka's new member join timeout: its client may be gone, and it has never been seen alive."""
    w = GroupWorld()
    ids = w.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    newcomer = w.join(session_ms=10_000)
    w.advance(299_999)
    assert len(w.group().members) == 2
    w.advance(1)
    assert list(w.group().members) == ids
    assert w.error(newcomer) is ErrorCode.UNKNOWN_MEMBER_ID


# --- leave ---------------------------------------------------------------------------------------------------------------


def test_cp_33_leaving() -> None:
    w = GroupWorld()
    assert w.leave("somebody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    ids = w.stable(3)
    assert w.leave(ids[1], "somebody") == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert w.state() == "PreparingRebalance", "at once, not after a session"
    assert w.leave(ids[0], ids[2]) == [NONE, NONE]
    assert (w.state(), w.group().generation) == ("Empty", 2)
    assert w.heartbeat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_cp_33_a_leaving_member_lets_the_join_complete() -> None:
    w = GroupWorld()
    ids = w.stable(3)
    waiting = [w.join(ids[0]), w.join(ids[1])]
    assert w.leave(ids[2]) == [NONE]
    assert [w.answers[r].generation for r in waiting] == [2, 2]


def test_cp_33_static_members_leave_by_instance_id() -> None:
    w = GroupWorld()
    ids = w.stable(1, instance_id="one")
    assert w.leave(LeavingMember("", "two")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert w.leave(LeavingMember("stranger", "one")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert w.leave(LeavingMember("", "one")) == [NONE]
    assert w.state() == "Empty"
    assert ids[0] not in w.group().members


def test_cp_33_a_pending_member_leaves() -> None:
    w = GroupWorld()
    promised = w.answers[w.join(require_id=True)]
    assert w.leave(promised.member_id) == [NONE]
    assert w.error(w.join(promised.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ------------------------------------------------------------------------------------------------------


def static_pair(w: GroupWorld) -> list[str]:
    requests = [w.join(instance_id=name, require_id=True) for name in ("one", "two")]
    w.advance(9_000)
    ids = [w.answers[r].member_id for r in requests]
    w.sync_all(ids)
    return ids


def test_cp_34_a_static_member_comes_back_without_a_rebalance() -> None:
    w = GroupWorld()
    one, two = static_pair(w)
    back: JoinResult = w.answers[w.join(instance_id="two")]
    assert back.error is NONE and back.generation == 1 and back.leader_id == one and not back.skip_assignment
    assert back.member_id != two and back.member_id.startswith("two-")
    assert w.state() == "Stable"
    assert w.answers[w.sync(back.member_id, 1, instance_id="two")].assignment == b"1"
    assert w.heartbeat(two, 1, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert w.error(w.join(two, instance_id="two")) is ErrorCode.FENCED_INSTANCE_ID
    assert w.error(w.sync(two, 1, instance_id="two")) is ErrorCode.FENCED_INSTANCE_ID
    assert w.error(w.commit({("t", 0): 1}, member_id=two, generation=1, instance_id="two")) is ErrorCode.FENCED_INSTANCE_ID
    assert w.leave(LeavingMember(two, "two")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_cp_34_the_leader_comes_back_and_is_told_to_skip_the_assignment() -> None:
    w = GroupWorld()
    one, _ = static_pair(w)
    back: JoinResult = w.answers[w.join(instance_id="one", can_skip=True)]
    assert (back.leader_id, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    again: JoinResult = w.answers[w.join(instance_id="one", can_skip=False)]
    assert again.leader_id == back.member_id != again.member_id, "before v9: somebody else leads"
    assert (again.skip_assignment, again.members) == (False, ())
    assert w.group().is_leader(again.member_id)
    assert one not in w.group().members


def test_cp_34_new_ids_survive_the_coordinator() -> None:
    w = GroupWorld()
    static_pair(w)
    back = w.answers[w.join(instance_id="two")].member_id
    w.fail_over()
    assert w.group().static["two"] == back
    assert w.heartbeat(back, 1, instance_id="two") is NONE


def test_cp_34_a_replacement_that_cannot_be_stored_did_not_happen() -> None:
    w = GroupWorld()
    _, two = static_pair(w)
    w.hold = True
    refused = w.join(instance_id="two")
    assert refused not in w.answers
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert w.error(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    w.hold = False
    assert w.heartbeat(two, 1, instance_id="two") is NONE


def test_cp_34_another_choice_of_protocols_rebalances() -> None:
    w = GroupWorld()
    requests = [w.join(instance_id=name, protocols={"range": b"r", "rr": b"x"}) for name in ("one", "two")]
    w.advance(9_000)
    w.sync_all([w.answers[r].member_id for r in requests])
    assert w.group().protocol_name == "range"
    same = w.join(instance_id="one", protocols={"range": b"other metadata", "rr": b"x"})
    assert w.answers[same].error is NONE and w.state() == "Stable"
    w.join(instance_id="two", protocols={"rr": b"x"})
    assert w.state() == "PreparingRebalance"


def test_cp_34_static_members_are_kept_while_their_session_lasts() -> None:
    w = GroupWorld()
    one, two = static_pair(w)
    w.join(one, instance_id="one", rebalance_ms=5_000, session_ms=10_000)
    assert w.state() == "PreparingRebalance"
    w.advance(10_000)  # two is silent for a session: gone
    assert two not in w.group().members


def test_cp_34_a_static_member_that_came_back_and_died_is_not_kept_for_ever() -> None:
    """Its return takes longer to be written than its session lasts; from the answer on it has a new one."""
    w = GroupWorld()
    one, _ = static_pair(w)
    w.hold = True
    asked = w.join(instance_id="two")
    for _ in range(3):
        w.advance(5_000)
        w.heartbeat(one, 1, instance_id="one")
    assert asked not in w.answers
    w.commit_held()
    back: JoinResult = w.answers[asked]
    assert back.error is NONE and back.member_id in w.group().members
    w.advance(10_000)
    assert back.member_id not in w.group().members


def test_cp_34_unknown_instance() -> None:
    w = GroupWorld()
    static_pair(w)
    assert w.error(w.join("whoever", instance_id="three")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.heartbeat("whoever", 1, instance_id="three") is ErrorCode.UNKNOWN_MEMBER_ID


# --- rejoin --------------------------------------------------------------------------------------------------------------


def test_cp_35_rejoin_with_unchanged_metadata() -> None:
    w = GroupWorld()
    leader, follower = w.stable(2)
    answer: JoinResult = w.answers[w.join(follower)]
    assert (answer.generation, answer.leader_id, answer.members) == (1, leader, ())
    assert w.state() == "Stable"


def test_cp_35_changed_metadata_forces_a_rebalance() -> None:
    w = GroupWorld()
    _, follower = w.stable(2)
    assert w.join(follower, protocols={"range": subscription("t", "u")}) not in w.answers
    assert w.state() == "PreparingRebalance"


def test_cp_35_the_leader_forces_a_rebalance() -> None:
    w = GroupWorld()
    leader, _ = w.stable(2)
    assert w.join(leader) not in w.answers
    assert w.state() == "PreparingRebalance"


def test_cp_35_a_repeated_join_while_completing_gets_the_same_answer() -> None:
    w = GroupWorld()
    requests = [w.join(client_id=f"c{n}") for n in range(2)]
    w.advance(9_000)
    first = [w.answers[r] for r in requests]
    again = [w.answers[w.join(result.member_id)] for result in first]
    assert again == first
    w.join(first[1].member_id, protocols={"range": b"new"})
    assert w.state() == "PreparingRebalance"


def test_cp_41_state_names() -> None:
    w = GroupWorld()
    seen = []
    w.commit({("t", 0): 1})
    seen.append(w.state())
    request = w.join()
    seen.append(w.state())
    w.advance(6_000)
    seen.append(w.state())
    member = w.answers[request].member_id
    w.sync(member, 1, {member: b"a"})
    seen.append(w.state())
    w.leave(member)
    w.hold = True
    w.delete_group()
    seen.append(w.state())
    assert seen == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
