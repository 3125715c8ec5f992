"""Faults that hit the files of a node that is down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.log import checkpoints
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.losses_keeper import partition_of
from kraftlite.sim.damage import damage_files, has_records
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.disks import directory_of
from kraftlite.sim.injection.handler import Handler
from kraftlite.sim.rot import damage_latest_snapshot, damage_one
from kraftlite.sim.rot import old_files as leave_old_files
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


STALE: Final = (checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.HW_CHECKPOINT, checkpoints.LEADER_EPOCH_CHECKPOINT)
DAMAGE_WAIT_MS: Final = 15_000
"""The time that a damaged broker waits for being out of an ISR."""


def take_down(injector: Injector, node: SimHost) -> None:
    """Kill the node. What it has started with, it has healed."""
    if node.started:
        injector.rotten.pop(node.node_id, None)
        injector.altered.pop(node.node_id, None)
    injector.kill(node)


def may_alter(injector: Injector, node: SimHost, kind: str) -> bool:
    """Return whether nothing of another kind waits in the node's files. Two of them at once are beyond what is promised: a raised
    checkpoint is known by the statements, which rot may take (docs/ON-DISK.md)."""
    found = injector.altered.setdefault(node.node_id, kind)
    if found != kind:
        injector.note(f"no {kind} of node {node.node_id}, whose files wait with {found}")
    return found == kind


def damage(injector: Injector, plan: FaultPlan) -> None:
    """The broker dies, and files of partitions are lost that others have: of those in whose ISR and ELR it is no longer, as
    the brokers that run know. Nothing that was acknowledged may be lost by that, so no replica counts as tainted."""
    node = injector.one(plan)
    if node is None or not node.config.is_broker:
        return
    take_down(injector, node)
    loop, boots, until_us = (
        injector.cluster.loop,
        node.boots,
        injector.cluster.loop.now_us() + 1000 * (plan.for_ms + DAMAGE_WAIT_MS),
    )

    def attempt() -> None:
        if injector.over or node.running or node.boots != boots:
            return
        with node.disk.undisturbed():
            damaged = damage_what_others_have(injector, node)
        if damaged or loop.now_us() > until_us:
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
    log_dir, found = node.config.log_dirs[0], False
    for topic in image.topics:
        for index, registration in topic.partitions.items():
            tp = TopicPartition(topic.name, index)
            may_lead = (*registration.isr, *registration.elr, *registration.last_known_elr)
            others_have_it = node.node_id in registration.replicas and node.node_id not in may_lead
            if others_have_it and has_records(node.disk, log_dir, tp) and injector.rng.randrange(3):
                if not may_alter(injector, node, "damage"):
                    return True
                found = True
                injector.damaged.add((node.node_id, tp))
                done = damage_files(node.disk, log_dir, tp, injector.rng, gaps=_may_have_gaps(injector, tp))
                injector.note(f"damage {node.node_id} {tp}: {done}")
    return found


def _may_have_gaps(injector: Injector, tp: TopicPartition) -> bool:
    """Return whether a running replica of the partition is compacted, or once was."""
    for it in injector.cluster.brokers:
        partition = it.node.broker.replicas.partition(tp) if it.started and it.node and it.node.broker else None
        if partition is not None and partition.log is not None:
            log = partition.log
            if log.config.compacted or log.statement().gaps_below:
                return True
    return False


def rot(injector: Injector, plan: FaultPlan) -> None:
    """The node dies, and some of its synced files are damaged before it starts again. It heals, or refuses and names the file:
    then the operator puts it back."""
    node = injector.one(plan)
    if node is None:
        return
    take_down(injector, node)
    for _ in range(1 + plan.amount % 3 if may_alter(injector, node, "rot") else 0):
        with node.disk.undisturbed():
            found = damage_one(node.disk, node.config, injector.trouble)
        if found is not None:
            path, how, before = found
            if not node.config.is_controller and path.startswith(f"{node.config.metadata_log_dir}/{METADATA_TOPIC}-0/"):
                injector.forgetful[node.node_id] = injector.forgetful.get(node.node_id, 0) + 1
            injector.rotten.setdefault(node.node_id, {}).setdefault(path, before)
            injector.note(f"{how} {path} of node {node.node_id}")
    injector.boot_later(node, plan.for_ms)


def rot_snapshot(injector: Injector, plan: FaultPlan) -> None:
    """The node's latest metadata snapshot is damaged: while it is down, when `amount` is even, or under its hands. It makes
    another one, fetches one, or refuses and names the file."""
    node = injector.one(plan)
    if node is None:
        return
    awake = bool(plan.amount % 2) and node.running
    if not awake:
        take_down(injector, node)
    if awake or may_alter(injector, node, "rot-snapshot"):
        with node.disk.undisturbed():
            found = damage_latest_snapshot(node.disk, node.config, injector.trouble)
        if found is not None:
            path, how, before = found
            if not node.config.is_controller:
                injector.forgetful[node.node_id] = injector.forgetful.get(node.node_id, 0) + 1
            kept = injector.rotten_awake if awake else injector.rotten
            kept.setdefault(node.node_id, {}).setdefault(path, before)
            injector.note(f"{how} {path} of node {node.node_id}")
    if not awake:
        injector.boot_later(node, plan.for_ms)


def old_files(injector: Injector, plan: FaultPlan) -> None:
    """The node dies, and comes back with the files that an older version would have left."""
    node = injector.one(plan)
    if node is None:
        return
    take_down(injector, node)
    if may_alter(injector, node, "old-files"):
        with node.disk.undisturbed():
            gone = leave_old_files(node.disk, node.config)
        injector.note(f"{len(gone)} files of node {node.node_id} are not there, as an older version wrote none")
    injector.boot_later(node, plan.for_ms)


def stale(injector: Injector, plan: FaultPlan) -> None:
    """The node dies when the fault ends, and finds some of its checkpoints as they were when it began."""
    node = injector.one(plan)
    if node is None:
        return
    disk = node.disk
    with disk.undisturbed():
        files = [it for directory in node.config.all_log_dirs for it in disk.tree(directory) if it.endswith(STALE)]
        then = {it: disk.read_file(it) for it in files}

    def set_back() -> None:
        take_down(injector, node)
        with disk.undisturbed():
            for path, data in then.items() if may_alter(injector, node, "stale") else ():
                if disk.stat(path) is not None and injector.trouble.randrange(2):
                    injector.note(f"{path} of node {node.node_id} is set back")
                    disk.write_file_atomically(path, data)
        injector.boot_later(node, 1 + plan.amount)

    injector.end_of(plan, set_back)


def dir_empty(injector: Injector, plan: FaultPlan) -> None:
    """The node comes back with one log directory on a new disk, formatted; never that of the metadata of a controller."""
    found = directory_of(injector, plan)
    if found is None:
        return
    node, directory = found
    if node.config.is_controller and directory == node.config.metadata_log_dir:
        return
    lost = node.disk.tree(directory)
    injector.kill(node)
    with node.disk.undisturbed():
        node.disk.rmtree(directory)
        node.disk.sync_dir(directory.rpartition("/")[0] or "/")
        injector.cluster.format(node.node_id, ignore_formatted=True)
    for path in lost:
        tp = partition_of(path, node.config.log_dirs)
        if tp is not None:
            injector.damaged.add((node.node_id, tp))
    injector.on_loss(node, lost)
    injector.boot_later(node, plan.for_ms)


KINDS: Final[Mapping[str, Handler]] = {
    "damage": damage,
    "rot": rot,
    "rot-snapshot": rot_snapshot,
    "old-files": old_files,
    "stale": stale,
    "dir-empty": dir_empty,
}
