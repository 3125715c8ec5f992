"""Faults that hit the metadata quorum: controllers that come back with another disk or at another address; and the moments at
which an administrator changes the voters and the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.model.ids import NodeId
from kraftlite.raft.core import RaftCore
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

_LEAST: Final = 3
"""The smallest set of voters of which one may lose its disk."""


def new_disk(injector: Injector, plan: FaultPlan) -> None:
    """The controller comes back with a new, formatted disk, which waits to be added. A mere controller only, and only while each
    set that counts anywhere keeps a majority of disks."""
    cluster = injector.cluster
    node = injector.resolve(plan.target)
    if node is None or node.config.is_broker or not node.config.is_controller or not may_lose_a_disk(injector):
        return
    injector.note(f"new-disk {node.node_id} for {plan.for_ms} ms")
    lost = [path for directory in node.config.all_log_dirs for path in node.disk.tree(directory)]
    node.kill()
    node.disk.wipe()
    node.disk.heal()
    cluster.quorum.renew(node.node_id)
    cluster.configure(node.node_id)
    cluster.format(node.node_id)
    injector.power_losses[node.node_id] = lost
    injector.on_death(node, "wiped")
    injector.boot_later(node, plan.for_ms)


def may_lose_a_disk(injector: Injector) -> bool:
    cluster = injector.cluster
    if cluster.quorum.forming is None or not cluster.quorum.allows_loss(cluster.loop.now_us()):
        return False
    cores = [_core(node) for node in cluster.controllers]
    present = {node.node_id: cluster.directory_id(node.node_id) for node in cluster.controllers}
    for core in cores:
        if core is None or core.metalog.membership.is_static:
            return False
        keys = core.voters.keys
        if 0 < len(keys) < _LEAST or any(present.get(key.id) != key.directory_id for key in keys):
            return False
        if any(voter.endpoint.port != cluster.quorum.port(voter.id) for voter in core.voters.voters):
            return False
    return True


def _core(node: SimHost) -> RaftCore | None:
    return None if node.node is None or not node.started else node.node.raft.core


def new_port(injector: Injector, plan: FaultPlan) -> None:
    """The controller restarts with its listener on another port, where the voters are in the log. Until a leader has heard of
    that nobody can ask it for a vote, so it counts as lost."""
    node = injector.resolve(plan.target)
    core = None if node is None else _core(node)
    if node is None or core is None or not node.config.is_controller or not may_lose_a_disk(injector):
        return
    injector.note(f"new-port {node.node_id} for {plan.for_ms} ms")
    injector.cluster.quorum.move(node.node_id)
    injector.cluster.configure(node.node_id)
    injector.kill(node)
    injector.boot_later(node, plan.for_ms)


def order(injector: Injector, plan: FaultPlan) -> None:
    """Not a fault: the administrator does this now."""
    node = injector.resolve(plan.target) if plan.target else None
    injector.note(f"{plan.kind} {node.node_id if node is not None else ''}".rstrip())
    node_id: NodeId | None = None if node is None else node.node_id
    injector.cluster.quorum.carry_out(plan.kind, node_id)


def retire_broker(injector: Injector, plan: FaultPlan) -> None:
    """Not a fault: the administrator takes this broker out, and puts it, or a new one, back in."""
    node = injector.one(plan)
    if node is not None:
        injector.cluster.retire_broker(node.node_id)


KINDS: Final[Mapping[str, Handler]] = {
    "new-disk": new_disk,
    "new-port": new_port,
    "add-voter": order,
    "remove-voter": order,
    "upgrade-voters": order,
    "retire-broker": retire_broker,
}
