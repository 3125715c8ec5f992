"""Counts of what clients wrote and read."""

from __future__ import annotations

from kraftlite.replication.traffic import Traffic


def test_the_sum_of_several_has_all_of_each() -> None:
    one, other, total = Traffic(), Traffic(), Traffic()
    one.appended(3, 300)
    one.appended(1, 100)
    other.read(50)
    total.add(one)
    total.add(other)
    assert total == Traffic(messages_in=4, bytes_in=400, bytes_out=50, produces=2, fetches=1)
