"""The listeners of a broker while it runs: those of its file, or those that its dynamic configuration names instead.

Kafka takes `listeners` and `listener.security.protocol.map` for one broker while it runs, and `advertised.listeners` from the
file alone. What is advertised follows here where the file does not say it: a listener that was added is registered with its own
address.
No I/O: whether an address can be had, and a key store be read, is for who opens the listener. Source: KIP-226; CB-06.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kraftlite.config.listeners import KAFKA_PROTOCOLS, parse_listeners, parse_protocol_map, with_sasl
from kraftlite.config.sasl import listeners_sasl
from kraftlite.config.server import ServerConfig
from kraftlite.model.broker_configs import LISTENER_NAMES, LISTENER_PROTOCOLS
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.security.listener_sasl import ListenerSasl

if TYPE_CHECKING:
    from kraftlite.tls.settings import TlsSettings

_ADVERTISED: Final = "advertised.listeners"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
MAX_LISTENERS: Final = 64
"""Sockets that somebody may have a running broker open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveListeners:
    """`listeners`: all of them, those between nodes included, with the ports that were asked for. `advertised`: those that the
    broker registers. `sasl`: by the names of the listeners that have it."""

    listeners: tuple[ListenerInfo, ...]
    advertised: tuple[ListenerInfo, ...]
    sasl: Mapping[str, ListenerSasl] = field(default_factory=dict, repr=False)

    @classmethod
    def of_file(cls, config: ServerConfig) -> LiveListeners:
        return cls(listeners=config.listeners, advertised=config.advertised_listeners, sasl=config.sasl)

    def named(self, name: str) -> ListenerInfo | None:
        return next((it for it in self.listeners if it.name == name), None)

    def without(self, names: Iterable[str]) -> LiveListeners:
        """The others: those that could be opened."""
        left_out = frozenset(names)
        return replace(
            self,
            listeners=tuple(it for it in self.listeners if it.name not in left_out),
            advertised=tuple(it for it in self.advertised if it.name not in left_out),
        )


def is_for_clients(config: ServerConfig, listener: ListenerInfo) -> bool:
    return listener.name not in config.controller_listener_names and listener.name != config.inter_broker_listener_name


def live_listeners(
    config: ServerConfig, values: Mapping[str, str], now: LiveListeners, problems: list[str]
) -> tuple[LiveListeners, Mapping[str, TlsSettings]]:
    """The listeners by the broker's `values` in force, and the TLS of those that speak it and are not there `now`. What this
    broker cannot do is appended to `problems`."""
    names = (LISTENER_NAMES, LISTENER_PROTOCOLS)
    if all(values.get(key) == config.values.get(key) for key in names) and not _added(config.listeners, now):
        return LiveListeners.of_file(config), {}
    protocols = parse_protocol_map(values.get(LISTENER_PROTOCOLS, ""), problems)
    items = [item.strip() for item in values.get(LISTENER_NAMES, "").split(",") if item.strip()]
    asked = parse_listeners(LISTENER_NAMES, items, protocols, config.controller_listener_names, problems)
    if problems:
        return now, {}
    named = {it.name for it in asked}
    derived = None if config.inter_broker_named is None else config.listener(str(config.inter_broker_listener_name))
    wanted = asked if derived is None or derived.name in named else (*asked, derived)
    problems += _misfits(config, wanted, now)
    if problems:
        return now, {}
    fresh = _added(wanted, now)
    sasl = {name: found for name, found in now.sasl.items() if name in named}
    sasl |= listeners_sasl(values, with_sasl(fresh, protocols), problems)
    return LiveListeners(listeners=wanted, advertised=_advertised(config, wanted), sasl=sasl), _tls(values, fresh, problems)


def _added(wanted: Sequence[ListenerInfo], now: LiveListeners) -> list[ListenerInfo]:
    there = {it.name for it in now.listeners}
    return [it for it in wanted if it.name not in there]


def _misfits(config: ServerConfig, wanted: Sequence[ListenerInfo], now: LiveListeners) -> list[str]:
    """Say what a running broker cannot do, whatever its addresses are."""
    found = []
    by_name = {it.name: it for it in wanted}
    for fixed in config.listeners:
        if not is_for_clients(config, fixed) and by_name.get(fixed.name) != fixed:
            what = "is not there" if fixed.name not in by_name else "has another address or protocol"
            found.append(
                f"{LISTENER_NAMES}: {fixed.name} {what}; nodes reach each other at {fixed.name}://{fixed.host}:{fixed.port}, "
                "which only the file can change"
            )
    if config.inter_broker_named is not None and config.inter_broker_named not in by_name:
        found.append(f"{LISTENER_NAMES}: {config.inter_broker_named} is not there, and is the listener between brokers")
    for told in config.advertised_listeners if config.values.get(_ADVERTISED) else ():
        static, then = config.listener(told.name), by_name.get(told.name)
        if static is not None and is_for_clients(config, static) and (then is None or then.port != static.port):
            what = "is not there" if then is None else f"is not on port {static.port}"
            found.append(f"{LISTENER_NAMES}: {told.name} {what}, and {_ADVERTISED} names it, which only the file can change")
    for listener in wanted:
        before = now.named(listener.name)
        if before is not None and before.security_protocol != listener.security_protocol:
            found.append(
                f"{LISTENER_PROTOCOLS}: {listener.name} speaks {before.security_protocol}, and a listener that is open keeps its "
                "protocol; remove it first, or add another"
            )
        if before is None and listener.security_protocol not in KAFKA_PROTOCOLS:
            allowed = ", ".join(KAFKA_PROTOCOLS)
            found.append(
                f"{LISTENER_NAMES}: {listener.name} speaks {listener.security_protocol}, which is for nodes; allowed is {allowed}"
            )
    if len(wanted) > MAX_LISTENERS:
        found.append(f"{LISTENER_NAMES}: there are {len(wanted)}; allowed are at most {MAX_LISTENERS}")
    if not any(is_for_clients(config, it) for it in wanted):
        found.append(f"{LISTENER_NAMES}: a broker needs a listener for clients, for example PLAINTEXT://:9092")
    return found


def _advertised(config: ServerConfig, wanted: Sequence[ListenerInfo]) -> tuple[ListenerInfo, ...]:
    """Return where they are reached: those of the file as at start, unless they have moved and the file does not say it. Others
    at their own address; without a host at the one that clients know of this broker."""
    by_file = {it.name: it for it in config.advertised_listeners}
    told = bool(config.values.get(_ADVERTISED))
    ours = next((it.host for it in config.advertised_listeners if is_for_clients(config, it)), "localhost")
    found = []
    for listener in wanted:
        if listener.name in config.controller_listener_names:
            continue
        static = config.listener(listener.name)
        if static is not None and (told or static == listener):
            found += [by_file[listener.name]] if listener.name in by_file else []
        else:
            found.append(replace(listener, host=ours) if listener.host in _EVERYWHERE else listener)
    return tuple(found)


def _tls(values: Mapping[str, str], fresh: Sequence[ListenerInfo], problems: list[str]) -> Mapping[str, TlsSettings]:
    if not any(it.security_protocol in ("SSL", "SASL_SSL") for it in fresh):
        return {}
    from kraftlite.config.tls import settings_for, speaks_tls

    return {
        it.name: settings_for(values, it.name, it.security_protocol, problems, added=True)
        for it in fresh
        if speaks_tls(it.security_protocol)
    }
