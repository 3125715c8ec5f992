"""The times of clients' requests and of their parts, for the metrics page of a node that has one.

Source: Kafka's RequestChannel and its MBeans `kafka.network:type=RequestMetrics`. What is a queue and a thread there is here:
requests wait while their connection waits for its turn (`turns`), `local` is the loop's work until the request is answered or has
to wait, `remote` the wait for others, answers wait for those before them, and are sent when the socket has been handed what it
takes at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Final

from kraftlite.runtime.durations import RECENT, DurationSummary

_NS_PER_US: Final = 1_000


_FOLD: Final = RECENT
"""Requests that are kept as they came, and then are folded into sums."""
Parts = tuple[int, int, int, int, int, int]
"""Nanoseconds, in the order of `RequestKind.parts`."""


@dataclass(slots=True)
class RequestKind:
    """The requests of one name. Durations in microseconds; read them after `fold`."""

    requests: Counter[int] = field(default_factory=Counter)
    """By version."""
    errors: Counter[str] = field(default_factory=Counter)
    """The errors in the answers, by their names."""
    request_queue: DurationSummary = field(default_factory=DurationSummary)
    local: DurationSummary = field(default_factory=DurationSummary)
    remote: DurationSummary = field(default_factory=DurationSummary)
    response_queue: DurationSummary = field(default_factory=DurationSummary)
    response_send: DurationSummary = field(default_factory=DurationSummary)
    total: DurationSummary = field(default_factory=DurationSummary)
    _raw: list[Parts] = field(default_factory=list)

    @property
    def parts(self) -> tuple[DurationSummary, ...]:
        return (self.request_queue, self.local, self.remote, self.response_queue, self.response_send, self.total)

    def note(self, parts: Parts) -> None:
        """Note one request. Cheap: this is done for each."""
        self._raw.append(parts)
        if len(self._raw) >= _FOLD:
            self.fold()

    def fold(self) -> None:
        raw, self._raw = self._raw, []
        for summary, column in zip(self.parts, zip(*raw, strict=True), strict=bool(raw)):
            summary.note_all([it // _NS_PER_US for it in column])


class Timing:
    """One request. Every method but `refused` is called at most once, in their order; one whose connection goes is not counted to
    its end."""

    __slots__ = ("_answered_ns", "_began_ns", "_kinds", "_left_ns", "_waited_ns", "_worked_ns")

    def __init__(self, kinds: tuple[RequestKind, ...], waited_ns: int) -> None:
        self._kinds = kinds
        self._waited_ns = waited_ns
        self._began_ns = self._answered_ns = self._left_ns = perf_counter_ns()
        self._worked_ns = -1

    def refused(self, errors: Counter[str]) -> None:
        """Note the errors of the answer; this alone may be called more than once."""
        for kind in self._kinds:
            kind.errors.update(errors)

    def handled(self) -> None:
        """Note that the loop has done what it can do at once."""
        self._worked_ns = perf_counter_ns() - self._began_ns

    def answered(self) -> None:
        self._answered_ns = perf_counter_ns()

    def leave(self) -> None:
        """Note that all answers before this one are on their way."""
        self._left_ns = perf_counter_ns()

    def sent(self) -> None:
        now = perf_counter_ns()
        served = self._answered_ns - self._began_ns
        local = served if self._worked_ns < 0 else min(served, self._worked_ns)
        waited, left = self._waited_ns, self._left_ns
        parts = (waited, local, served - local, left - self._answered_ns, now - left, waited + now - self._began_ns)
        for kind in self._kinds:
            kind.note(parts)


class RequestTimes:
    """The kinds of requests of all client listeners of a node, by the names of APIs, which no client chooses. Kafka tells fetches
    of consumers twice, so that boards may or may not tell them from those of followers."""

    def __init__(self) -> None:
        self.kinds: dict[str, RequestKind] = {}
        self._told: dict[str, tuple[RequestKind, ...]] = {}
        """Under which kinds the requests of an API are told."""

    def begin(self, name: str, version: int, waited_ns: int) -> Timing:
        kinds = self._told.get(name)
        if kinds is None:
            names = ("Fetch", "FetchConsumer") if name == "Fetch" else (name,)
            kinds = self._told[name] = tuple(self.kinds.setdefault(it, RequestKind()) for it in names)
        for kind in kinds:
            kind.requests[version] += 1
        return Timing(kinds, waited_ns)

    def fold(self) -> None:
        """Make the durations of all kinds readable."""
        for kind in self.kinds.values():
            kind.fold()
