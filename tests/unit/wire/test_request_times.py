"""Where the time of a request goes."""

from __future__ import annotations

from kraftlite.wire.request_times import RequestTimes


def test_the_parts_of_a_request_are_all_of_it() -> None:
    times = RequestTimes()
    timing = times.begin("Fetch", 13, waited_ns=2_000_000)
    timing.handled()
    timing.answered()
    timing.leave()
    timing.sent()
    assert sorted(times.kinds) == ["Fetch", "FetchConsumer"]
    kind = times.of("Fetch")
    assert kind.requests == {13: 1} == times.of("FetchConsumer").requests
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
    assert times.of("Metadata").remote.total_us == 0


def test_who_has_no_answer_is_counted_and_not_measured() -> None:
    times = RequestTimes()
    times.begin("Produce", 9, waited_ns=0).handled()
    assert (times.of("Produce").requests.total(), times.of("Produce").total.count) == (1, 0)
