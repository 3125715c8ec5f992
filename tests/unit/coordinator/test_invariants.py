"""Each invariant of a shard of groups: broken, and seen."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.coordinator.classic.group import Group, GroupState
from kraftlite.coordinator.classic.rebalance import Timer
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.member import MemberState
from tests.harness.consumer_world import ConsumerWorld, topic_id
from tests.harness.group_world import GroupWorld

T = topic_id("t")


def stable() -> tuple[GroupWorld, Group, list[str]]:
    """Two members, one of them static."""
    world = GroupWorld()
    ids = world.stable(2)
    world.shard.check(assignments=True)
    return world, world.group(), ids


def put(name: str, value: Any) -> Callable[[GroupWorld, Group], object]:
    return lambda world, group: setattr(group, name, value)


def _first(group: Group) -> Any:
    return next(iter(group.members.values()))


CLASSIC: dict[str, tuple[Callable[[GroupWorld, Group], object], str]] = {
    "a leader that is no member": (put("leader_id", "x"), r"the leader is x, the members are"),
    "no members and a leader": (put("members", {}), r"the leader is .*, the members are \[\]"),
    "an instance of nobody": (put("static", {"i": "x"}), r"instances \{'i': 'x'\}, the members say \{\}"),
    "stable without members": (
        lambda w, g: (put("members", {})(w, g), put("leader_id", None)(w, g)),
        r"Stable, with the members \[\]",
    ),
    "empty with members": (put("state", GroupState.EMPTY), r"Empty, with the members"),
    "a member is expected": (lambda w, g: g.pending.update({_first(g).member_id: None}), r"members among those who are to join"),
    "a stranger is to sync": (put("unsynced", {"x": None}), r"no members are \['x'\], who are to ask"),
    "waits for a stored assignment": (lambda w, g: setattr(_first(g), "waiting_sync", 9), r"wait for an assignment"),
    "another name": (
        lambda w, g: operator.setitem(w.shard.groups.by_id, "other", w.shard.groups.by_id.pop("g")),
        r"group g is known as other",
    ),
    "prepares for ever": (put("state", GroupState.PREPARING_REBALANCE), r"prepares a rebalance without a deadline"),
    "waits for ever": (lambda w, g: put("unsynced", {_first(g).member_id: None})(w, g), r"waits for .* for ever"),
    "lives for ever": (
        lambda w, g: w.shard.groups.deadlines.cancel((Timer.SESSION, "g", _first(g).member_id)),
        r"has no session that could expire",
    ),
    "both protocols": (
        lambda w, g: operator.setitem(w.shard.consumers.by_id, "g", ConsumerGroup.new("g")),
        "group g is of both protocols",
    ),
}


@pytest.mark.parametrize("what", CLASSIC)
def test_a_broken_classic_group_is_seen(what: str) -> None:
    world, group, _ = stable()
    change, told = CLASSIC[what]
    change(world, group)
    with pytest.raises(AssertionError, match=told):
        world.shard.check()


def consumers() -> tuple[ConsumerWorld, ConsumerGroup]:
    """One member with all four partitions."""
    world = ConsumerWorld()
    world.enter("a")
    world.shard.check(assignments=True)
    return world, world.consumers()


def doubled(group: ConsumerGroup) -> None:
    group.members["b"] = replace(group.members["a"], member_id="b")


MODERN: dict[str, tuple[Callable[[ConsumerGroup], object], str]] = {
    "an instance of nobody": (lambda g: g.static.update(i="a"), r"instance i is not a"),
    "a holder that holds nothing": (lambda g: g._holders.update({(T, 9): "a"}), r"a does not hold .*9"),
    "a holder that is gone": (lambda g: g._holders.update({(T, 0): "x"}), r"x does not hold"),
    "a target ahead": (lambda g: setattr(g, "target_epoch", 9), r"target epoch 9, group epoch 2"),
    "a member ahead": (
        lambda g: setattr(g, "epoch", 1) or setattr(g, "target_epoch", 1),
        r"member a is in epoch 2, the group in 1",
    ),
    "two with one partition": (doubled, r"a and b hold"),
    "a partition without a holder": (lambda g: g._holders.pop((T, 0)), r"the holders are .*, the members hold"),
    "two are to get one": (lambda g: g.target.update(b=g.target["a"]), r"a and b are to get"),
}


@pytest.mark.parametrize("what", MODERN)
def test_a_broken_consumer_group_is_seen(what: str) -> None:
    world, group = consumers()
    change, told = MODERN[what]
    change(group)
    with pytest.raises(AssertionError, match=told):
        world.shard.check(assignments=True)


@pytest.mark.parametrize(
    ("timer", "told"),
    [(Timer.MEMBER_SESSION, "has no session that could expire"), (Timer.REVOCATION, "may keep .* for ever")],
)
def test_a_member_of_whom_nothing_is_expected_any_more_is_seen(timer: Timer, told: str) -> None:
    world = ConsumerWorld()
    a, group = world.enter("a"), world.consumers()
    a.holds_on = True
    world.enter("b")
    world.beat(a)
    assert group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    world.shard.check(assignments=True)
    world.shard.groups.deadlines.cancel((timer, "g", "a"))
    with pytest.raises(AssertionError, match=f"member a {told}"):
        world.shard.check()


def test_a_group_under_another_name_is_seen() -> None:
    world, _ = consumers()
    world.shard.consumers.by_id["other"] = world.shard.consumers.by_id.pop("g")
    with pytest.raises(AssertionError, match="consumer group g is known as other"):
        world.shard.check()


def test_what_was_loaded_and_what_is_given_up_is_looked_at() -> None:
    world, group, _ = stable()
    group.leader_id = "x"
    with pytest.raises(AssertionError, match="the leader is x"):
        world.fail_over()
    group.leader_id = next(iter(group.members))
    world.fail_over()
