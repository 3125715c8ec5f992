"""What breaks off in the middle of a change of a partition ends the node, though a request was the cause (docs/adr/0005)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.errors import ApiError, ErrorCode, HalfChanged
from kraftlite.replication.api import DeleteRecordsResult
from kraftlite.replication.waiting import WaitingProduces
from tests.harness.replication_cluster import TP, StepCluster, run_now


def broken(*_args: Any, **_more: Any) -> Any:
    raise KeyError("a bug")


class Unparkable(WaitingProduces):
    """Nothing can wait here."""

    def __init__(self, park: Callable[..., Any]) -> None:
        super().__init__()
        self.park = park  # type: ignore[method-assign]


@pytest.fixture
def c() -> StepCluster:
    cluster = StepCluster(3)
    cluster.create()
    cluster.replicate()
    return cluster


def test_the_progress_of_a_follower(c: StepCluster) -> None:
    """As it was, this cost the follower's call: the high watermark had moved, and nobody who waited for it was told."""
    c[1].produce(["a"])
    c.fetch(2)
    c.fetch(3)
    c.fetch(2)
    c[1].partition().hw_changed = broken
    with pytest.raises(HalfChanged, match=r"progress of follower 3 of orders-0: KeyError: 'a bug'"):
        c.fetch(3)
    assert c[1].log().hw == 1, "it is half of the change"


def test_a_refusal_of_a_follower_stays_a_refusal(c: StepCluster) -> None:
    c.fetch(2)
    c[1].partition().go_offline("a test")
    assert c.fetch(2, leader=1) is not None


def test_a_log_start_that_is_asked_for(c: StepCluster) -> None:
    """As it was, it cost the DeleteRecords: the log began later, and no follower was told."""
    c[1].produce(["a"])
    c.replicate()
    c[1].partition().log_start_changed = broken
    with pytest.raises(HalfChanged, match=r"new log start of orders-0: KeyError"):
        run_now(c[1].manager.delete_records({TP: 1}, 1_000))
    assert c[1].log().log_start_offset == 1


def test_a_refusal_of_a_log_start_stays_a_refusal(c: StepCluster) -> None:
    found = run_now(c[1].manager.delete_records({TP: 7}, 1_000))
    assert isinstance(found, list) and isinstance(found[0], DeleteRecordsResult)
    assert found[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_directory_that_fails_under_a_produce(c: StepCluster) -> None:
    """As it was, it cost the produce: some replicas of the directory were offline, and others served from it."""
    c.create(name="payments", topic_id=UUID(int=1002))
    c[1].partition().fail_waiting = broken
    c[1].disk.inject("pwritev", path="orders-0")
    with pytest.raises(HalfChanged, match=r"taking orders-0 and its log directory offline: KeyError"):
        c[1].produce(["a"])


def test_records_whose_request_cannot_wait_for_the_high_watermark(c: StepCluster) -> None:
    """As it was, it cost the produce: a client that was told so appended its records again."""
    c[1].partition().waiting = Unparkable(broken)
    with pytest.raises(HalfChanged, match=r"wait for the high watermark of orders-0: KeyError: 'a bug'"):
        c[1].produce(["a"], acks=-1)
    assert c[1].log().leo == 1


def test_a_refusal_behind_an_append_is_no_refusal_of_the_records(c: StepCluster) -> None:
    def refused(*_args: Any) -> Any:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "a test")

    c[1].partition().waiting = Unparkable(refused)
    with pytest.raises(HalfChanged, match=r"wait for the high watermark of orders-0"):
        c[1].produce(["a"], acks=-1)
