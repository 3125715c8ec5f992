"""Carries a fault schedule out on a simulated cluster, and undoes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.fault_plan import BOOT_FAULTS, FaultPlan, UnknownNode
from kraftlite.sim.ledger import ALL_END
from kraftlite.simhost.host import Incarnation, SimHost

DeathCallback = Callable[[SimHost, str], None]


class Injector:
    """`on_death(node, how)` and `on_boot` are told of every end and start that it causes; `log` collects what was done."""

    def __init__(
        self,
        cluster: SimCluster,
        handlers: Mapping[str, Callable[[Any, FaultPlan], None]],
        *,
        on_death: DeathCallback,
        power_losses: dict[NodeId, list[str]],
        wiped: set[NodeId],
        damaged: set[tuple[NodeId, TopicPartition]],
        forgetful: dict[NodeId, int],
        on_loss: Callable[[SimHost, Sequence[str]], None] = lambda node, paths: None,
        on_churn: Callable[[int, int], None] = lambda for_ms, gap_ms: None,
    ) -> None:
        self._handlers = handlers
        """The function that carries each kind of fault out, given the injector and the fault."""
        self.wiped = wiped
        self.damaged = damaged
        self.forgetful = forgetful
        self.on_churn = on_churn
        self.cluster = cluster
        self.on_death = on_death
        self.power_losses = power_losses
        self.rng = random.Random(f"injector/{cluster.seed}")
        self.trouble = random.Random(f"troubles/{cluster.seed}")
        """The stream of the faults that came later."""
        self.on_loss = on_loss
        self.log: list[tuple[int, str]] = []
        self.disk_victims: set[NodeId] = set()
        """Nodes whose disk failed at some time: they may end themselves."""
        self.rotten: dict[NodeId, dict[str, bytes]] = {}
        """The files of a node that were damaged while it was down, with what was in them, until it has started."""
        self.rotten_awake: dict[NodeId, dict[str, bytes]] = {}
        """The same of files that were damaged while it ran: a start says nothing about them."""
        self.altered: dict[NodeId, str] = {}
        """The kind of fault that has changed the files of a node while it was down, until it has started."""
        self.stopping: dict[Incarnation, SimHost] = {}
        """Those that were told to stop and have not ended, or nobody was told yet: whatever else is over, they will."""
        self.ambushes: dict[tuple[str, AnyMethod], list[Callable[[NodeId, NodeId], None]]] = {}
        """The faults that wait for a moment in the life of a call, in the order in which they strike."""
        self.struck_epochs: set[int] = set()
        """The epochs of the quorum whose leader a fault has struck when it told of its election."""
        self.amid_bootstrap: list[FaultPlan] = []
        """The faults that wait for a controller which writes the first records."""
        self.over = False
        cluster.inflict = lambda plan: None if self.over else self._begin(plan)

    def check(self, faults: Sequence[FaultPlan]) -> None:
        """Raises UnknownNode for a fault that names a node which is not of this cluster."""
        nodes = self.cluster.nodes
        for plan in faults:
            for target in (plan.target, plan.other):
                if target.isdecimal() and NodeId(int(target)) not in nodes:
                    raise UnknownNode(f"{plan}: there is no node {target}; the nodes are {', '.join(map(str, nodes))}")

    def schedule(self, faults: Sequence[FaultPlan]) -> None:
        """Arm all faults, from now on."""
        for plan in faults:
            if plan.kind in BOOT_FAULTS:
                continue
            self.at(plan.at_ms, lambda it=plan: self._begin(it))  # type: ignore[misc]

    def begin_at_boot(self, faults: Sequence[FaultPlan]) -> None:
        """Begin those that wait for nothing: the cluster has just been told to boot."""
        for plan in faults:
            if plan.kind in BOOT_FAULTS:
                self._begin(plan)

    def at(self, delay_ms: int, callback: Callable[[], Any]) -> None:
        loop = self.cluster.loop
        loop.at_us(loop.now_us() + delay_ms * 1000, lambda: None if self.over else callback(), self.cluster.outside)

    def note(self, text: str) -> None:
        self.log.append((self.cluster.loop.now_us(), text))

    def meet(self, moment: str, method: AnyMethod, source: NodeId, target: NodeId) -> None:
        """Somebody takes a step that a fault may wait for."""
        waiting = self.ambushes.get((moment, method))
        if waiting and not self.over:
            waiting.pop(0)(source, target)

    # --- whom

    def resolve(self, target: str) -> SimHost | None:
        nodes = self.cluster.nodes
        if target.isdecimal():
            return nodes.get(NodeId(int(target)))
        if target == "controller":
            return self.active_controller()
        if target.startswith("leader "):
            topic, _, partition = target.removeprefix("leader ").rpartition("-")
            return self.leader(TopicPartition(topic, int(partition)))
        raise ValueError(f"unknown target {target!r}: expected a node id, 'controller' or 'leader TOPIC-PARTITION'")

    def active_controller(self) -> SimHost | None:
        """The one of the highest epoch: an older one may not know yet that it is deposed."""
        found, highest = None, -1
        for node in self.cluster.controllers:
            controller = None if node.node is None or not node.started else node.node.controller
            epoch = None if controller is None else controller.core.claim_epoch
            if epoch is not None and epoch > highest:
                found, highest = node, epoch
        return found

    def leader(self, tp: TopicPartition) -> SimHost | None:
        for node in self.cluster.brokers:
            broker = None if node.node is None or not node.started else node.node.broker
            partition = None if broker is None else broker.replicas.partition(tp)
            if partition is not None and partition.leader is not None:
                return node
        return None

    # --- what

    def _begin(self, plan: FaultPlan) -> None:
        self._handlers[plan.kind](self, plan)

    def end_of(self, plan: FaultPlan, undo: Callable[[], Any]) -> None:
        self.at(plan.for_ms, undo)

    def one(self, plan: FaultPlan) -> SimHost | None:
        node = self.resolve(plan.target)
        if node is None:
            return None
        self.note(f"{plan.kind} {node.node_id}" + (f" for {plan.for_ms} ms" if plan.for_ms else ""))
        return node

    def boot_later(self, node: SimHost, delay_ms: int) -> None:
        def boot() -> None:
            if not node.running and node not in self.stopping.values():
                self.note(f"boot {node.node_id}")
                node.boot()

        self.at(delay_ms, boot)

    def kill(self, node: SimHost) -> None:
        if node.running:
            node.kill()
            self.on_death(node, "killed")

    def bring_back(self, node: SimHost) -> None:
        """Boot a node that has ended itself, and restart one of which a log directory has failed: only that brings it back."""
        if node.running and has_failed_directory(node) and node not in self.stopping.values():
            self.note(f"restart {node.node_id}, because of its failed directories")
            self.kill(node)
        if not node.running:
            self.boot_later(node, 0)

    def refused(self, node: SimHost, error: BaseException) -> bool:
        """A node has ended itself. Return whether that was a refusal that names a damaged file: then that is put back."""
        told = False
        for kept in (self.rotten.get(node.node_id, {}), self.rotten_awake.get(node.node_id, {})):
            for path in [path for path in kept if path in str(error)]:
                self.note(f"{path} of node {node.node_id} is put back")
                told = True
                with node.disk.undisturbed():
                    node.disk.write_file_atomically(path, kept.pop(path))
        if told:
            self.boot_later(node, 200)
        return told

    def power_cut(self, node: SimHost) -> None:
        lost = node.power_cut(self.rng)
        self.power_losses[node.node_id] = lost
        self.on_death(node, "power")

    def pair(self, plan: FaultPlan) -> tuple[NodeId, NodeId] | None:
        a, b = self.resolve(plan.target), self.resolve(plan.other)
        if a is None or b is None or a is b:
            return None
        self.note(f"{plan.kind} {a.node_id}>{b.node_id} for {plan.for_ms} ms")
        return a.node_id, b.node_id

    # --- the end

    def heal(self) -> None:
        """Every fault is over: links whole, disks well, nodes resumed; whatever is down starts."""
        self.over = True
        self.note(ALL_END)
        self.cluster.network.heal()
        self.cluster.flush_us.clear()
        for node in self.cluster.nodes.values():
            node.disk.heal()
            node.resume()
            if node.offers is not None:
                node.offers = None
                self.kill(node)
            if node.now is not None:
                self.cluster.loop.slow_down(node.now.pid, 0)
                node.set_rate(node.rate_ppm)
            if has_failed_directory(node):
                self.kill(node)
        self.revive()

    def revive(self) -> None:
        self._end_disowned()
        for node in self.cluster.nodes.values():
            if not node.running and node not in self.stopping.values():
                node.boot()

    def _end_disowned(self) -> None:
        """End a broker whose registration is gone, or another incarnation's: it does not register again of itself, so its
        operator starts it anew (KIP-631). It came back just before its unregistration was carried out; or a registration that an
        earlier incarnation had sent arrived, hours late, when the session of this one had just ended."""
        active = self.active_controller()
        controller = None if active is None or active.node is None else active.node.controller
        if controller is None or not controller.core.activated:
            return
        registered = controller.core.state.cluster.brokers
        for node in self.cluster.brokers:
            own = _incarnation(node)
            known = registered.get(node.node_id)
            if own is None or node in self.stopping.values() or (known is not None and known.incarnation_id == own):
                continue
            self.note(f"broker {node.node_id} is {'not registered any more' if known is None else 'superseded'}: started anew")
            self.kill(node)


def _incarnation(node: SimHost) -> UUID | None:
    """Return the incarnation that runs, if it has been told that it is registered: perhaps it still starts."""
    broker = None if node.node is None or not node.running else node.node.broker
    return None if broker is None or broker.lifecycle.broker_epoch is None else broker.lifecycle.incarnation_id


def has_failed_directory(node: SimHost) -> bool:
    broker = None if node.node is None else node.node.broker
    return broker is not None and bool(broker.log_dirs.offline_directories())
