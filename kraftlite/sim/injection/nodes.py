"""Faults that hit whole nodes: their processes, their machines."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.broker.log_dirs_state import DELETE_SUFFIX, FUTURE_SUFFIX
from kraftlite.log.cleaned import SWAP_SUFFIX
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def kill(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        injector.kill(node)
        injector.boot_later(node, plan.for_ms)


def power(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        injector.power_cut(node)
        injector.boot_later(node, plan.for_ms)


def wipe(injector: Injector, plan: FaultPlan) -> None:
    """The broker comes back with a new, formatted disk. Controllers are left alone."""
    node = injector.one(plan)
    if node is None or node.config.is_controller:
        return
    lost = [path for directory in node.config.all_log_dirs for path in node.disk.tree(directory)]
    if node.running:
        node.kill()
    node.disk.wipe()
    node.disk.heal()
    injector.cluster.format(node.node_id)
    injector.wiped.add(node.node_id)
    injector.power_losses[node.node_id] = lost
    injector.on_death(node, "wiped")
    injector.boot_later(node, plan.for_ms)


def stop(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is None or not node.started:
        return
    stopping = node.stop()
    if stopping is None:
        return
    before = node.now
    assert before is not None
    if before in injector.stopping:
        return
    injector.stopping[before] = node
    loop = injector.cluster.loop

    def watch() -> None:
        if node.now is before:
            loop.at_us(loop.now_us() + 20_000, watch, injector.cluster.outside)
            return
        del injector.stopping[before]
        if before.stopped:
            injector.on_death(node, "stopped")
        injector.boot_later(node, plan.for_ms)

    watch()


def pause(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None and node.now is not None:
        here = node.now
        node.pause()
        injector.end_of(plan, lambda: node.resume() if node.now is here else None)


def kill_all(injector: Injector, plan: FaultPlan) -> None:
    end_all(injector, plan, injector.kill)


def power_all(injector: Injector, plan: FaultPlan) -> None:
    end_all(injector, plan, injector.power_cut)


def end_all(injector: Injector, plan: FaultPlan, end: Callable[[SimHost], None]) -> None:
    """`amount` decides: all controllers, all brokers, or everything."""
    cluster = injector.cluster
    nodes = (cluster.controllers, cluster.brokers, list(cluster.nodes.values()))[plan.amount % 3]
    injector.note(f"{plan.kind} {[node.node_id for node in nodes]}")
    for node in nodes:
        end(node)
        injector.boot_later(node, plan.for_ms)


def churn(injector: Injector, plan: FaultPlan) -> None:
    """Not a fault: topics come and go, one of either every `amount` milliseconds or so."""
    injector.note(f"churn for {plan.for_ms} ms")
    injector.on_churn(plan.for_ms, plan.amount)


def slow_cpu(injector: Injector, plan: FaultPlan) -> None:
    """Each step of the node takes `amount` microseconds: ten to a thousand times as long as on a machine of its own."""
    node = injector.one(plan)
    if node is not None and node.now is not None:
        loop, pid = injector.cluster.loop, node.now.pid
        loop.slow_down(pid, plan.amount)
        injector.end_of(plan, lambda: loop.slow_down(pid, 0))


def stutter(injector: Injector, plan: FaultPlan) -> None:
    """The node's loop stands still again and again, for up to `amount` milliseconds, while its sockets stay open."""
    node = injector.one(plan)
    if node is None or node.now is None:
        return
    here, loop = node.now, injector.cluster.loop
    until_us = loop.now_us() + 1000 * plan.for_ms

    def stall() -> None:
        if node.now is not here or here.paused or loop.now_us() >= until_us:
            return
        node.pause()
        injector.at(injector.trouble.randint(1, max(1, plan.amount)), wake)

    def wake() -> None:
        if node.now is here:
            node.resume()
            injector.at(injector.trouble.randint(1, 300), stall)

    stall()


def power_mid_write(injector: Injector, plan: FaultPlan) -> None:
    """The machine loses power when a part of the node's next write is done: to a segment when `amount` is even, to any file when
    it is odd."""
    node = injector.one(plan)
    if node is None or not node.running:
        return
    disk = node.disk

    def cut() -> None:
        disk.mid_write = None
        injector.note(f"power {node.node_id}, in the middle of a write")
        injector.power_cut(node)
        injector.boot_later(node, plan.for_ms)

    disk.tearing = injector.trouble
    disk.mid_write = lambda path: node.running and (bool(plan.amount % 2) or path.endswith(".log"))
    disk.cut_mid_write = cut


BOOT_MS: Final = 200
"""The time for which a machine is dark that has lost power at a rename."""


def power_mid_swap(injector: Injector, plan: FaultPlan) -> None:
    """Once within the fault's time, the machine loses power while a compacted segment takes the place of others: at one of the
    renames behind the first by which that is announced, `amount` says at which."""
    _power_at_rename(injector, plan, lambda source, target: target.endswith(SWAP_SUFFIX))


def power_mid_move(injector: Injector, plan: FaultPlan) -> None:
    """The same while a copy takes a replica's place: it gets its plain name first, and then the old directory loses that."""
    _power_at_rename(injector, plan, lambda source, target: source.endswith(FUTURE_SUFFIX) and not target.endswith(DELETE_SUFFIX))


def _power_at_rename(injector: Injector, plan: FaultPlan, begins: Callable[[str, str], bool]) -> None:
    node = injector.one(plan)
    if node is None or not node.running:
        return
    disk, watched = node.disk, node.disk.on_renamed
    here, until_us, begun, left = node.now, injector.cluster.loop.now_us() + 1000 * plan.for_ms, False, plan.amount

    def renamed(source: str, target: str) -> None:
        nonlocal begun, left
        watched(source, target)
        begun = begun or begins(source, target)
        if not begun or injector.over or node.now is not here or injector.cluster.loop.now_us() > until_us:
            return
        if left:
            left -= 1
            return
        injector.note(f"power {node.node_id}, when {target} has its name")
        injector.power_cut(node)
        injector.boot_later(node, BOOT_MS)
        raise OSError(errno.EIO, "the machine lost power at a rename", target)

    disk.on_renamed = renamed


KINDS: Final[Mapping[str, Handler]] = {
    "kill": kill,
    "power": power,
    "wipe": wipe,
    "stop": stop,
    "pause": pause,
    "kill-all": kill_all,
    "power-all": power_all,
    "churn": churn,
    "slow-cpu": slow_cpu,
    "stutter": stutter,
    "power-mid-write": power_mid_write,
    "power-mid-swap": power_mid_swap,
    "power-mid-move": power_mid_move,
}
