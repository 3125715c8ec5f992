"""Classic groups that become groups of the new protocol and back, with members of both inside.

Source: KIP-848, "Consumer Groups Migration"; `GroupMetadataManager` of Kafka 4.
"""

from __future__ import annotations

import pytest

from kraftlite.coordinator.api import JoinResult, LeavingMember, SyncResult
from kraftlite.coordinator.consumer_protocol import build_assignment
from kraftlite.coordinator.modern.records import decode_key
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.trace.group import GroupTypeChanged
from tests.harness.consumer_world import ConsumerWorld, assigned_partitions, classic_metadata, classic_protocols, topic_id

T = topic_id("t")


def classic_join(w: ConsumerWorld, member_id: str = "", owned: tuple[int, ...] = (), **said: object) -> JoinResult:
    protocols = classic_protocols("t", owned=[("t", owned)] if owned else [])
    request = w.join(member_id, protocols=protocols, **said)  # type: ignore[arg-type]
    w.advance(w.config.initial_rebalance_delay_ms)
    answer = w.answers[request]
    assert isinstance(answer, JoinResult)
    return answer


def classic_sync(w: ConsumerWorld, member_id: str, generation: int, **said: object) -> tuple[int, ...] | ErrorCode:
    """What the member gets of `t`, or why not."""
    answer = w.answers[w.sync(member_id, generation, **said)]  # type: ignore[arg-type]
    if isinstance(answer, ApiError):
        return answer.code
    assert isinstance(answer, SyncResult)
    return answer.error if answer.error is not ErrorCode.NONE else assigned_partitions(answer.assignment).get("t", ())


def classic_group(w: ConsumerWorld, *shares: tuple[int, ...], **said: object) -> list[str]:
    """A stable classic group of as many members, each with its partitions of `t`."""
    requests = [
        w.join(client_id=f"c{number}", protocols=classic_protocols("t"), **said)  # type: ignore[arg-type]
        for number in range(len(shares))
    ]
    w.advance(w.config.initial_rebalance_delay_ms * (len(shares) + 1))
    ids = [w.answers[request].member_id for request in requests]
    assignments = {member: build_assignment(1, [("t", share)]) for member, share in zip(ids, shares, strict=True)}
    leader = w.answers[requests[0]].leader_id
    for member in ids:
        w.sync(member, 1, assignments if member == leader else None)
    assert w.state() == "Stable"
    return ids


# --- upgrade -------------------------------------------------------------------------------------------------------------


