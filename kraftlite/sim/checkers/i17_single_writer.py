"""Invariant 17: the records of an epoch come only from the leader of that epoch, in the incarnation that won it."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.raft.states import Leader, Resigned
from kraftlite.runtime.trace.controller import ControllerClaimed, PartitionRecordAppended, RecordAppended
from kraftlite.runtime.trace.raft import AppendsDiscarded
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView


class SingleWriter(MetadataChecker):
    """Every batch in every log is one that the leader of its epoch was seen to write; every record that a controller says it
    wrote was written while its node led the epoch that it claims; an epoch is claimed by one controller."""

    numbers: ClassVar[tuple[int, ...]] = (17,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._written: dict[tuple[int, int], Entry] = {}
        """The entries by (epoch, base offset)."""
        self._claims: dict[int, tuple[NodeId, int]] = {}
        self._discarded: dict[tuple[NodeId, int], tuple[int, int]] = {}
        """The moment in which an incarnation last threw away what was not in its log yet, and of which epoch that was."""
        self._now_us = world.cluster.loop.now_us
        self.facts.watch(AppendsDiscarded, self._on_discarded)
        self.facts.watch(RecordAppended, self._on_record_written)
        self.facts.watch(PartitionRecordAppended, self._on_record_written)
        self.facts.watch(ControllerClaimed, self._on_claimed)

    def on_append(self, view: NodeView, entry: Entry) -> None:
        state, key = view.raft.state, (entry.epoch, entry.base_offset)
        winner = self.facts.elected.get(entry.epoch)
        resigned = isinstance(state, Resigned) and winner == view.author
        if (isinstance(state, Leader) or resigned) and state.epoch == entry.epoch:
            if winner != view.author:
                self.fail(f"node {view.author} writes {entry}; epoch {entry.epoch} was won by {winner}")
            known = self._written.setdefault(key, entry)
            if known is not entry:
                self.fail(f"node {view.node_id} writes {entry} over {known} in its own epoch")
            return
        if key not in self._written and winner is not None and winner[0] == view.node_id and winner[1] < view.incarnation:
            self._written[key] = entry  # found at its restart: written by the callback in which it ended
        if self._written.get(key) is not entry:
            self.fail(f"node {view.node_id} has {entry}; the leader of epoch {entry.epoch} wrote {self._written.get(key)} there")

    def _on_record_written(self, view: NodeView, event: RecordAppended) -> None:
        claim, state = view.active_controller.claim_epoch, view.raft.state
        if isinstance(state, Resigned) and state.epoch == claim and view.raft.metalog.leo <= event.offset:
            return  # it resigned over this append, and threw it away
        if self._discarded.get(view.author) == (self._now_us(), claim):
            return  # votes that had waited came with this append, and it was thrown away
        if not isinstance(state, Leader) or state.epoch != claim:
            self.fail(
                f"controller {view.node_id} writes {event.record} at {event.offset} for epoch {claim}; "
                f"its node is {state.name} in epoch {state.epoch}"
            )

    def _on_discarded(self, view: NodeView, event: AppendsDiscarded) -> None:
        self._discarded[view.author] = self._now_us(), event.raft_epoch

    def _on_claimed(self, view: NodeView, event: ControllerClaimed) -> None:
        known = self._claims.setdefault(event.raft_epoch, view.author)
        if known != view.author:
            self.fail(f"controller {view.author} claims epoch {event.raft_epoch}, which {known} has claimed")
