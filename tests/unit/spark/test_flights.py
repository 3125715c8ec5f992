"""The comparison with which the demonstration judges what was written exactly once."""

from __future__ import annotations

from typing import Any

from kraftlite.spark.jobs.flights import Delays, differences, grown

START = 1_356_998_400


def row(rows: int, carrier: str = "AA") -> dict[str, Any]:
    numbers = {"rows": rows, "values": rows, "sum": float(rows), "mean": 1.0, "min": 1.0, "max": 1.0}
    return {"carrier": carrier, "window_start": "2013-01-01T00:00:00Z", **numbers}


def test_the_last_result_of_each_window_counts() -> None:
    count, last, wrong = grown([("a", row(1)), ("b", row(5, "UA")), ("a", row(4))])
    assert (count, wrong) == (3, [])
    truth = {
        ("AA", START): Delays(rows=4, values=4, sum=4, min=1, max=1),
        ("UA", START): Delays(rows=5, values=5, sum=5, min=1, max=1),
    }
    assert differences(truth, last.values()) == []


def test_a_result_that_is_there_twice_is_seen_though_the_last_one_is_right() -> None:
    count, last, wrong = grown([("a", row(1)), ("a", row(1)), ("a", row(4))])
    assert count == 3 and last["a"]["rows"] == 4
    assert wrong == ["a has 1 rows, and behind that 1: a result is there twice"]
