"""A static member that is replaced has its partitions since its former self had them, for the checker of fenced members, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kraftlite.coordinator.modern.member import MemberState, Parts
from kraftlite.coordinator.modern.records import CurrentKey, CurrentValue, EpochKey, EpochValue, MemberKey, MemberValue, record_of
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i43_fenced_members import FencedMembers
from tests.unit.sim.test_checkers_groups import T, Topic

PARTS: Parts = {T: frozenset({0})}
SAID = MemberValue("i", None, "c", "h", ("t",), "", 1, None, None)


@pytest.fixture
def topic() -> Iterator[Topic]:
    """The member `a`, which is instance `i`, has partition 0 since epoch 2; the group is in epoch 3."""
    topic = Topic(FencedMembers)
    for epoch in (2, 3):
        current = CurrentValue(epoch, epoch - 1, MemberState.STABLE, PARTS, {})
        records = record_of(EpochKey("g"), EpochValue(epoch)), record_of(MemberKey("g", "a"), SAID)
        topic.write(*records, record_of(CurrentKey("g", "a"), current))
    yield topic
    topic.loop.close()


def replace(topic: Topic, said: MemberValue) -> None:
    current = CurrentValue(3, 0, MemberState.STABLE, PARTS, {})
    topic.write(
        record_of(CurrentKey("g", "a"), None),
        record_of(MemberKey("g", "a"), None),
        record_of(MemberKey("g", "b"), said),
        record_of(CurrentKey("g", "b"), current),
    )


def test_the_new_self_of_a_static_member_commits_in_an_epoch_of_the_former_one(topic: Topic) -> None:
    replace(topic, SAID)
    topic.commit(9, "b|2|1")
    with pytest.raises(Violation, match="is a commit of b in generation 1 of group g"):
        topic.commit(9, "b|1|1")


def test_another_member_that_gets_the_partition_does_not(topic: Topic) -> None:
    replace(topic, dataclasses.replace(SAID, instance_id="other"))
    with pytest.raises(Violation, match="is a commit of b in generation 2 of group g"):
        topic.commit(9, "b|2|1")
