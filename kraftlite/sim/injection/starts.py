"""Log starts that a broker's checkpoint says too high, beside log statements that are damaged: neither vouches for the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.log import checkpoints
from kraftlite.log.statements import STATEMENTS, Statements
from kraftlite.metadata.image import TopicImage
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim import rot
from kraftlite.sim.damage import has_records
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.files import DAMAGE_WAIT_MS, may_alter, take_down
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

GREATEST_STEP: Final = 30
_UNCLEAN: Final = "unclean.leader.election.enable"
"""It lets the misled one be elected while it is down. Nobody could lead the partition then: its log is refused."""


def false_starts(injector: Injector, plan: FaultPlan) -> None:
    """The broker dies. When some partitions of it are led by others, and it may not lead them, its log starts of these are
    raised and its log statements damaged. Others have what is hidden so: nothing may be lost. The only copies keep the log start
    that is checkpointed, since nobody else could tell it."""
    node = injector.one(plan)
    if node is None or not node.config.is_broker:
        return
    take_down(injector, node)
    loop, boots = injector.cluster.loop, node.boots
    until_us = loop.now_us() + 1000 * (plan.for_ms + DAMAGE_WAIT_MS)

    def attempt() -> None:
        if injector.over or node.running or node.boots != boots:
            return
        with node.disk.undisturbed():
            done = _raise_what_others_have(injector, node)
        if done or loop.now_us() > until_us:
            injector.boot_later(node, plan.for_ms)
        else:
            injector.at(200, attempt)

    injector.at(200, attempt)


def _raise_what_others_have(injector: Injector, node: SimHost) -> bool:
    image = injector.cluster.newest_image()
    if image is None:
        return False
    done = False
    for log_dir in node.config.log_dirs:
        raised = [
            tp
            for topic in image.topics
            if image.configs.get(ConfigResourceType.TOPIC, topic.name).get(_UNCLEAN) != "true"
            for tp in _of_others(topic, node)
            if has_records(node.disk, log_dir, tp) and injector.trouble.randrange(3)
        ]
        path = f"{log_dir}/{checkpoints.LOG_START_CHECKPOINT}"
        starts = checkpoints.read_offset_checkpoint(node.disk, path)
        statements = Statements(node.disk, f"{log_dir}/{STATEMENTS}")
        statements.load()
        alone = {it for topic in image.topics for it in _alone(topic, node, statements, starts)}
        if not (raised or any(starts[it] for it in alone)) or not statements.known:
            continue
        if not may_alter(injector, node, "false-starts"):
            return True
        done = True
        hosted = (TopicPartition(topic.name, index) for topic in image.topics for index in topic.partitions)
        injector.damaged.update((node.node_id, it) for it in hosted if it not in alone)
        higher = {it: starts.get(it, 0) + injector.trouble.randint(1, GREATEST_STEP) for it in raised}
        checkpoints.write_offset_checkpoint(node.disk, path, {**starts, **higher})
        rot.garble(node.disk, f"{log_dir}/{STATEMENTS}", injector.trouble)
        injector.note(f"false log starts of node {node.node_id}: {', '.join(f'{tp} {at}' for tp, at in sorted(higher.items()))}")
    return done


def _of_others(topic: TopicImage, node: SimHost) -> list[TopicPartition]:
    """Partitions that the broker may not lead, and another one does."""
    found = []
    for index, it in topic.partitions.items():
        may_lead = (*it.isr, *it.elr, *it.last_known_elr)
        if node.node_id in it.replicas and node.node_id not in may_lead and it.leader is not None:
            found.append(TopicPartition(topic.name, index))
    return found


def _alone(
    topic: TopicImage, node: SimHost, statements: Statements, starts: Mapping[TopicPartition, int]
) -> Iterator[TopicPartition]:
    """Only copies whose log start is checkpointed as it is stated: it is the same after this. That of others may change."""
    for index, it in topic.partitions.items():
        tp, stated = TopicPartition(topic.name, index), statements.get((topic.topic_id, index))
        if tuple(it.replicas) == (node.node_id,) and stated is not None and stated.start == starts.get(tp):
            yield tp


KINDS: Final[Mapping[str, Handler]] = {"false-starts": false_starts}
