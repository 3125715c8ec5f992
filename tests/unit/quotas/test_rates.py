"""Rates and token buckets, in numbers that Kafka's own give. QU-03, QU-07, QU-10."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.quotas.rates import QuotaWindows, TokenBucket, WindowedRate, throttle_ms

DEFAULT = QuotaWindows()


def test_qu_03_missing_windows_count_as_empty_ones() -> None:
    """A first request of 200,000 bytes is 20,000 a second: ten full windows are assumed before the new one."""
    rate = WindowedRate(DEFAULT)
    rate.record(200_000, 5_000)
    assert rate.measure(5_000) == (20_000.0, 10_000)
    assert throttle_ms(20_000.0, 10_000.0, 10_000) == 10_000
    assert rate.measure(5_500) == (200_000 * 1000 / 10_500, 10_500)


@pytest.mark.parametrize(
    ("rate", "bound", "window_ms", "expected"),
    [
        (100.0, 100.0, 10_000, 0),
        (100.1, 100.0, 10_000, 10),
        (150.0, 100.0, 10_999, 5500),  # 5499.5 rounds up
        (1e30, 1.0, 10_000, 2**31 - 1),
    ],
)
def test_qu_03_throttle_time(rate: float, bound: float, window_ms: int, expected: int) -> None:
    assert throttle_ms(rate, bound, window_ms) == expected


def test_an_old_sample_counts_whole_while_it_reaches_into_the_windows() -> None:
    rate = WindowedRate(QuotaWindows(2, 1_000))
    rate.record(10, 0)
    rate.record(10, 900)  # the same sample: it began at 0, and was last added to at 900
    assert rate.measure(2_800) == (20 * 1000 / 2_800, 2_800)
    assert rate.measure(2_900) == (0.0, 1_000)


def test_a_negative_amount_takes_back() -> None:
    rate = WindowedRate(DEFAULT)
    rate.record(1_000, 0)
    rate.record(5_000, 100)
    rate.record(-5_000, 100)
    assert rate.measure(100)[0] == pytest.approx(1_000 / 10.1)


def test_qu_10_a_simple_rate_has_no_missing_windows() -> None:
    rate = WindowedRate(DEFAULT)
    rate.record(3_000, 0)
    assert rate.simple_rate(0) == 3_000  # one window at least
    assert rate.simple_rate(3_000) == 1_000
    assert rate.simple_rate(11_000) == 0


def test_a_sample_that_is_too_old_begins_anew_when_that_is_noticed() -> None:
    """As in Kafka: it is an empty one then, and what came later is measured since that time once everything else is gone."""
    rate = WindowedRate(QuotaWindows(3, 100))
    for now in (0, 40, 200):
        rate.record(1, now)
    assert rate.measure(340) == (pytest.approx(1 * 1_000 / 240), 240)
    rate.record(26, 450)
    assert rate.measure(600) == (100.0, 260)
    assert rate.simple_rate(600) == 100.0


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 10_000)), max_size=200),
    st.integers(1, 12),
    st.sampled_from([100, 1_000, 3_000]),
)
def test_memory_is_bounded_by_the_windows(steps: list[tuple[int, int]], samples: int, window_ms: int) -> None:
    rate = WindowedRate(QuotaWindows(samples, window_ms))
    now, total = 0, 0
    for delay, amount in steps:
        now += delay
        rate.record(amount, now)
        total += amount
        found, over_ms = rate.measure(now)
        assert 0 < len(rate._samples) <= samples + 1
        assert 0 < found * over_ms / 1_000 <= total * 1.000001
        assert over_ms >= (samples - 1) * window_ms


@given(st.integers(0, 2**32), st.floats(100.0, 1e6))
def test_qu_03_whoever_waits_as_told_stays_below_the_bound(seed: int, bound: float) -> None:
    """One connection. Each request is served and then waited for, and the wait grows with what is over: so in any 11 s
    no more than twelve windows allow, and the few requests after which the waits together have taken as long."""
    draw, rate, now = random.Random(seed), WindowedRate(DEFAULT), 0
    served: list[tuple[int, float]] = []
    largest = bound * 3
    for _ in range(200):
        size = draw.uniform(1, largest)
        rate.record(size, now)
        served.append((now, size))
        now += throttle_ms(rate.measure(now)[0], bound, rate.measure(now)[1]) + draw.randint(0, 50)
    for at, (begin, _size) in enumerate(served):
        within = [size for time, size in served[at:] if time < begin + 11_000]
        assert sum(within) <= bound * 12 + math.sqrt(24 * bound * largest) + largest


def test_qu_07_a_token_bucket_begins_full_and_may_go_below_zero() -> None:
    bucket = TokenBucket(DEFAULT, 1.0, 1_000)
    assert bucket.tokens == 11
    bucket.take(20, 1.0, 1_000)
    assert bucket.tokens == -9
    assert bucket.wait_ms(1.0, 1_000) == 9_000
    assert bucket.wait_ms(1.0, 9_999) == 1
    assert bucket.wait_ms(1.0, 10_000) == 0
    bucket.refill(1.0, 1_000_000)
    assert bucket.tokens == 11


def test_a_larger_bound_fills_faster_and_keeps_what_was_used() -> None:
    bucket = TokenBucket(DEFAULT, 1.0, 0)
    bucket.take(31, 1.0, 0)
    assert bucket.tokens == -20
    assert bucket.wait_ms(10.0, 0) == 2_000
    bucket.refill(10.0, 1_000)
    assert bucket.tokens == -10
