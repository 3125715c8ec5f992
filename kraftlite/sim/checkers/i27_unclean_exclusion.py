"""Invariant 27: who lost data is no candidate until it has it again."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp


class UncleanExclusion(ReplicaChecker):
    """A replica joins the ISR only when it has fetched in this leader epoch, as the incarnation that is registered, at or beyond
    the start of the epoch and the HW (RP-21). One that lost bytes is out of the ISR when its next incarnation is registered,
    unless it is the last member (CM-02, CM-28)."""

    numbers: ClassVar[tuple[int, ...]] = (27,)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        leader = view.leader
        if leader is None or view.log is None or leader.isr.pending is None:
            return
        if was is not None and was.maximal is view.maximal:
            return
        epochs = {member.broker_id: member.broker_epoch for member in leader.isr.pending.item.new_isr}
        least = max(leader.epoch_start_offset, view.hw)
        for member in leader.isr.pending.added:
            asked = self.facts.asked_up_to(member, view, view.leader_epoch, epochs[member])
            if asked < least:
                told = "did not fetch in it" if asked < 0 else f"fetched at {asked} in it"
                self.fail(
                    f"{view.text} proposes to add node {member} with broker epoch {epochs[member]}, which {told}; "
                    f"the epoch starts at {leader.epoch_start_offset}, the HW is {view.hw}"
                )

    def on_partition(self, change: PartitionChange) -> None:
        registration = change.new
        tainted = self.world.losses.tainted.get(change.tp)
        if registration is None or not tainted or len(registration.isr) < 2:
            return
        for node_id in sorted(tainted):
            here = self.facts.views.get(change.key, {}).get(node_id)
            if here is None or node_id not in registration.isr:
                continue
            known = self.facts.metadata.history.latest.brokers.get(node_id)
            broker = here.here.node.broker
            if known is not None and broker is not None and known.incarnation_id == broker.lifecycle.incarnation_id:
                self.fail(f"{here.text} lost bytes in a power cut, is registered anew, and is in the ISR {registration.isr}")
