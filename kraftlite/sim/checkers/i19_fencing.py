"""Invariant 19: fenced is fenced everywhere: soft state and log agree; no fenced broker leads, or is one of several in an ISR."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatRequest
from kraftlite.model.messages.methods import BROKER_HEARTBEAT
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState, has_elr
from kraftlite.sim.checkers.views import Entry, NodeView


class Fencing(MetadataChecker):
    """Checked at the end of each committed batch: what fences a broker and what follows from it are written as one.

    A broker is unfenced only when it has said, truthfully, that it applied the log up to its own registration (CM-06): its
    replicas are what the metadata up to the offset in its heartbeat says, from when on it does not want to be fenced. A broker
    joins an ISR only while it is active (KIP-841).
    """

    numbers: ClassVar[tuple[int, ...]] = (19,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._reported: dict[tuple[NodeId, int], int] = {}
        """The highest metadata offset in a heartbeat that did not ask to be fenced, by broker and broker epoch."""
        self._checked: dict[NodeId, tuple[int, int]] = {}
        """The broker epoch and the metadata offset of the last heartbeat that was looked into, by broker."""
        self.facts.watch_call(BROKER_HEARTBEAT, self._on_heartbeat)

    # --- heartbeats

    def _on_heartbeat(self, source: NodeId, target: NodeId, request: BrokerHeartbeatRequest) -> None:
        node = self.facts.views[request.broker_id].node.node
        said = request.current_metadata_offset
        if node is not None and said > node.loader.image.offset:
            self.fail(f"broker {request.broker_id} says that it is at offset {said}; its image is at {node.loader.image.offset}")
        if not request.want_fence:
            self._check_applied(request)
            key = (request.broker_id, request.broker_epoch)
            self._reported[key] = max(said, self._reported.get(key, -1))

    def _check_applied(self, request: BrokerHeartbeatRequest) -> None:
        """A broker that asks for work has every replica that the metadata up to that offset gives it, in its latest state."""
        node = self.facts.views[request.broker_id].node.node
        said, seen = request.current_metadata_offset, self._checked.get(request.broker_id)
        if node is None or node.broker is None or seen == (request.broker_epoch, said):
            return
        self._checked[request.broker_id] = (request.broker_epoch, said)
        hosted = node.broker.replicas._table.by_tp
        for topic_id, topic in self.facts.history.latest.topics.items():
            for index, latest in topic.partitions.items():
                if request.broker_id not in latest.replicas:
                    continue
                known = self.facts.changes[TopicIdPartition(topic_id, index)]
                partition = hosted.get(TopicPartition(topic.name, index))
                if partition is not None and partition.log is None:
                    continue  # its directory has failed
                here = partition is not None and partition.topic_id == topic_id
                # What comes after the state that it acts on; of a replica that it does not have, the state that there is.
                epoch = latest.partition_epoch if partition is None or not here else partition.partition_epoch + 1
                missed = known.get(epoch)
                if missed is not None and missed.offset <= said:
                    acts_on = f"partition epoch {epoch - 1}" if here else "no such replica"
                    self.fail(
                        f"broker {request.broker_id} says that it is at offset {said} and wants work, but of "
                        f"{topic.name}-{index} it has {acts_on}; offset {missed.offset} says {missed.registration}"
                    )

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.BrokerRegistrationChangeRecord) and record.fenced is False:
            needed = before.registered_at[record.broker_id]
            said = self._reported.get((record.broker_id, record.broker_epoch))
            if said is None or said < needed:
                self.fail(
                    f"offset {offset} unfences broker {record.broker_id} in its epoch {record.broker_epoch}: it was registered "
                    f"at {needed}, and has said at most {said}"
                )
        elif isinstance(record, r.RegisterBrokerRecord):
            known = before.brokers.get(record.broker_id)
            same = known is not None and known.incarnation_id == record.incarnation_id
            if not record.fenced and not (same and known is not None and not known.fenced):
                self.fail(f"offset {offset} registers broker {record.broker_id} and does not begin with it fenced: {record}")

    # --- partitions

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        if self.facts.history.transaction_start is not None or (
            before.topics is after.topics and before.brokers is after.brokers
        ):
            return
        brokers = after.brokers
        for topic_id, topic in after.topics.items():
            old_topic = before.topics.get(topic_id)
            if old_topic is topic and before.brokers is brokers:
                continue
            for index, partition in topic.partitions.items():
                old = None if old_topic is None else old_topic.partitions.get(index)
                wrong = _what_is_wrong(partition, old, brokers, elr=has_elr(after))
                if wrong is not None:
                    self.fail(f"after {entry} {topic.name}-{index} {wrong}: {partition}")

    # --- the active controller's soft state

    def on_controller(self, view: NodeView) -> None:
        cluster = view.active_controller.state.cluster
        if not view.active_controller.active or cluster.heartbeats is None:
            return
        soft = {broker_id: state.fenced for broker_id, state in cluster.heartbeats.brokers.items()}
        hard = {broker_id: registration.fenced for broker_id, registration in cluster.brokers.items()}
        if soft != hard:
            self.fail(f"controller {view.node_id} takes these brokers for fenced: {soft}; its log says {hard}")


def _what_is_wrong(partition: PartitionRegistration, old: PartitionRegistration | None, brokers: Any, *, elr: bool) -> str | None:
    """`elr`: eligible leader replicas are kept, and an ISR may be empty."""
    isr = partition.isr
    if not isr and not elr and (old is None or old.isr):
        return "has an empty ISR"
    if partition.leader is not None:
        leader: BrokerRegistration | None = brokers.get(partition.leader)
        if leader is None or not leader.active:
            return f"is led by a broker that is not active: {_state(leader)}"
    if len(isr) == 1:
        return None
    for member in isr:
        registration: BrokerRegistration | None = brokers.get(member)
        if registration is None or registration.fenced:
            return f"has broker {member} in its ISR, which is {_state(registration)}"
        if old is not None and member not in old.isr and not registration.active:
            return f"has let broker {member} join its ISR, which is {_state(registration)}"
    return None


def _state(registration: BrokerRegistration | None) -> str:
    if registration is None:
        return "not registered"
    if registration.fenced:
        return "fenced"
    return "in controlled shutdown" if registration.in_controlled_shutdown else "active"
