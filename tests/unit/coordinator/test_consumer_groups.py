"""Groups of the new protocol: joining, reconciling, leaving, being fenced, and living on with another coordinator.

Source: KIP-848; `GroupMetadataManager` of Kafka 4.
"""

from __future__ import annotations

import random

import pytest

from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.modern.member import MemberState
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.consumer_world import Client, ConsumerWorld, topic_id

T = topic_id("t")
REBALANCE_MS = 60_000
SESSION_MS = 45_000


def parts(*indexes: int) -> dict[object, frozenset[int]]:
    return {T: frozenset(indexes)}


# --- reconciliation ------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    assert a.epoch == 2, "1 is that of the group before anybody joined"
    assert a.names == ["t0", "t1", "t2", "t3"]
    assert w.consumers().state.value == "Stable"
    assert w.kinds() == [5, 3, 7, 6, 8], "member, group epoch, target of the member, target epoch, current assignment"


def test_a_second_member_waits_until_the_first_gave_up_its_share() -> None:
    """CG-01."""
    w = ConsumerWorld()
    a = w.enter("a")
    b = w.enter("b")
    assert (b.epoch, b.names) == (3, [])
    assert w.member("b").state is MemberState.UNRELEASED_PARTITIONS
    a.holds_on = True
    told = w.beat(a, owned=parts(0, 1, 2, 3))
    assert told.member_epoch == 2, "it stays in its epoch until it has given up what it must"
    assert told.assignment == ((T, (0, 1)),)
    assert w.member("a").state is MemberState.UNREVOKED_PARTITIONS
    assert w.beat(b).assignment is None
    assert w.beat(a, owned=None).member_epoch == 2, "who says nothing has given up nothing"
    told = w.beat(a, owned=parts(0, 1))
    assert (told.member_epoch, told.assignment) == (3, None)
    a.owned = dict(a.told)
    told = w.beat(b)
    assert told.assignment == ((T, (2, 3)),)
    assert w.consumers().state.value == "Stable"


def test_two_members_that_join_and_leave_share_what_there_is() -> None:
    w = ConsumerWorld({"t": 5})
    a, b = w.enter("a"), w.enter("b")
    w.settle()
    assert sorted(a.names + b.names) == [f"t{i}" for i in range(5)]
    assert {len(a.names), len(b.names)} == {2, 3}
    w.quit(a)
    w.settle()
    assert b.names == [f"t{i}" for i in range(5)]
    w.quit(b)
    assert w.consumers().state.value == "Empty"
    assert w.consumers().epoch == 5


