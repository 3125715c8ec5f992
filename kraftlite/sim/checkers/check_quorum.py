"""A leader of the quorum that too few voters fetch from resigns (RF-18): it cannot commit, and others may have replaced it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, RAFT_FETCH, UPDATE_VOTER
from kraftlite.model.messages.raft import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftFetchRequest,
    RaftFetchResponse,
    UpdateVoterRequest,
)
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.node import NodeStalled
from kraftlite.runtime.trace.raft import LeaderResigned
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.checkers.voter_sets import is_in, majority
from kraftlite.simhost.network import AnyExchange

_SLACK_US: Final = 200_000
_ROUNDED_US: Final = 20_000
"""A node's clock is read in milliseconds, and once in a step."""
_GAP_US: Final = 1_000_000
"""An idle leader writes more often than this: one that did not was paused, and what had arrived meanwhile was heard only then."""
_SILENT: Final = "no fetches"


class CheckQuorum(MetadataChecker):
    """A leader writes nothing when too few of its other voters can have reached it for 1.5 fetch timeouts. Where it has to hear
    several, the first of them may have fetched just before the time began: then it is twice as long.

    The other way round, no leader resigns because nobody fetches that has answered enough of its other voters, which asked within
    that time; the only voter never does."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard_us: dict[NodeId, dict[NodeId, int]] = {}
        """Until when a fetch of each other controller, or what it says of itself, may have reached this leader."""
        self._since_us: dict[NodeId, int] = {}
        """The time at which a leader took office, changed its voters or stood still: silence is counted from then on."""
        self._wrote_us: dict[NodeId, int] = {}
        self._came_us: dict[AnyExchange, int] = {}
        self._taken: dict[NodeId, dict[NodeId, tuple[int, UUID | None]]] = {}
        """By leader and voter: the arrival of the latest fetch that was answered, and the directory that it came from."""
        self.facts.watch_call(RAFT_FETCH, self._on_fetch)
        self.facts.watch_call(FETCH_SNAPSHOT, self._on_fetch)
        self.facts.watch_call(UPDATE_VOTER, self._on_fetch)
        for method in (RAFT_FETCH, FETCH_SNAPSHOT):
            self.facts.watch_arrival(method, self._on_arrival)
            self.facts.watch_served(method, self._on_served)
        self.facts.watch(LeaderResigned, self._on_resigned)
        self.facts.watch(NodeStalled, self._on_stalled)

    def _on_fetch(
        self, source: NodeId, target: NodeId, request: RaftFetchRequest | FetchSnapshotRequest | UpdateVoterRequest
    ) -> None:
        if source not in self.facts.controllers or source == target:
            return
        link = self.world.cluster.network.link(source, target)
        if not link.cut and not link.refused:
            slow_us = link.slow_us if link.slow_chance else 0
            arrives_us = self.world.cluster.loop.now_us() + 5 * link.max_us + slow_us
            heard = self._heard_us.setdefault(target, {})
            heard[source] = max(arrives_us, heard.get(source, 0))

    def on_role(self, view: NodeView) -> None:
        if isinstance(view.state, Leader):
            self._wrote_us[view.node_id] = self._since_us[view.node_id] = self.world.cluster.loop.now_us()

    def _on_stalled(self, view: NodeView, event: NodeStalled) -> None:
        self._since_us[view.node_id] = self.world.cluster.loop.now_us()

    def _on_arrival(self, exchange: AnyExchange) -> None:
        self._came_us.setdefault(exchange, self.world.cluster.loop.now_us())

    def _on_served(self, exchange: AnyExchange, response: RaftFetchResponse | FetchSnapshotResponse) -> None:
        came_us, request = self._came_us.pop(exchange, None), exchange.request
        if came_us is None or response.error is not ErrorCode.NONE:
            return
        taken = self._taken.setdefault(NodeId(exchange.target), {})
        if came_us >= taken.get(request.replica_id, (0, None))[0]:
            taken[request.replica_id] = came_us, request.replica_directory_id

    def _on_resigned(self, view: NodeView, event: LeaderResigned) -> None:
        if not event.reason.startswith(_SILENT) or view.core is None:
            return
        keys = self.facts.voter_sets.of(view)
        if len(keys) == 1 and is_in(keys, view):
            self.fail(f"node {view.node_id}, the only voter, resigns in epoch {event.raft_epoch}: {event.reason}")
        now_us, taken = self.world.cluster.loop.now_us(), self._taken.get(view.node_id, {})
        limit_us = view.raft.config.fetch_timeout_ms * 1500 * 1_000_000 // (1_000_000 + view.node.fastest_ppm) - _ROUNDED_US
        since_us = max(now_us - limit_us, self._since_us.get(view.node_id, 0))
        heard = []
        for node_id, directory in keys:
            came_us, came_from = taken.get(node_id, (0, None))
            if node_id != view.node_id and came_us > since_us and directory in (None, came_from):
                heard.append(node_id)
        if len(heard) >= majority(keys) - is_in(keys, view):
            self.fail(
                f"node {view.node_id} resigns in epoch {event.raft_epoch} for {event.reason}, and has answered {heard} of "
                f"{[node_id for node_id, _ in keys]}, who asked within {limit_us // 1000} ms"
            )

    def on_append(self, view: NodeView, entry: Entry) -> None:
        keys = self.facts.voter_sets.of(view)
        needed = majority(keys) - is_in(keys, view)
        if not isinstance(view.state, Leader) or not needed or not keys:
            return
        now_us = self.world.cluster.loop.now_us()
        wrote_us, self._wrote_us[view.node_id] = self._wrote_us.get(view.node_id, 0), now_us
        if now_us - wrote_us > _GAP_US or entry.voters is not None:
            self._since_us[view.node_id] = now_us
        heard = self._heard_us.get(view.node_id, {})
        times = sorted((heard.get(node_id, 0) for node_id, _ in keys if node_id != view.node_id), reverse=True)
        silent_us = now_us - max(times[needed - 1], self._since_us.get(view.node_id, 0))
        usual_us = view.raft.config.fetch_timeout_ms * 1500 * 1_000_000 // (1_000_000 + view.node.slowest_ppm)
        patience_us = min(needed, 2) * usual_us + _SLACK_US
        if silent_us > patience_us:
            self.fail(
                f"node {view.node_id} leads epoch {view.raft.epoch} and writes {entry}; {needed} voters have to reach it, and "
                f"fewer can have for {silent_us // 1000} ms: it should have resigned after {patience_us // 1000}"
            )
