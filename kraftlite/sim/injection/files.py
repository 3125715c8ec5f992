"""Faults that hit the files of a node that is down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.damage import damage_files, has_records
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


DAMAGE_WAIT_MS: Final = 15_000
"""The time that a damaged broker waits for being out of an ISR."""


def damage(injector: Injector, plan: FaultPlan) -> None:
    """The broker dies, and files of partitions are lost that others have: of those in whose ISR it is no longer, as the
    brokers that run know. Nothing that was acknowledged may be lost by that, so no replica counts as tainted."""
    node = injector.one(plan)
    if node is None or not node.config.is_broker:
        return
    injector.kill(node)
    loop, boots, until_us = (
        injector.cluster.loop,
        node.boots,
        injector.cluster.loop.now_us() + 1000 * (plan.for_ms + DAMAGE_WAIT_MS),
    )

    def attempt() -> None:
        if injector.over or node.running or node.boots != boots:
            return
        if damage_what_others_have(injector, node) or loop.now_us() > until_us:
            injector.boot_later(node, plan.for_ms)
        else:
            injector.at(200, attempt)

    injector.at(200, attempt)


def damage_what_others_have(injector: Injector, node: SimHost) -> bool:
    """Damage a broker's files that others have, and return whether there was anything to damage yet."""
    images = [it.node.broker.cache.image for it in injector.cluster.brokers if it.started and it.node and it.node.broker]
    image = max(images, key=lambda it: it.offset, default=None)
    if image is None:
        return False
    log_dir, found = node.config.all_log_dirs[0], False
    for topic in image.topics:
        for index, registration in topic.partitions.items():
            tp = TopicPartition(topic.name, index)
            others_have_it = node.node_id in registration.replicas and node.node_id not in registration.isr
            if others_have_it and has_records(node.disk, log_dir, tp) and injector.rng.randrange(3):
                found = True
                injector.damaged.add((node.node_id, tp))
                injector.note(f"damage {node.node_id} {tp}: {damage_files(node.disk, log_dir, tp, injector.rng)}")
    return found


KINDS: Final[Mapping[str, Handler]] = {
    "damage": damage,
}
