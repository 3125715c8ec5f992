"""A broker's listeners for clients, and how they change while it runs.

A change is made whole or not at all: every new address is taken and every key store is read before anything that is open is
closed. What cannot be had leaves everything as it was, and is told. Source: KIP-226; CB-06, BL-30.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from kraftlite.config.live_listeners import LiveListeners, is_for_clients, live_listeners
from kraftlite.config.server import ServerConfig
from kraftlite.model.broker_configs import LISTENER_NAMES, LISTENER_PROTOCOLS, login_keys
from kraftlite.model.config_effects import logins_kept
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.broker import DynamicConfigIgnored
from kraftlite.tls.errors import TlsError
from kraftlite.wire.sockets import bound_socket

if TYPE_CHECKING:
    from kraftlite.security.listener_sasl import ListenerSasl
    from kraftlite.tls.settings import TlsSettings
    from kraftlite.tls.source import TlsSource
    from kraftlite.wire.listener import KafkaListener

GRACE_MS: Final = 1_000
"""The time that requests in flight have to be answered at a listener that is removed."""

Values = Mapping[str, str]


class OpensListeners(Protocol):
    """The node, which knows what all its listeners share."""

    def make(
        self, listener: ListenerInfo, sasl: ListenerSasl | None, sock: socket.socket | None, tls: TlsSource | None, /
    ) -> KafkaListener: ...

    def forget(self, client: KafkaListener, /) -> None:
        """It will not be opened, or is closed for ever."""
        ...

    def load_tls(self, listener: ListenerInfo, settings: TlsSettings, /) -> TlsSource:
        """Read its stores. It may block, and runs off the loop. Raises TlsError."""
        ...

    def tls_of(self, name: str, /) -> TlsSource | None:
        """The certificates of a listener that is open, or of the file; None: it speaks plain text."""
        ...

    def use_tls(self, listener: ListenerInfo, source: TlsSource | None, /) -> None:
        """The certificates of a listener that is open from now on; None: of one that is not any more."""
        ...


class ClientListeners:
    """Opens the listeners of a broker for clients, and follows its dynamic configuration. Without real sockets (`serves` False)
    only what the broker registers follows."""

    def __init__(self, ports: Ports, config: ServerConfig, opener: OpensListeners, *, serves: bool) -> None:
        self._ports = ports
        self._config = config
        self._opener = opener
        self._serves = serves
        self.live = LiveListeners.of_file(config)
        self.opened: dict[str, KafkaListener] = {}
        self.advertise: Callable[[tuple[ListenerInfo, ...]], None] = lambda _listeners: None
        """The broker's ear: what it must register from now on."""
        self._leaving: list[KafkaListener] = []
        """Those that are removed, while they answer what is in flight."""
        self._values: Values | None = None
        self._task: TaskHandle | None = None
        self._ready = self._serving = self._closed = False
        self._told: tuple[str, ...] = ()

    # --- opening and closing

    async def prepare(self, values: Values, reserved: dict[str, socket.socket]) -> None:
        """Accept connections at the listeners of the file or, where the metadata log says otherwise by now, at its. Of the latter
        each one that can be had is opened. Raises OSError for an address of the file that is taken."""
        if not self._serves:
            self._ready = True
            self._follow(values)
            return
        wanted, settings = self._wanted(values) or (self.live, {})
        file = {it.name: it for it in self._config.listeners}
        left_out: dict[str, str] = {}
        for listener in wanted.listeners:
            if not is_for_clients(self._config, listener):
                continue
            if file.get(listener.name) == listener:
                sock, source = reserved.pop(listener.name, None), self._opener.tls_of(listener.name)
                client = self._opener.make(listener, wanted.sasl.get(listener.name), sock, source)
                self.opened[listener.name] = client
                client.listen()
                continue
            try:
                self.opened[listener.name] = await self._open(listener, wanted, settings, None)
            except (OSError, UnicodeError, TlsError) as error:
                left_out[listener.name] = f"{LISTENER_NAMES}: {listener.name}: {_words(error)}"
        self.live = wanted.without(left_out)
        for name in file.keys() - {it.name for it in self.live.listeners}:
            if name in reserved:
                reserved.pop(name).close()
        if left_out:
            self._ignore(tuple(left_out.values()))
        self._ready = True
        self._tell()

    async def serve(self) -> None:
        self._serving = True
        for client in list(self.opened.values()):
            if client.endpoint is None:
                await client.start()

    async def close(self, grace_ms: int) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for client in self._leaving:
            for connection in list(client.connections):
                connection.abort()
        clients, self.opened = list(self.opened.values()), {}
        for client in clients:
            await client.stop(grace_ms)

    def abort(self) -> None:
        """Cut all clients off, as the death of the process would."""
        for client in (*self.opened.values(), *self._leaving):
            client.abort()

    # --- changes

    def update(self, values: Values) -> None:
        """Take over the values in force for the broker."""
        if not self._ready or self._closed:
            return
        if not self._serves:
            self._follow(values)
            return
        self._values = values
        if self._task is None:
            self._task = self._ports.tasks.spawn(self._changes(), name="listeners")

    async def problems(self, values: Values, changed: frozenset[str]) -> list[str]:
        """Say why this broker cannot have these values, of which `changed` are new: for the answer to who sets them."""
        found: list[str] = []
        wanted = self.live
        settings: Mapping[str, TlsSettings] = {}
        if changed & {LISTENER_NAMES, LISTENER_PROTOCOLS}:
            wanted, settings = live_listeners(self._config, values, self.live, found)
        staying = [it.name for it in self.live.listeners if wanted.named(it.name) is not None]
        if fixed := login_keys(changed, staying):
            found.append(logins_kept(fixed))
        if found or not self._serves or wanted is self.live:
            return found
        gone, new = self._difference(wanted)
        return await self._ports.tasks.run_blocking(lambda: self._unusable(gone, new, settings))

    def leaving(self, values: Values) -> frozenset[str]:
        """The names of those that there are not any more with these values."""
        problems: list[str] = []
        wanted, _ = live_listeners(self._config, values, self.live, problems)
        return frozenset(it.name for it in self.live.listeners) - {it.name for it in wanted.listeners}

    def _unusable(
        self, gone: Sequence[ListenerInfo], new: Sequence[ListenerInfo], settings: Mapping[str, TlsSettings]
    ) -> list[str]:
        found = []
        for listener in new:
            try:
                if listener.name in settings:
                    self._opener.load_tls(listener, settings[listener.name])
                if _heir_of(listener, gone) is None:
                    bound_socket(listener.host, listener.port).close()
            except (OSError, UnicodeError, TlsError) as error:
                found.append(f"{LISTENER_NAMES}: {listener.name}: {_words(error)}")
        return found

    async def _changes(self) -> None:
        try:
            while self._values is not None:
                values, self._values = self._values, None
                await self._apply(values)
        finally:
            self._task = None

    async def _apply(self, values: Values) -> None:
        found = self._wanted(values)
        if found is None:
            return
        wanted, settings = found
        gone, new = self._difference(wanted)
        if not gone and not new:
            self._told = ()
            return
        fresh: dict[str, KafkaListener] = {}
        try:
            for listener in new:
                fresh[listener.name] = await self._open(listener, wanted, settings, _heir_of(listener, gone))
        except BaseException as error:
            for listener in new:
                if listener.name in fresh:
                    await self._discard(listener, fresh[listener.name])
            if not isinstance(error, (OSError, UnicodeError, TlsError)):
                raise
            self._ignore((f"{LISTENER_NAMES}: {_words(error)}",))
            return
        self._told = ()
        self._leaving = [self.opened.pop(it.name) for it in gone if it.name in self.opened]
        self.opened |= fresh
        self.live = wanted
        self._tell()
        while self._leaving:
            await self._leaving[0].stop(GRACE_MS)
            self._opener.forget(self._leaving.pop(0))
        for listener in gone:
            if wanted.named(listener.name) is None:
                self._opener.use_tls(listener, None)

    async def _discard(self, listener: ListenerInfo, client: KafkaListener) -> None:
        """It was opened in vain."""
        await client.stop()
        self._opener.forget(client)
        if self.live.named(listener.name) is None:
            self._opener.use_tls(listener, None)

    async def _open(
        self, listener: ListenerInfo, wanted: LiveListeners, settings: Mapping[str, TlsSettings], heir_of: ListenerInfo | None
    ) -> KafkaListener:
        """Raises OSError, TlsError."""
        run = self._ports.tasks.run_blocking
        chosen = settings.get(listener.name)
        if chosen is None:
            source = self._opener.tls_of(listener.name)
        else:
            source = await run(lambda: self._opener.load_tls(listener, chosen))
        if heir_of is None:
            sock = await run(lambda: bound_socket(listener.host, listener.port))
        else:
            sock = self.opened[heir_of.name].listen().dup()
        client = self._opener.make(listener, wanted.sasl.get(listener.name), sock, source)
        try:
            client.listen()
            if self._serving:
                await client.start()
        except BaseException:
            await client.stop()
            self._opener.forget(client)
            raise
        if chosen is not None:
            self._opener.use_tls(listener, source)
        return client

    # --- without sockets, too

    def _follow(self, values: Values) -> None:
        found = self._wanted(values)
        if found is not None and found[0] != self.live:
            self.live = found[0]
            self._tell()

    def _wanted(self, values: Values) -> tuple[LiveListeners, Mapping[str, TlsSettings]] | None:
        """None: the values cannot be used, which has been told."""
        problems: list[str] = []
        found = live_listeners(self._config, values, self.live, problems)
        if problems:
            self._ignore(tuple(problems))
            return None
        return found

    def _difference(self, wanted: LiveListeners) -> tuple[list[ListenerInfo], list[ListenerInfo]]:
        """Those that go, and those that come; one that moves is in both."""
        now, then = ([it for it in found.listeners if is_for_clients(self._config, it)] for found in (self.live, wanted))
        return [it for it in now if it not in then], [it for it in then if it not in now]

    def _tell(self) -> None:
        """Say what the broker is to register: where a port was left to the system, the one that it gave."""
        bound = {name: client.listen().getsockname()[1] for name, client in self.opened.items()}
        self.advertise(
            tuple(it if it.port or it.name not in bound else replace(it, port=bound[it.name]) for it in self.live.advertised)
        )

    def _ignore(self, reasons: tuple[str, ...]) -> None:
        """Once for as long as it is so: the values are looked at with every change of the broker's configuration."""
        if reasons != self._told:
            self._told = reasons
            self._ports.tracer.emit(DynamicConfigIgnored(resource=str(self._config.node_id), reasons=reasons))


def _heir_of(listener: ListenerInfo, gone: Sequence[ListenerInfo]) -> ListenerInfo | None:
    """The one that goes and has the same address, whose socket this one takes over."""
    return next((it for it in gone if it.port and (it.host, it.port) == (listener.host, listener.port)), None)


def _words(error: BaseException) -> str:
    return str((isinstance(error, OSError) and error.strerror) or error)
