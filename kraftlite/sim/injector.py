"""Carries a fault schedule out on a simulated cluster, and undoes it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.damage import damage_files, has_records
from kraftlite.sim.fault_plan import FaultPlan, UnknownNode
from kraftlite.simhost.host import Incarnation, SimHost

DeathCallback = Callable[[SimHost, str], None]
DAMAGE_WAIT_MS: Final = 15_000
"""The time that a damaged broker waits for being out of an ISR."""


class Injector:
    """`on_death(node, how)` and `on_boot` are told of every end and start that it causes; `log` collects what was done."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        on_death: DeathCallback,
        power_losses: dict[NodeId, list[str]],
        wiped: set[NodeId],
        damaged: set[tuple[NodeId, TopicPartition]],
        on_churn: Callable[[int, int], None] = lambda for_ms, gap_ms: None,
    ) -> None:
        self.wiped = wiped
        self.damaged = damaged
        self.on_churn = on_churn
        self.cluster = cluster
        self.on_death = on_death
        self.power_losses = power_losses
        self.rng = random.Random(f"injector/{cluster.seed}")
        self.log: list[tuple[int, str]] = []
        self.disk_victims: set[NodeId] = set()
        """Nodes whose disk failed at some time: they may end themselves."""
        self.stopping: dict[Incarnation, SimHost] = {}
        """Those that were told to stop and have not ended, or nobody was told yet: whatever else is over, they will."""
        self.over = False

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
            self._at(plan.at_ms, lambda it=plan: self._begin(it))  # type: ignore[misc]

    def _at(self, delay_ms: int, callback: Callable[[], Any]) -> None:
        loop = self.cluster.loop
        loop.at_us(loop.now_us() + delay_ms * 1000, lambda: None if self.over else callback(), self.cluster.outside)

    def _note(self, text: str) -> None:
        self.log.append((self.cluster.loop.now_us(), text))

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
        getattr(self, "_" + plan.kind.replace("-", "_"))(plan)

    def _end_of(self, plan: FaultPlan, undo: Callable[[], Any]) -> None:
        self._at(plan.for_ms, undo)

    def _one(self, plan: FaultPlan) -> SimHost | None:
        node = self.resolve(plan.target)
        if node is None:
            return None
        self._note(f"{plan.kind} {node.node_id}" + (f" for {plan.for_ms} ms" if plan.for_ms else ""))
        return node

    def _boot_later(self, node: SimHost, delay_ms: int) -> None:
        def boot() -> None:
            if not node.running and node not in self.stopping.values():
                self._note(f"boot {node.node_id}")
                node.boot()

        self._at(delay_ms, boot)

    def _kill(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            self.kill(node)
            self._boot_later(node, plan.for_ms)

    def kill(self, node: SimHost) -> None:
        if node.running:
            node.kill()
            self.on_death(node, "killed")

    def _power(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            self.power_cut(node)
            self._boot_later(node, plan.for_ms)

    def power_cut(self, node: SimHost) -> None:
        lost = node.power_cut(self.rng)
        self.power_losses[node.node_id] = lost
        self.on_death(node, "power")

    def _wipe(self, plan: FaultPlan) -> None:
        """The broker comes back with a new, formatted disk. Controllers are left alone."""
        node = self._one(plan)
        if node is None or node.config.is_controller:
            return
        lost = node.disk.tree("/data")
        if node.running:
            node.kill()
        node.disk.wipe()
        node.disk.heal()
        self.cluster.format(node.node_id)
        self.wiped.add(node.node_id)
        self.power_losses[node.node_id] = lost
        self.on_death(node, "wiped")
        self._boot_later(node, plan.for_ms)

    def _damage(self, plan: FaultPlan) -> None:
        """The broker dies, and files of partitions are lost that others have: of those in whose ISR it is no longer, as the
        brokers that run know. Nothing that was acknowledged may be lost by that, so no replica counts as tainted."""
        node = self._one(plan)
        if node is None or not node.config.is_broker:
            return
        self.kill(node)
        loop, boots, until_us = self.cluster.loop, node.boots, self.cluster.loop.now_us() + 1000 * (plan.for_ms + DAMAGE_WAIT_MS)

        def attempt() -> None:
            if self.over or node.running or node.boots != boots:
                return
            if self._damage_what_others_have(node) or loop.now_us() > until_us:
                self._boot_later(node, plan.for_ms)
            else:
                self._at(200, attempt)

        self._at(200, attempt)

    def _damage_what_others_have(self, node: SimHost) -> bool:
        """Damage a broker's files that others have, and return whether there was anything to damage yet."""
        images = [it.node.broker.cache.image for it in self.cluster.brokers if it.started and it.node and it.node.broker]
        image = max(images, key=lambda it: it.offset, default=None)
        if image is None:
            return False
        log_dir, found = node.config.all_log_dirs[0], False
        for topic in image.topics:
            for index, registration in topic.partitions.items():
                tp = TopicPartition(topic.name, index)
                others_have_it = node.node_id in registration.replicas and node.node_id not in registration.isr
                if others_have_it and has_records(node.disk, log_dir, tp) and self.rng.randrange(3):
                    found = True
                    self.damaged.add((node.node_id, tp))
                    self._note(f"damage {node.node_id} {tp}: {damage_files(node.disk, log_dir, tp, self.rng)}")
        return found

    def _stop(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is None or not node.started:
            return
        stopping = node.stop()
        if stopping is None:
            return
        before = node.now
        assert before is not None
        if before in self.stopping:
            return
        self.stopping[before] = node
        loop = self.cluster.loop

        def watch() -> None:
            if node.now is before:
                loop.at_us(loop.now_us() + 20_000, watch, self.cluster.outside)
                return
            del self.stopping[before]
            self.on_death(node, "stopped")
            self._boot_later(node, plan.for_ms)

        watch()

    def _pause(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None and node.now is not None:
            here = node.now
            node.pause()
            self._end_of(plan, lambda: node.resume() if node.now is here else None)

    def _isolate(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            self._cut_all([(node.node_id, it) for it in self.cluster.nodes if it != node.node_id], plan)

    def _cut_quorum(self, plan: FaultPlan) -> None:
        """Cut a voter off from the other voters only: brokers go on talking to it."""
        node = self._one(plan)
        if node is not None:
            self._cut_all([(node.node_id, it.node_id) for it in self.cluster.controllers if it is not node], plan)

    def _split(self, plan: FaultPlan) -> None:
        """`amount` is a bit mask of who is on the one side."""
        ids = list(self.cluster.nodes)
        left = [it for it in ids if plan.amount >> it & 1]
        right = [it for it in ids if it not in left]
        self._note(f"split {left} from {right} for {plan.for_ms} ms")
        self._cut_all([(a, b) for a in left for b in right], plan)

    def _cut_all(self, pairs: Sequence[tuple[NodeId, NodeId]], plan: FaultPlan) -> None:
        network = self.cluster.network
        for a, b in pairs:
            network.cut(a, b)

        def heal() -> None:
            for a, b in pairs:
                network.link(a, b).cut = network.link(b, a).cut = False

        self._end_of(plan, heal)

    def _pair(self, plan: FaultPlan) -> tuple[NodeId, NodeId] | None:
        a, b = self.resolve(plan.target), self.resolve(plan.other)
        if a is None or b is None or a is b:
            return None
        self._note(f"{plan.kind} {a.node_id}>{b.node_id} for {plan.for_ms} ms")
        return a.node_id, b.node_id

    def _cut(self, plan: FaultPlan) -> None:
        pair = self._pair(plan)
        if pair is not None:
            self._cut_all([pair], plan)

    def _cut_one_way(self, plan: FaultPlan) -> None:
        pair = self._pair(plan)
        if pair is not None:
            link = self.cluster.network.link(*pair)
            link.cut = True
            self._end_of(plan, lambda: setattr(link, "cut", False))

    def _refuse(self, plan: FaultPlan) -> None:
        pair = self._pair(plan)
        if pair is None:
            return
        a, b = pair
        network = self.cluster.network
        network.refuse(a, b)

        def heal() -> None:
            network.link(a, b).refused = network.link(b, a).refused = False

        self._end_of(plan, heal)

    def _reset(self, plan: FaultPlan) -> None:
        pair = self._pair(plan)
        if pair is not None:
            self.cluster.network.reset(*pair)

    def _lossy(self, plan: FaultPlan) -> None:
        pair = self._pair(plan)
        if pair is None:
            return
        network = self.cluster.network
        links = [network.link(*pair), network.link(*reversed(pair))]
        for link in links:
            link.loss, link.duplicates = plan.amount, plan.amount // 2

        def heal() -> None:
            for link in links:
                link.loss = link.duplicates = 0

        self._end_of(plan, heal)

    def _slow(self, plan: FaultPlan) -> None:
        """`amount`: up to how many microseconds a message may take longer; a third of them do, and so overtake each other."""
        self._delay(plan, [self._pair(plan)], 333_333)

    def _late(self, plan: FaultPlan) -> None:
        """Delay every message, as `_slow` delays some."""
        self._delay(plan, [self._pair(plan)], 1_000_000)

    def _churn(self, plan: FaultPlan) -> None:
        """Not a fault: topics come and go, one of either every `amount` milliseconds or so."""
        self._note(f"churn for {plan.for_ms} ms")
        self.on_churn(plan.for_ms, plan.amount)

    def _congest(self, plan: FaultPlan) -> None:
        """Slow most messages on all links of a node, as `_slow` does on one."""
        node = self._one(plan)
        if node is not None:
            others = [it for it in self.cluster.nodes if it != node.node_id]
            self._delay(plan, [ends for it in others for ends in ((node.node_id, it), (it, node.node_id))], 600_000)

    def _delay(self, plan: FaultPlan, pairs: Sequence[tuple[NodeId, NodeId] | None], chance: int) -> None:
        """`chance` of a million for each message on the links of these pairs."""
        links = [self.cluster.network.link(*pair) for pair in pairs if pair is not None]
        for link in links:
            link.slow_chance, link.slow_us = chance, plan.amount

        def heal() -> None:
            for link in links:
                link.slow_chance = 0

        if links:
            self._end_of(plan, heal)

    def _disk_slow(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            slow = self.cluster.flush_us
            slow[node.node_id] = (plan.amount // 4, plan.amount)
            self._end_of(plan, lambda: slow.pop(node.node_id, None))

    def _disk_stall(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            slow = self.cluster.flush_us
            slow[node.node_id] = (plan.for_ms * 1000, plan.for_ms * 1000)
            self._end_of(plan, lambda: slow.pop(node.node_id, None))

    def _disk_full(self, plan: FaultPlan) -> None:
        self._disk_fault(plan, ("pwritev", "write_file", "makedirs"), errno.ENOSPC, times=None)

    def _disk_error(self, plan: FaultPlan) -> None:
        ops = ("pread", "pwritev", "flush", "sync", "flush-end", "open", "write_file")
        self._disk_fault(plan, (ops[plan.amount % len(ops)],), errno.EIO, times=1)

    def _disk_fault(self, plan: FaultPlan, ops: Sequence[str], code: int, times: int | None) -> None:
        node = self._one(plan)
        if node is None:
            return
        self.disk_victims.add(node.node_id)
        errors = [node.disk.inject(op, code=code, times=times) for op in ops]

        def heal() -> None:
            for it in errors:
                if it in node.disk.errors:
                    node.disk.errors.remove(it)
            if not node.running:
                self._boot_later(node, 0)

        self._end_of(plan, heal)

    def _wall_jump(self, plan: FaultPlan) -> None:
        node = self._one(plan)
        if node is not None:
            offsets = self.cluster.wall_offset_ms
            offsets[node.node_id] = offsets.get(node.node_id, 0) + plan.amount
            if node.now is not None:
                node.now.clock.jump_wall(plan.amount)

    def _kill_all(self, plan: FaultPlan) -> None:
        self._all(plan, self.kill)

    def _power_all(self, plan: FaultPlan) -> None:
        self._all(plan, self.power_cut)

    def _all(self, plan: FaultPlan, end: Callable[[SimHost], None]) -> None:
        """`amount` decides: all controllers, all brokers, or everything."""
        cluster = self.cluster
        nodes = (cluster.controllers, cluster.brokers, list(cluster.nodes.values()))[plan.amount % 3]
        self._note(f"{plan.kind} {[node.node_id for node in nodes]}")
        for node in nodes:
            end(node)
            self._boot_later(node, plan.for_ms)

    # --- the end

    def heal(self) -> None:
        """Every fault is over: links whole, disks well, nodes resumed; whatever is down starts."""
        self.over = True
        self._note("all faults end")
        self.cluster.network.heal()
        self.cluster.flush_us.clear()
        for node in self.cluster.nodes.values():
            node.disk.heal()
            node.resume()
        self.revive()

    def revive(self) -> None:
        self._end_unregistered()
        for node in self.cluster.nodes.values():
            if not node.running and node not in self.stopping.values():
                node.boot()

    def _end_unregistered(self) -> None:
        """End a broker that came back just before its unregistration was carried out: it does not register again of itself, so
        its operator starts it anew (KIP-631)."""
        active = self.active_controller()
        controller = None if active is None or active.node is None else active.node.controller
        if controller is None or not controller.core.activated:
            return
        registered = controller.core.state.cluster.brokers
        for node in self.cluster.brokers:
            if node.started and node.node_id not in registered and node not in self.stopping.values():
                self._note(f"broker {node.node_id} is not registered any more: started anew")
                self.kill(node)
