"""Invariant 44: a coordinator that has loaded has what is committed, no more and no less (ML-22, CP-31, CP-37, CG-04)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.coordinator.classic.group import Group, GroupState
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.records import GroupValue
from kraftlite.coordinator.shard_core import GroupShard
from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupsLoaded
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import ConsumersInLog, GroupChecker, GroupLog
from kraftlite.simhost.host import SimHost


class LoadedGroups(GroupChecker):
    """The offsets, members, generations, epochs and assignments of a shard that was just loaded are those of a replay of the
    committed log; so are those of every shard at the end, when nothing is under way, also of what was late for its client."""

    numbers: ClassVar[tuple[int, ...]] = (44,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._fresh: dict[NodeId, list[tuple[int, int]]] = {}
        """(partition, end of the log) of what was loaded in this callback."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, GroupsLoaded):
            self._fresh.setdefault(node.node_id, []).append((event.tp.partition, event.end_offset))

    def on_step(self, node: SimHost) -> None:
        if not self._fresh:
            return
        for partition, end in self._fresh.pop(node.node_id, ()):
            broker = None if node.node is None else node.node.broker
            driver = None if broker is None else broker.groups.led.get(partition)
            log = None if driver is None else self.groups.logs.get(driver.tp)
            if driver is None or not driver.loaded or log is None or self.groups.is_lost(log):
                continue
            if not self.groups.is_current(driver, node) or log.end != end:
                continue  # others have written since, or it leads no more
            self._compare(node, driver, log, loaded=True)

    def at_end(self) -> None:
        for node in self.world.cluster.brokers:
            broker = None if node.node is None else node.node.broker
            for driver in () if broker is None else broker.groups.led.drivers():
                log = self.groups.logs.get(driver.tp)
                if driver.loaded and log is not None and not self.groups.is_lost(log) and _is_idle(driver):
                    self._compare(node, driver, log, loaded=False)

    def _compare(self, node: SimHost, driver: GroupDriver, log: GroupLog, *, loaded: bool) -> None:
        where = f"{driver.tp} on node {node.node_id}, in leader epoch {driver.leader_epoch}, with [0,{log.end})"
        shard = driver.shard
        found = {group_id: offsets for group_id, offsets in shard.offsets._committed.items() if offsets}
        wanted = {group_id: offsets for group_id in log.offsets if (offsets := log.committed(group_id))}
        for group_id in sorted({*found, *wanted}):
            has, stored = found.get(group_id, {}), wanted.get(group_id, {})
            for tp in dict.fromkeys((*has, *stored)):
                if has.get(tp) != stored.get(tp):
                    self.fail(f"{where}: the offset of {tp} in {group_id} is {has.get(tp)}, committed is {stored.get(tp)}")
        if loaded:
            self._compare_classic(where, shard, log)
        for group_id in sorted({*shard.consumers.by_id, *log.consumers}):
            mine, known = shard.consumers.by_id.get(group_id), log.consumers.get(group_id)
            if group_id in shard.consumers.journal._unwritten:
                continue
            if mine is None or known is None or _consumers(mine) != _stored(known):
                self.fail(
                    f"{where}: consumer group {group_id} is {None if mine is None else _consumers(mine)}, committed is "
                    f"{None if known is None else _stored(known)}"
                )

    def _compare_classic(self, where: str, shard: GroupShard, log: GroupLog) -> None:
        for group_id in sorted({*shard.groups.by_id, *log.classic}):
            mine, stored = shard.groups.by_id.get(group_id), log.classic.get(group_id)
            if stored is None:
                if mine is not None and (mine.members or mine.generation):
                    self.fail(f"{where}: group {group_id} has members {list(mine.members)}, and is not committed")
            elif mine is None or _classic(mine) != _classic_stored(stored):
                self.fail(
                    f"{where}: group {group_id} is {None if mine is None else _classic(mine)}, committed is "
                    f"{_classic_stored(stored)}"
                )


def _is_idle(driver: GroupDriver) -> bool:
    """Return whether no write is under way."""
    return not driver.shard._effects._then


def _classic(group: Group) -> tuple[object, ...]:
    stable = {GroupState.PREPARING_REBALANCE: GroupState.STABLE}.get(group.state, group.state)  # it may have begun already
    members = sorted((it.member_id, it.instance_id, it.session_timeout_ms, it.assignment) for it in group.members.values())
    since_ms = None if group.members else group.state_since_ms  # from which its offsets expire (KIP-211)
    return group.generation, stable.value if group.members else "Empty", group.protocol_name, members, since_ms


def _classic_stored(value: GroupValue) -> tuple[object, ...]:
    members = sorted((it.member_id, it.instance_id, it.session_timeout_ms, it.assignment) for it in value.members)
    since_ms = None if members else value.state_since_ms
    return value.generation, "Stable" if members else "Empty", value.protocol_name, members, since_ms


def _consumers(group: ConsumerGroup) -> tuple[object, ...]:
    members = sorted(
        (
            it.member_id,
            it.instance_id,
            it.topics,
            it.regex,
            it.epoch,
            it.previous_epoch,
            int(it.state),
            it.assigned,
            it.revoking,
            it.since,
        )
        for it in group.members.values()
    )
    return group.epoch, group.target_epoch, members, {it: parts for it, parts in group.target.items() if parts}


def _stored(group: ConsumersInLog) -> tuple[object, ...]:
    members = []
    for member_id in sorted(group.members):
        said, has = group.members[member_id], group.current.get(member_id)
        if has is None:
            state: tuple[object, ...] = (0, 0, 0, {}, {}, {})
        else:
            state = (has.epoch, has.previous_epoch, int(has.state), has.assigned, has.revoking, has.since)
        members.append((member_id, said.instance_id, said.topics, said.regex, *state))
    return group.epoch, group.target_epoch, members, {it: parts for it, parts in group.target.items() if parts}