def test_a_new_member_upgrades_the_group_and_the_others_keep_what_they_have() -> None:
    """CG-08."""
    w = ConsumerWorld()
    (x,) = classic_group(w, (0, 1, 2, 3))
    w.commit({("t", 0): 5}, member_id=x, generation=1)
    a = w.enter("a")
    assert (a.epoch, a.names) == (2, [])
    group = w.consumers()
    assert group.members[x].assigned == {T: frozenset({0, 1, 2, 3})}
    assert (group.members[x].epoch, group.epoch) == (1, 2)
    assert "g" not in w.shard.groups.by_id
    assert w.offset("t", 0)[0] == 5
    assert w.heartbeat(x, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic_join(w, x, (0, 1, 2, 3))
    assert (joined.error, joined.generation, joined.leader_id, joined.members) == (ErrorCode.NONE, 1, "", ())
    share = classic_sync(w, x, 1)
    assert share == tuple(sorted(group.target[x][T]))
    assert len(share) == 2
    assert w.heartbeat(x, 1) is ErrorCode.REBALANCE_IN_PROGRESS, "it has to say that it gave the others up"
    assert w.beat(a).assignment is None
    joined = classic_join(w, x, share)
    assert joined.generation == 2
    assert classic_sync(w, x, 2) == share
    w.settle()
    assert len(a.names) == 2
    assert w.heartbeat(x, 2) is ErrorCode.NONE
    assert group.state.value == "Stable"
    w.check()


def test_an_upgraded_group_survives_its_coordinator() -> None:
    w = ConsumerWorld()
    (x,) = classic_group(w, (0, 1, 2, 3), session_ms=20_000)
    w.enter("a")
    w.fail_over()
    w.check()
    assert w.heartbeat(x, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert w.consumers().members[x].classic is not None
    w.advance(20_000)
    assert list(w.consumers().members) == ["a"], "a classic member has the session that it asked for"


def test_who_waits_in_the_classic_group_is_told_to_come_again() -> None:
    w = ConsumerWorld()
    ids = classic_group(w, (0, 1), (2, 3))
    joining = w.join(ids[0], protocols=classic_protocols("t", "u"))
    assert joining not in w.answers
    w.enter("a")
    assert w.answers[joining].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_classic_group_is_replaced_and_its_offsets_stay() -> None:
    w = ConsumerWorld()
    w.commit({("t", 0): 5})
    a = w.enter("a")
    assert a.epoch == 2
    w.fail_over()
    assert w.offset("t", 0)[0] == 5
    assert w.shard.group_count == 1


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_it(policy: str) -> None:
    """CG-08."""
    w = ConsumerWorld(consumer_migration_policy=policy)
    classic_group(w, (0, 1, 2, 3))
    said = {"rebalance_ms": 1_000, "owned": {}, "topics": ("t",)}
    assert w.refused("a", 0, **said) is ErrorCode.GROUP_ID_NOT_FOUND
    assert w.state() == "Stable"
    assert w.refused("a", 1, owned={}) is ErrorCode.GROUP_ID_NOT_FOUND


def test_other_protocols_and_other_assignors_stay_classic() -> None:
    said = {"rebalance_ms": 1_000, "owned": {}, "topics": ("t",)}
    w = ConsumerWorld()
    w.stable(1, protocol_type="connect")
    assert w.refused("a", 0, **said) is ErrorCode.GROUP_ID_NOT_FOUND
    w = ConsumerWorld()
    (x,) = classic_group(w, (0,))
    w.group().members[x].assignment = build_assignment(1, [("t", (0,))])[:-4] + b"\x00\x00\x00\x01!"
    assert w.refused("a", 0, **said) is ErrorCode.GROUP_ID_NOT_FOUND
    w.group().members[x].assignment = b"\x00\x01\x7f"
    assert w.refused("a", 0, **said) is ErrorCode.GROUP_ID_NOT_FOUND
    assert w.state() == "Stable"


# --- classic members -----------------------------------------------------------------------------------------------------


def mixed(w: ConsumerWorld) -> tuple[object, str, int]:
    """A group of the new protocol with one member of each: the client, the classic member's id and its epoch."""
    a = w.enter("a")
    first = classic_join(w, require_id=True)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    joined = classic_join(w, first.member_id)
    w.settle()
    assert classic_sync(w, joined.member_id, joined.generation) in ((), (2, 3))
    if w.heartbeat(joined.member_id, joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS:
        joined = classic_join(w, joined.member_id)
        assert classic_sync(w, joined.member_id, joined.generation) == (2, 3)
    assert w.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
    return a, joined.member_id, joined.generation


def test_a_classic_member_joins_a_group_of_the_new_protocol() -> None:
    w = ConsumerWorld()
    a, x, epoch = mixed(w)
    described = w.shard.describe_consumers("g")
    assert [member.classic for member in described.members] == [False, True]
    assert w.error(w.commit({("t", 2): 1}, member_id=x, generation=epoch + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert w.answers[w.commit({("t", 2): 1}, member_id=x, generation=epoch)] == (ErrorCode.NONE,)
    assert w.heartbeat(x, epoch + 1) is ErrorCode.ILLEGAL_GENERATION
    assert w.heartbeat("a", 3) is ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak the classic protocol"
    assert classic_sync(w, x, epoch, protocol_name="other") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a is w.clients["a"]


def test_protocols_must_be_common_to_the_classic_members() -> None:
    w = ConsumerWorld()
    mixed(w)
    odd = w.join(protocols={"odd": classic_metadata("t")})
    assert w.answers[odd].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = w.join(protocol_type="connect", protocols=classic_protocols("t"))
    assert w.answers[other].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = w.join("nobody", protocol_type="connect", protocols=classic_protocols("t"))
    assert w.answers[stranger] == JoinResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=""), (
        "its id is not said again"
    )
    fine = w.join(protocols={"range": classic_metadata("t")})
    assert w.answers[fine].error is ErrorCode.NONE


def test_a_classic_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    w = ConsumerWorld()
    _, x, epoch = mixed(w)
    w.enter("b")
    for _ in range(6):
        assert w.heartbeat(x, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
        w.advance(9_000)
        w.settle()
    w.advance(6_000)
    assert x not in w.consumers().members, "60 s after it was first told, it has not come"
    w.check()


def test_a_classic_member_that_does_not_sync_in_time_is_dropped() -> None:
    w = ConsumerWorld()
    w.enter("a")
    joined = classic_join(w, rebalance_ms=7_000, session_ms=30_000)
    w.advance(3_000)
    assert joined.member_id in w.consumers().members
    w.advance(1_000)
    assert joined.member_id not in w.consumers().members


# --- downgrade -----------------------------------------------------------------------------------------------------------


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves() -> None:
    """CG-08."""
    w = ConsumerWorld()
    a, x, epoch = mixed(w)
    w.commit({("t", 0): 5}, member_id="a", generation=a.epoch)  # type: ignore[attr-defined]
    w.quit(a)  # type: ignore[arg-type]
    assert "g" not in w.shard.consumers.by_id
    assert (w.state(), w.group().generation) == ("PreparingRebalance", epoch)
    assert w.heartbeat(x, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic_join(w, x)
    assert (joined.leader_id, joined.generation) == (x, epoch + 1)
    w.sync(x, joined.generation, {x: build_assignment(1, [("t", (0, 1, 2, 3))])})
    assert w.state() == "Stable"
    w.fail_over()
    assert (w.state(), list(w.group().members)) == ("Stable", [x])
    assert w.shard.group_count == 1
    assert w.offset("t", 0)[0] == 5


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_is_fenced() -> None:
    w = ConsumerWorld()
    _, x, epoch = mixed(w)
    w.clients.clear()
    for _ in range(5):
        w.advance(9_000)
        w.heartbeat(x, epoch)
    w.advance(1_000)
    assert w.state() == "PreparingRebalance"


def test_a_coordinator_that_takes_over_after_a_downgrade_shares_what_the_member_that_is_gone_had() -> None:
    """CG-08: the rebalance that the downgrade began is not stored; the next coordinator must begin it, too."""
    w = ConsumerWorld()
    a, x, epoch = mixed(w)
    w.quit(a)  # type: ignore[arg-type]
    w.fail_over()
    answers = []
    for _ in range(12):
        w.advance(5_000)
        answers.append(w.heartbeat(x, epoch))
    assert ErrorCode.REBALANCE_IN_PROGRESS in answers
    assert list(w.group().members) == [x]


def test_a_downgrade_that_cannot_be_written_has_not_been() -> None:
    w = ConsumerWorld()
    a, x, epoch = mixed(w)
    w.hold = True
    leaving = w.ask_beat("a", -1)
    assert w.heartbeat(x, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        w.result(leaving)
    w.hold = False
    assert sorted(w.consumers().members) == sorted(["a", x])
    types = [it.type for it in w.tracer.events if isinstance(it, GroupTypeChanged)]
    assert types[-2:] == ["classic", "consumer"], "told that it is what it was"
    assert w.heartbeat(x, epoch) is ErrorCode.NONE
    w.settle(a)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_may_forbid_that_too(policy: str) -> None:
    """CG-08."""
    w = ConsumerWorld(consumer_migration_policy=policy)
    a, x, epoch = mixed(w)
    w.quit(a)  # type: ignore[arg-type]
    assert list(w.consumers().members) == [x]
    assert w.heartbeat(x, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic_join(w, x, (2, 3))
    assert classic_sync(w, x, joined.generation) == (0, 1, 2, 3)


def test_classic_members_leave_by_either_id() -> None:
    w = ConsumerWorld()
    _, x, _ = mixed(w)
    joined = classic_join(w, instance_id="one")
    results = w.leave(x, LeavingMember("", "one"), LeavingMember("y", None), LeavingMember("", "two"))
    assert results == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert joined.member_id not in w.consumers().members
    assert list(w.consumers().members) == ["a"]


def test_a_static_member_changes_its_protocol_in_place() -> None:
    w = ConsumerWorld()
    a = w.enter("a", instance_id="one")
    w.clients.clear()
    joined = classic_join(w, instance_id="one")
    assert joined.error is ErrorCode.NONE
    assert w.state() == "Stable", "it was the only one: the group is classic, with what everybody had"
    assert classic_sync(w, joined.member_id, joined.generation, instance_id="one") == (0, 1, 2, 3)
    b = w.enter("b", instance_id="one")
    assert b.names == ["t0", "t1", "t2", "t3"]
    assert list(w.consumers().members) == ["b"]
    assert a.names == b.names


def test_a_classic_member_joins_where_nobody_is() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    w.commit({("t", 0): 5}, member_id="a", generation=2)
    w.quit(a)
    joined = classic_join(w)
    assert joined.error is ErrorCode.NONE
    assert joined.leader_id == joined.member_id
    w.sync(joined.member_id, joined.generation, {joined.member_id: b""})
    w.fail_over()
    assert w.state() == "Stable"
    assert w.shard.group_count == 1
    assert w.offset("t", 0)[0] == 5


def test_a_group_is_what_was_written_last_even_if_what_it_was_could_not_be_deleted() -> None:
    w = ConsumerWorld()
    w.quit(w.enter("a"))
    w.hold = True
    joining = w.join(protocols=classic_protocols("t"))
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    w.advance(w.config.initial_rebalance_delay_ms)
    joined = w.answers[joining]
    w.sync(joined.member_id, joined.generation, {joined.member_id: b""})
    w.fail_over()
    assert w.state() == "Stable"
    assert w.shard.group_count == 1


def left_in_the_log(w: ConsumerWorld) -> list[str]:
    """The records of the new protocol that the log has when it is compacted."""
    newest = {key: value for key, value, _ in w.log}
    return [str(modern) for key, value in newest.items() if value is not None and (modern := decode_key(key)) is not None]


def leave_unwritten(w: ConsumerWorld, member_id: str) -> None:
    """A member leaves, and the log takes none of it."""
    w.hold = True
    w.ask_beat(member_id, -1)
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    del w.clients[member_id]


def test_who_could_not_be_deleted_is_so_when_the_group_becomes_classic() -> None:
    """CG-08."""
    w = ConsumerWorld()
    a, x, _ = mixed(w)
    w.enter("b")
    leave_unwritten(w, "b")
    w.quit(a)  # type: ignore[arg-type]
    assert list(w.group().members) == [x]
    assert left_in_the_log(w) == []


def test_who_could_not_be_deleted_is_so_with_the_group() -> None:
    w = ConsumerWorld()
    w.enter("a")
    leave_unwritten(w, "a")
    w.delete_group()
    assert left_in_the_log(w) == []


def test_who_could_not_be_deleted_is_so_when_a_classic_member_joins_or_later() -> None:
    w = ConsumerWorld()
    w.enter("a")
    leave_unwritten(w, "a")
    w.hold = True
    joining = w.join(protocols=classic_protocols("t"))
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    assert left_in_the_log(w)
    w.advance(w.config.initial_rebalance_delay_ms)
    joined = w.answers[joining]
    w.sync(joined.member_id, joined.generation, {joined.member_id: b""})
    w.leave(joined.member_id)
    w.enter("b")
    assert left_in_the_log(w) and not [it for it in left_in_the_log(w) if "'a'" in it]


def test_the_classic_group_that_could_not_be_deleted_is_so_with_the_group() -> None:
    w = ConsumerWorld()
    joining = w.join(protocols=classic_protocols("t"))
    w.advance(w.config.initial_rebalance_delay_ms)
    joined = w.answers[joining]
    w.sync(joined.member_id, joined.generation, {joined.member_id: b""})
    w.leave(joined.member_id)
    w.hold = True
    w.ask_beat("a", 0, topics=("t",), rebalance_ms=1_000, owned={})
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.ask_beat("a", -1)
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    w.delete_group()
    w.fail_over()
    assert w.shard.group_count == 0