def test_who_does_not_give_up_in_its_rebalance_timeout_is_fenced() -> None:
    """CG-03."""
    w = ConsumerWorld()
    a = w.enter("a", rebalance_ms=8_000)
    b = w.enter("b")
    a.holds_on = True
    w.beat(a, owned=parts(0, 1, 2, 3))
    w.advance(7_999)
    w.beat(a, owned=parts(0, 1, 2, 3))
    assert "a" in w.consumers().members
    del w.clients["a"]
    w.advance(1)
    assert "a" not in w.consumers().members
    assert w.refused("a", 2, owned=parts(0, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    w.settle(b)
    assert b.names == ["t0", "t1", "t2", "t3"]


def test_the_rebalance_timeout_ends_with_the_revocation() -> None:
    w = ConsumerWorld()
    a = w.enter("a", rebalance_ms=8_000)
    b = w.enter("b")
    w.settle()
    for _ in range(3):
        w.advance(7_000)
        w.settle()
    assert sorted(a.names + b.names) == ["t0", "t1", "t2", "t3"]


def test_who_is_silent_for_its_session_is_fenced() -> None:
    """CG-03."""
    w = ConsumerWorld()
    w.enter("a")
    b = w.enter("b")
    w.settle()
    w.advance(SESSION_MS - 1)
    w.beat(b)
    del w.clients["a"]
    w.advance(1)
    assert list(w.consumers().members) == ["b"]
    w.settle(b)
    assert b.names == ["t0", "t1", "t2", "t3"]


def test_a_group_sets_its_own_session_and_interval_within_limits() -> None:
    """CG-03."""
    w = ConsumerWorld(consumer_min_session_timeout_ms=10_000, consumer_min_heartbeat_interval_ms=1_000)
    w.configure("g", consumer_session_timeout_ms="20000", consumer_heartbeat_interval_ms="2000")
    a = w.enter("a")
    assert w.beat(a).heartbeat_interval_ms == 2_000
    w.configure("g", consumer_session_timeout_ms="1", consumer_heartbeat_interval_ms="999999")
    assert w.beat(a).heartbeat_interval_ms == 15_000
    w.advance(9_999)
    assert "a" in w.consumers().members
    del w.clients["a"]
    w.advance(1)
    assert "a" not in w.consumers().members


def test_unsubscribing_gives_up_the_topic_in_the_same_epoch() -> None:
    w = ConsumerWorld({"t": 2, "u": 2})
    a = w.enter("a", topics=("t", "u"))
    assert a.names == ["t0", "t1", "u0", "u1"]
    told = w.beat(a, topics=("u",))
    assert told.assignment == ((topic_id("u"), (0, 1)),)
    w.settle()
    assert a.names == ["u0", "u1"]
    assert not w.member("a").revoking


def test_random_walks_never_let_two_use_a_partition() -> None:
    """CG-01. Members join, leave, hold on to what they should give up, and say nothing; topics come, grow and go; coordinators
    die."""
    for seed in range(25):
        _walk(seed)


def _walk(seed: int) -> None:
    rng = random.Random(seed)
    w = ConsumerWorld({"t": 3, "u": 2}, consumer_max_size=6)
    names = ["t", "u", "v"]
    for number in range(60):
        live = list(w.clients.values())
        move = rng.choice(["join", "beat", "beat", "beat", "beat", "leave", "topics", "fail_over", "resubscribe", "time"])
        if move == "join" and len(live) < 5:
            w.enter(f"m{number}", topics=tuple(rng.sample(names, rng.randint(1, 3))), assignor=rng.choice([None, "range"]))
        elif move == "beat" and live:
            client = rng.choice(live)
            if client.holds_on and rng.random() < 0.5:
                client.holds_on = False
                client.owned = {topic: client.owned[topic] & client.told.get(topic, frozenset()) for topic in client.owned}
            said = {} if rng.random() < 0.8 else {"owned": None}
            w.beat(client, **said)
            client.holds_on = rng.random() < 0.2
        elif move == "leave" and live:
            w.quit(rng.choice(live))
        elif move == "topics":
            w.change_topics(**{rng.choice(names): rng.randint(1, 6)} if rng.random() < 0.8 else {"v": 0})
        elif move == "fail_over":
            w.fail_over()
        elif move == "resubscribe" and live:
            w.beat(rng.choice(live), topics=tuple(rng.sample(names, rng.randint(1, 3))))
        elif move == "time":
            w.advance(rng.randint(1, 2_000))
    w.advance(3_600_000 - w.now_ms % 3_600_000) if not w.clients else None
    for client in w.clients.values():
        client.holds_on, client.owned = False, dict(client.told)
    if w.clients:
        w.settle(rounds=30)
        taken = sorted(name for client in w.clients.values() for name in client.names)
        wanted = {topic for member in w.consumers().members.values() for topic in member.topics if topic in w.topics}
        assert taken == sorted(f"{topic}{i}" for topic in wanted for i in range(w.topics[topic])), f"seed {seed}"


def test_an_assignment_lasts_for_its_interval() -> None:
    """KIP-1263: members that come together are assigned together; who comes in between has nothing yet."""
    w = ConsumerWorld(consumer_assignment_interval_ms=1_000)
    a = w.enter("a")
    assert a.names == ["t0", "t1", "t2", "t3"], "the first need not wait"
    w.advance(500)
    b, c = w.enter("b"), w.enter("c")
    assert (b.epoch, b.names) == (c.epoch, c.names) == (2, [])
    assert (w.consumers().epoch, w.consumers().target_epoch) == (4, 2)
    assert w.consumers().state.value == "Assigning"
    w.advance(499)
    assert w.beat(b).member_epoch == 2
    w.fail_over()
    w.advance(1)
    assert w.beat(b).member_epoch == 4, "the next coordinator knows when the last one was made"
    w.settle()
    assert sorted(a.names + b.names + c.names) == ["t0", "t1", "t2", "t3"]
    w.configure("g", consumer_assignment_interval_ms="0")
    d = w.enter("d")
    assert d.epoch == 5


# --- topics --------------------------------------------------------------------------------------------------------------


def test_more_partitions_are_assigned_at_the_next_heartbeat() -> None:
    """CG-06."""
    w = ConsumerWorld({"t": 1})
    a = w.enter("a")
    assert w.beat(a).member_epoch == 2
    w.change_topics(t=3)
    assert w.beat(a).assignment == ((T, (0, 1, 2)),)
    assert a.epoch == 3


def test_a_topic_that_appears_and_goes_is_followed() -> None:
    """CG-06."""
    w = ConsumerWorld({"u": 1})
    a = w.enter("a", topics=("t",))
    assert (a.epoch, a.names) == (2, [])
    w.change_topics(t=2)
    w.settle()
    assert a.names == ["t0", "t1"]
    w.change_topics(t=0)
    w.settle()
    assert a.names == []


def test_other_topics_do_not_concern_a_group() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    w.change_topics(u=7)
    assert w.beat(a).member_epoch == 2


def test_topics_that_changed_while_nobody_coordinated_are_found() -> None:
    w = ConsumerWorld({"t": 1})
    a = w.enter("a")
    w.topics["t"] = 2
    w.fail_over()
    w.settle()
    assert a.names == ["t0", "t1"]


# --- fencing -------------------------------------------------------------------------------------------------------------


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    """CG-02."""
    w = ConsumerWorld()
    a = w.enter("a")
    assert w.refused("a", 3, owned=a.owned) is ErrorCode.FENCED_MEMBER_EPOCH
    b = w.enter("b")
    w.settle()
    assert a.epoch == 3
    assert w.member("a").previous_epoch == 2
    c = w.enter("c")
    w.beat(c)
    assert w.refused("c", 1, owned={}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert w.refused("nobody", 1, owned={}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.refused("a", 1, owned={}, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND
    w.quit(b)
    assert w.refused("b", 2, owned={}) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_answer_that_was_lost_may_be_asked_for_again_in_the_epoch_before() -> None:
    """CG-02."""
    w = ConsumerWorld({"t": 2})
    a = w.enter("a")
    w.enter("b")
    w.beat(a, owned=parts(0, 1))
    w.beat(a, owned=parts(0))  # the answer with epoch 3 is lost
    a.epoch = 2
    assert w.refused("a", 2, owned=parts(0, 1)) is ErrorCode.FENCED_MEMBER_EPOCH, "it has more than it may"
    assert w.refused("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH, "or does not say"
    assert w.beat(a, owned=parts(0)).member_epoch == 3


def test_a_fenced_member_rejoins_with_epoch_0() -> None:
    """CG-02."""
    w = ConsumerWorld()
    a = w.enter("a")
    b = w.enter("b")
    w.settle()
    del w.clients["a"]
    a = w.enter("a")
    assert a.epoch == 3
    assert sorted(a.names + b.names) == ["t0", "t1", "t2", "t3"]


def test_a_group_has_a_largest_size() -> None:
    """CG-09."""
    w = ConsumerWorld(consumer_max_size=2)
    a = w.enter("a")
    w.enter("b")
    assert w.refused("c", 0, rebalance_ms=1, owned={}, topics=("t",)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    w.beat(a)
    assert len(w.consumers().members) == 2


def test_a_member_may_be_given_its_id() -> None:
    """Version 0 of the request; from 1 on members bring one."""
    w = ConsumerWorld()
    result = w.result(w.ask_beat("", 0, rebalance_ms=1, owned={}, topics=("t",)))
    assert len(result.member_id) == 36
    assert list(w.consumers().members) == [result.member_id]


# --- static members ------------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance() -> None:
    """CG-05."""
    w = ConsumerWorld()
    a = w.enter("a", instance_id="one")
    b = w.enter("b", instance_id="two")
    w.settle()
    mine = a.names
    w.quit(a, for_a_while=True)
    assert w.member("a").epoch == -2
    w.beat(b)
    assert b.names != ["t0", "t1", "t2", "t3"]
    w.advance(10_000)
    w.beat(b)
    again = w.enter("a2", instance_id="one")
    assert again.names == mine
    assert again.epoch == w.consumers().epoch == 3
    assert "a" not in w.consumers().members
    assert w.refused("a", 3, instance_id="one", owned={}) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_partitions() -> None:
    """CG-05."""
    w = ConsumerWorld()
    a = w.enter("a", instance_id="one")
    b = w.enter("b")
    w.settle()
    w.quit(a, for_a_while=True)
    w.advance(SESSION_MS // 2)
    w.beat(b)
    w.advance(SESSION_MS // 2 + 1)
    w.settle(b)
    assert b.names == ["t0", "t1", "t2", "t3"]


def test_an_instance_id_that_is_in_use_is_not_released() -> None:
    """CG-05."""
    w = ConsumerWorld()
    w.enter("a", instance_id="one")
    said = {"instance_id": "one", "rebalance_ms": 1, "owned": {}, "topics": ("t",)}
    assert w.refused("b", 0, **said) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert w.refused("b", 1, instance_id="one", owned={}) is ErrorCode.FENCED_INSTANCE_ID
    assert w.refused("b", 1, instance_id="two", owned={}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.refused("b", -2, instance_id="two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good() -> None:
    w = ConsumerWorld()
    a = w.enter("a", instance_id="one")
    w.quit(a)
    assert w.consumers().state.value == "Empty"


# --- durability ----------------------------------------------------------------------------------------------------------


def test_nobody_is_told_what_is_not_committed() -> None:
    """CG-04."""
    w = ConsumerWorld()
    w.hold = True
    joining = w.ask_beat("a", 0, rebalance_ms=1_000, owned={}, topics=("t",))
    assert joining not in w.answers
    beating = w.ask_beat("a", 2, owned={})
    assert beating not in w.answers, "it changes nothing, but tells of what is not committed yet"
    w.commit_held()
    assert w.result(joining).member_epoch == w.result(beating).member_epoch == 2


def test_what_could_not_be_written_is_written_with_the_next_change() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    w.hold = True
    joining = w.ask_beat("b", 0, rebalance_ms=1_000, owned={}, topics=("t",))
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        w.result(joining)
    w.hold = False
    w.beat(a)
    w.check()
    assert sorted(w.consumers().members) == ["a", "b"]
    w.fail_over()
    w.clients["b"] = Client("b", epoch=3, joined={})
    w.settle()
    assert len(a.names) == len(w.clients["b"].names) == 2


def test_a_group_survives_its_coordinator() -> None:
    """CG-04."""
    w = ConsumerWorld()
    a = w.enter("a")
    b = w.enter("b")
    a.holds_on = True
    w.beat(a, owned=parts(0, 1, 2, 3))
    w.fail_over()
    w.check()
    assert w.member("a").state is MemberState.UNREVOKED_PARTITIONS
    assert w.beat(b).assignment is None, "what the first has to give up is still its own"
    a.owned = dict(a.told)
    a.holds_on = False
    w.settle()
    assert sorted(a.names + b.names) == ["t0", "t1", "t2", "t3"]
    assert a.epoch == b.epoch == 3
    w.fail_over()
    w.advance(SESSION_MS - 1)
    assert len(w.consumers().members) == 2, "everybody has a full session to find the new coordinator"


def test_a_revocation_under_way_is_timed_by_the_next_coordinator_too() -> None:
    """CG-04."""
    w = ConsumerWorld()
    a = w.enter("a", rebalance_ms=8_000)
    w.enter("b")
    a.holds_on = True
    w.beat(a, owned=parts(0, 1, 2, 3))
    w.fail_over()
    w.advance(7_999)
    assert "a" in w.consumers().members
    del w.clients["a"]
    w.advance(1)
    assert "a" not in w.consumers().members


def test_a_member_in_a_state_of_newer_software_begins_anew() -> None:
    from kraftlite.coordinator.modern.records import CurrentKey, CurrentValue, record_of

    w = ConsumerWorld()
    a = w.enter("a")
    record = record_of(CurrentKey("g", "a"), CurrentValue(2, 2, MemberState(127), a.owned, {}))
    assert record.value is not None
    w.log.append((record.key, record.value.replace(b"\x7f", b"\x42", 1), None))
    w.fail_over()
    assert w.member("a").state is MemberState.UNKNOWN
    assert w.refused("a", 2, owned=parts(0)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert w.refused("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert w.beat(a, owned={}).member_epoch == 2
    assert w.member("a").state is MemberState.STABLE


# --- offsets, deletion ---------------------------------------------------------------------------------------------------


def test_members_commit_and_fetch_in_their_epoch() -> None:
    """CG-07."""
    w = ConsumerWorld()
    a = w.enter("a")
    at = {("t", 0): 7}
    assert w.error(w.commit(at, member_id="a", generation=3)) is ErrorCode.STALE_MEMBER_EPOCH
    assert w.error(w.commit(at, member_id="x", generation=2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.error(w.commit(at)) is ErrorCode.UNKNOWN_MEMBER_ID, "from outside, while there are members"
    assert w.answers[w.commit(at, member_id="a", generation=a.epoch)] == (ErrorCode.NONE,)
    fetch = w.shard.fetch_offsets
    assert fetch("g", None, require_stable=False)[0].offset == 7
    assert fetch("g", None, require_stable=False, member_id="a", member_epoch=2)[0].offset == 7
    with pytest.raises(ApiError, match="STALE_MEMBER_EPOCH"):
        fetch("g", None, require_stable=False, member_id="a", member_epoch=0)
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        fetch("g", None, require_stable=False, member_id="x", member_epoch=1)
    w.quit(a)
    assert w.answers[w.commit({("t", 0): 9})] == (ErrorCode.NONE,)
    w.fail_over()
    assert w.offset("t", 0) == (9, ErrorCode.NONE)
    assert "g" not in w.shard.groups.by_id, "the offsets are the group's, not those of a classic one of its name"


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    w.commit({("t", 0): 7}, member_id="a", generation=2)
    assert w.error(w.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    assert w.answers[w.delete_offsets(("t", 0))] == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)
    w.quit(a)
    assert w.answers[w.delete_group()] is ErrorCode.NONE
    assert "g" not in w.shard.consumers.by_id
    w.fail_over()
    assert w.shard.group_count == 0
    assert w.offset("t", 0) == (-1, ErrorCode.NONE)


def test_offsets_expire_unless_somebody_reads_the_topic() -> None:
    w = ConsumerWorld({"t": 1, "u": 1}, offsets_retention_ms=100_000, retention_check_interval_ms=1_000)
    a = w.enter("a", topics=("t", "u"))
    w.commit({("t", 0): 1, ("u", 0): 2}, member_id="a", generation=2)
    w.beat(a, topics=("t",))
    w.settle()
    for _ in range(6):
        w.advance(20_000)
        w.beat(a)
    assert w.offset("t", 0)[0] == 1
    assert w.offset("u", 0)[0] == -1
    w.quit(a)
    w.advance(101_000)
    assert w.shard.group_count == 0
    w.fail_over()
    assert w.shard.group_count == 0


def test_views() -> None:
    w = ConsumerWorld()
    w.enter("a", instance_id="one", rack_id="r1", assignor="range")
    described = w.shard.describe_consumers("g")
    (member,) = described.members
    assert (described.state, described.epoch, described.assignment_epoch, described.assignor) == ("Stable", 2, 2, "range")
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "one", "r1", 2)
    assert member.assignment == member.target
    assert [(one.topic, one.partitions) for one in member.assignment] == [("t", (0, 1, 2, 3))]
    assert w.shard.describe("g") is None, "it is no classic group"
    assert [[tuple(one) for one in some] for some in w.shard.overviews()] == [[("g", "consumer", "Stable", "consumer")]]
    with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND"):
        w.shard.describe_consumers("other")


# --- configuration -------------------------------------------------------------------------------------------------------


def test_defaults_and_limits() -> None:
    config = GroupConfig.from_values({})
    assert config.consumer_assignors == ("uniform", "range")
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (45_000, 5_000)
    assert config.allows_upgrade
    assert config.allows_downgrade
    named = GroupConfig.from_values({"group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor"})
    assert named.consumer_assignors == ("range",)
    assert not GroupConfig.from_values({"group.consumer.migration.policy": "UPGRADE"}).allows_downgrade
    with pytest.raises(ValueError, match=r"group\.consumer\.session\.timeout\.ms=10000: allowed is 45000 to 60000"):
        GroupConfig.from_values({"group.consumer.session.timeout.ms": "10000"})
    with pytest.raises(ValueError, match="best"):
        GroupConfig.from_values({"group.consumer.assignors": "best"})


def test_the_first_assignor_is_the_default_one() -> None:
    """CG-09."""
    w = ConsumerWorld(consumer_assignors=("range",))
    w.enter("a")
    assert w.shard.describe_consumers("g").assignor == "range"


def test_transactional_offsets_know_no_stale_epoch() -> None:
    w = ConsumerWorld()
    w.enter("a")
    producer = Producer(9, 0)
    at = {("t", 0): 7}
    assert w.error(w.commit(at, member_id="a", generation=0, producer=producer)) is ErrorCode.ILLEGAL_GENERATION
    assert w.answers[w.commit(at, member_id="a", generation=2, producer=producer)] == (ErrorCode.NONE,)
    assert w.answers[w.commit(at, producer=producer)] == (ErrorCode.NONE,), "the producer need not say who it is"
    assert w.offset("t", 0, stable=True)[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    w.end_transaction(9, committed=True)
    assert w.offset("t", 0) == (7, ErrorCode.NONE)
