"""Invariant 60: a node says of itself what is so, at any time of its life: metrics page and introspection (CE-30)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from kraftlite.controller.core import ControllerCore
from kraftlite.metadata.records import MetadataRecord, RegisterBrokerRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.introspection import NodeStatusResponse, ReplicaState, ReplicaStatesResponse
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES
from kraftlite.node.build import Node
from kraftlite.node.metrics import register_gauges
from kraftlite.obs.metrics import Metrics
from kraftlite.raft.states import Leader
from kraftlite.replication.partition import Partition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView, is_ahead
from kraftlite.sim.themes import ADMIN
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

LOOK_US: Final = 700_000
"""The time between two looks at the metrics of a node. The first one comes before it has started, as a scraper's may."""
MOMENT_US: Final = 1_000
"""A node may still say what it was so shortly ago: its answer is heard one turn of its loop after it was made, and a node that
was paused has had other things to do first."""
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_REPLICAS: Final = "kafka_server_replicamanager_"


class _Role(NamedTuple):
    epoch: int
    leads: bool


class SelfReports(MetadataChecker):
    """The gauges of a controller are those of the log up to where it has replayed, those of a broker those of its partitions,
    and what introspection answers is possible: no broker epoch that no registration gave, no offset beyond the
    log. Metrics are looked at in runs of administrators only."""

    numbers: ClassVar[tuple[int, ...]] = (60,)
    only_events = ()
    only_methods = (NODE_STATUS, REPLICA_STATES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._looks = world.cluster.theme == ADMIN
        self._pages: dict[NodeId, tuple[object, Metrics]] = {}
        self._looked_us: dict[NodeId, int] = {}
        self._epochs: dict[NodeId, set[int]] = {}
        """The broker epochs that a broker was ever given."""
        self._roles: dict[NodeId, tuple[_Role, _Role | None, int]] = {}
        """The role of a voter, the one before it, and when it changed."""

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, RegisterBrokerRecord):
            self._epochs.setdefault(record.broker_id, set()).add(record.broker_epoch)

    # --- metrics

    def on_step(self, node: SimHost) -> None:
        if not self._looks or node.node is None:
            return
        now_us = self.world.cluster.loop.now_us()
        self._note_role(node, now_us)
        known = self._pages.get(node.node_id)
        if known is None or known[0] is not node.now:
            known = self._pages[node.node_id] = (node.now, Metrics())
            register_gauges(known[1], node.node, most_partitions=0)
        elif now_us - self._looked_us[node.node_id] < LOOK_US:
            return
        self._looked_us[node.node_id] = now_us
        self.look(node, {it.name: it.samples[0].value for it in known[1].collect() if it.samples})

    def look(self, node: SimHost, gauges: Mapping[str, float]) -> None:
        assert node.node is not None
        view = self.facts.view(node)
        if view.controller is not None:
            self._look_at_controller(view, view.controller, gauges)
        if node.node.broker is not None:
            partitions = node.node.broker.replicas.partitions()
            for name, wanted in _of_partitions(partitions).items():
                self._compare(node, _REPLICAS + name, gauges, wanted)

    def _look_at_controller(self, view: NodeView, core: ControllerCore, gauges: Mapping[str, float]) -> None:
        self._compare(view.node, f"{_CONTROLLER}activecontrollercount", gauges, int(core.active and core.claim_epoch is not None))
        offset = core.offsets.committed_offset
        if is_ahead(core) or core.queue.has_begun or not 0 <= offset < self.facts.committed_end:
            return  # with records that are not committed, or with a part of a batch
        for name, wanted in _of_metadata(self.facts.history.applied(offset)).items():
            self._compare(view.node, _CONTROLLER + name, gauges, wanted)

    def _compare(self, node: SimHost, name: str, gauges: Mapping[str, float], wanted: int) -> None:
        if gauges[name] != wanted:
            self.fail(f"the metrics of node {node.node_id} have {name} {gauges[name]:g}, where {wanted} is so")

    # --- introspection

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        node = self.world.nodes[exchange.target]
        if node.node is None:
            return
        if isinstance(response, NodeStatusResponse):
            self._check_status(node, response)
        elif isinstance(response, ReplicaStatesResponse):
            self._check_replicas(node, node.node, response)

    def _note_role(self, node: SimHost, now_us: int) -> None:
        core = self.facts.view(node).core
        if core is None:
            return
        role, known = _Role(core.epoch, isinstance(core.state, Leader)), self._roles.get(node.node_id)
        if known is None or known[0] != role:
            self._roles[node.node_id] = role, None if known is None else known[0], now_us

    def _roles_of(self, node: SimHost) -> list[_Role]:
        """The role of a node, and the one that it had a moment ago."""
        core = self.facts.view(node).raft
        role = _Role(core.epoch, isinstance(core.state, Leader))
        _, before, changed_us = self._roles.get(node.node_id, (role, None, 0))
        recent = self.world.cluster.loop.now_us() - changed_us <= MOMENT_US
        return [role, before] if before is not None and recent else [role]

    def _check_status(self, node: SimHost, it: NodeStatusResponse) -> None:
        roles = self._roles_of(node)
        for wrong, what in (
            (it.node_id != node.node_id or it.roles != node.config.roles, f"to be node {it.node_id} with the roles {it.roles}"),
            (it.raft_epoch not in [role.epoch for role in roles], f"raft epoch {it.raft_epoch}"),
            (
                _Role(it.raft_epoch, it.raft_state == "leader") not in roles,
                f"the raft state {it.raft_state} in epoch {it.raft_epoch}",
            ),
            ((it.raft_high_watermark or 0) > it.raft_leo, f"the high watermark {it.raft_high_watermark} of {it.raft_leo}"),
            (it.metadata_offset >= it.raft_leo, f"metadata up to {it.metadata_offset} with a log that ends at {it.raft_leo}"),
            (
                it.broker_epoch is not None and it.broker_epoch not in self._epochs.get(node.node_id, set()),
                f"the broker epoch {it.broker_epoch}",
            ),
        ):
            if wrong:
                self.fail(f"node {node.node_id} says of itself {what}")

    def _check_replicas(self, node: SimHost, built: Node, response: ReplicaStatesResponse) -> None:
        online = () if built.broker is None else built.broker.replicas.partitions()
        has = {it.tp: it for it in online if it.log is not None}
        for it in response.replicas:
            partition = next((found for tp, found in has.items() if (tp.topic, tp.partition) == (it.topic, it.partition)), None)
            if partition is None or partition.topic_id != it.topic_id:
                self.fail(f"node {node.node_id} says that it has {it.topic}-{it.partition} of {it.topic_id}")
                continue
            if not it.log_start_offset <= it.hw <= it.leo:
                self.fail(f"node {node.node_id} says that {it.topic}-{it.partition} is {it}")
            if it.is_leader and node.node_id not in it.isr:
                self.fail(f"node {node.node_id} says that it leads {it.topic}-{it.partition} with the ISR {it.isr}")
            if not _knows_followers(node.node_id, partition, it):
                self.fail(f"node {node.node_id} says of the followers of {it.topic}-{it.partition}: {it}")


