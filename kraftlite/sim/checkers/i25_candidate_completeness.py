"""Invariant 25: whoever the controller may let lead has everything that was committed."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp, Truth


class CandidateCompleteness(ReplicaChecker):
    """Every running member of the committed ISR, or of the ELR (EL-13), has LEO ≥ the HW of every leader so far, and below that
    the same batches.

    But for a replica that lost unsynced bytes in a power cut and of which the controller does not know that yet, or that is the
    last of the ISR (CM-28); with ELR none that has registered anew is excepted.
    """

    numbers: ClassVar[tuple[int, ...]] = (25,)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        registration = self.facts.registration(view.key)
        if registration is not None and view.node_id in candidates(registration):
            self._check(view)

    def on_truth(self, truth: Truth) -> None:
        registration = self.facts.registration(truth.key)
        views = self.facts.views.get(truth.key, {})
        for member in candidates(registration):
            self._check(views.get(member))

    def on_partition(self, change: PartitionChange) -> None:
        views = self.facts.views.get(change.key, {})
        for member in candidates(change.new):
            self._check(views.get(member))

    def _check(self, view: ReplicaView | None) -> None:
        if view is None or view.log is None:
            return
        truth = self.facts.truth(view.key, view.tp)
        if not self.facts.settled(view, truth):
            return
        missing = self.facts.lacks(view, truth)
        if missing is not None:
            registration = self.facts.registration(view.key)
            where = "ISR" if registration is None or view.node_id in registration.isr else "ELR"
            self.fail(f"{view.text} is in the {where}, but {missing}")


def candidates(registration: PartitionRegistration | None) -> tuple[NodeId, ...]:
    """Return the members of ISR and ELR."""
    return () if registration is None else (*registration.isr, *registration.elr)
