"""Invariant 71: pending offsets in memory are those of the log, and of all offsets the highest record counts (TG-04 to TG-11)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, ClassVar

from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.records import CommittedOffset
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupsLoaded
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog
from kraftlite.simhost.host import SimHost

Place = tuple[int, str, TopicPartition]
"""A producer id, a group and a partition."""


class PendingOffsetsKept(GroupChecker):
    """Whenever the coordinator of a partition of `__consumer_offsets` has nothing under way and has heard of all that is
    committed, its memory is what the log says, also of records whose client was told that they are late: each pending offset is
    the last record of that transaction there, or is overtaken by a later record; what counts is the version with the highest
    record; what a tombstone has taken away is gone. At the end, when every transaction is over, nothing is pending."""

    numbers: ClassVar[tuple[int, ...]] = (71,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._changed: dict[TopicPartition, None] = {}
        self.compared = 0

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is GroupsLoaded:
            self._changed[event.tp] = None

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        self._changed[log.tp] = None

    def on_step(self, node: SimHost) -> None:
        if not self._changed:
            return
        for driver, log in self._idle(node, self._changed):
            del self._changed[log.tp]
            self._compare(node, driver, log)

    def at_end(self) -> None:
        for node in self.world.cluster.brokers:
            for driver, log in self._idle(node):
                self._compare(node, driver, log)
                left = [it for it in _pending(driver) if it not in _last(log)]
                if left:
                    self.fail(f"{log.tp} on node {node.node_id}: {left[0]} is pending, and its transaction is over in the log")

    def _idle(self, node: SimHost, among: Container[TopicPartition] | None = None) -> Iterator[tuple[GroupDriver, GroupLog]]:
        """`among`: only these partitions; None: all."""
        broker = None if node.node is None else node.node.broker
        for driver in () if broker is None else broker.groups.led.drivers():
            if among is not None and driver.tp not in among:
                continue
            log = self.groups.logs.get(driver.tp)
            if log is not None and not self.groups.is_lost(log) and self._is_idle(node, driver, log):
                yield driver, log

    def _is_idle(self, node: SimHost, driver: GroupDriver, log: GroupLog) -> bool:
        if not driver.loaded or driver._events or driver.shard._effects._then:
            return False
        found = self.groups.replicas.metadata.history.latest.topic_named(OFFSETS_TOPIC)
        if found is None:
            return False
        registration = self.groups.replicas.registration(TopicIdPartition(found[0], driver.tp.partition))
        if registration is None or (registration.leader, registration.leader_epoch) != (node.node_id, driver.leader_epoch):
            return False
        view = self.groups.replicas.view(node.node_id, driver.tp)
        return view is not None and view.log is not None and view.log.leo == view.log.hw == log.end

    def _compare(self, node: SimHost, driver: GroupDriver, log: GroupLog) -> None:
        self.compared += 1
        where = f"{log.tp} on node {node.node_id}, in leader epoch {driver.leader_epoch}, with [0,{log.end})"
        has = _pending(driver)
        for place, (at, value) in _last(log).items():
            _, group_id, tp = place
            versions = log.offsets.get(group_id, {}).get(tp, [])
            later = next((it for it in reversed(versions) if it.at > at), None)
            tombstone = next((it.at for it in reversed(versions) if it.at > at and it.value is None), None)
            if tombstone is not None:
                if has.get(place) is not None:
                    self.fail(f"{where}: {has[place]} of {place} is pending; the tombstone at {tombstone} has taken it away")
            elif place not in has:
                self.fail(f"{where}: {value} of {place} at offset {at} is not pending, and has no marker yet")
            elif has[place] is not None and later is not None:
                self.fail(f"{where}: {has[place]} of {place} is pending; the record at {later.at}, behind {at}, counts already")
            elif has[place] not in (None, value):
                self.fail(f"{where}: {has[place]} of {place} is pending, the log has {value} at offset {at}")
        self._compare_committed(where, driver, log)

    def _compare_committed(self, where: str, driver: GroupDriver, log: GroupLog) -> None:
        found = driver.shard.offsets._committed
        for group_id, partitions in log.offsets.items():
            for tp, versions in partitions.items():
                value = found.get(group_id, {}).get(tp)
                if versions and versions[-1].value != value:
                    self.fail(f"{where}: the offset of {tp} in {group_id} is {value}; versions are {versions[-3:]}")


def _pending(driver: GroupDriver) -> dict[Place, CommittedOffset | None]:
    """Return what memory has; None: a later record counts already."""
    found: dict[Place, CommittedOffset | None] = {}
    for group_id, partitions in driver.shard.offsets.pending._pending.items():
        for tp, by_producer in partitions.items():
            found.update({(producer_id, group_id, tp): it.committed for producer_id, it in by_producer.items()})
    return found


def _last(log: GroupLog) -> dict[Place, tuple[int, Any]]:
    """The last record of each open transaction for a group and partition, with its offset in the log."""
    return {
        (producer_id, key.group_id, key.tp): (at, value)
        for producer_id, records in log.pending.items()
        for at, key, value in records
    }
