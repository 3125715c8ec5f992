"""The faults that a test may cause, as calls: the same for an embedded cluster and for one of processes.

Each call acts at once and returns an `Injected`, which ends what the call has begun: by `end`, as a context manager, or, with
`for_s`, by itself. They raise ValueError for what has no meaning, and ClusterError where the cluster cannot do it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from kraftlite.model.errors import ErrorCode
from kraftlite.model.faults import CLIENTS as CLIENTS_ID
from kraftlite.model.faults import MAX_FOR_MS, Injection, check, failing_code
from kraftlite.model.limits import MAX_INT32
from kraftlite.testing.errors import ClusterError

CLIENTS: Final = "clients"
"""The other end of the brokers' Kafka listeners, for `cut` and `refuse`."""
Ends = int | str | Iterable[int]


@dataclass(frozen=True, slots=True)
class Request:
    """One node that is to be hit. The id and the length of `fault` are still to be given."""

    node: int
    fault: Injection


class Injected:
    """Faults that a call has begun. `end` may be called more than once, and after they have ended. In a `with` block, also an
    asynchronous one, they end with it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


def milliseconds(for_s: float | None) -> int | None:
    """The length of a fault. Raises ValueError for one that is not allowed."""
    if for_s is None:
        return None
    if isinstance(for_s, bool) or not isinstance(for_s, int | float) or not 0.001 <= for_s <= MAX_FOR_MS / 1000:
        raise ValueError(f"for_s={for_s!r}: allowed is 0.001 to {MAX_FOR_MS // 1000} seconds")
    return round(for_s * 1000)


class FaultCalls(ABC):
    """The calls. `for_s`: the seconds after which a fault ends by itself; None: it lasts until it is ended or healed, in a
    cluster of processes for 60 s at most."""

    @property
    @abstractmethod
    def brokers(self) -> tuple[int, ...]: ...

    @abstractmethod
    def _check(self, node_id: object) -> int:
        """Raises ValueError when there is no such node."""

    @abstractmethod
    def _inject(self, requests: Sequence[Request], for_s: float | None) -> Injected: ...

    # --- the network

    def cut(self, a: Ends, b: Ends, *, one_way: bool = False, for_s: float | None = None) -> Injected:
        """Messages between the nodes `a` and `b` (each an id or several) vanish; `one_way`: only those from a to b.

        `cut(CLIENTS, 4)` takes a broker away from its clients: nothing arrives, and what was in flight arrives after `heal`, as
        with TCP. `cut(4, CLIENTS, one_way=True)` lets requests in and holds only the answers.
        """
        return self._link("cut-one-way" if one_way else "cut", a, b, for_s, one_way=one_way)

    def refuse(self, a: Ends, b: Ends, *, for_s: float | None = None) -> Injected:
        """Connections between `a` and `b`, or of clients, fail at once, those that there are too."""
        return self._link("refuse", a, b, for_s)

    def delay(self, a: Ends, b: Ends, ms: int, *, for_s: float | None = None) -> Injected:
        """Every message between `a` and `b` takes `ms` milliseconds, from now on; 0 is as before."""
        if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= 60_000:
            raise ValueError(f"ms={ms!r}: allowed is a whole number of 0 to 60000")
        pairs = self._pairs(a, b)
        self._end_delays(pairs)
        return self._link("slow", a, b, for_s, amount=ms * 1000) if ms else Injected(lambda: None)

    def lose(self, a: Ends, b: Ends, share: float, *, for_s: float | None = None) -> Injected:
        """A share (0 to 1) of the messages between the nodes `a` and `b` is lost."""
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share={share!r}: allowed is a number above 0 and up to 1")
        return self._link("lossy", a, b, for_s, amount=max(1, round(share * 1_000_000)))

    # --- disks and clocks

    def slow_disk(self, node: int, ms: int, *, for_s: float | None = None) -> Injected:
        """Every flush of a node takes `ms` milliseconds longer; in a cluster of processes every write, too."""
        return self._disk("disk-slow", node, for_s, amount=ms * 1000)

    def stall_disk(self, node: int, *, for_s: float | None = None) -> Injected:
        """No flush of a node is done before the end of the fault."""
        return self._disk("disk-stall", node, for_s)

    def fill_disk(self, node: int, *, for_s: float | None = None) -> Injected:
        """A node finds no room on its disks."""
        return self._disk("disk-full", node, for_s)

    def jump_clock(self, node: int, seconds: float, *, for_s: float | None = None) -> Injected:
        """The wall clock of a node jumps, and jumps back at the end."""
        most = MAX_INT32 / 1000
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.001 <= abs(seconds) <= most:
            raise ValueError(f"seconds={seconds!r}: allowed is 0.001 to {int(most)} seconds, forward or back")
        return self._disk("wall-jump", node, for_s, amount=round(seconds * 1000))

    # --- what clients are answered

    def fail_api(
        self,
        api: str,
        *,
        error: int | str | ErrorCode,
        count: int = 0,
        delay_ms: int = 0,
        nodes: Iterable[int] | None = None,
        for_s: float | None = None,
    ) -> Injected:
        """Brokers answer the requests of an API (`Produce`, `Metadata` …) with one of Kafka's codes, by name or number, and do
        nothing else. `count`: the next so many requests at each broker; 0: all. `nodes`: only these; None: every broker that
        runs."""
        code = failing_code(error)
        return self._api("api-error", nodes, for_s, api=api, error=code, count=count, amount=delay_ms * 1000)

    def slow_api(
        self, ms: int, *, api: str = "", count: int = 0, nodes: Iterable[int] | None = None, for_s: float | None = None
    ) -> Injected:
        """Brokers begin with requests of an API, "": of all of them, `ms` milliseconds later."""
        return self._api("api-slow", nodes, for_s, api=api, count=count, amount=ms * 1000)

    # --- inside

    @abstractmethod
    def _end_delays(self, pairs: Sequence[tuple[int, int]]) -> None:
        """A new delay takes the place of the ones that there are."""

    def _api(self, kind: str, nodes: Iterable[int] | None, for_s: float | None, **given: Any) -> Injected:
        fault = _checked(kind, **given)
        chosen = self._fallible() if nodes is None else tuple(self._broker(it) for it in self._ids(nodes))
        if not chosen:
            raise ClusterError("no broker is running")
        return self._inject([Request(node, fault) for node in chosen], for_s)

    def _fallible(self) -> tuple[int, ...]:
        """The brokers that run."""
        return self.brokers

    def _disk(self, kind: str, node: int, for_s: float | None, **given: Any) -> Injected:
        return self._inject([Request(self._check(node), _checked(kind, **given))], for_s)

    def _link(self, kind: str, a: Ends, b: Ends, for_s: float | None, *, one_way: bool = False, amount: int = 0) -> Injected:
        if CLIENTS in (a, b):
            return self._client_link(kind, a, b, for_s, one_way=one_way)
        requests = [
            Request(x, _checked(kind, other=y, outgoing=True, incoming=not one_way, amount=amount)) for x, y in self._pairs(a, b)
        ]
        return self._inject(requests, for_s)

    def _client_link(self, kind: str, a: Ends, b: Ends, for_s: float | None, *, one_way: bool) -> Injected:
        if a == b:
            raise ValueError("clients are on both sides; say which brokers they are cut from")
        incoming, outgoing = not one_way or a == CLIENTS, not one_way or b == CLIENTS
        fault = _checked(kind, other=CLIENTS_ID, incoming=incoming, outgoing=outgoing)
        return self._inject([Request(self._broker(it), fault) for it in self._ids(b if a == CLIENTS else a)], for_s)

    def _broker(self, node_id: int) -> int:
        if self._check(node_id) not in self.brokers:
            raise ValueError(f"node {node_id} is not a broker: it has no clients; brokers are {self.brokers}")
        return node_id

    def _ids(self, ends: Ends) -> list[int]:
        """Raises ValueError for none: a fault that hits nobody would pass for one that does no harm."""
        if isinstance(ends, str) or not isinstance(ends, Iterable):
            return [self._check(ends)]
        found = [self._check(it) for it in ends]
        if not found:
            raise ValueError("no node was named")
        return found

    def _pairs(self, a: Ends, b: Ends) -> list[tuple[int, int]]:
        left, right = self._ids(a), self._ids(b)
        for node_id in left:
            if node_id in right:
                raise ValueError(f"node {node_id} is on both sides; a node always reaches itself")
        return [(x, y) for x in left for y in right]


def _checked(kind: str, **given: Any) -> Injection:
    """Raises ValueError."""
    fault = Injection(id="new", kind=kind, for_ms=1, **given)
    check(fault)
    if fault.family == "api":
        from kraftlite.faults.clients import check_api

        check_api(fault)
    return fault
