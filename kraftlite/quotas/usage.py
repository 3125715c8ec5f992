"""The usage that the clients of a broker make of their quotas. Source: KIP-13, KIP-55, KIP-124; QU-01 to QU-06."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple, Protocol

from kraftlite.quotas.matching import FETCH, LONGEST_KEPT, PRODUCE, REQUEST, Matched, Quotas, Scope, matching
from kraftlite.quotas.rates import QuotaWindows, WindowedRate, throttle_ms

IDLE_MS: Final = 3_600_000
"""The usage of a client that has asked for nothing for so long is forgotten, as in Kafka."""
MAX_SCOPES: Final = 10_000
"""Scopes of one key whose usage is kept: a client may call itself anything. The one that was used longest ago goes first; about
1.5 KiB for each."""
MAX_CLIENTS: Final = 20_000
"""Clients for which is kept which quota applies."""
MAX_IDLE_THROTTLE_MS: Final = 11_000
"""A client that was not throttled for so long is not throttled any more, as far as anybody is told."""


class Usage:
    """The usage of one key by one scope. `throttled_until_ms`: the end of the last throttling, 0 while there was none.
    `throttled_ms`: the milliseconds of all of them; the time of connections that were throttled side by side adds up."""

    __slots__ = (
        "_cap_ms",
        "_rate",
        "bound",
        "key",
        "last_used_ms",
        "scope",
        "throttled",
        "throttled_ms",
        "throttled_since_ms",
        "throttled_times",
        "throttled_until_ms",
    )

    def __init__(self, key: str, matched: Matched, windows: QuotaWindows) -> None:
        self.key = key
        self.scope, self.bound = matched
        self._rate = WindowedRate(windows)
        self._cap_ms = windows.window_ms if key == REQUEST else 0
        self.last_used_ms = 0
        self.throttled = False
        self.throttled_since_ms = self.throttled_until_ms = 0
        self.throttled_times = self.throttled_ms = 0

    def record(self, amount: float, now_ms: int) -> int:
        """Count it, and return for how many milliseconds the client is over its quota now."""
        self._rate.record(amount, now_ms)
        self.last_used_ms = now_ms
        rate, window_ms = self._rate.measure(now_ms)
        found = throttle_ms(rate, self.bound, window_ms)
        return min(found, self._cap_ms) if self._cap_ms else found

    def count(self, amount: float, now_ms: int) -> None:
        """Count it for what comes later. A negative amount takes back what was recorded."""
        self._rate.record(amount, now_ms)

    def rate(self, now_ms: int) -> float:
        return self._rate.measure(now_ms)[0]


class UsageObserver(Protocol):
    """Told when a client begins to be throttled, and when it has not been for a while."""

    def throttling_began(self, usage: Usage, rate: float) -> None: ...

    def throttling_ended(self, usage: Usage) -> None: ...


class _Bounds(NamedTuple):
    produce: Usage | None
    fetch: Usage | None
    request: Usage | None


class ClientQuotas:
    """The quotas in force at one broker, and their usage. `quotas` are those of the metadata; each key is resolved by itself.

    Usage belongs to a scope, so it stays when the limit changes. It is counted only while a quota applies; without one the bound
    of a usage is infinite.
    """

    def __init__(
        self,
        windows: QuotaWindows,
        observer: UsageObserver,
        *,
        most_scopes: int = MAX_SCOPES,
        most_clients: int = MAX_CLIENTS,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        """`now_us`: the time by which the work for a request is measured, in microseconds."""
        self.windows = windows
        self.now_us = now_us
        self._most_scopes, self._most_clients = most_scopes, most_clients
        self._observer = observer
        self._quotas: Quotas = {}
        self._usages: dict[str, dict[Scope, Usage]] = {PRODUCE: {}, FETCH: {}, REQUEST: {}}
        """Least recently used first."""
        self._clients: dict[tuple[str, str], _Bounds] = {}
        self._throttled: dict[Usage, None] = {}
        self.measures_time = False
        """Any request_percentage is set: only then the time that requests take is measured."""

    def set_quotas(self, quotas: Quotas, *, measures_time: bool) -> None:
        self._quotas, self.measures_time = quotas, measures_time
        self._clients.clear()
        for usage in self.usages():
            usage.bound = inf  # until its client is resolved again

    def of(self, key: str, user: str, client_id: str, now_ms: int) -> Usage | None:
        """The usage that this client shares; None where no quota bounds it."""
        bounds = self._clients.get((user, client_id))
        if bounds is None:
            bounds = self._resolve(user, client_id)
        usage = bounds.produce if key == PRODUCE else bounds.fetch if key == FETCH else bounds.request
        if usage is None:
            return None
        usages = self._usages[key]
        # Back among those whose usage is kept, if others have pushed it out since.
        usages.pop(usage.scope, None)
        usages[usage.scope] = usage
        if len(usages) > self._most_scopes:
            self._drop(usages, next(iter(usages)))
        usage.last_used_ms = now_ms
        return usage

    def throttle(self, usage: Usage, wait_ms: int, now_ms: int) -> None:
        """Note that a client of this scope is throttled for so long."""
        usage.throttled_times += 1
        usage.throttled_ms += wait_ms
        usage.throttled_until_ms = max(usage.throttled_until_ms, now_ms + wait_ms)
        if not usage.throttled:
            usage.throttled, usage.throttled_since_ms = True, now_ms
            self._throttled[usage] = None
            self._observer.throttling_began(usage, usage.rate(now_ms))

    def sweep(self, now_ms: int) -> None:
        """Now and then: forget who is idle, and who is not throttled any more."""
        for usage in list(self._throttled):
            if now_ms - usage.throttled_until_ms >= MAX_IDLE_THROTTLE_MS:
                self._end(usage)
        for usages in self._usages.values():
            idle = []
            for scope, usage in usages.items():
                if now_ms - usage.last_used_ms < IDLE_MS:
                    break
                idle.append(scope)
            for scope in idle:
                self._drop(usages, scope)
        if len(self._clients) > self._most_clients // 2:
            self._clients.clear()

    def usages(self) -> Iterator[Usage]:
        for usages in self._usages.values():
            yield from usages.values()

    def busiest(self, key: str, most: int, now_ms: int) -> list[tuple[Usage, float]]:
        """The usages of a key with their rates, those first that are nearest to their bound or farthest beyond it."""
        found = [(usage, usage.rate(now_ms)) for usage in self._usages[key].values() if usage.bound < inf]
        return sorted(found, key=lambda it: (-it[1] / it[0].bound, it[0].scope))[:most]

    def _drop(self, usages: dict[Scope, Usage], scope: Scope) -> None:
        usage = usages.pop(scope)
        if usage in self._throttled:
            self._end(usage)
        self._clients.clear()

    def _end(self, usage: Usage) -> None:
        del self._throttled[usage]
        usage.throttled = False
        self._observer.throttling_ended(usage)

    def _resolve(self, user: str, client_id: str) -> _Bounds:
        if len(self._clients) >= self._most_clients:
            self._clients.clear()
        bounds = _Bounds(*(self._usage(key, user, client_id) for key in (PRODUCE, FETCH, REQUEST)))
        if len(user) + len(client_id) <= LONGEST_KEPT:
            self._clients[user, client_id] = bounds
        return bounds

    def _usage(self, key: str, user: str, client_id: str) -> Usage | None:
        matched = matching(self._quotas, key, user, client_id)
        if matched is None:
            return None
        usage = self._usages[key].get(matched.scope)
        if usage is None:
            usage = Usage(key, matched, self.windows)
        usage.bound = matched.bound
        return usage
