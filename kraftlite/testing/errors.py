"""The errors of an embedded cluster. A bad argument is a ValueError instead."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster is not in the state that was asked of it, or refused; one sentence says why."""


class WaitTimeout(ClusterError, TimeoutError):
    """A condition did not become true in time; the message says what was seen instead."""
