"""Where the time of a request goes."""

from __future__ import annotations

from collections import Counter

from kraftlite.runtime.durations import RECENT
from kraftlite.wire.request_times import RequestKind, RequestTimes


def test_the_parts_of_a_request_are_all_of_it() -> None:
    times = RequestTimes()
    timing = times.begin("Fetch", 13, waited_ns=2_000_000)
    timing.handled()
    timing.answered()
    timing.leave()
    timing.sent()
    assert sorted(times.kinds) == ["Fetch", "FetchConsumer"]
    times.fold()
    kind = times.kinds["Fetch"]
    assert kind.requests == {13: 1} == times.kinds["FetchConsumer"].requests
    assert kind.request_queue.total_us == 2_000
    parts = (kind.request_queue, kind.local, kind.remote, kind.response_queue, kind.response_send)
    assert all(part.count == 1 for part in (*parts, kind.total))
    assert 0 <= kind.total.total_us - sum(part.total_us for part in parts) <= len(parts), "but for what is rounded"


def test_an_answer_at_once_waits_for_nobody() -> None:
    times = RequestTimes()
    timing = times.begin("Metadata", 12, waited_ns=0)
    timing.answered()
    timing.handled()
    timing.leave()
    timing.sent()
    times.fold()
    assert (times.kinds["Metadata"].remote.count, times.kinds["Metadata"].remote.total_us) == (1, 0)


def test_who_has_no_answer_is_counted_and_not_measured() -> None:
    times = RequestTimes()
    times.begin("Produce", 9, waited_ns=0).handled()
    times.fold()
    assert (times.kinds["Produce"].requests.total(), times.kinds["Produce"].total.count) == (1, 0)


def test_many_are_folded_as_they_come() -> None:
    kind = RequestKind()
    for number in range(3 * RECENT + 5):
        kind.note((number * 1_000, 0, 0, 0, 0, 7_000))
    assert kind.total.count == 3 * RECENT, "the rest is not readable yet"
    kind.fold()
    kind.fold()
    assert (kind.total.count, kind.total.total_us, kind.total.max_us) == (3 * RECENT + 5, 7 * (3 * RECENT + 5), 7)
    assert len(kind.request_queue.recent) == RECENT
    assert kind.request_queue.quantiles([0.0, 1.0]) == [2 * RECENT + 5, 3 * RECENT + 4], "of the latest ones"


def test_errors_are_counted_by_name_under_each_name_of_the_api() -> None:
    times = RequestTimes()
    timing = times.begin("Fetch", 13, waited_ns=0)
    timing.refused(Counter(OFFSET_OUT_OF_RANGE=2))
    timing.refused(Counter(OFFSET_OUT_OF_RANGE=1, UNKNOWN_TOPIC_ID=1))
    assert times.kinds["Fetch"].errors == {"OFFSET_OUT_OF_RANGE": 3, "UNKNOWN_TOPIC_ID": 1} == times.kinds["FetchConsumer"].errors
