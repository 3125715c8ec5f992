"""The limits of connections and of how fast they are made, by broker, listener and address.

Kafka's acceptor waits when a limit of the broker or the listener is reached, with those behind it in the system's queue. Here the
system hands every connection over; one that must wait is not read, in order, which looks the same to its client.

Source: KIP-402, KIP-612; QU-08, QU-09; Kafka's ConnectionQuotas. The listener between brokers is not among them: it is gRPC.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kraftlite.model.limits import MAX_INT32
from kraftlite.quotas.rates import KAFKAS_WINDOWS, QuotaWindows, WindowedRate, throttle_ms
from kraftlite.runtime.ports import Clock, TimerHandle

MAX_ADDRESSES: Final = 10_000
"""Addresses with a quota whose rate is kept; the one that came longest ago goes first."""
HELD_MS: Final = MAX_INT32
"""A connection that waits is let in, or closed, by the door."""


class Guest(Protocol):
    """A connection that wants to come in."""

    @property
    def peer_host(self) -> str: ...

    @property
    def lost(self) -> bool: ...

    def mute(self, delay_ms: int, /) -> None: ...

    def unmute(self) -> None: ...

    def fail(self, reason: str, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRules:
    """The limits of a broker. `most_of` and `rate_of`: those of single listeners, by name."""

    most: int = MAX_INT32
    most_per_ip: int = MAX_INT32
    overrides: Mapping[str, int] = field(default_factory=dict)
    """The limits of single addresses, instead of `most_per_ip`."""
    rate: int = MAX_INT32
    """New connections a second."""
    most_of: Mapping[str, int] = field(default_factory=dict)
    rate_of: Mapping[str, int] = field(default_factory=dict)


class Doors:
    """The connections of one broker, through all its listeners. `ip_quota`: the new connections a second that an address may
    make, None for as many as it likes."""

    def __init__(
        self, clock: Clock, rules: ConnectionRules, windows: QuotaWindows = KAFKAS_WINDOWS, most_addresses: int = MAX_ADDRESSES
    ) -> None:
        self.clock = clock
        self._most_addresses = most_addresses
        self.rules = rules
        self.windows = windows
        self.ip_quota: Callable[[str], float | None] = lambda _address: None
        self.total = 0
        self.per_ip: Counter[str] = Counter()
        self.rate = WindowedRate(windows)
        self._addresses: dict[str, WindowedRate] = {}
        self._doors: list[Door] = []

    def door(self, listener: str, most_waiting: int) -> Door:
        door = Door(self, listener, most_waiting)
        self._doors.append(door)
        return door

    def remove(self, door: Door) -> None:
        """Nobody comes through it any more; those inside still leave by it."""
        if door in self._doors:
            self._doors.remove(door)

    def update(self, rules: ConnectionRules) -> None:
        """Take over limits for connections that come in from now on."""
        self.rules = rules
        self.look_again()

    def look_again(self) -> None:
        """Something may have become free."""
        for door in self._doors:
            door.look()

    def is_full(self, listener: str, count: int) -> bool:
        rules = self.rules
        return self.total >= rules.most or count >= rules.most_of.get(listener, MAX_INT32)

    def record(self, listener: str, rate: WindowedRate, now_ms: int) -> int:
        """Count a new connection, and return for how long it waits: no longer than a window, as all waits here."""
        rules = self.rules
        wait_ms = self._over(self.rate, rules.rate, now_ms)
        return max(wait_ms, self._over(rate, rules.rate_of.get(listener, MAX_INT32), now_ms))

    def record_address(self, address: str, now_ms: int) -> int:
        bound = self.ip_quota(address)
        if bound is None:
            return 0
        rate = self._addresses.pop(address, None) or WindowedRate(self.windows)
        self._addresses[address] = rate
        if len(self._addresses) > self._most_addresses:
            del self._addresses[next(iter(self._addresses))]
        wait_ms = self._over(rate, bound, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def _over(self, rate: WindowedRate, bound: float, now_ms: int) -> int:
        if bound >= MAX_INT32:
            return 0
        rate.record(1, now_ms)
        found, over_ms = rate.measure(now_ms)
        return min(throttle_ms(found, bound, over_ms), self.windows.window_ms) if bound else self.windows.window_ms


class Door:
    """The connections of one listener. Those that wait, at most `most_waiting`, come in one after the other."""

    def __init__(self, doors: Doors, listener: str, most_waiting: int) -> None:
        self._doors = doors
        self._listener = listener
        self._most_waiting = most_waiting
        self._rate = WindowedRate(doors.windows)
        self._waiting: deque[Guest] = deque()
        self._counted = False
        """The first of them has been counted in the rates, and waits for its time or for a place."""
        self._timer: TimerHandle | None = None
        self._inside: dict[Guest, str] = {}
        self._leaving: dict[Guest, TimerHandle] = {}
        """Connections of addresses that made too many, until they are closed."""
        self.rate_waits = 0
        self.address_refusals = 0

    @property
    def count(self) -> int:
        return len(self._inside)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def arrive(self, guest: Guest) -> str | None:
        """Let it in, or let it wait. Returns why it is sent away at once."""
        if len(self._waiting) >= self._most_waiting:
            return f"{len(self._waiting)} connections wait already"
        if not self._waiting and not self._must_wait():
            return self._enter(guest)
        guest.mute(HELD_MS)
        self._waiting.append(guest)
        return None

    def gone(self, guest: Guest) -> None:
        if guest in self._inside:
            address = self._inside.pop(guest)
            doors = self._doors
            doors.total -= 1
            doors.per_ip[address] -= 1
            if doors.per_ip[address] <= 0:
                del doors.per_ip[address]
            doors.look_again()
        elif (timer := self._leaving.pop(guest, None)) is not None:
            timer.cancel()

    def look(self) -> None:
        """Let in whoever may come in now."""
        while self._waiting and self._timer is None:
            guest = self._waiting[0]
            if guest.lost:
                self._waiting.popleft()
                continue
            if self._must_wait():
                return
            self._waiting.popleft()
            reason = self._enter(guest)
            if reason is not None:
                guest.fail(reason)
            elif guest not in self._leaving:
                guest.unmute()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for timer in self._leaving.values():
            timer.cancel()
        self._waiting.clear()

    def _must_wait(self) -> bool:
        """Return whether the next one has to wait: for its turn, once, and for a place."""
        if self._timer is not None:
            return True
        doors = self._doors
        if not self._counted:
            self._counted = True
            wait_ms = doors.record(self._listener, self._rate, doors.clock.now_ms())
            if wait_ms:
                self.rate_waits += 1
                self._timer = doors.clock.call_later(wait_ms, self._waited)
                return True
        return doors.is_full(self._listener, len(self._inside))

    def _waited(self) -> None:
        self._timer = None
        self.look()

    def _enter(self, guest: Guest) -> str | None:
        self._counted = False
        doors, address = self._doors, guest.peer_host.removeprefix("::ffff:")  # an IPv4 client of a socket for both
        now_ms = doors.clock.now_ms()
        wait_ms = doors.record_address(address, now_ms)
        if wait_ms:
            self.address_refusals += 1
            if len(self._leaving) >= self._most_waiting:
                return f"{address} makes more connections than its quota allows"
            guest.mute(HELD_MS)
            self._leaving[guest] = doors.clock.call_later(wait_ms, lambda: self._send_away(guest, address))
            return None
        most = doors.rules.overrides.get(address, doors.rules.most_per_ip)
        if doors.per_ip[address] >= most:
            return f"more than {most} connections from {address}"
        self._inside[guest] = address
        doors.total += 1
        doors.per_ip[address] += 1
        return None

    def _send_away(self, guest: Guest, address: str) -> None:
        self._leaving.pop(guest, None)
        guest.fail(f"{address} makes more connections than its quota allows")
