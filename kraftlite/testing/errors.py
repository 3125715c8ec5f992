"""What goes wrong with an embedded cluster. A bad argument is a ValueError instead."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster is not in the state that was asked of it, or refused; one sentence says why."""


class WaitTimeout(ClusterError, TimeoutError):
    """What was waited for did not happen in time; the message says what was seen instead."""
