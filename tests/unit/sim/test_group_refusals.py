"""Every error that a group coordinator may answer has its conditions, and without them the checker objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.coordinator.config import GroupConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.group_refusals import CONDITIONS, Case, GroupRefusals, Seen
from kraftlite.sim.services.groups import HEARTBEAT, Told
from tests.unit.sim.test_checkers_groups import BROKER, Topic, heartbeat

REFUSALS = [it for it in CONDITIONS if it is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
ODD = SimpleNamespace(  # an ask with nothing odd in it
    require_known_member_id=False,
    member_id="a",
    group_id="g",
    session_timeout_ms=1_000,
    server_assignor=None,
    regex=None,
    commits=(),
)


@pytest.mark.parametrize("code", REFUSALS, ids=str)
def test_no_refusal_is_deserved_without_a_reason(code: ErrorCode) -> None:
    """A member in its generation of a stable group that is coordinated there; for deletions, a group without members."""
    driver: Any = object()
    stable = Seen(driver, False, True, True, "classic", "Stable", 3, {"a": 3}, {}, (), 1, ("range",))
    deletes = code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    seen = Seen(driver, False, True, True, "classic", "Empty", 3, {}, {}, (), 0, ()) if deletes else stable
    case = Case(
        ask=ODD, was=seen, now=seen, member_id="a", instance_id=None, epoch=3, waited_ms=1, commit_timeout_ms=1_000,
        stopping=False, broken=False, most=100,
    )  # fmt: skip
    assert not CONDITIONS[code](case)


@pytest.fixture
def topic() -> Iterator[Topic]:
    """The group is stable in generation 3, and its broker writes commits within 5 s."""
    driver: Any = object()
    groups = SimpleNamespace(config=GroupConfig.from_values({}), led=SimpleNamespace(closed=False))
    broker = SimpleNamespace(broker=SimpleNamespace(groups=groups))
    node = SimpleNamespace(boots=1, node_id=BROKER, rate_ppm=0, fastest_ppm=0, node=broker)
    topic = Topic(GroupRefusals)
    assert isinstance(topic.checker, GroupRefusals)
    topic.cluster.nodes[BROKER] = node  # type: ignore[assignment]
    seen = Seen(driver, False, True, True, "classic", "Stable", 3, {"a": 3}, {}, (), 1, ("range",))
    topic.checker._see = lambda node, group_id: seen  # type: ignore[method-assign]
    yield topic
    topic.loop.close()


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_SERVER_ERROR], ids=str)
def test_an_undeserved_refusal_is_found(topic: Topic, code: ErrorCode) -> None:
    topic.serve(HEARTBEAT, heartbeat(3), Told(ErrorCode.NONE))
    with pytest.raises(Violation, match=f"refuses Client/Heartbeat of client 1100 with {code.name}, which it may"):
        topic.serve(HEARTBEAT, heartbeat(3), Told(code))


def test_a_wait_is_as_long_as_the_fastest_clock_of_the_broker_may_have_it(topic: Topic) -> None:
    def wait() -> None:
        topic.loop._now_us += 2_600_000

    node: Any = topic.cluster.nodes[BROKER]
    node.fastest_ppm = 1_000_000  # for a part of the time it ran twice as fast, and its own rate is what it was
    topic.serve(HEARTBEAT, heartbeat(3), Told(ErrorCode.COORDINATOR_NOT_AVAILABLE), wait)
    node.fastest_ppm = 0
    with pytest.raises(Violation, match="COORDINATOR_NOT_AVAILABLE, which it may not now"):
        topic.serve(HEARTBEAT, heartbeat(3), Told(ErrorCode.COORDINATOR_NOT_AVAILABLE), wait)


def test_what_the_log_does_not_take_is_refused_by_a_coordinator_that_stays() -> None:
    driver: Any = object()
    stable = Seen(driver, False, True, True, "classic", "Stable", 3, {"a": 3}, {}, (), 1, ("range",))
    case = Case(
        ask=ODD, was=stable, now=replace(stable, few=True), member_id="a", instance_id=None, epoch=3, waited_ms=1,
        commit_timeout_ms=1_000, stopping=False, broken=False, most=100,
    )  # fmt: skip
    condition = CONDITIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert condition(case) and not condition(replace(case, now=stable))
    dead = replace(stable, state="Dead")
    assert not condition(replace(case, was=dead, now=dead)), "nothing would bring it back"
    assert condition(replace(case, was=replace(dead, writing=True), now=stable))
