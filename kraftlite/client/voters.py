"""Changes of the voters of the metadata quorum, on a `ClusterClient`. Source: KIP-853; DQ-30, DQ-33."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kraftlite.client.cluster import ClusterClient, check
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import VoterEndpoint
from kraftlite.protocol.api_keys import ADD_RAFT_VOTER, REMOVE_RAFT_VOTER

_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.25
_UNDECIDED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The change was not begun, or may still be carried out."""


def add_voter(
    cluster: ClusterClient, node_id: int, directory_id: UUID, endpoints: Sequence[VoterEndpoint], *, patience_s: float = 0.0
) -> None:
    """Add a controller that runs and has caught up. Raises RequestRefused.

    `patience_s`: for how long it is asked again while the quorum says REQUEST_TIMED_OUT, which it also does of a controller that
    has not caught up, or has another leader. DUPLICATE_VOTER after such an answer means that the request before was carried out.
    """
    values = {
        "cluster_id": None,
        "timeout": _TIMEOUT_MS,
        "voter_id": node_id,
        "voter_directory_id": directory_id,
        "listeners": [{"name": it.name, "host": it.host, "port": it.port} for it in endpoints],
    }
    _ask(cluster, ADD_RAFT_VOTER, values, ErrorCode.DUPLICATE_VOTER, patience_s)


def remove_voter(cluster: ClusterClient, node_id: int, directory_id: UUID, *, patience_s: float = 0.0) -> None:
    """Remove a voter, whether it runs or not. `patience_s` as for `add_voter`. Raises RequestRefused."""
    values = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id}
    _ask(cluster, REMOVE_RAFT_VOTER, values, ErrorCode.VOTER_NOT_FOUND, patience_s)


def _ask(cluster: ClusterClient, key: int, values: Mapping[str, Any], done_before: ErrorCode, patience_s: float) -> None:
    deadline, maybe_done = time.monotonic() + patience_s, False
    while True:
        try:
            check(cluster.call(key, 0, values, timeout_ms=_TIMEOUT_MS), "the quorum refuses")
        except RequestRefused as error:
            if maybe_done and error.code is done_before:
                return
            if error.code not in _UNDECIDED or time.monotonic() >= deadline:
                raise
            maybe_done = True
        else:
            return
        time.sleep(_PAUSE_S)
