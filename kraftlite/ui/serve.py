"""Serves the page on this machine: `serve` runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from kraftlite.obs.recording import Recorder
from kraftlite.ui.acts import Acts
from kraftlite.ui.app import Front, Page, TapePage
from kraftlite.ui.guard import Tokens
from kraftlite.ui.watch import header_of, watching
from kraftlite.ui.whom import Whom

if TYPE_CHECKING:
    from kraftlite.ui.rerun import Reruns

HOST: Final = "127.0.0.1"
_ALL: Final = "0.0.0.0"
PORT: Final = 8088
_TRIED: Final = 10
MAX_CONNECTIONS: Final = 64
REQUEST_S: Final = 5.0
MAX_HEADERS: Final = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The addresses of the page. Whoever has `operator` may kill nodes; `viewer` is for looking. None: it is for looking only."""

    address: str
    operator: str | None
    viewer: str


def listen(port: int | None, *, published: bool = False) -> socket.socket:
    """A listening socket of this machine alone: at `port`, or by default at the first free one from PORT on, else anywhere.
    Raises OSError when the given port is taken.

    `published`: at all addresses of a container, whose port is then published to its machine under the same number.
    """
    tried = [port] if port is not None else [*range(PORT, PORT + _TRIED), 0]
    for number in tried:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((_ALL if published else HOST, number))
        except OSError:
            found.close()
            if number == tried[-1]:
                raise
            continue
        found.listen(MAX_CONNECTIONS)
        return found
    raise AssertionError("the last one is returned or raises")


class _Impatient(H11Protocol):
    """A connection that must say within `patience_s` what it wants, so that those that say nothing take nobody's place."""

    patience_s = REQUEST_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(self.patience_s, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Says when it takes connections, and before it waits for those that are open. A signal ends it, and is in `signals` then:
    uvicorn raises it once more, within a task, where it would be an error that nobody takes."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_leaving: Callable[[], None]) -> None:
        super().__init__(config)
        self.signals: list[int] = []
        self._on_ready = on_ready
        self._on_leaving = on_leaving

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signals.append(sig)
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_leaving()
        await super().shutdown(sockets)


async def serve(
    whom: Whom,
    sock: socket.socket,
    on_ready: Callable[[Link], None],
    *,
    tokens: Tokens | None = None,
    patience_s: float = REQUEST_S,
    record: Callable[[bytes], object] | None = None,
) -> list[int]:
    """Serve until SIGINT or SIGTERM, and return which; `on_ready` gets the links as soon as connections are taken, and `record`
    every line of a recording. Raises LocalError when there is no cluster."""
    tokens = tokens or Tokens.make()
    acts = Acts(whom.data_dir)
    try:
        async with watching(whom) as watcher:
            if record is not None:
                watcher.recorder = Recorder(header_of(watcher.cluster), record)
            page = Page(watcher, acts, tokens, sock.getsockname()[1])
            server = _Server(_config(page, patience_s), lambda: on_ready(_link(sock, tokens)), page.close)
            running = asyncio.create_task(watcher.run())
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            try:
                await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                server.should_exit = True
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                watcher.finish()
                await serving
            return server.signals
    finally:
        await acts.close()


async def serve_tape(
    tape: dict[str, Any],
    sock: socket.socket,
    on_ready: Callable[[Link], None],
    reruns: Reruns | None = None,
    tokens: Tokens | None = None,
) -> list[int]:
    """Serve the page of a recording until SIGINT or SIGTERM, and return which. The operator's link may run it again, where
    `reruns` can."""
    tokens = tokens or Tokens.make()
    page = TapePage(tape, tokens, sock.getsockname()[1], reruns)
    server = _Server(_config(page, REQUEST_S), lambda: on_ready(_link(sock, tokens)), page.close)
    await server.serve(sockets=[sock])
    return server.signals


def _link(sock: socket.socket, tokens: Tokens) -> Link:
    base = f"http://{HOST}:{sock.getsockname()[1]}/"
    operator = None if tokens.operator is None else f"{base}#{tokens.operator}"
    return Link(address=base, operator=operator, viewer=f"{base}#{tokens.viewer}")


def _config(page: Front, patience_s: float) -> uvicorn.Config:
    class Connection(_Impatient):
        pass

    Connection.patience_s = patience_s
    return uvicorn.Config(
        page.guard,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_keep_alive=int(REQUEST_S),
        timeout_graceful_shutdown=2,
    )
