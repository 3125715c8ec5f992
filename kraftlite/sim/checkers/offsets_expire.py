"""Invariant 42, of time: an offset that nobody needs any more goes when its time is over (CP-39; KIP-211)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.coordinator.classic.group import GroupState
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.coordinator.records import CommittedOffset
from kraftlite.sim.checkers.group_log import GroupChecker, GroupLog
from kraftlite.simhost.host import SimHost

LONGEST_INTERVAL_MS = 10_000
"""A coordinator that looks less often does not come to it within a run."""
SLACK_MS = 2_000


class OffsetsExpire(GroupChecker):
    """No group without members has, when the faults are over, an offset that its coordinator should have let go of: one whose own
    time is over, or that was committed longer than `offsets.retention.minutes` ago; in a group of the classic protocol one that
    lost its last member so long ago. Only groups are judged that have in memory what the log says, with nothing under way."""

    numbers: ClassVar[tuple[int, ...]] = (42,)

    def unsettled(self) -> str | None:
        for node in self.world.cluster.brokers:
            broker = None if node.node is None else node.node.broker
            for driver in () if broker is None or node.paused else broker.groups.led.drivers():
                log = self.groups.logs.get(driver.tp)
                if log is None or self.groups.is_lost(log) or not driver.loaded or not self.groups.is_current(driver, node):
                    continue
                for group_id in log.offsets:
                    left = self._overdue(node, driver, log, group_id)
                    if left is not None:
                        return left
        return None

    def _overdue(self, node: SimHost, driver: GroupDriver, log: GroupLog, group_id: str) -> str | None:
        shard, config = driver.shard, driver.shard._config
        if config.retention_check_interval_ms > LONGEST_INTERVAL_MS or shard.offsets.pending.has_any(group_id):
            return None
        since_ms: int | None = None
        classic, stored = shard.groups.by_id.get(group_id), log.classic.get(group_id)
        if classic is not None:
            as_stored = (stored is None) is (classic.protocol_type is None)
            if classic.state is not GroupState.EMPTY or classic.pending or not as_stored:
                return None
            if stored is not None:
                if stored.members or stored.generation != classic.generation:
                    return None
                since_ms = stored.state_since_ms
        elif group_id not in shard.consumers.by_id or shard.consumers.by_id[group_id].members:
            return None
        assert node.now is not None
        limit_ms = node.now.clock.wall_ms() - config.retention_check_interval_ms - SLACK_MS
        for tp, offset in log.committed(group_id).items():
            due_ms = _due_ms(offset, since_ms, config.offsets_retention_ms)
            if due_ms < limit_ms:
                return f"{log.tp}: {group_id} still has the offset of {tp}, whose time was over {limit_ms - due_ms} ms ago"
        return None


def _due_ms(offset: CommittedOffset, since_ms: int | None, retention_ms: int) -> int:
    if offset.expire_ms is not None:
        return offset.expire_ms
    return (offset.commit_ms if since_ms is None else since_ms) + retention_ms
