"""One request of a client while quotas are set: what it uses, for how long its connection is muted, and what its answer says.

Answers go out at once with the time for which the connection is not read afterwards. Source: KIP-219, KIP-124; QU-04 to QU-06.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final

from kraftlite.log.stored import StoredRecords
from kraftlite.quotas.matching import FETCH, PRODUCE, REQUEST
from kraftlite.quotas.usage import ClientQuotas, Usage
from kraftlite.wire.frames import Connection
from kraftlite.wire.outbound import Part

US_TO_PERCENT_SECONDS: Final = 100 / 1_000_000
"""A request that uses the loop for one second uses 100 percent of it for that second."""
EXEMPT_APIS: Final = frozenset({17, 27, 36})
"""SaslHandshake and SaslAuthenticate, which come before it is known who asks, and WriteTxnMarkers, which is work of the cluster:
the time that they take is not charged (KAFKA-10852)."""


class Meter:
    """The usage of one request. `settle` says for how long the client is throttled; who calls it writes that into the answer."""

    __slots__ = ("_api", "_client_id", "_connection", "_entered_us", "_now_ms", "_quotas", "_settled", "_used_us", "_wait_ms")

    def __init__(
        self, quotas: ClientQuotas, connection: Connection, client_id: str, api_key: int, now_ms: Callable[[], int]
    ) -> None:
        self._quotas = quotas
        self._connection = connection
        self._client_id = client_id
        self._api = api_key
        self._now_ms = now_ms
        self._used_us = 0
        self._entered_us: int | None = None
        self._wait_ms = 0
        self._settled = False

    # --- the time of the loop --------------------------------------------------------------------------------------------

    def enter(self) -> bool:
        """The loop works for this request from here on. False: it does already, and who asked has nothing to end."""
        if self._entered_us is not None or not self._quotas.measures_time:
            return False
        self._entered_us = self._quotas.now_us()
        return True

    def leave(self) -> None:
        """The loop works for others again. Time behind the answer is counted for what the client asks next."""
        if self._entered_us is None:
            return
        used, self._entered_us = self._quotas.now_us() - self._entered_us, None
        if not self._settled:
            self._used_us += used
            return
        usage = self._usage(REQUEST)
        if usage is not None:
            usage.count(used * US_TO_PERCENT_SECONDS, self._now_ms())

    def timed(self, answering: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """The same coroutine, whose steps are counted."""
        return _Timed(answering, self) if self._quotas.measures_time else answering

    # --- what is counted -------------------------------------------------------------------------------------------------

    def produced(self, size: int) -> None:
        """Count a produce request of so many bytes, when it comes: whoever has sent many at once must not have them all taken
        before the first one counts."""
        usage = self._usage(PRODUCE)
        if usage is not None:
            self._throttle(usage, usage.record(size, self._now_ms()))

    def most_fetched(self, asked: int) -> int:
        """The bytes that one fetch may return: what the full windows allow, so that no answer is too large for ever."""
        usage = self._usage(FETCH)
        return asked if usage is None else min(asked, int(usage.bound * self._quotas.windows.full_windows_s))

    def fetched(self, size: int) -> int:
        """Count the answer to a fetch. Returns for how many milliseconds the client is throttled: above 0 it must be answered
        without records, and is not charged for them."""
        self.settle()
        usage = self._usage(FETCH)
        if usage is not None:
            now_ms = self._now_ms()
            self._throttle(usage, usage.record(size, now_ms))
            if self._wait_ms:
                usage.count(-size, now_ms)
        return self._wait_ms

    def waits(self, wait_ms: int) -> None:
        """Note that the connection is muted for so long for another reason."""
        self._wait_ms = max(self._wait_ms, wait_ms)

    def skip(self) -> None:
        """The request has no answer: its time is not charged, as in Kafka."""
        self._settled = True
        self._used_us, self._entered_us = 0, None

    def settle(self) -> int:
        """Charge the time that was used up to here. Returns the milliseconds for which the connection is muted."""
        if not self._settled:
            self._settled = True
            if self._entered_us is not None:
                now_us = self._quotas.now_us()
                self._used_us += now_us - self._entered_us
                self._entered_us = now_us
            usage = self._usage(REQUEST) if self._used_us and self._api not in EXEMPT_APIS else None
            if usage is not None:
                self._throttle(usage, usage.record(self._used_us * US_TO_PERCENT_SECONDS, self._now_ms()))
        return self._wait_ms

    def answered(self, parts: Sequence[Part], version: int, body_at: int) -> Sequence[Part]:
        """The answer, a whole frame, with the throttle time in it; as it is where somebody has settled and said that before."""
        if self._settled:
            return parts
        wait_ms = self.settle()
        return parts if not wait_ms else _say_throttled(parts, self._api, version, wait_ms, body_at)

    def _usage(self, key: str) -> Usage | None:
        return self._quotas.of(key, self._connection.principal.name, self._client_id, self._now_ms())

    def _throttle(self, usage: Usage, wait_ms: int) -> None:
        if wait_ms > 0:
            self._wait_ms = max(self._wait_ms, wait_ms)
            self._quotas.throttle(usage, wait_ms, self._now_ms())
            self._connection.mute(wait_ms)


class _Timed(Coroutine[Any, Any, None]):
    """A coroutine that tells a meter when the loop works on it."""

    __slots__ = ("_coro", "_meter")

    def __init__(self, coro: Coroutine[Any, Any, None], meter: Meter) -> None:
        self._coro = coro
        self._meter = meter

    def send(self, value: Any) -> Any:
        entered = self._meter.enter()
        try:
            return self._coro.send(value)
        finally:
            if entered:
                self._meter.leave()

    def throw(self, *raised: Any) -> Any:
        return self._coro.throw(*raised)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("it is driven by its task")


def _say_throttled(parts: Sequence[Part], api_key: int, version: int, wait_ms: int, body_at: int) -> Sequence[Part]:
    """Write the throttle time into an encoded answer. Answers that have no place for it, in this version, stay as they are."""
    from kraftlite.protocol.kio_codec import throttle_place

    place = throttle_place(api_key, version)
    if place is None:
        return parts
    first = bytearray()
    taken = 0
    while len(first) < body_at + place + 4:
        part = parts[taken]
        assert not isinstance(part, StoredRecords), "records follow the throttle time"
        first += part
        taken += 1
    struct.pack_into(">i", first, body_at + place, wait_ms)
    return (first, *parts[taken:])
