"""No group has more members than its broker allows (CP-27; KIP-389, KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.coordinator.modern.records import MemberKey
from kraftlite.coordinator.records import GroupKey, OffsetKey
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog


class GroupSizes(GroupChecker):
    """A generation of the classic protocol has at most `group.max.size` dynamic members: static ones that are away stay beside
    them. A group of the consumer protocol has at most `group.consumer.max.size` members. A group that becomes classic is stored
    with those that have just gone, too, and not judged."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        configs = [node.config for node in world.cluster.brokers]
        self._classic = max((it.get_int("group.max.size") for it in configs), default=0)
        self._modern = max((it.get_int("group.consumer.max.size") for it in configs), default=0)

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        passing = {it.key.group_id for it in changes if not isinstance(it.key, GroupKey | OffsetKey)}
        for change in changes:
            key, new = change.key, change.new
            if isinstance(key, GroupKey) and new is not None and key.group_id not in passing:
                dynamic = [it.member_id for it in new.members if it.instance_id is None]
                if len(dynamic) > self._classic:
                    self.fail_in(log, change, f"gives group {key.group_id} the members {dynamic}; {self._classic} are allowed")
            elif isinstance(key, MemberKey) and new is not None and change.old is None:
                group = log.consumers.get(key.group_id)
                if group is not None and len(group.members) > self._modern:
                    members = list(group.members)
                    self.fail_in(log, change, f"gives group {key.group_id} the members {members}; {self._modern} are allowed")
