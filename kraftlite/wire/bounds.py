"""The bounds of one client connection that nobody configures."""

from __future__ import annotations

from typing import Final

from kraftlite.model.limits import MIB
from kraftlite.wire.turns import MS

SHRINK_AFTER_MS: Final = 10_000
READY_HIGH_BYTES: Final = MIB
"""No request is taken while more bytes of answers wait for an earlier answer."""
RUN_REQUESTS: Final = 5
"""So many requests that have come together are taken together, even when the slice of time is over. An idempotent producer has
at most five under way: when the broker becomes the leader, or the ISR grows, between two of them, the first is refused as too
early and the next as out of order, and the client gives up its epoch."""
RUN_NS: Final = 20 * MS
"""The time by which such a run may exceed its slice."""
MAX_TASKS: Final = 10
"""Requests of one connection that are worked on beside the loop, or wait for data: how much they will answer is not known."""
LINGER_MS: Final = 5_000
"""The time that a connection that is to be closed may take to read what it was answered."""
