"""Invariant 81, at any time: a broker has said in which directory a replica is, or is about to say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kraftlite.broker.server import BrokerServer
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId, is_reserved_uuid
from kraftlite.model.messages.controller import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kraftlite.model.messages.methods import ASSIGN_REPLICAS_TO_DIRS
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import ReplicaMoved
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost


@dataclass(slots=True, eq=False)
class _Said:
    """The word of one incarnation of a broker. `last`: the directory that it named last for a replica, of which metadata does
    not say the same yet. `been`: those in which the replica was since."""

    boots: int
    last: dict[TopicIdPartition, UUID] = field(default_factory=dict)
    been: dict[TopicIdPartition, set[UUID]] = field(default_factory=dict)
    looked: tuple[MetadataImage, int, int] | None = None
    """The state of the last look: the metadata, and the number of wishes that waited and that were with the controller."""


class PlacesTold(Checker):
    """A broker that has told the controller where a replica is, while metadata does not say the same yet, says next, or has said
    last, where the replica is, or where it is on its way with a copy that is complete (JB-05). Else the controller learns of
    another place only when something else of the partition changes.

    A report that takes back one of a directory in which the replica has never been says so: where that directory is offline by
    now, the replica would be taken for one that began anew, and leave the ISR."""

    numbers: ClassVar[tuple[int, ...]] = (81,)
    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = (ReplicaMoved,)
    only_methods = (ASSIGN_REPLICAS_TO_DIRS,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._said: dict[NodeId, _Said] = {}
        self.judged = self.taken_back = 0

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        node = self.world.nodes.get(source)
        if not isinstance(request, AssignReplicasToDirsRequest) or node is None or (broker := _broker(node)) is None:
            return
        said = self._said.get(source)
        if said is None or said.boots != node.boots:
            said = self._said[source] = _Said(node.boots)
        for item in request.replicas:
            key = TopicIdPartition(item.topic_id, item.partition)
            before = said.last.get(key)
            been = said.been.setdefault(key, set())
            been.update(_homes(broker, key))
            if before is not None and before not in (item.directory_id, item.instead_of) and before not in been:
                self.fail(
                    f"broker {source} says that replica {key} is in {item.directory_id}, instead of {item.instead_of}; it has "
                    f"said before that it is in {before}, where it never was"
                )
            self.taken_back += before is not None and item.instead_of == before
            said.last[key] = item.directory_id

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        """Forget what was told of a replica that the controller does not know."""
        said = self._said.get(source)
        if said is None or not isinstance(response, AssignReplicasToDirsResponse):
            return
        for result in response.replicas:
            if result.error is not ErrorCode.NONE:
                said.last.pop(TopicIdPartition(result.topic_id, result.partition), None)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        said = self._said.get(node.node_id)
        broker = _broker(node)
        if type(event) is not ReplicaMoved or said is None or broker is None:
            return
        for key in said.last:
            if _name(broker, key) == event.tp:
                said.been[key].update(it.directory_id for it in broker.log_dirs._dirs if it.path == event.target)

    def on_step(self, node: SimHost) -> None:
        said = self._said.get(node.node_id)
        if said is None or not said.last:
            return
        broker = _broker(node)
        if broker is None or said.boots != node.boots or node.node is None or node.node._stopping:
            del self._said[node.node_id]
            return
        core, image = broker.assignments._core, broker.cache.image
        waiting, sent, looked = len(core._waiting), len(core._sent), said.looked
        if looked is not None and looked[0] is image and looked[1:] == (waiting, sent):
            return
        said.looked = image, waiting, sent
        for key, last in list(said.last.items()):
            pair = (key.topic_id, key.partition)
            assigned = core._assigned(image, pair)
            if assigned == last or assigned is None or is_reserved_uuid(last):
                del said.last[key], said.been[key]
                continue
            wish = core._waiting.get(pair, core._sent.get(pair, last))
            tp = _name(broker, key)
            there = None if tp is None else broker.log_dirs.standing(tp, key.topic_id)
            if there in (None, wish) or not {there, wish} <= set(broker.log_dirs.online_ids()):
                continue
            self.fail(f"{tp} on node {node.node_id} is in {there}; the controller is told {wish}, and metadata says {assigned}")


def _broker(node: SimHost) -> BrokerServer | None:
    return None if node.node is None else node.node.broker


def _name(broker: BrokerServer, key: TopicIdPartition) -> TopicPartition | None:
    topic = broker.cache.image.topics.topic_by_id(key.topic_id)
    return None if topic is None else TopicPartition(topic.name, key.partition)


def _homes(broker: BrokerServer, key: TopicIdPartition) -> tuple[UUID, ...]:
    """The directory in which the replica is now."""
    tp = _name(broker, key)
    state = None if tp is None else broker.log_dirs._home.get(tp)
    return () if state is None else (state.directory_id,)
