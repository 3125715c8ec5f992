"""A network of nodes in one process: `Transport` without sockets, whose links can be slow, lossy, cut and reset.

Every message takes a link's delay; a lost one makes the caller wait for its timeout, a reset fails both ends at once. Requests
and answers are the message dataclasses themselves (immutable ones); with `wire` they go through the production codec and back,
so that what one end changes the other cannot see and what the codec cannot carry is found.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.bounds import OutOfRange
from kraftlite.model.method import AnyMethod, Method, Req, Res
from kraftlite.rpc.codec import MessageCodec
from kraftlite.runtime.ports import Handler, Handlers, TransportError
from kraftlite.simhost.process import Cancellable, ProcessLoop, inert

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

WIRED = frozenset({"Raft", "Controller", "Replica", "Introspection", "Faults"})
"""Services whose messages have a codec; those of simulated clients have none."""

ReplyCallback = Callable[["Exchange[Any, Any]"], None]
M = TypeVar("M", bound="DataclassInstance")


@dataclass(slots=True)
class Link:
    """One direction between two nodes. Times in microseconds, chances per million messages."""

    min_us: int = 50
    max_us: int = 500
    slow_chance: int = 0
    """The chance that a message takes `slow_us` longer, so that later ones overtake it."""
    slow_us: int = 0
    loss: int = 0
    duplicates: int = 0
    held_until_us: int = 0
    """No message arrives before, and none is lost, as when a connection outlives a partition of the network."""
    cut: bool = False
    """Messages vanish; nobody is told."""
    refused: bool = False
    """Messages fail at once, as with a closed port or a reset connection."""


@dataclass(eq=False, slots=True)
class Exchange(Generic[Req, Res]):
    """One call under way."""

    source: NodeId
    target: NodeId
    method: Method[Req, Res]
    request: Req
    done: asyncio.Future[Res]
    handler: asyncio.Task[Res] | None = None
    over: bool = False


AnyExchange: TypeAlias = Exchange[Any, Any]


@dataclass(slots=True)
class NetworkStats:
    calls: int = 0
    lost: int = 0
    duplicated: int = 0
    refused: int = 0
    reset: int = 0


@dataclass(eq=False, slots=True)
class _Listener:
    owner: SimHostTransport
    handlers: Handlers
    serving: dict[asyncio.Task[object], None] = field(default_factory=dict)


class SimNetwork:
    """All links. `rng` draws delays and losses. `outside` is the context that messages travel in: no node's."""

    def __init__(self, loop: ProcessLoop, rng: random.Random, outside: contextvars.Context, *, wire: bool = False) -> None:
        self.loop = loop
        self.rng = rng
        self._draw_bits = rng.getrandbits
        self.outside = outside
        self.default = Link()
        self.stats = NetworkStats()
        self.listeners: dict[Endpoint, _Listener] = {}
        self.on_call: Callable[[NodeId, NodeId, AnyMethod, object], None] | None = None
        self.on_answer: Callable[[NodeId, NodeId, AnyMethod, object, object], None] | None = None
        self.on_arrival: Callable[[AnyExchange], None] | None = None
        """Told of requests that reach a handler: late ones and second copies, too."""
        self.on_served: Callable[[AnyExchange, object], None] | None = None
        """Told of what a handler has answered, whether or not anybody will hear of it."""
        self._links: dict[tuple[NodeId, NodeId], Link] = {}
        self._under_way: dict[AnyExchange, None] = {}
        self._next_port = 40_000
        self._wire = wire
        self._codecs: dict[tuple[AnyMethod, type[object]], MessageCodec[Any]] = {}

    # --- links

    def link(self, source: NodeId, target: NodeId) -> Link:
        """The link to change. A new one has the delays of `default`."""
        found = self._links.get((source, target))
        if found is None:
            base = self.default
            found = self._links[(source, target)] = Link(base.min_us, base.max_us)
        return found

    def cut(self, a: NodeId, b: NodeId, *, one_way: bool = False) -> None:
        self.link(a, b).cut = True
        if not one_way:
            self.link(b, a).cut = True

    def cuts(self) -> list[tuple[NodeId, NodeId]]:
        """(source, target) of every link whose messages vanish, in order."""
        return sorted(ends for ends, link in self._links.items() if link.cut)

    def delays(self) -> list[tuple[NodeId, NodeId]]:
        """(source, target) of every link that is slower than `default`, in order."""
        return sorted(ends for ends, link in self._links.items() if link.max_us > self.default.max_us)

    def refuse(self, a: NodeId, b: NodeId) -> None:
        """Calls between a and b fail at once, those under way too."""
        self.link(a, b).refused = self.link(b, a).refused = True
        self.reset(a, b)

    def reset(self, a: NodeId, b: NodeId) -> None:
        """The connections between a and b break: calls under way fail, and their handlers are cancelled."""
        for exchange in list(self._under_way):
            if {exchange.source, exchange.target} == {a, b}:
                self.stats.reset += 1
                self._break(exchange, "connection reset")

    def is_prompt(self, source: NodeId, target: NodeId) -> bool:
        """Return whether a message arrives, or fails, within the delays of `default`."""
        link = self._links.get((source, target), self.default)
        dropped = link.cut or link.loss
        return link.refused or not (dropped or link.slow_chance or link.held_until_us or link.max_us > self.default.max_us)

    def heal(self) -> None:
        """Every link is as `default` again."""
        self._links.clear()

    # --- travelling

    def transport(self, node_id: NodeId, context: contextvars.Context) -> SimHostTransport:
        return SimHostTransport(self, node_id, context)

    def pick_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def send(self, exchange: AnyExchange, source: NodeId, target: NodeId, arrive: ReplyCallback) -> None:
        """`arrive(exchange)` after the link's delay, unless the message is lost."""
        link = self._links.get((source, target), self.default)
        rng = self.rng
        if link.refused:
            self.stats.refused += 1
            self.at(1, lambda: self._break(exchange, "connection refused"))
            return
        if link.cut or (link.loss and rng.randrange(1_000_000) < link.loss):
            self.stats.lost += 1
            return
        delay = self._between(link.min_us, link.max_us) if source != target else min(1, link.max_us)
        if link.slow_chance and rng.randrange(1_000_000) < link.slow_chance:
            delay += rng.randint(1, max(1, link.slow_us))
        if link.held_until_us:
            delay += max(0, link.held_until_us - self.loop.now_us())
        self.at(delay, lambda: arrive(exchange))
        if link.duplicates and rng.randrange(1_000_000) < link.duplicates:
            self.stats.duplicated += 1
            self.at(delay + rng.randint(1, 4 * link.max_us), lambda: arrive(exchange))

    def _between(self, least_us: int, most_us: int) -> int:
        """Draw what `Random.randint` draws, in half of its time. Raises ValueError when nothing lies between."""
        count = most_us - least_us + 1
        if count < 1:
            raise ValueError(f"a link takes from {least_us} to {most_us} us; the second must not be less than the first")
        bits = count.bit_length()
        drawn = self._draw_bits(bits)
        while drawn >= count:
            drawn = self._draw_bits(bits)
        return least_us + drawn

    def at(self, delay_us: int, callback: Callable[[], object]) -> Cancellable:
        return self.loop.at_us(self.loop.now_us() + delay_us, callback, self.outside)

    def begin(self, exchange: AnyExchange, peer: Endpoint) -> None:
        self._under_way[exchange] = None
        self.stats.calls += 1
        if self.on_call is not None:
            self.on_call(exchange.source, exchange.target, exchange.method, exchange.request)
        self.send(exchange, exchange.source, exchange.target, lambda it: self._serve(it, peer))

    def end(self, exchange: AnyExchange) -> None:
        """The caller no longer waits."""
        exchange.over = True
        self._under_way.pop(exchange, None)
        if exchange.handler is not None and not exchange.handler.done():
            # What cancels a call travels like a message, but is never what a test is about: it is not lost and takes no draw.
            handler = exchange.handler
            self.at(self.default.max_us, handler.cancel)

    def _serve(self, exchange: AnyExchange, peer: Endpoint) -> None:
        listener = self.listeners.get(peer)
        if listener is None:
            self._break(exchange, "connection refused")
            return
        handler = listener.handlers.get(exchange.method)
        if handler is None or exchange.method.streamed:
            self._break(exchange, "not served")
            return
        try:
            request = self._copy(exchange.method, exchange.request)
        except OutOfRange as error:
            refusal = error
            self.send(exchange, exchange.target, exchange.source, lambda it: self._deliver(it, None, refusal))
            return
        if self.on_arrival is not None:
            self.on_arrival(exchange)
        task = listener.owner.run(handler, request)
        exchange.handler = task
        listener.serving[task] = None
        task.add_done_callback(lambda it: listener.serving.pop(it, None), context=self.outside)
        task.add_done_callback(lambda it: self._answered(exchange, listener.owner, it), context=self.outside)

    def _answered(self, exchange: Exchange[Req, Res], owner: SimHostTransport, task: asyncio.Task[Res]) -> None:
        if task.cancelled():
            if not owner.closed:
                self._break(exchange, "connection reset")
            return
        error = task.exception()
        response = None if error is not None else task.result()
        if self.on_served is not None and response is not None and not owner.closed:
            self.on_served(exchange, response)
        if owner.closed or exchange.over:
            return
        if error is None and not isinstance(response, exchange.method.response):
            error = TypeError(
                f"{exchange.method} answers with {exchange.method.response.__name__}, not {type(response).__name__}"
            )
        if error is not None and not isinstance(error, ApiError | TransportError):
            owner.broken(error, f"handler of {exchange.method}")
            error = TransportError("the handler failed")
        if response is not None:
            try:
                response = self._copy(exchange.method, response)
            except OutOfRange as out_of_range:
                error = TransportError(str(out_of_range))
        self.send(exchange, exchange.target, exchange.source, lambda it: self._deliver(it, response, error))

    def _deliver(self, exchange: Exchange[Req, Res], response: Res, error: BaseException | None) -> None:
        if exchange.done.done():
            return
        if error is not None:
            exchange.done.set_exception(error)
            return
        if self.on_answer is not None:
            self.on_answer(exchange.source, exchange.target, exchange.method, exchange.request, response)
        exchange.done.set_result(response)

    def _copy(self, method: AnyMethod, message: M) -> M:
        """Return the copy of `message` that the other end gets."""
        if not self._wire or method.service not in WIRED:
            return message
        cls = type(message)
        codec: MessageCodec[M] | None = self._codecs.get((method, cls))
        if codec is None:
            codec = self._codecs[(method, cls)] = MessageCodec(method, cls)
        head, payload = codec.split(message)
        return codec.join(head, bytes(payload))

    def _break(self, exchange: AnyExchange, reason: str) -> None:
        if not exchange.done.done():
            exchange.done.set_exception(TransportError(reason))
        if exchange.handler is not None:
            exchange.handler.cancel()

    def node_died(self, transport: SimHostTransport) -> None:
        """Its listeners are gone, its callers are told by a reset; its own calls are nobody's business any more."""
        for endpoint in [endpoint for endpoint, it in self.listeners.items() if it.owner is transport]:
            del self.listeners[endpoint]
        for exchange in list(self._under_way):
            if exchange.target == transport.node_id and exchange.handler is not None and exchange.handler in transport.serving:
                self.at(self.default.max_us, lambda it=exchange: self._break(it, "connection reset"))  # type: ignore[misc]
            elif exchange.source == transport.node_id and exchange.done in transport.calls:
                self._break(exchange, "transport is closed")


