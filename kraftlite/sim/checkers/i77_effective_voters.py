"""Invariant 77: a node counts the voters that its own log says last, committed or not, and goes by the kraft.version of there."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.raft.voters import VoterSet
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.sim.quorum import described


class EffectiveVoters(MetadataChecker):
    """The configured voters, or those of the bootstrap snapshot, count while the log says nothing. A leader keeps count of
    exactly those. That committed records are one sequence for everybody, invariant 4 says."""

    numbers: ClassVar[tuple[int, ...]] = (77,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[tuple[int, int], tuple[VoterSet, object, int]] = {}

    def on_raft(self, view: NodeView) -> None:
        core, log = view.raft, view.log
        stamp = (core.voters, log.controls[-1] if log.controls else log, core.kraft_version)
        seen = self._seen.get(view.author)
        if seen is None or seen[0] is not stamp[0] or seen[1] is not stamp[1] or seen[2] != stamp[2]:
            self._seen[view.author] = stamp
            counted, said = core.voters.keys, self.facts.voter_sets.of(view)
            if counted != said:
                self.fail(f"node {view.node_id} takes {described(counted)} for the voters; its log says {described(said)}")
            level = self.facts.voter_sets.version_of(view)
            if core.kraft_version != level:
                self.fail(f"node {view.node_id} goes by kraft.version {core.kraft_version}; its log says {level}")
        state = core.state
        if isinstance(state, Leader) and tuple(sorted(state.voters)) != core.voters.ids:
            self.fail(f"leader {view.node_id} keeps count of {sorted(state.voters)}; the voters are {core.voters.ids}")
