"""A history of many events is told in a time that grows with it, not with its square: nodes that crash for days, a quorum that
elects again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kraftlite.obs.explain import History, Recorded, Subject, explain
from kraftlite.ui.timeline import lanes_of

_RECORD = "controller.record_appended"
_ROUNDS = 1_500
_LIMIT_S = 4.0
"""Of processor time."""


def _event(ms: int, node: int, event: str, **facts: object) -> Recorded:
    cause = facts.pop("cause", None)
    assert cause is None or isinstance(cause, str)
    return Recorded(ms=ms, node=node, event=event, facts=facts, cause=cause)


def restarts() -> Iterator[Recorded]:
    for at in range(0, _ROUNDS * 1_000, 1_000):
        yield _event(at, 4, "node.starting", roles="broker")
        yield _event(at + 10, 4, "broker.registered", broker_epoch=at)
        yield _event(at + 20, 4, "node.started", roles="broker")
        words = f"broker_id=4 broker_epoch={at} fenced=true"
        cause = "operation:maybe_fence_stale_broker broker=4 silent_ms=300"
        yield _event(at + 900, 1, _RECORD, record="BrokerRegistrationChange", offset=at, detail=words, cause=cause)


def elections() -> Iterator[Recorded]:
    for at in range(_ROUNDS):
        yield _event(
            at * 100, 1 + at % 3, "raft.leader_elected", raft_epoch=at, epoch_start_offset=at * 2, granting_voters=(1, 2)
        )
        for offset in (at * 2, at * 2 + 1):
            yield _event(at * 100 + 1, 1 + at % 3, _RECORD, record="NoOp", offset=offset, detail="")


def changes() -> Iterator[Recorded]:
    for at in range(1, _ROUNDS):
        leader = 4 + at % 2
        facts = {"tp": ("orders", 0), "partition_epoch": at, "leader_epoch": at, "leader": leader, "isr": (4, 5)}
        old = {"old_leader": 9 - leader, "old_leader_epoch": at - 1, "old_isr": (4, 5)}
        yield _event(at * 100, 1, _RECORD, record="PartitionChange", offset=at, detail="", **facts, **old)
        yield _event(
            at * 100 + 5, leader, "partition.leader_started", cause=f"record@{at}", epoch_start_offset=at, hw=at, **facts
        )
        yield _event(at * 100 + 6, 9 - leader, "partition.follower_started", cause=f"record@{at}", leader_id=leader, **facts)


@pytest.mark.parametrize(
    ("events", "subject"), [(restarts, "node 4"), (elections, "controller"), (changes, "partition orders-0")]
)
def test_many_events_are_told_in_time(events: object, subject: str) -> None:
    assert callable(events)
    began = time.process_time()
    history = History(events())
    found = explain(history, Subject.parse(*subject.split()))
    assert len(found.stories) >= _ROUNDS - 1
    lanes_of(history, 0, ["orders-0"])
    assert time.process_time() - began < _LIMIT_S
