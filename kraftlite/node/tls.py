"""The certificates of a node: one source per listener, watched on disk, replaced by configs, and used for dialling, too.

Source: KIP-226, KIP-651; SE-01, SE-05, SE-06.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from kraftlite.config.listener_settings import LISTENER_PREFIX
from kraftlite.config.server import ServerConfig
from kraftlite.config.tls import alpn_of, check_stores, settings_for
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.tls import TlsStoresLoaded, TlsStoresRefused
from kraftlite.tls.errors import TlsError
from kraftlite.tls.settings import TlsSettings
from kraftlite.tls.source import TlsSource

WATCH_MS: Final = 2_000
"""The interval at which the files of the stores are looked at."""
_OF_CONTROLLERS: Final = frozenset({"Raft", "Controller"})


class NodeTls:
    """The certificates of all listeners of one node. Made once, before the node listens; raises TlsError."""

    def __init__(self, ports: Ports, config: ServerConfig) -> None:
        self._ports = ports
        self._config = config
        self._protocols = {listener.name: listener.security_protocol for listener in config.listeners}
        controllers = config.controller_listener
        if controllers is not None:
            self._protocols.setdefault(controllers.name, controllers.security_protocol)
        self._sources: dict[str, TlsSource] = {}
        for name, settings in config.tls.items():
            protocol = self._protocols[name]
            self._sources[name] = TlsSource.of(settings, alpn=alpn_of(protocol), authenticates=not protocol.startswith("SASL"))
        self._refused: dict[str, object] = {}
        """By listener: the state of files that could not be used, so that it is told once."""
        self._wanted: dict[str, TlsSettings] = {}
        """By listener: the settings that are to be in force once their stores have been read."""
        self._reloading = asyncio.Lock()
        """One reading after the other, in their order: what was asked for last stays."""
        self._watching: TaskHandle | None = None

    def source(self, listener: str) -> TlsSource | None:
        """None: the listener speaks plain text."""
        return self._sources.get(listener)

    def use(self, listener: ListenerInfo, source: TlsSource) -> None:
        """From now on the certificates of a listener that was opened while the node runs, watched like the others (CB-06)."""
        self._protocols[listener.name] = listener.security_protocol
        self._sources[listener.name] = source
        self._wanted.pop(listener.name, None)
        if self._watching is None:
            self._watching = self._ports.tasks.spawn(self._watch(), name="tls-stores")
        self._told(listener.name)

    def forget(self, name: str) -> None:
        """The listener is closed."""
        self._sources.pop(name, None)
        self._refused.pop(name, None)
        self._wanted.pop(name, None)

    def for_service(self, service: str) -> TlsSource | None:
        """The certificates with which the peers of a service are dialled."""
        if service in _OF_CONTROLLERS:
            controllers = self._config.controller_listener
            return None if controllers is None else self._sources.get(controllers.name)
        name = self._config.inter_broker_listener_name
        return None if name is None else self._sources.get(name)

    def start(self) -> None:
        """Tell what was loaded, and look at the files from now on."""
        for name in self._sources:
            self._told(name)
        if self._sources and self._watching is None:
            self._watching = self._ports.tasks.spawn(self._watch(), name="tls-stores")

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await self._ports.clock.sleep(WATCH_MS)
            for name, source in list(self._sources.items()):
                if await self._ports.tasks.run_blocking(source.is_stale):
                    await self._reload(name, source, None)

    async def _reload(self, name: str, source: TlsSource, settings: TlsSettings | None) -> None:
        async with self._reloading:
            try:
                loaded = await self._ports.tasks.run_blocking(lambda: source.reload(settings))
            except TlsError as error:
                if self._refused.get(name) != str(error):
                    self._refused[name] = str(error)
                    self._ports.tracer.emit(TlsStoresRefused(listener=name, reason=str(error)))
                return
            finally:
                if settings is not None and self._wanted.get(name) is settings:
                    del self._wanted[name]
            self._refused.pop(name, None)
            source.replace(loaded)
        if self._sources.get(name) is source:
            self._told(name)

    def _told(self, name: str) -> None:
        subject, expires = self._sources[name].describe()
        self._ports.tracer.emit(TlsStoresLoaded(listener=name, subject=subject, expires=expires))

    # --- configs that change while the node runs

    def update(self, values: Mapping[str, str], leaving: Collection[str] = ()) -> None:
        """Take over the values in force for the broker. Stores are read again where one of their settings has changed.
        `leaving`: listeners that are being closed."""
        for name, source in self._sources.items():
            if name in leaving:
                continue
            problems: list[str] = []
            settings = self._settings(name, values, problems)
            if problems:
                self._ports.tracer.emit(TlsStoresRefused(listener=name, reason="; ".join(problems)))
            elif settings != self._wanted.get(name, source.settings) or source.is_stale():
                self._wanted[name] = settings
                self._ports.tasks.spawn(self._reload(name, source, settings), name=f"tls-{name}")

    def problems(self, values: Mapping[str, str], changed: frozenset[str], leaving: Collection[str] = ()) -> list[str]:
        """Say why this node cannot run with these values, of which `changed` are new: for the answer to who sets them.
        `leaving`: listeners that there are not any more with these values."""
        found: list[str] = []
        for name, source in self._sources.items():
            prefix = f"{LISTENER_PREFIX}{(self._named(name) or name).lower()}.ssl."
            if name in leaving or not any(key.startswith(prefix) for key in changed):
                continue
            settings = self._settings(name, values, found)
            if not found:
                try:
                    source.reload(settings)
                except TlsError as error:
                    found.append(str(error))
        return found

    def _settings(self, name: str, values: Mapping[str, str], problems: list[str]) -> TlsSettings:
        return settings_for(values, name, self._protocols[name], problems, named_as=self._named(name))

    def _named(self, name: str) -> str | None:
        return self._config.inter_broker_named if name == self._config.inter_broker_listener_name else None


def load_for(listener: ListenerInfo, settings: TlsSettings) -> TlsSource:
    """Read the stores of a listener for clients that is not open yet. It blocks. Raises TlsError."""
    problem = check_stores(settings, serves=True)
    if problem is not None:
        raise TlsError(problem)
    protocol = listener.security_protocol
    return TlsSource.of(settings, alpn=alpn_of(protocol), authenticates=not protocol.startswith("SASL"))
