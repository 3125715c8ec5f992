"""The one error for bytes that do not add up."""

from __future__ import annotations


class ProtocolViolation(Exception):
    """A peer sent, or a record holds, what cannot be read. `reason` says what is wrong with it.

    A server closes that one connection and tells `reason` in its trace (CP-02); a client tries another broker, or again; a record
    becomes CORRUPT_MESSAGE.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