@dataclass(eq=False)
class SimHostTransport:
    """The `Transport` port of one incarnation of a node."""

    network: SimNetwork
    node_id: NodeId
    context: contextvars.Context
    broken: Callable[[BaseException, str], None] = lambda error, where: None
    """Told of handlers that ended with an error of no known kind."""
    closed: bool = False
    calls: dict[asyncio.Future[Any], None] = field(default_factory=dict)
    serving: dict[asyncio.Task[object], None] = field(default_factory=dict)

    async def reserve(self, listen: Endpoint) -> None:
        if listen in self.network.listeners:
            raise OSError(98, f"cannot listen on {listen}: address already in use")

    async def serve(self, listen: Endpoint, handlers: Handlers) -> Endpoint:
        if self.closed:
            raise OSError(errno.EBADF, "transport is closed: nothing listens for a dead process")
        bound = listen if listen.port else Endpoint(listen.host, self.network.pick_port())
        if bound in self.network.listeners:
            raise OSError(98, f"cannot listen on {bound}: address already in use")
        self.network.listeners[bound] = _Listener(self, handlers)
        return bound

    async def unserve(self, bound: Endpoint, grace_ms: int) -> None:
        """Take no more requests there; whatever is not answered after `grace_ms` is broken off."""
        listener = self.network.listeners.get(bound)
        if listener is None or listener.owner is not self:
            return
        del self.network.listeners[bound]
        left = list(listener.serving)
        if left and grace_ms > 0:
            await asyncio.wait(left, timeout=grace_ms / 1000)
        for task in left:
            task.cancel()

    async def call(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        if self.closed:
            raise TransportError(f"{method} to {peer}: transport is closed")
        if not isinstance(request, method.request):
            raise TypeError(f"{method} takes {method.request.__name__}, not {type(request).__name__}")
        loop, network = asyncio.get_running_loop(), self.network
        done: asyncio.Future[Res] = loop.create_future()
        exchange = Exchange(self.node_id, node_of(peer), method, request, done)
        self.calls[done] = None
        timer = network.loop.at_us(network.loop.now_us() + timeout_ms * 1000, lambda: _fail(done, "timed out"), self.context)
        network.begin(exchange, peer)
        try:
            return await done
        except TransportError as error:
            raise TransportError(f"{method} to {peer}: {error}") from None
        finally:
            timer.cancel()
            self.calls.pop(done, None)
            network.end(exchange)

    def run(self, handler: Handler[Req, Res], request: Req) -> asyncio.Task[Res]:
        async def handle() -> Res:
            return await handler(request)

        task = asyncio.get_running_loop().create_task(handle(), context=self.context)
        self.serving[task] = None
        task.add_done_callback(self._served, context=self.context)
        return task

    @inert
    def _served(self, task: asyncio.Task[Any]) -> None:
        self.serving.pop(task, None)

    def drop(self) -> None:
        """Stop serving and calling at once, as when the process dies."""
        if self.closed:
            return
        self.closed = True
        self.network.node_died(self)
        for task in list(self.serving):
            task.cancel()

    async def close(self, grace_ms: int = 0) -> None:
        self.drop()
        await asyncio.sleep(0)


@cache
def node_of(endpoint: Endpoint) -> NodeId:
    """Hosts are named `n<node id>`."""
    return NodeId(int(endpoint.host[1:]))


def _fail(done: asyncio.Future[Res], reason: str) -> None:
    if not done.done():
        done.set_exception(TransportError(reason))
