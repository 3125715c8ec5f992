"""A leader of the quorum that too few voters fetch from resigns (RF-18): it cannot commit, and others may have replaced it."""

from __future__ import annotations

from typing import Final

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, RAFT_FETCH, UPDATE_VOTER
from kraftlite.model.messages.raft import FetchSnapshotRequest, RaftFetchRequest, UpdateVoterRequest
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.node import NodeStalled
from kraftlite.runtime.trace.raft import LeaderResigned
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.checkers.voter_sets import is_in, majority

_SLACK_US: Final = 200_000
_GAP_US: Final = 1_000_000
"""An idle leader writes more often than this: one that did not was paused, and what had arrived meanwhile was heard only then."""
_SILENT: Final = "no fetches"


class CheckQuorum(MetadataChecker):
    """A leader writes nothing when too few of its other voters can have reached it for 1.5 fetch timeouts. Where it has to hear
    several, the first of them may have fetched just before the time began: then it is twice as long. The only voter never
    resigns."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard_us: dict[NodeId, dict[NodeId, int]] = {}
        """Until when a fetch of each other controller, or what it says of itself, may have reached this leader."""
        self._since_us: dict[NodeId, int] = {}
        """The time at which a leader took office, changed its voters or stood still: silence is counted from then on."""
        self._wrote_us: dict[NodeId, int] = {}
        self.facts.watch_call(RAFT_FETCH, self._on_fetch)
        self.facts.watch_call(FETCH_SNAPSHOT, self._on_fetch)
        self.facts.watch_call(UPDATE_VOTER, self._on_fetch)
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

    def _on_resigned(self, view: NodeView, event: LeaderResigned) -> None:
        keys = self.facts.voter_sets.of(view)
        if event.reason.startswith(_SILENT) and len(keys) == 1 and is_in(keys, view):
            self.fail(f"node {view.node_id}, the only voter, resigns in epoch {event.raft_epoch}: {event.reason}")

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
