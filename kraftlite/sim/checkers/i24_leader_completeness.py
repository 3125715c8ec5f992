"""Invariant 24: whoever the controller lets lead has everything that was committed."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker, leads
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp, Truth


class LeaderCompleteness(ReplicaChecker):
    """A running leader, in the leader epoch that the controller committed last, has LEO ≥ the HW of every leader before it, and
    below that the same batches. Acknowledged records are below some HW, see invariant 30."""

    numbers: ClassVar[tuple[int, ...]] = (24,)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        self._check(view)

    def on_truth(self, truth: Truth) -> None:
        registration = self.facts.registration(truth.key)
        if registration is not None and registration.leader is not None:
            self._check(self.facts.views.get(truth.key, {}).get(registration.leader))

    def on_partition(self, change: PartitionChange) -> None:
        if change.new is not None and change.new.leader is not None:
            self._check(self.facts.views.get(change.key, {}).get(change.new.leader))

    def _check(self, view: ReplicaView | None) -> None:
        if view is None or view.log is None or leads(view, self.facts.registration(view.key)) is None:
            return
        if self.facts.is_tainted(view):
            return
        missing = self.facts.lacks(view, self.facts.truth(view.key, view.tp))
        if missing is not None:
            self.fail(f"{view.text} was chosen by the controller, but {missing}")
