"""The ports: everything outside a core, as Protocols. The host implements them with the real machine, the simulator with a fake.

Cores see only `Disk`/`File` (synchronous, page cache) and a `random.Random`; drivers see all of them.
Times are integer milliseconds. A port's error is an `OSError` (disk) or a `TransportError` (transport), never anything else.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.method import AnyMethod, Method, Req, Res
from kraftlite.model.tuning import Tuning
from kraftlite.runtime.trace import TraceEvent

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Aside: TypeAlias = Callable[[Callable[[], Callable[[], None]]], None]
"""Runs foreign code, which may never come back, where nobody waits for it; what it returns is called on the loop."""
Res_co = TypeVar("Res_co", covariant=True)


class TimerHandle(Protocol):
    """A callback that has been scheduled; cancelling it twice or too late is harmless."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Local monotonic and wall time of one node. All waiting of a driver goes through its node's clock."""

    def now_ms(self) -> int:
        """Monotonic; meaningful only as differences on this node."""
        ...

    def now_us(self) -> int:
        """The same in microseconds, to measure with: what falls due does so by `now_ms`."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Run `callback` on the loop after `delay_ms` (at least; late after a pause)."""
        ...

    async def sleep(self, delay_ms: int) -> None: ...


class File(Protocol):
    """An open file. Reads and writes are positional and go to the page cache; durability needs `sync` or `flush`."""

    @property
    def path(self) -> str: ...

    def pread(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes; shorter only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        """Write all buffers one behind the other at `offset`; returns the bytes written, which is all of them."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fdatasync, blocking. For small files and at rare moments (votes, checkpoints, roll, shutdown)."""
        ...

    async def flush(self) -> None:
        """fdatasync off the loop. What was written before the call is durable when it returns."""
        ...

    def close(self) -> None: ...


class DirLock(Protocol):
    """An exclusive hold on a directory, until released or until the process ends."""

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    size: int
    mtime_ms: int
    is_dir: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The space of the file system that a directory is on, in bytes. `usable`: what this process may still write."""

    total: int
    usable: int


class Disk(Protocol):
    """A file system as a node sees it. Paths are absolute strings. Raises OSError (FileNotFoundError included)."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create` is set."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """None when there is no such file."""
        ...

    def space(self, path: str) -> DiskSpace | None:
        """None where there is no such limit to tell of."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in sorted order; an absent directory raises FileNotFoundError."""
        ...

    def makedirs(self, path: str) -> None:
        """Create the directory and its parents if missing, and make their entries durable."""
        ...

    def mkdir(self, path: str) -> None:
        """Create one directory; FileExistsError when there is one. Not durable until `sync_dir` of the parent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic replace; not durable until `sync_dir` of the parent."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError when `target` exists, another OSError where the file system has no links.

        Not durable until `sync_dir` of the parent of `target`.
        """
        ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """Temp file, fsync, rename, fsync of the directory: after return either the old or the new content, durably new."""
        ...

    def lock(self, path: str) -> DirLock | None:
        """Take an exclusive lock file (`.lock`, BL-15); None when another process (or node) holds it."""
        ...


class TransportError(Exception):
    """The peer could not be reached, or did not answer in time. Says nothing about whether it acted."""


class NotServed(TransportError):
    """The peer has no such method: it is of another version."""


Handler: TypeAlias = Callable[[Req], Awaitable[Res]]
"""async (request) -> response. Raises ApiError for an expected refusal: the caller's `call` raises the same ApiError."""

AnyHandler: TypeAlias = Callable[[Any], Awaitable[Any]]
Handlers: TypeAlias = Mapping[AnyMethod, AnyHandler]
"""The methods that a listener serves. `route` makes its items."""


def route(method: Method[Req, Res], handler: Handler[Req, Res]) -> tuple[AnyMethod, AnyHandler]:
    """An item of `Handlers`. It is here that a handler is checked against the messages of its method."""
    return method, handler


class Stream(Protocol[Res_co]):
    """The answers to one request of a `streamed` method. The next one is asked for when the one before was taken; `aclose` comes
    in the end, also when none was asked for."""

    def __aiter__(self) -> Stream[Res_co]: ...

    async def __anext__(self) -> Res_co: ...

    async def aclose(self) -> None: ...


StreamHandler: TypeAlias = Callable[[Req], Awaitable[Stream[Res]]]
"""The handler of a `streamed` method. Raises ApiError as any other."""


def route_stream(method: Method[Req, Res], handler: StreamHandler[Req, Res]) -> tuple[AnyMethod, AnyHandler]:
    """Do as `route`, for a `streamed` method."""
    return method, handler


class Transport(Protocol):
    """Request and response between nodes. At most once: a lost answer is a TransportError and is never retried here."""

    async def call(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        """Raises TransportError, or the ApiError that the handler raised."""
        ...

    async def reserve(self, listen: Endpoint) -> None:
        """Make sure of an address that `serve` will be called with later; until then who connects there is refused. OSError
        when somebody else has it."""
        ...

    async def serve(self, listen: Endpoint, handlers: Handlers) -> Endpoint:
        """Start answering on `listen` (port 0 picks one); returns the bound endpoint. One call per listener."""
        ...

    async def close(self, grace_ms: int = 0) -> None: ...


@dataclass(slots=True)
class ChannelBytes:
    """Bytes of the messages of one service, since the start: of questions that were sent, and of answers that came."""

    sent: int = 0
    received: int = 0


@runtime_checkable
class CountsBytes(Protocol):
    """A transport that counts what it carries for the node that asks: one over real sockets."""

    channel_bytes: dict[str, ChannelBytes]
    """By the name of the service."""


class CarriesConnections(Protocol):
    """A way into a listener for connections that somebody else has accepted."""

    def carry(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over a connection that has sent `first` so far."""
        ...


@runtime_checkable
class SharesPorts(Protocol):
    """A transport whose ports others may use, too: one over real sockets."""

    def protect(self, tls: Callable[[str], Any]) -> None:
        """Dial through TLS from now on: `tls` gives the certificates (`TlsSource`) for the peers of a service, None for none."""
        ...

    async def serve_behind(self, listen: Endpoint, handlers: Handlers, *, authenticates: bool = False) -> CarriesConnections:
        """`Transport.serve` without a socket of its own: whoever accepts connections at `listen` hands over those that are the
        transport's. `authenticates`: only those that have a principal are served (`get_extra_info("principal")`)."""
        ...


class Tracer(Protocol):
    """The destination of typed events. Bound to one node; stamps node id and time itself. Must not raise and must not block."""

    def emit(self, event: TraceEvent) -> None: ...


@runtime_checkable
class HasLoggers(Protocol):
    """A tracer whose least levels, by logger, can change while the node runs."""

    def loggers(self) -> Mapping[str, str]:
        """Return the level in force of each logger, as Kafka names levels."""
        ...

    def set_level(self, logger: str, level: str | None) -> None:
        """Take one of `loggers`, and a level of Kafka's, or None for that of the root logger."""
        ...


@runtime_checkable
class TaskHandle(Protocol):
    """A spawned task. Cancel it and await it; awaiting raises what it raised."""

    def cancel(self) -> object: ...

    def done(self) -> bool: ...

    def __await__(self) -> Any: ...


class Tasks(Protocol):
    """Owned tasks. An owned task that ends with an exception other than CancelledError calls the node's fault handler."""

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> TaskHandle: ...

    async def run_blocking(self, function: Callable[[], T]) -> T:
        """Run a slow, self-contained file operation off the loop (host: a thread; simulator: inline with a delay)."""
        ...

    async def cancel_all(self) -> None:
        """Cancel and await every task spawned here."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that `node/build` hands to every driver of one node."""

    node_id: NodeId
    clock: Clock
    disk: Disk
    transport: Transport
    tracer: Tracer
    tasks: Tasks
    entropy: random.Random
    fault: Callable[[BaseException, str], None]
    """fault(error, where): classify and act: log, stop the node with a non-zero exit. The only catch-all of the house."""
    tuning: Tuning = field(default_factory=Tuning)
    aside: Aside | None = None
    """None: a thread for each piece of foreign code."""
    trace_hot: bool = False
    """True when drivers emit the events of the hot path too: one per produce, append or high watermark."""
