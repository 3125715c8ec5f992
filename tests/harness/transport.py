"""An in-memory network of nodes for tests: `Transport` without sockets, with links that can be cut, held and delayed.

    network = MemNetwork(clock)
    one, two = network.transport("one"), network.transport("two")
    await two.serve(Endpoint("two", 9093), handlers)
    await one.call(Endpoint("two", 9093), VOTE, request, 1000)
    network.cut("one", "two")        # calls fail at once, as with a refused connection
    network.hold("one", "two")       # calls and answers vanish: the caller waits for its timeout (needs a clock)

Nodes are known by name; an endpoint belongs to the node whose transport serves it. Without a clock nothing takes time and
a timeout is never reached by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kraftlite.model.ids import Endpoint
from kraftlite.model.method import Method
from kraftlite.runtime.ports import Clock, Handler, TransportError

Link = tuple[str, str]


class MemNetwork:
    """All transports of one test. `calls` counts what was asked: (source, target, method name)."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock
        self.calls: list[tuple[str, str, str]] = []
        self.on_call: Callable[[str, str, Method, Any], None] | None = None
        """Sees every request that leaves; may raise TransportError to refuse it."""
        self.listeners: dict[Endpoint, tuple[str, Mapping[Method, Handler]]] = {}
        self._cut: set[Link] = set()
        self._held: set[Link] = set()
        self._delays: dict[Link, int] = {}
        self._transports: dict[str, MemTransport] = {}
        self._next_port = 40_000

    def transport(self, name: str) -> MemTransport:
        """The transport of node `name`; a new one replaces a closed one (a restart)."""
        transport = MemTransport(self, name)
        self._transports[name] = transport
        return transport

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Requests from a to b (and b to a) fail at once. Those under way fail too."""
        self._change(self._cut, a, b, one_way)
        for transport in self._transports.values():
            transport.fail_calls(lambda source, target: self.is_cut(source, target))

    def hold(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Messages from a to b (and b to a) vanish without an error."""
        self._change(self._held, a, b, one_way)

    def isolate(self, name: str, others: list[str]) -> None:
        for other in others:
            if other != name:
                self.cut(name, other)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo cuts and holds between a and b, all of a, or everything."""
        for links in (self._cut, self._held):
            links.difference_update([link for link in links if (a is None or a in link) and (b is None or b in link)])

    def delay(self, a: str, b: str, delay_ms: int) -> None:
        """Every message from a to b takes `delay_ms`."""
        self._delays[(a, b)] = delay_ms

    def kill(self, name: str) -> None:
        """The node is gone: its listeners refuse, its calls and those to it fail."""
        self._transports[name].drop()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def is_held(self, source: str, target: str) -> bool:
        return (source, target) in self._held

    def pick_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def travel(self, source: str, target: str) -> None:
        delay_ms = self._delays.get((source, target), 0)
        if delay_ms and self.clock is not None:
            await self.clock.sleep(delay_ms)
        else:
            await asyncio.sleep(0)
        if self.is_held(source, target):
            await asyncio.get_running_loop().create_future()  # never: the caller's timeout ends it

    @staticmethod
    def _change(links: set[Link], a: str, b: str, one_way: bool) -> None:
        links.add((a, b))
        if not one_way:
            links.add((b, a))


class MemTransport:
    """`Transport` of one node in a `MemNetwork`."""

    def __init__(self, network: MemNetwork, name: str) -> None:
        self.name = name
        self._network = network
        self._closed = False
        self._outgoing: dict[asyncio.Future[Any], str] = {}
        self._incoming: dict[asyncio.Task[Any], str] = {}

    async def reserve(self, listen: Endpoint) -> None:
        if listen in self._network.listeners:
            raise OSError(98, f"cannot listen on {listen}: address already in use")

    async def serve(self, listen: Endpoint, handlers: Mapping[Method, Handler]) -> Endpoint:
        bound = listen if listen.port else Endpoint(listen.host, self._network.pick_port())
        if bound in self._network.listeners:
            raise OSError(98, f"cannot listen on {bound}: address already in use")
        self._network.listeners[bound] = (self.name, handlers)
        return bound

    async def call(self, peer: Endpoint, method: Method, request: Any, timeout_ms: int) -> Any:
        if self._closed:
            raise TransportError(f"{method} to {peer}: transport is closed")
        if not isinstance(request, method.request):
            raise TypeError(f"{method} takes {method.request.__name__}, not {type(request).__name__}")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        found = self._network.listeners.get(peer)
        self._outgoing[done] = found[0] if found else ""
        task = asyncio.create_task(self._exchange(peer, method, request, done), name=f"{self.name}>{peer} {method}")
        timer = self._network.clock.call_later(timeout_ms, lambda: _fail(done, "timed out")) if self._network.clock else None
        try:
            return await done
        except TransportError as error:
            raise TransportError(f"{method} to {peer}: {error}") from None
        finally:
            self._outgoing.pop(done, None)
            task.cancel()
            if timer is not None:
                timer.cancel()

    async def _exchange(self, peer: Endpoint, method: Method, request: Any, done: asyncio.Future[Any]) -> None:
        network = self._network
        try:
            listener = network.listeners.get(peer)
            network.calls.append((self.name, listener[0] if listener else str(peer), method.name))
            if network.on_call is not None and listener is not None:
                network.on_call(self.name, listener[0], method, request)
            if listener is None or network.is_cut(self.name, listener[0]):
                await asyncio.sleep(0)
                raise TransportError("connection refused")
            target, handlers = listener
            await network.travel(self.name, target)
            handler = handlers.get(method)
            if handler is None or network.listeners.get(peer) is not listener:
                raise TransportError("not served" if handler is None else "connection reset")
            task = asyncio.ensure_future(handler(request))
            network._transports[target]._incoming[task] = self.name
            try:
                response = await task
            finally:
                task.cancel()
                network._transports[target]._incoming.pop(task, None)
            if not isinstance(response, method.response):
                raise TypeError(f"{method} answers with {method.response.__name__}, not {type(response).__name__}")
            await network.travel(target, self.name)
        except asyncio.CancelledError:
            _fail(done, "connection reset")
            raise
        except Exception as error:  # noqa: BLE001 - whatever the handler raised is the caller's to see
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(response)

    def fail_calls(self, affected: Callable[[str, str], bool]) -> None:
        for done, target in list(self._outgoing.items()):
            if affected(self.name, target):
                _fail(done, "connection reset")

    def drop(self) -> None:
        """Stop serving and calling, at once."""
        self._closed = True
        listeners = self._network.listeners
        for endpoint in [endpoint for endpoint, (name, _) in listeners.items() if name == self.name]:
            del listeners[endpoint]
        for done in list(self._outgoing):
            _fail(done, "transport is closed")
        for task in list(self._incoming):
            task.cancel()

    async def close(self, grace_ms: int = 0) -> None:
        self.drop()
        await asyncio.sleep(0)


def _fail(done: asyncio.Future[Any], reason: str) -> None:
    if not done.done():
        done.set_exception(TransportError(reason))
