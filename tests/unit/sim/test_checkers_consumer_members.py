"""The checkers of what members of the consumer protocol get, and leave behind, fail when they must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kraftlite.coordinator.modern.member import MemberState
from kraftlite.coordinator.modern.records import (
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    MemberKey,
    MemberValue,
    TargetKey,
    record_of,
)
from kraftlite.sim.checkers.base import CheckerFactory, Violation
from kraftlite.sim.checkers.stable_members import LeaversNoticed, StableMembers
from tests.unit.sim.test_checkers_groups import T, Topic


@contextmanager
def watched(factory: CheckerFactory) -> Iterator[Topic]:
    topic = Topic(factory)
    try:
        yield topic
    finally:
        topic.loop.close()


def current(state: MemberState, *partitions: int, epoch: int = 5) -> tuple[CurrentKey, CurrentValue]:
    return CurrentKey("g", "a"), CurrentValue(epoch, epoch - 1, state, {T: frozenset(partitions)} if partitions else {}, {})


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
def test_a_stable_member_has_the_whole_of_its_target_and_nothing_else(partitions: tuple[int, ...]) -> None:
    with watched(StableMembers) as topic:
        topic.consumers(5, a=(0, 1))
        with pytest.raises(Violation, match=r"stable in epoch 5 with .* and its target is \[0, 1\]"):
            topic.write(record_of(*current(MemberState.STABLE, *partitions)))


@pytest.mark.parametrize(
    "now",
    [
        current(MemberState.UNRELEASED_PARTITIONS, 0),
        current(MemberState.UNREVOKED_PARTITIONS, 0, 2),
        current(MemberState.STABLE, 0, epoch=4),
        current(MemberState.STABLE),
        current(MemberState.STABLE, 0, 1),
    ],
)
def test_who_is_on_the_way_or_has_unsubscribed_may_lack_some(now: tuple[CurrentKey, CurrentValue]) -> None:
    with watched(StableMembers) as topic:
        topic.consumers(5, a=(0, 1))
        topic.write(record_of(*now))


GONE = [record_of(key, None) for key in (MemberKey("g", "a"), TargetKey("g", "a"), CurrentKey("g", "a"))]


def test_a_group_that_loses_a_member_and_stays_in_its_epoch_is_found() -> None:
    with watched(LeaversNoticed) as topic:
        topic.consumers(5, a=(0,), b=(1,))
        with pytest.raises(Violation, match="takes a out of group g, which stays in epoch 5"):
            topic.write(*GONE)


def test_another_epoch_or_nobody_left_is_right() -> None:
    with watched(LeaversNoticed) as topic:
        topic.consumers(5, a=(0,), b=(1,))
        topic.write(*GONE, record_of(EpochKey("g"), EpochValue(6)))
        topic.write(record_of(MemberKey("g", "b"), None))


def test_who_takes_the_place_of_a_static_member_changes_nothing() -> None:
    static = MemberValue("i", None, "c", "h", ("t",), "", 1, None, None)
    with watched(LeaversNoticed) as topic:
        topic.consumers(5, a=(0,), b=(1,))
        topic.write(record_of(MemberKey("g", "a"), static))
        topic.write(*GONE, record_of(MemberKey("g", "c"), static))
