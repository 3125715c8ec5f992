"""The TLS settings of each listener of a node, checked with their stores at start.

Source: KIP-103, KIP-651; SE-01, SE-02, SE-06.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kraftlite.config.listener_settings import key_for, setting_of
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.tls.contexts import HTTP2, load
from kraftlite.tls.errors import TlsError
from kraftlite.tls.settings import ClientAuth, TlsSettings, read_settings

NODES_PROTOCOL = "GRPC_TLS"


def speaks_tls(protocol: str) -> bool:
    return protocol in ("SSL", "SASL_SSL", NODES_PROTOCOL)


def alpn_of(protocol: str) -> tuple[str, ...]:
    return (HTTP2,) if protocol == NODES_PROTOCOL else ()


def settings_for(
    values: Mapping[str, str],
    listener: str,
    protocol: str,
    problems: list[str],
    *,
    named_as: str | None = None,
    added: bool = False,
) -> TlsSettings:
    """The settings of one listener. `named_as`: the listener whose keys hold for it, when that is another one. `added`: while
    the node runs, so that what is missing can be set for it alone. What is wrong is appended to `problems`."""
    name = named_as or listener

    def get(key: str) -> str | None:
        return setting_of(values, name, key)

    def key_of(key: str) -> str:
        own = key_for(name, key)
        is_own = (
            own in values or (added and key not in values) or (key == "ssl." and any(given.startswith(own) for given in values))
        )
        return own if is_own else key

    found = read_settings(get, key_of, problems)
    if protocol == NODES_PROTOCOL and found.client_auth is ClientAuth.NONE:
        # A node always shows a certificate. Whether a client of this port must, is said when it is known to be one.
        return replace(found, client_auth=ClientAuth.REQUESTED)
    return found


def check_stores(settings: TlsSettings, *, serves: bool) -> str | None:
    """Say what is wrong with the stores; None when they can be used. `serves`: connections are accepted with them."""
    try:
        loaded = load(settings)
    except TlsError as error:
        return str(error)
    if serves and loaded.server is None:
        prefix = settings.keys.prefix
        return (
            f"{prefix}ssl.keystore.location is not set: a listener that speaks TLS needs a key and a certificate; "
            f"set it, or {prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain with {prefix}ssl.keystore.type=PEM"
        )
    return None


def tls_settings(
    values: Mapping[str, str],
    listeners: Sequence[ListenerInfo],
    dialled: ListenerInfo | None,
    named_as: Mapping[str, str],
    problems: list[str],
) -> dict[str, TlsSettings]:
    """By the names of the listeners that speak TLS. `dialled`: the controllers' listener, where this node has none itself."""
    found: dict[str, TlsSettings] = {}
    told: dict[str, list[str]] = {}
    for listener in (*listeners, *(() if dialled is None else (dialled,))):
        if not speaks_tls(listener.security_protocol):
            continue
        wrong: list[str] = []
        settings = settings_for(values, listener.name, listener.security_protocol, wrong, named_as=named_as.get(listener.name))
        if not wrong:
            problem = check_stores(settings, serves=listener is not dialled)
            wrong += [] if problem is None else [problem]
        for line in wrong:
            if any(problem.startswith(line.partition(":")[0] + ":") for problem in problems):
                continue  # told already, by the type of the key
            told.setdefault(line, []).append(listener.name)
        found[listener.name] = settings
    problems += [f"{line} (listener {', '.join(names)})" for line, names in told.items()]
    return found
