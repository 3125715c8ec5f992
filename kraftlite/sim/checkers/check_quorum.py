"""A leader of the quorum that no voter fetches from resigns (RF-18): it cannot commit, and others may have replaced it."""

from __future__ import annotations

from typing import Final

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, RAFT_FETCH, UPDATE_VOTER
from kraftlite.model.messages.raft import FetchSnapshotRequest, RaftFetchRequest, UpdateVoterRequest
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.checkers.voter_sets import is_in

_SLACK_US: Final = 200_000
_GAP_US: Final = 1_000_000
"""An idle leader writes more often than this: one that did not was paused, and what had arrived meanwhile was heard only then."""


class CheckQuorum(MetadataChecker):
    """A leader with other voters writes nothing when no controller can have reached it for 1.5 fetch timeouts. (In a quorum of
    more than three it has to hear more than one, and voters; this says less, and is never wrong.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard_us: dict[NodeId, int] = {}
        """Until when another voter's fetch, or what it says of itself, may have reached this leader, or when it took office."""
        self._wrote_us: dict[NodeId, int] = {}
        self.facts.watch_call(RAFT_FETCH, self._on_fetch)
        self.facts.watch_call(FETCH_SNAPSHOT, self._on_fetch)
        self.facts.watch_call(UPDATE_VOTER, self._on_fetch)

    def _on_fetch(
        self, source: NodeId, target: NodeId, request: RaftFetchRequest | FetchSnapshotRequest | UpdateVoterRequest
    ) -> None:
        if source not in self.facts.controllers or source == target:
            return
        link = self.world.cluster.network.link(source, target)
        if not link.cut and not link.refused:
            slow_us = link.slow_us if link.slow_chance else 0
            arrives_us = self.world.cluster.loop.now_us() + 5 * link.max_us + slow_us
            self._heard_us[target] = max(arrives_us, self._heard_us.get(target, 0))

    def on_role(self, view: NodeView) -> None:
        if isinstance(view.state, Leader):
            self._wrote_us[view.node_id] = self._heard_us[view.node_id] = self.world.cluster.loop.now_us()

    def on_append(self, view: NodeView, entry: Entry) -> None:
        keys = self.facts.voter_sets.of(view)
        if not isinstance(view.state, Leader) or (len(keys) == 1 and is_in(keys, view)):
            return
        now_us = self.world.cluster.loop.now_us()
        if entry.voters is not None:
            self._heard_us[view.node_id] = now_us
        wrote_us, self._wrote_us[view.node_id] = self._wrote_us.get(view.node_id, 0), now_us
        if now_us - wrote_us > _GAP_US:
            self._heard_us[view.node_id] = max(now_us, self._heard_us.get(view.node_id, 0))
        patience_us = view.raft.config.fetch_timeout_ms * 1500 * 1_000_000 // (1_000_000 + view.node.slowest_ppm) + _SLACK_US
        silent_us = now_us - self._heard_us.get(view.node_id, 0)
        if silent_us > patience_us:
            self.fail(
                f"node {view.node_id} leads epoch {view.raft.epoch} and writes {entry}; no voter can have reached it for "
                f"{silent_us // 1000} ms, it should have resigned after {patience_us // 1000}"
            )
