"""Requests that are held until the step of their id that is under way is done, instead of being told to come again.

A producer begins its next transaction as soon as the one before is decided, and that one is complete a moment later. Who is told
CONCURRENT_TRANSACTIONS then comes again after a pause that is longer than all of it. Departs: Kafka tells it at once (TX-30).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.transactions.events import Add

HELD: Final = "held"
MOST_HELD: Final = 16
"""The most requests of one id; further ones are told to come again. A producer has one at a broker."""


class Held(NamedTuple):
    """A request, and until when it waits, in milliseconds of the monotonic clock."""

    request_id: int
    request: Add
    until_ms: int


class HeldAdds:
    """The requests of one shard that wait, by id; each until its time at most. `deadlines` get a key (`HELD`, id)."""

    def __init__(self, deadlines: Deadlines[tuple[str, str]]) -> None:
        self._deadlines = deadlines
        self._held: dict[str, list[Held]] = {}

    def hold(self, one: Held, now_ms: int) -> bool:
        """Return whether it waits now: not when its time is over, nor when too many do."""
        name = one.request.transactional_id
        if one.until_ms <= now_ms or len(self._held.get(name, ())) >= MOST_HELD:
            return False
        self._held.setdefault(name, []).append(one)
        self._arm(name)
        return True

    def release(self, transactional_id: str) -> list[Held]:
        """Those that wait for a step of the id, in the order in which they came."""
        found = self._held.pop(transactional_id, [])
        if found:
            self._deadlines.cancel((HELD, transactional_id))
        return found

    def expire(self, transactional_id: str, now_ms: int) -> list[Held]:
        """Those whose time is over."""
        waiting = self._held.pop(transactional_id, [])
        left = [one for one in waiting if one.until_ms > now_ms]
        if left:
            self._held[transactional_id] = left
            self._arm(transactional_id)
        return [one for one in waiting if one.until_ms <= now_ms]

    def clear(self) -> None:
        self._held.clear()

    def _arm(self, name: str) -> None:
        self._deadlines.set((HELD, name), min(one.until_ms for one in self._held[name]))
