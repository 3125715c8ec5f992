"""The node that calls, for the handlers of calls between nodes (SE-06).

A handler, and every task that it starts, finds here who has called it: the principal of the peer's certificate by
`ssl.principal.mapping.rules`. None: the transport does not authenticate, as gRPC in plain text and the network of the simulator.
A step that demands that the caller may act as a node reads it: `caller()`, and refuses with CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from kraftlite.model.principal import Principal

CALLER: Final[ContextVar[Principal | None]] = ContextVar("kraftlite-caller", default=None)


def caller() -> Principal | None:
    return CALLER.get()
