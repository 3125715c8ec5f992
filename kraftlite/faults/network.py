"""The transport of a real node whose links to other nodes can be cut, refused, slow and lossy.

Each node hits the calls that it makes, their requests and the answers to them: a cut between two nodes is injected at both. Who
made a call that was lost hears of it after its own timeout, or when the fault ends, as when a network that comes back resets the
connections that it had. Services that look at nodes or cause faults are called by tools, which no fault hits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kraftlite.faults.active import Active, Undo
from kraftlite.model.errors import ApiError
from kraftlite.model.faults import UnknownFault
from kraftlite.model.ids import Endpoint
from kraftlite.model.method import Method, Req, Res
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import TransportError

if TYPE_CHECKING:
    from kraftlite.tls.source import TlsSource

_MILLION: Final = 1_000_000
_CUTS: Final = ("cut", "cut-one-way")


class _Link:
    """One fault on the way to one node and back."""

    def __init__(self, active: Active) -> None:
        fault = active.fault
        self.active = active
        self.other = fault.other
        self.over = asyncio.Event()
        self.refused = fault.kind == "refuse"
        self._ways = (fault.incoming, fault.outgoing)
        self._delay_s = fault.amount / _MILLION if fault.kind == "slow" else 0.0
        self._loss = {"lossy": fault.amount}.get(fault.kind, _MILLION if fault.kind in _CUTS else 0)

    def delay_s(self, outgoing: bool) -> float:
        return self._delay_s if self._ways[outgoing] else 0.0

    def loses(self, outgoing: bool, rng: random.Random) -> bool:
        return self._ways[outgoing] and bool(self._loss) and rng.randrange(_MILLION) < self._loss


class FaultyTransport(GrpcTransport):
    """`GrpcTransport`, and exactly that while no link has a fault. `nodes` tells which nodes are at which addresses."""

    def __init__(self, *, rng: random.Random, **given: Any) -> None:
        super().__init__(**given)
        self.nodes: Callable[[], Mapping[Endpoint, int]] = dict
        self._rng = rng
        self._links: list[_Link] = []
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, active: Active) -> Undo:
        link = _Link(active)
        lost: list[asyncio.Future[Any]] = []
        known = sorted(set(self.nodes().values()))
        if link.other not in known:
            raise UnknownFault(f"node {link.other} is not known: allowed are {', '.join(map(str, known)) or 'none yet'}")
        if link.refused:
            self._break(link)
        elif active.fault.kind in _CUTS:
            lost = [answer for key in self._connected(link) for answer in self._peers[key].lose()]
        self._links.append(link)
        self.call = self._call  # type: ignore[method-assign]

        def undo() -> None:
            self._links.remove(link)
            if not self._links:
                del self.call
            link.over.set()
            for answer in lost:
                if not answer.done():
                    answer.set_exception(TransportError(_lost_in(link)))

        return undo

    def _break(self, link: _Link) -> None:
        """The connections to the node are reset: calls under way fail now."""
        for key in self._connected(link):
            task = asyncio.get_running_loop().create_task(self._peers.pop(key).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _connected(self, link: _Link) -> list[tuple[Endpoint, TlsSource | None]]:
        """The keys of the connections to the other node."""
        nodes = self.nodes()
        return [key for key in self._peers if nodes.get(key[0]) == link.other]

    def _to(self, peer: Endpoint) -> Iterator[_Link]:
        node = self.nodes().get(peer)
        return (link for link in list(self._links) if link.other == node)

    async def _call(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        what, end_s = f"{method} to {peer}", time.monotonic() + timeout_ms / 1000
        if not any(True for _ in self._to(peer)):
            return await super().call(peer, method, request, timeout_ms)
        await self._travel(peer, what, end_s, outgoing=True)
        left_ms = max(1, int((end_s - time.monotonic()) * 1000))
        try:
            answer = await super().call(peer, method, request, left_ms)
        except ApiError:
            await self._travel(peer, what, end_s, outgoing=False)
            raise
        await self._travel(peer, what, end_s, outgoing=False)
        return answer

    async def _travel(self, peer: Endpoint, what: str, end_s: float, *, outgoing: bool) -> None:
        """One message on its way. Raises TransportError when it does not arrive in time."""
        delay_s = 0.0
        for link in self._to(peer):
            if link.refused:
                link.active.hit()
                raise TransportError(f"{what}: connection refused ({link.active.fault})")
            if link.loses(outgoing, self._rng):
                link.active.hit()
                await _vanish(link, what, end_s)
            delay_s += link.delay_s(outgoing)
            if link.delay_s(outgoing):
                link.active.hit()
        if delay_s:
            left_s = max(0.0, end_s - time.monotonic())
            await asyncio.sleep(min(delay_s, left_s))
            if delay_s >= left_s:
                raise TransportError(f"{what}: no answer in time")


async def _vanish(link: _Link, what: str, end_s: float) -> None:
    """The message is gone: nobody hears of it before the caller's time is up, or the fault has ended."""
    try:
        async with asyncio.timeout(max(0.0, end_s - time.monotonic())):
            await link.over.wait()
    except TimeoutError:
        raise TransportError(f"{what}: no answer in time") from None
    raise TransportError(f"{what}: {_lost_in(link)}")


def _lost_in(link: _Link) -> str:
    return f"connection reset at the end of a fault ({link.active.fault})"
