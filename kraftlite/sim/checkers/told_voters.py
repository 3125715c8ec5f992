"""A leader of the quorum says again and again that it leads, to each voter that does not fetch from it (RF-16)."""

from __future__ import annotations

from typing import Final

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import BEGIN_QUORUM_EPOCH, FETCH_SNAPSHOT, RAFT_FETCH
from kraftlite.model.messages.raft import BeginQuorumEpochRequest
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.simhost.network import AnyExchange

_SLACK_US: Final = 1_000_000
_GAP_US: Final = 1_000_000
"""A leader that wrote nothing for longer may have stood still: it is looked at from then on."""


class VotersTold(MetadataChecker):
    """It looks for who is silent twice in a fetch timeout, and tells nobody again whose answer may still come. A voter that has
    missed the election may find nobody else who knows."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since_us: dict[NodeId, int] = {}
        """The time from which on a leader is looked at: when its office or its set of voters began, or a gap ended."""
        self._wrote_us: dict[NodeId, int] = {}
        self._due_us: dict[tuple[NodeId, NodeId], int] = {}
        """By leader and voter: the time by which it must be told, unless it fetches."""
        self.facts.watch_call(BEGIN_QUORUM_EPOCH, self._on_begin)
        for method in (RAFT_FETCH, FETCH_SNAPSHOT):
            self.facts.watch_arrival(method, self._on_fetch)

    def _on_begin(self, source: NodeId, target: NodeId, request: BeginQuorumEpochRequest) -> None:
        view = self.facts.views[source]
        if view.core is not None:
            config, network = view.core.config, self.world.cluster.network
            fails_at_once = not self.world.nodes[target].running and network.is_prompt(source, target)
            waits_ms = 0 if fails_at_once else config.request_timeout_ms + config.retry_backoff_ms
            self._wait(view, target, max(waits_ms, config.fetch_timeout_ms))

    def _on_fetch(self, exchange: AnyExchange) -> None:
        view = self.facts.views[NodeId(exchange.target)]
        if view.core is not None:
            self._wait(view, exchange.request.replica_id, view.core.config.fetch_timeout_ms)

    def _wait(self, view: NodeView, voter_id: NodeId, for_ms: int) -> None:
        link, due_us = (view.node_id, voter_id), self.world.cluster.loop.now_us() + view.node.longest_us(for_ms)
        self._due_us[link] = max(due_us, self._due_us.get(link, 0))

    def on_role(self, view: NodeView) -> None:
        if isinstance(view.state, Leader):
            self._since_us[view.node_id] = self._wrote_us[view.node_id] = self.world.cluster.loop.now_us()

    def on_append(self, view: NodeView, entry: Entry) -> None:
        if not isinstance(view.state, Leader):
            return
        now_us = self.world.cluster.loop.now_us()
        wrote_us, self._wrote_us[view.node_id] = self._wrote_us.get(view.node_id, 0), now_us
        if now_us - wrote_us > _GAP_US or entry.voters is not None:
            self._since_us[view.node_id] = now_us
        since_us = self._since_us.get(view.node_id, now_us)
        first_us = since_us + view.node.longest_us(view.raft.config.fetch_timeout_ms) + _SLACK_US
        if now_us <= first_us:
            return
        for voter_id, _ in self.facts.voter_sets.of(view):
            late_us = now_us - max(first_us, self._due_us.get((view.node_id, voter_id), 0) + _SLACK_US)
            if voter_id != view.node_id and late_us > 0:
                self.fail(
                    f"node {view.node_id} leads epoch {view.raft.epoch}; voter {voter_id} does not fetch from it, and has not "
                    f"been told for {late_us // 1000} ms too long"
                )
