"""Counts of what clients wrote and read."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.replication.traffic import Traffic


def test_the_sum_of_several_has_all_of_each() -> None:
    one, other, total = Traffic(), Traffic(), Traffic()
    one.appended(3, 300)
    one.appended(1, 100)
    other.read(50)
    total.add(one)
    total.add(other)
    assert total == Traffic(messages_in=4, bytes_in=400, bytes_out=50, produces=2, fetches=1)


@pytest.mark.parametrize(
    ("error", "produce", "fetch"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0),
        (ErrorCode.CORRUPT_MESSAGE, 0, 1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 1, 0),
        (ErrorCode.FENCED_LEADER_EPOCH, 1, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 1, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 1),
    ],
)
def test_what_clients_meet_in_the_course_of_things_is_no_failure(error: ErrorCode, produce: int, fetch: int) -> None:
    """As in Kafka's ReplicaManager."""
    one, total = Traffic(), Traffic()
    one.produce_failed(error)
    one.fetch_failed(error)
    total.add(one)
    assert total == Traffic(failed_produces=produce, failed_fetches=fetch)
