"""Changes of the voters of the metadata quorum: what an answer means, whether a voter may leave, and both asked for on a
`ClusterClient`. Source: KIP-853; DQ-30, DQ-33.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
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


class Change:
    """A change that is asked for again while it may still be carried out: what its answers say. `done_before`: the refusal that
    means, behind an answer of which nobody knows what came, that the change was carried out."""

    def __init__(self, done_before: ErrorCode) -> None:
        self._done_before = done_before
        self._maybe_done = False

    @classmethod
    def adding(cls) -> Change:
        return cls(ErrorCode.DUPLICATE_VOTER)

    @classmethod
    def removing(cls) -> Change:
        return cls(ErrorCode.VOTER_NOT_FOUND)

    def is_done(self, answer: ErrorCode) -> bool:
        return answer is ErrorCode.NONE or (self._maybe_done and answer is self._done_before)

    def lost(self) -> None:
        """No answer came."""
        self._maybe_done = True

    def goes_on(self, answer: ErrorCode) -> bool:
        """Return whether to ask again, which a final refusal is no reason to."""
        if answer in _UNDECIDED:
            self._maybe_done = True
            return True
        return False


def cannot_leave(voters: Collection[int], leaving: int, running: Collection[int]) -> str | None:
    """The reason why this voter has to stay: without it those that run could elect nobody. None: it may leave, or is none."""
    left = [one for one in voters if one != leaving]
    alive = [one for one in left if one in running]
    if leaving not in voters or len(alive) > len(left) // 2:
        return None
    why = f"of the voters {', '.join(map(str, left))} only {len(alive)} run" if left else "it is the only voter"
    return f"controller {leaving} cannot leave: {why}"


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
    _ask(cluster, ADD_RAFT_VOTER, values, Change.adding(), patience_s)


def remove_voter(cluster: ClusterClient, node_id: int, directory_id: UUID, *, patience_s: float = 0.0) -> None:
    """Remove a voter, whether it runs or not. `patience_s` as for `add_voter`. Raises RequestRefused."""
    values = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id}
    _ask(cluster, REMOVE_RAFT_VOTER, values, Change.removing(), patience_s)


def _ask(cluster: ClusterClient, key: int, values: Mapping[str, Any], change: Change, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            check(cluster.call(key, 0, values, timeout_ms=_TIMEOUT_MS), "the quorum refuses")
        except RequestRefused as error:
            if change.is_done(error.code):
                return
            if not change.goes_on(error.code) or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(_PAUSE_S)
