"""Invariant 87: a metadata snapshot says the voters and the kraft.version that the log says at its end."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.log.control import KRaftVersion, KRaftVoters
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView, keys_of
from kraftlite.sim.quorum import described


class VotersInSnapshots(MetadataChecker):
    """Looks into each snapshot of a node, written or fetched, once an incarnation. While kraft.version is 0 it says neither."""

    numbers: ClassVar[tuple[int, ...]] = (87,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[tuple[int, int], OffsetAndEpoch] = {}

    def on_raft(self, view: NodeView) -> None:
        metalog = view.raft.metalog
        latest = metalog.snapshots.latest
        if latest is None or latest.offset == 0 or self._seen.get(view.author) == latest:
            return
        self._seen[view.author] = latest
        with view.node.disk.undisturbed(), metalog.open_reader(latest) as reader:
            controls = list(reader.controls())
        version = next((it.kraft_version for it in controls if isinstance(it, KRaftVersion)), 0)
        voters = next((keys_of(it) for it in controls if isinstance(it, KRaftVoters)), None)
        said = self.facts.voter_sets.behind(latest.offset - 1)
        if (version, voters) != said:
            self.fail(
                f"node {view.node_id}: the snapshot that ends at {latest.offset} has kraft.version {version} and the voters "
                f"{described(voters or ())}; the log has {said[0]} and {described(said[1] or ())} there"
            )
