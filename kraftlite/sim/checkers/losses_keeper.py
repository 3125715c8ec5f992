"""Keeps `World.losses`: what a run's faults entitle the cluster to lose. Drives the facts of the replication checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final
from uuid import UUID

from kraftlite.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerRegistrationRequest, ElectionType, ElectLeadersRequest
from kraftlite.model.messages.methods import REGISTER_BROKER, REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogRestarted, LogTruncated
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState, completes_a_move, has_elr
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaFacts, replica_facts
from kraftlite.sim.checkers.views import Entry
from kraftlite.simhost.host import SimHost

UNCLEAN: Final = "unclean.leader.election.enable"


class LossesKeeper(MetadataChecker):
    """Must come before all others that are no `MetadataWatch`. By itself it finds an election that was unclean and must not be.

    A replica is tainted when a power cut took bytes of its log that were not synced, or its disk was wiped; it is no longer when
    its broker has registered anew and it is out of the ISR. One that is still the last of the ISR then and leads takes the
    partition with it: `excused`, as is one that was led by an unclean election. Without ELR that is all that may be lost
    (CM-28, CM-29, RP-45). With ELR (EL-05 to EL-10) a replica that lost bytes is in no ISR and no ELR once it is registered anew,
    and nothing is excused but an unclean election: of a replica that lost nothing, not even that of the last known leader.
    """

    numbers: ClassVar[tuple[int, ...]] = (24,)
    only_events = (LogTruncated, LogRestarted)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.replicas: ReplicaFacts = replica_facts(world)
        self._lost_by: dict[tuple[TopicPartition, NodeId], frozenset[UUID]] = {}
        """The incarnations that had asked to be registered when a replica lost bytes: what they asked may arrive later."""
        self._incarnations: dict[NodeId, set[UUID]] = {}
        self.facts.watch_call(REGISTER_BROKER, self._on_register)
        self._touched: dict[TopicIdPartition, PartitionChange] = {}
        self._kept: set[tuple[TopicPartition, NodeId]] = set()
        """Replicas that lost bytes and stayed candidates, because their broker was registered anew without ELR."""
        self._short: set[tuple[TopicPartition, NodeId]] = set()
        """Replicas that lost bytes and have not joined the ISR since: also the last known leader may be one."""

    # --- passing on

    def on_step(self, node: SimHost) -> None:
        self.replicas.step(node)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is LogTruncated:
            assert isinstance(event, LogTruncated)
            self.replicas.log_cut(node, event.tp, event.leo)
        elif kind is LogRestarted:
            assert isinstance(event, LogRestarted)
            self.replicas.log_cut(node, event.tp, 0)

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is REPLICA_FETCH:
            assert isinstance(request, ReplicaFetchRequest)
            self.replicas.fetch_sent(source, target, request)

    def _on_register(self, source: NodeId, target: NodeId, request: BrokerRegistrationRequest) -> None:
        self._incarnations.setdefault(request.broker_id, set()).add(request.incarnation_id)

    # --- losing

    def on_death(self, node: SimHost, how: str) -> None:
        self.replicas.death(node)
        if how == "power":
            losses: Mapping[NodeId, Sequence[str]] = self.world.notes.get("power_losses", {})
            for path in losses.get(node.node_id, ()):
                tp = partition_of(path, node.config.all_log_dirs)
                if tp is not None:
                    self._taint(tp, node.node_id)
        elif how == "wiped":
            self.world.losses.wiped.add(node.node_id)
            for topic in self.facts.history.latest.topics.values():
                for index, registration in topic.partitions.items():
                    if node.node_id in registration.replicas:
                        self._taint(TopicPartition(topic.name, index), node.node_id)

    def on_loss(self, node: SimHost, paths: Sequence[str]) -> None:
        for path in paths:
            tp = partition_of(path, node.config.all_log_dirs)
            if tp is not None:
                self._taint(tp, node.node_id)

    def _taint(self, tp: TopicPartition, node_id: NodeId) -> None:
        self.world.losses.tainted.setdefault(tp, set()).add(node_id)
        self._short.add((tp, node_id))
        self._lost_by[(tp, node_id)] = frozenset(self._incarnations.get(node_id, ()))

    # --- what the controller makes of it

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        self.replicas.committed_us[offset] = self.world.cluster.loop.now_us()
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            key = TopicIdPartition(record.topic_id, record.partition)
            tp = TopicPartition(after.topics[record.topic_id].name, record.partition)
            old, new = before.partition(*key), after.partition(*key)
            self._note(key, tp, old, new)
            if old is not None and new is not None:
                self._judge(key, tp, old, new, after, offset)
        elif isinstance(record, RemoveTopicRecord):
            topic = before.topics[record.topic_id]
            for index, registration in topic.partitions.items():
                tp = TopicPartition(topic.name, index)
                self._note(TopicIdPartition(record.topic_id, index), tp, registration, None)
                self.world.losses.tainted.pop(tp, None)
                self._short = {it for it in self._short if it[0] != tp}
                self.world.losses.excused.pop(tp, None)
        elif isinstance(record, RegisterBrokerRecord):
            for tp in [tp for tp, nodes in self.world.losses.tainted.items() if record.broker_id in nodes]:
                found = after.topic_named(tp.topic)
                known = None if found is None else found[1].partitions.get(tp.partition)
                if known is None or record.broker_id not in (*known.isr, *known.elr):
                    self._cleanse(tp, record.broker_id, after)
                elif not self._is_reborn(tp, record.broker_id, after):
                    continue
                elif has_elr(after):
                    self.fail(
                        f"{tp}: node {record.broker_id} lost bytes of it and is registered anew at offset {offset}: {known}"
                    )
                else:
                    self._kept.add((tp, record.broker_id))

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        touched, self._touched = self._touched, {}
        for change in touched.values():
            self.replicas.partition_changed(change)

    def _note(
        self, key: TopicIdPartition, tp: TopicPartition, old: PartitionRegistration | None, new: PartitionRegistration | None
    ) -> None:
        known = self._touched.get(key)
        self._touched[key] = PartitionChange(key=key, tp=tp, old=old if known is None else known.old, new=new)

    def _judge(
        self,
        key: TopicIdPartition,
        tp: TopicPartition,
        old: PartitionRegistration,
        new: PartitionRegistration,
        state: MetadataState,
        offset: int,
    ) -> None:
        leader = new.leader
        tainted = self.world.losses.tainted.get(tp, set())
        if leader is None and new.recovering and not old.recovering:
            self._check_allowed(tp, old, new, state, offset)
            self._excuse(key, tp, new, f"a move is taken back at metadata offset {offset}, and {new.isr} may lack records")
        elif leader is not None and new.leader_epoch > old.leader_epoch:
            clean = leader in (*old.isr, *old.elr) or completes_a_move(old, new)
            if not clean or (new.recovering and not old.recovering):
                last = has_elr(state) and old.last_known_elr == (leader,)
                if not last:
                    self._check_allowed(tp, old, new, state, offset)
                if not last or (tp, leader) in self._short:
                    self._excuse(key, tp, new, f"unclean election of node {leader} at metadata offset {offset}")
            elif leader in tainted and self._is_reborn(tp, leader, state):
                if (tp, leader) not in self._kept:
                    self.fail(f"{tp}: node {leader} lost bytes of it and is elected at offset {offset}: {old} becomes {new}")
                self._excuse(key, tp, new, f"node {leader} lost bytes of it and leads from metadata offset {offset} on")
        for member in new.isr:
            followed = member not in old.isr and member != leader  # who is elected has what it has
            if followed and ((tp, member) not in self._lost_by or self._is_reborn(tp, member, state)):
                self._short.discard((tp, member))  # and not in a change that was made before the loss
        for node_id in [it for it in sorted(tainted) if it not in (*new.isr, *new.elr)]:
            self._cleanse(tp, node_id, state)

    def _check_allowed(
        self, tp: TopicPartition, old: PartitionRegistration, new: PartitionRegistration, state: MetadataState, offset: int
    ) -> None:
        override = state.topic_config(tp.topic, UNCLEAN)
        enabled = override if override is not None else self.world.cluster.controllers[0].config.get(UNCLEAN)
        asked = any(tp in it.facts.get("unclean", ()) for it in self.world.history.admins)
        asked = asked or any(_asks_unclean(it.request, tp) for it in self.world.history.operations)
        if str(enabled).strip().lower() != "true" and not asked:
            self.fail(
                f"{tp}: node {new.leader} was elected at metadata offset {offset}, but the ISR was {old.isr} and "
                f"{UNCLEAN}={enabled}"
            )

    def _is_reborn(self, tp: TopicPartition, node_id: NodeId, state: MetadataState) -> bool:
        """The controller knows the incarnation that came after the loss."""
        known = state.brokers.get(node_id)
        return known is not None and known.incarnation_id not in self._lost_by.get((tp, node_id), ())

    def _cleanse(self, tp: TopicPartition, node_id: NodeId, state: MetadataState) -> None:
        if self._is_reborn(tp, node_id, state):
            self.world.losses.tainted.get(tp, set()).discard(node_id)
            self._lost_by.pop((tp, node_id), None)
            self._kept.discard((tp, node_id))

    def _excuse(self, key: TopicIdPartition, tp: TopicPartition, new: PartitionRegistration, why: str) -> None:
        """Without a leader it is the only member of the ISR that will lead."""
        chosen = new.isr[0] if new.leader is None else new.leader
        self.world.losses.excused[tp] = self.replicas.excuses[key] = why
        self.world.losses.tainted.get(tp, set()).discard(chosen)
        self._lost_by.pop((tp, chosen), None)
        self._kept.discard((tp, chosen))
        self.replicas.forget_committed(key, new.leader_epoch)

    def at_end(self) -> None:
        ends = [view.core.committed_offset or 0 for view in self.facts.views.values() if view.core is not None]
        if max(ends, default=0) > self.facts.committed_end:
            self.fail(f"the checkers know the metadata log up to {self.facts.committed_end}, {max(ends)} is committed")


def _asks_unclean(request: object, tp: TopicPartition) -> bool:
    """CM-38: whoever names a partition for an unclean election gives up what it may lose."""
    if not isinstance(request, ElectLeadersRequest) or request.election_type != ElectionType.UNCLEAN:
        return False
    return request.partitions is None or any((it.topic, it.partition) == tp for it in request.partitions)


def partition_of(path: str, log_dirs: Sequence[str]) -> TopicPartition | None:
    """Name the partition whose records are lost when this path lost something; None for what can be made again: indexes,
    checkpoints, epochs."""
    for directory in log_dirs:
        if not path.startswith(f"{directory}/"):
            continue
        name, _, file = path[len(directory) + 1 :].partition("/")
        topic, _, index = name.rpartition("-")
        if topic and index.isdecimal() and topic != "__cluster_metadata" and (not file or file.endswith(".log")):
            return TopicPartition(topic, int(index))
    return None
