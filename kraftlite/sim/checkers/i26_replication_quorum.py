"""Invariant 26: what the HW waits for contains everyone who may be elected."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import HwAdvanced
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker, leads
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.simhost.host import SimHost


class ReplicationQuorum(ReplicaChecker):
    """The maximal ISR of a leader that is not stale contains the controller's ISR, and is the same when nothing is pending.

    A leader's HW moves only while its ISR has min.insync.replicas members (RP-06), and only as far as every member of the maximal
    ISR has fetched in this leader epoch (RP-11, RP-12), by the requests that they sent and not by what the leader made of them.
    Nor does it pass who is in the ISR by the metadata of its broker: a larger minimum may come before the change that takes a
    member out. A smaller minimum counts when the changes of the partition that the broker knows are made, as in Kafka, where
    configurations come last.
    """

    numbers: ClassVar[tuple[int, ...]] = (26,)
    only_events = (HwAdvanced,)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        if view.leader is None or view.log is None:
            return
        if was is None or view.maximal is not was.maximal or view.partition_epoch != was.partition_epoch:
            self._check_isr(view)
        stays = was is not None and was.leader is view.leader
        if was is not None and stays and view.min_isr < was.min_isr and view.partition_epoch == was.partition_epoch:
            self._check_minimum(view, was)
        rose = was is not None and stays and view.hw > was.hw
        if rose or view.hw > self.facts.truth(view.key, view.tp).was:
            self._check_hw(view)
        if rose:
            self._check_heard(view)

    def on_partition(self, change: PartitionChange) -> None:
        if change.new is not None and change.new.leader is not None:
            view = self.facts.views.get(change.key, {}).get(change.new.leader)
            if view is not None:
                self._check_isr(view)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is not HwAdvanced:
            return
        broker = None if node.node is None else node.node.broker
        partition = None if broker is None else broker.replicas.partition(event.tp)
        if partition is not None and len(partition.committed_isr) < partition.min_isr:
            self.fail(
                f"{event.tp} on node {node.node_id}: the HW went from {event.old} to {event.new} with the ISR "
                f"{partition.committed_isr}, min.insync.replicas is {partition.min_isr}"
            )

    def _check_isr(self, view: ReplicaView) -> None:
        registration = self.facts.registration(view.key)
        leader = leads(view, registration)
        if leader is None or registration is None:
            return
        maximal = leader.isr.maximal
        missing = [member for member in registration.isr if member not in maximal]
        if missing:
            self.fail(f"{view.text} waits for {maximal}, the controller may elect {registration.isr}")
        settled = leader.isr.pending is None and view.partition_epoch == registration.partition_epoch
        if settled and len(maximal) != len(registration.isr):
            self.fail(f"{view.text} waits for {maximal} with nothing pending, the ISR is {registration.isr}")

    def _check_hw(self, view: ReplicaView) -> None:
        for member in view.maximal:
            if member == view.node_id:
                continue
            asked = self.facts.asked_up_to(member, view, view.leader_epoch)
            if asked < view.hw:
                told = "nothing" if asked < 0 else f"fetches at up to {asked}"
                self.fail(f"{view.text} has the HW {view.hw}, but node {member} of its ISR {view.maximal} sent {told} in it")

    def _check_heard(self, view: ReplicaView) -> None:
        heard = _heard(view)
        if heard is None or heard.leader_epoch != view.leader_epoch:
            return
        for member in heard.isr:
            if member in view.maximal or member == view.node_id:
                continue
            asked = self.facts.asked_up_to(member, view, view.leader_epoch)
            if asked < view.hw:
                self.fail(
                    f"{view.text} raises its HW to {view.hw} past node {member}, which fetches at up to {asked} and is in the "
                    f"ISR {heard.isr} of the metadata that the broker has"
                )

    def _check_minimum(self, view: ReplicaView, was: Stamp) -> None:
        heard = _heard(view)
        if heard is not None and heard.leader_epoch >= view.leader_epoch and heard.partition_epoch > view.partition_epoch:
            self.fail(
                f"{view.text} goes by min.insync.replicas={view.min_isr} and no more by {was.min_isr}, before it has made the "
                f"change that the broker knows: it is in partition epoch {view.partition_epoch}, known is {heard}"
            )

    def unsettled(self) -> str | None:
        """RP-05: every leader goes by the topic's min.insync.replicas, or by as many replicas as there are, once it has heard of
        the last change."""
        state = self.facts.metadata.history.latest
        for key, views in self.facts.views.items():
            registration = self.facts.registration(key)
            for view in views.values():
                if leads(view, registration) is None or registration is None:
                    continue
                override = state.topic_config(view.tp.topic, "min.insync.replicas", view.node_id)
                wanted = min(int(override or view.node.config.get_int("min.insync.replicas")), len(registration.replicas))
                if view.partition.min_isr != wanted:
                    return f"{view.text} goes by min.insync.replicas={view.partition.min_isr}, it is {wanted}"
        return None

    def at_end(self) -> None:
        wrong = self.unsettled()
        if wrong is not None:
            self.fail(wrong)


def _heard(view: ReplicaView) -> PartitionRegistration | None:
    """The partition by the metadata from which the replica's broker answers clients."""
    broker = view.here.node.broker
    topic = None if broker is None else broker.cache.image.topics.by_id.get(view.key.topic_id)
    return None if topic is None else topic.partitions.get(view.key.partition)
