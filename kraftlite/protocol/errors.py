"""What a connection cannot recover from."""

from __future__ import annotations


class ProtocolViolation(Exception):
    """The peer sent what cannot be answered (CP-02): its connection is closed, no other. `reason` goes into the trace."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
