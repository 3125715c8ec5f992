"""Rates over windows, and token buckets. They measure as Kafka's `Rate`, `SimpleRate` and `TokenBucket`, so that clients are
throttled for the same milliseconds.

Source: KIP-13, KIP-73, KIP-599; QU-03, QU-07, QU-10.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.model.limits import MAX_INT32


class QuotaWindows(NamedTuple):
    """`*quota.window.num` samples of `*quota.window.size.seconds` each; the newest one is still being filled."""

    samples: int = 11
    window_ms: int = 1_000

    @property
    def full_windows_s(self) -> float:
        """The seconds of the windows that are complete: what is used in them at most is not over the quota by itself."""
        return (self.samples - 1) * self.window_ms / 1_000


KAFKAS_WINDOWS: Final = QuotaWindows()
"""Those that hold where nothing else is configured."""


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class WindowedRate:
    """The amount per second over the last windows. Before so many windows have gone by, those that are missing count as empty
    ones: a burst at the beginning is allowed what the windows are allowed together.

    Keeps one sample more than there are windows: one that began before them and reaches into them counts whole. A sample that is
    too old becomes an empty one that begins when that is noticed, and is as old as any other from then on.
    """

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        """A ring; `_current` is being filled."""
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """`value` may be negative: then it takes back what was recorded."""
        sample = self._filled(now_ms)
        if now_ms - sample.start_ms >= self._windows.window_ms:
            sample = self._next(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the milliseconds over which it is measured."""
        elapsed_ms = self._elapsed_ms(now_ms)
        count, window_ms = self._windows
        missing = count - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        if elapsed_ms <= 0:  # one window only, which has just begun
            elapsed_ms = 1
        return self._total() * 1_000 / elapsed_ms, elapsed_ms

    def simple_rate(self, now_ms: int) -> float:
        """The rate since the oldest sample, over one window at least: missing windows do not count. For replication (KIP-73)."""
        elapsed_ms = max(self._elapsed_ms(now_ms), self._windows.window_ms)
        return self._total() * 1_000 / elapsed_ms

    def _filled(self, now_ms: int) -> _Sample:
        """Return the sample that is being filled."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        return self._samples[self._current]

    def _next(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _total(self) -> float:
        return sum(sample.value for sample in self._samples)

    def _elapsed_ms(self, now_ms: int) -> int:
        """Return how long ago the oldest sample began, when those that are too old have begun anew."""
        self._filled(now_ms)
        oldest_ms = now_ms - self._windows.samples * self._windows.window_ms
        for sample in self._samples:
            if sample.last_ms <= oldest_ms:
                sample.reset(now_ms)
        return now_ms - min(sample.start_ms for sample in self._samples)


def throttle_ms(rate: float, bound: float, window_ms: int) -> int:
    """The milliseconds in which nothing more must come, so that the rate falls to its bound. 0: it is not over it."""
    if rate <= bound:
        return 0
    return min(_rounded((rate - bound) / bound * window_ms), MAX_INT32)


class TokenBucket:
    """Refilled with `bound` tokens a second up to what all windows are allowed together. Full at first; may go below zero, and
    nothing is allowed until it is back at zero (KIP-599)."""

    __slots__ = ("_last_ms", "_windows", "tokens")

    def __init__(self, windows: QuotaWindows, bound: float, now_ms: int) -> None:
        self._windows = windows
        self._last_ms = now_ms
        self.tokens = self._burst(bound)

    def refill(self, bound: float, now_ms: int) -> None:
        """`bound` may be another one than before: what was used stays used."""
        self.tokens = min(self._burst(bound), self.tokens + bound * max(0, now_ms - self._last_ms) / 1_000)
        self._last_ms = max(now_ms, self._last_ms)

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """The milliseconds until something is allowed; 0: it is now."""
        self.refill(bound, now_ms)
        return 0 if self.tokens >= 0 else min(_rounded(-self.tokens / bound * 1_000), MAX_INT32)

    def take(self, count: float, bound: float, now_ms: int) -> None:
        self.refill(bound, now_ms)
        self.tokens = min(self._burst(bound), self.tokens - count)

    def _burst(self, bound: float) -> float:
        return self._windows.samples * self._windows.window_ms / 1_000 * bound


def _rounded(value: float) -> int:
    """Round half up, as Java's `Math.round`."""
    return int(value + 0.5)
