"""Faults that hit the links between nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.ids import NodeId
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def isolate(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        cut_all(injector, [(node.node_id, it) for it in injector.cluster.nodes if it != node.node_id], plan)


def cut_quorum(injector: Injector, plan: FaultPlan) -> None:
    """Cut a voter off from the other voters only: brokers go on talking to it."""
    node = injector.one(plan)
    if node is not None:
        cut_all(injector, [(node.node_id, it.node_id) for it in injector.cluster.controllers if it is not node], plan)


def split(injector: Injector, plan: FaultPlan) -> None:
    """`amount` is a bit mask of who is on the one side."""
    ids = list(injector.cluster.nodes)
    left = [it for it in ids if plan.amount >> it & 1]
    right = [it for it in ids if it not in left]
    injector.note(f"split {left} from {right} for {plan.for_ms} ms")
    cut_all(injector, [(a, b) for a in left for b in right], plan)


def cut_all(injector: Injector, pairs: Sequence[tuple[NodeId, NodeId]], plan: FaultPlan) -> None:
    network = injector.cluster.network
    for a, b in pairs:
        network.cut(a, b)

    def heal() -> None:
        for a, b in pairs:
            network.link(a, b).cut = network.link(b, a).cut = False

    injector.end_of(plan, heal)


def cut(injector: Injector, plan: FaultPlan) -> None:
    pair = injector.pair(plan)
    if pair is not None:
        cut_all(injector, [pair], plan)


def cut_one_way(injector: Injector, plan: FaultPlan) -> None:
    pair = injector.pair(plan)
    if pair is not None:
        link = injector.cluster.network.link(*pair)
        link.cut = True
        injector.end_of(plan, lambda: setattr(link, "cut", False))


def refuse(injector: Injector, plan: FaultPlan) -> None:
    pair = injector.pair(plan)
    if pair is None:
        return
    a, b = pair
    network = injector.cluster.network
    network.refuse(a, b)

    def heal() -> None:
        network.link(a, b).refused = network.link(b, a).refused = False

    injector.end_of(plan, heal)


def reset(injector: Injector, plan: FaultPlan) -> None:
    pair = injector.pair(plan)
    if pair is not None:
        injector.cluster.network.reset(*pair)


def lossy(injector: Injector, plan: FaultPlan) -> None:
    pair = injector.pair(plan)
    if pair is None:
        return
    network = injector.cluster.network
    links = [network.link(*pair), network.link(*reversed(pair))]
    for link in links:
        link.loss, link.duplicates = plan.amount, plan.amount // 2

    def heal() -> None:
        for link in links:
            link.loss = link.duplicates = 0

    injector.end_of(plan, heal)


def slow(injector: Injector, plan: FaultPlan) -> None:
    """`amount`: up to how many microseconds a message may take longer; a third of them do, and so overtake each other."""
    delay(injector, plan, [injector.pair(plan)], 333_333)


def late(injector: Injector, plan: FaultPlan) -> None:
    """Delay every message, as `slow` delays some."""
    delay(injector, plan, [injector.pair(plan)], 1_000_000)


def congest(injector: Injector, plan: FaultPlan) -> None:
    """Slow most messages on all links of a node, as `slow` does on one."""
    node = injector.one(plan)
    if node is not None:
        others = [it for it in injector.cluster.nodes if it != node.node_id]
        delay(injector, plan, [ends for it in others for ends in ((node.node_id, it), (it, node.node_id))], 600_000)


def delay(injector: Injector, plan: FaultPlan, pairs: Sequence[tuple[NodeId, NodeId] | None], chance: int) -> None:
    """`chance` of a million for each message on the links of these pairs."""
    links = [injector.cluster.network.link(*pair) for pair in pairs if pair is not None]
    for link in links:
        link.slow_chance, link.slow_us = chance, plan.amount

    def heal() -> None:
        for link in links:
            link.slow_chance = 0

    if links:
        injector.end_of(plan, heal)


def hold(injector: Injector, plan: FaultPlan) -> None:
    """Nothing arrives before the fault ends, and nothing is lost: then all of it does, whoever has given up on it."""
    pair = injector.pair(plan)
    if pair is None:
        return
    network = injector.cluster.network
    until_us = injector.cluster.loop.now_us() + 1000 * plan.for_ms
    links = [network.link(*pair), network.link(*reversed(pair))]
    for link in links:
        link.held_until_us = until_us

    def heal() -> None:
        for link in links:
            link.held_until_us = 0

    injector.end_of(plan, heal)


KINDS: Final[Mapping[str, Handler]] = {
    "isolate": isolate,
    "cut-quorum": cut_quorum,
    "split": split,
    "cut": cut,
    "cut-one-way": cut_one_way,
    "refuse": refuse,
    "reset": reset,
    "lossy": lossy,
    "slow": slow,
    "late": late,
    "congest": congest,
    "hold": hold,
}
