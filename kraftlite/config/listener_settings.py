"""Settings that hold for one listener, or for one SASL mechanism on it.

A key of a family that may differ by listener (`ssl.*`, `sasl.*`, `connections.max.reauth.ms`, ...) is looked up in this order:
`listener.name.<listener>.<mechanism>.<key>`, `listener.name.<listener>.<key>`, `<key>`. The names of listener and mechanism are
in lower case there. Source: KIP-103; SE-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LISTENER_PREFIX: Final = "listener.name."


def key_for(listener: str, key: str, mechanism: str | None = None) -> str:
    """`listener.name.external.scram-sha-256.sasl.jaas.config`, for example."""
    between = "" if mechanism is None else f"{mechanism.lower()}."
    return f"{LISTENER_PREFIX}{listener.lower()}.{between}{key}"


def setting_of(values: Mapping[str, str], listener: str, key: str, mechanism: str | None = None) -> str | None:
    """The text that holds for this listener (and mechanism); None where none of the keys is there."""
    if mechanism is not None and (found := values.get(key_for(listener, key, mechanism))) is not None:
        return found
    return values.get(key_for(listener, key), values.get(key))
