"""A broker says that elections are left, so that metadata waits; and takes it back in every case.

Else it would never hear of metadata again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.replication_cluster import StepCluster
from tests.spec.replication.test_big_deltas import seen_by_1, three_kinds


def elections() -> tuple[StepCluster, Iterator[None]]:
    """Broker 1 is about to carry out that broker 3 has failed."""
    c = StepCluster(3)
    three_kinds(c)
    c.controller.set_fenced(c[3].id, True)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    return c, c[1].manager.apply_delta_steps(delta.topics, c[1].image)


def test_elections_are_left_until_the_last_replica_leads_or_follows_somebody_new() -> None:
    c, steps = elections()
    assert not c[1].manager.elections_left
    seen = []
    for _ in steps:
        leads, followed, _shrunk = seen_by_1(c)
        seen.append((leads + followed, c[1].manager.elections_left))
    leads, followed, _shrunk = seen_by_1(c)
    assert seen[0][1] and all(left for count, left in seen if count < leads + followed - 1)
    assert any(count == leads + followed and not left for count, left in seen), "who has a smaller ISR holds nothing back"
    assert not c[1].manager.elections_left


def test_no_election_is_left_when_one_ends_with_an_error() -> None:
    c, steps = elections()
    next(steps)
    assert c[1].manager.elections_left

    def broken(*_: object) -> bool:
        raise RuntimeError("broken")

    for partition in c[1].manager.partitions():
        partition.become_leader = partition.become_follower = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        for _ in steps:
            pass
    assert not c[1].manager.elections_left


def test_no_election_is_left_when_nobody_goes_on_with_them() -> None:
    """As when the task that applies them is cancelled."""
    c, steps = elections()
    next(steps)
    assert c[1].manager.elections_left
    del steps
    assert not c[1].manager.elections_left