def _knows_followers(node_id: NodeId, partition: Partition, it: ReplicaState) -> bool:
    """Return whether a leader names the start of its epoch, and each follower once with an offset that it has heard from that
    one; and another replica nothing of the kind."""
    if not it.is_leader:
        return not it.followers and not it.follower_leos and it.epoch_start_offset is None
    if len(it.follower_leos) != len(it.followers) or set(it.followers) != set(it.replicas) - {node_id}:
        return False
    leader, start = partition.leader, it.epoch_start_offset
    if start is None or not 0 <= start <= it.leo:
        return False
    same = leader is not None and partition.leader_epoch == it.leader_epoch
    if leader is not None and same and start != leader.epoch_start_offset:
        return False
    heard = {one: known.leo for one, known in leader.followers.items()} if leader is not None and same else {}
    for one, end in zip(it.followers, it.follower_leos, strict=True):
        most = heard.get(one, it.leo)
        if end > it.leo or end > (-1 if most is None else most):
            return False
    return set(it.isr) <= set(it.maximal_isr)


def _of_metadata(state: MetadataState) -> dict[str, int]:
    """The gauges of a controller, counted in the checkers' own replay of the log."""
    partitions = [one for topic in state.topics.values() for one in topic.partitions.values()]
    return {
        "fencedbrokercount": sum(it.fenced for it in state.brokers.values()),
        "activebrokercount": sum(not it.fenced for it in state.brokers.values()),
        "globaltopiccount": len(state.topics),
        "globalpartitioncount": len(partitions),
        "offlinepartitionscount": sum(it.leader is None for it in partitions),
        "preferredreplicaimbalancecount": sum(it.leader != it.replicas[0] for it in partitions),
    }


def _of_partitions(partitions: tuple[Partition, ...]) -> dict[str, int]:
    led = [it for it in partitions if it.leader is not None]
    return {
        "partitioncount": len(partitions),
        "leadercount": len(led),
        "underreplicatedpartitions": sum(len(set(it.replicas) - set(it.committed_isr)) > 0 for it in led),
        "underminisrpartitioncount": sum(len(it.committed_isr) < it.min_isr for it in led),
        "offlinereplicacount": sum(it.log is None for it in partitions),
    }
