"""A broker that is asked to stop goes when its leaderships are elsewhere and everyone knows (CM-08, BL-10)."""

from __future__ import annotations

from collections.abc import Container

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.heartbeats import BrokerControlState
from kraftlite.metadata.registrations import BrokerRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlite.model.messages.methods import BROKER_HEARTBEAT
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import BrokerStateChanged
from kraftlite.runtime.trace.controller import BrokerStateChanged as BrokerMoved
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.simhost.host import SimHost

_GIVEN_UP = ("no controller acknowledged", "could not register")
_SLACK_US = 20_000


class ControlledShutdown(ReplicaChecker):
    """The controller lets a broker go only when it leads nothing any more, and when every other active broker has applied what
    moved its leaderships, unless it was fenced meanwhile, or is about to be because its session is over; one that still leads it
    never lets go at once. The broker goes without that only when no controller has answered it for a session timeout."""

    only_events = (BrokerMoved, BrokerStateChanged)
    only_methods = (BROKER_HEARTBEAT,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._answered_us: dict[tuple[NodeId, int], int] = {}
        """(node, boot) → when a heartbeat of it was answered last."""
        self._let_go: set[tuple[NodeId, int]] = set()
        self._moved: dict[NodeId, int] = {}
        """Metadata offset at which a broker in controlled shutdown lost its last leadership."""
        self._reported: dict[NodeId, tuple[int, int]] = {}
        """Broker epoch of each broker that sends heartbeats, and the highest metadata offset in one of them."""

    def on_partition(self, change: PartitionChange) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.leader is None or new.leader == old.leader:
            return
        known = self._registered(old.leader)
        if known is not None and known.in_controlled_shutdown:
            self._moved[old.leader] = self.facts.metadata.changes[change.key][new.partition_epoch].offset

    def _registered(self, node_id: NodeId) -> BrokerRegistration | None:
        return self.facts.metadata.history.latest.brokers.get(node_id)

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is BROKER_HEARTBEAT:
            assert isinstance(request, BrokerHeartbeatRequest)
            epoch, offset = self._reported.get(source, (-1, -1))
            here = request.current_metadata_offset
            self._reported[source] = (request.broker_epoch, max(here, offset) if epoch == request.broker_epoch else here)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is not BROKER_HEARTBEAT:
            return
        assert isinstance(request, BrokerHeartbeatRequest) and isinstance(response, BrokerHeartbeatResponse)
        incarnation = (source, self.world.nodes[source].boots)
        if not self.world.nodes[source].paused:  # else it may give up first when it goes on: it has heard nothing yet
            self._answered_us[incarnation] = self.world.cluster.loop.now_us()
        if not response.should_shut_down:
            return
        self._let_go.add(incarnation)
        known = self._registered(source)
        if known is None or known.broker_epoch != request.broker_epoch:
            return
        led = self._led_by(source)
        if led:
            self.fail(f"the controller lets node {source} go, which leads {led}")
        if known.in_controlled_shutdown and not known.fenced:
            self._check_known(source, self.world.nodes[target])

    def _led_by(self, node_id: NodeId) -> list[str]:
        state = self.facts.metadata.history.latest
        return [
            f"{topic.name}-{index}"
            for topic in state.topics.values()
            for index, it in topic.partitions.items()
            if it.leader == node_id
        ]

    def _check_known(self, leaving: NodeId, controller: SimHost) -> None:
        moved = self._moved.get(leaving, -1)
        lost = _without_session(controller)
        for node in self.world.cluster.brokers:
            known = self._registered(node.node_id)
            running = node.node
            if node.node_id == leaving or known is None or not known.active or running is None or running.broker is None:
                continue
            if node.node_id in lost:
                continue
            if running.broker.lifecycle.broker_epoch != known.broker_epoch:
                continue
            applied = running.loader.last_applied_offset()
            if applied < moved:
                self.fail(
                    f"the controller lets node {leaving} go, but node {node.node_id} has applied the metadata log up to "
                    f"{applied} and the leaderships were moved at {moved}"
                )

    def _check_reports(self, leaving: NodeId, cluster: ClusterControl) -> None:
        """The controller that saw the leaderships move decides, on what it has written, committed or not: the others must have
        said that they know."""
        moved = self._moved.get(leaving, -1)
        for node in self.world.cluster.brokers:
            broker_id = node.node_id
            known = cluster.brokers.get(broker_id)
            epoch, offset = self._reported.get(broker_id, (-1, -1))
            active = known is not None and known.active and epoch == known.broker_epoch
            if broker_id != leaving and active and offset < moved and broker_id not in cluster.live.leaving:
                self.fail(
                    f"the controller lets node {leaving} go, whose leaderships were moved at {moved}; broker {broker_id} has "
                    f"said that it is at {offset}"
                )

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is BrokerMoved:
            self._check_move(node, event)
        elif type(event) is BrokerStateChanged and event.previous == "PENDING_CONTROLLED_SHUTDOWN":
            self._check_going(now_us, node, event)

    def _check_move(self, node: SimHost, event: BrokerMoved) -> None:
        controller = None if node.node is None else node.node.controller
        if event.new != BrokerControlState.SHUTDOWN_NOW.value or controller is None:
            return
        if event.old == BrokerControlState.CONTROLLED_SHUTDOWN.value:
            self._check_reports(event.broker_id, controller.core.state.cluster)
        if event.old != BrokerControlState.FENCED.value and controller.core.state.replication.has_leaderships(event.broker_id):
            self.fail(
                f"controller {node.node_id} lets broker {event.broker_id} go at once, which is {event.old} and leads "
                f"{self._led_by(event.broker_id)}"
            )

    def _check_going(self, now_us: int, node: SimHost, event: BrokerStateChanged) -> None:
        incarnation = (node.node_id, node.boots)
        if incarnation in self._let_go or (event.cause or "").startswith(_GIVEN_UP):
            return
        answered = self._answered_us.get(incarnation)
        session_us = node.config.get_int("broker.session.timeout.ms") * 1_000_000_000 // (1_000_000 + node.fastest_ppm)
        patience_us = session_us - _SLACK_US
        if answered is not None and now_us - answered < patience_us:
            led = self._led_by(node.node_id)
            self.fail(
                f"node {node.node_id} goes without having been let go, {(now_us - answered) // 1000} ms after a controller "
                f"answered it, and leads {led}"
            )


def _without_session(controller: SimHost) -> Container[NodeId]:
    """The brokers whose session is over there and that are fenced when their leaderships have moved (CM-10)."""
    running = None if controller.node is None else controller.node.controller
    heartbeats = None if running is None else running.core.state.cluster.heartbeats
    return () if heartbeats is None else heartbeats.leaving
