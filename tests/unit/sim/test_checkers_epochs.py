"""A group without members begins anew, and its coordinator need not have that in the log, for the checker of epochs, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.coordinator.api import JoinResult
from kraftlite.coordinator.modern.records import EpochKey, EpochValue, record_of
from kraftlite.coordinator.records import group_tombstone
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace.group import GroupStateChanged
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i41_epochs_grow import EpochsGrow
from kraftlite.sim.services.groups import JOIN
from tests.unit.sim.test_checkers_groups import BROKER, Topic, joining


@pytest.fixture
def topic() -> Iterator[Topic]:
    """Generation 3 is stored, and its member has left, which is not."""
    topic = Topic(EpochsGrow)
    topic.classic(3, "a")
    event = GroupStateChanged(group="g", previous="Stable", state="Empty", generation=4, members=0, reason="left")
    topic.checker.on_event(0, topic.cluster.nodes[BROKER], event)
    yield topic
    topic.loop.close()


def join(topic: Topic) -> None:
    topic.serve(JOIN, joining("b"), JoinResult(error=ErrorCode.NONE, member_id="b", generation=2))


def test_a_group_whose_members_left_begins_anew_whatever_the_log_took(topic: Topic) -> None:
    join(topic)
    topic.write(group_tombstone("g"), record_of(EpochKey("g"), EpochValue(2)))
    with pytest.raises(Violation, match="takes the group epoch of group g from 2 back to 1"):
        topic.write(record_of(EpochKey("g"), EpochValue(1)))


def test_another_coordinator_goes_on_from_the_log(topic: Topic) -> None:
    topic.driver.leader_epoch = 1
    topic.facts.is_current = lambda driver, node: True  # type: ignore[method-assign]
    with pytest.raises(Violation, match="b joins generation 2 at node 2, when it came 3 was stored"):
        join(topic)
