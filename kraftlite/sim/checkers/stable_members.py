"""Members of the consumer protocol get what their groups have for them, and what others leave behind (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.coordinator.modern.member import MemberState
from kraftlite.coordinator.modern.records import CurrentKey, EpochKey, MemberKey
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog


class StableMembers(GroupChecker):
    """Nobody leads a stable member of the target epoch any further: of each topic it has all partitions that its target names, or
    none where it has unsubscribed, and no others."""

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        latest = {it.key: it for it in changes if isinstance(it.key, CurrentKey)}
        for key, change in latest.items():
            group, now = log.consumers.get(key.group_id), change.new
            if group is None or now is None or now.state is not MemberState.STABLE or now.epoch != group.target_epoch:
                continue
            target = group.target.get(key.member_id, {})
            for topic_id, indexes in now.assigned.items():
                if indexes and indexes != target.get(topic_id, frozenset()):
                    self.fail_in(
                        log,
                        change,
                        f"has member {key.member_id} of group {key.group_id} stable in epoch {now.epoch} with {sorted(indexes)} "
                        f"of topic {topic_id}, and its target is {sorted(target.get(topic_id, ()))}",
                    )


class LeaversNoticed(GroupChecker):
    """A group that goes on without a member begins another epoch with the same records, in which others get its partitions. One
    that takes a static member's place has what that had."""

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        bumped = {it.key.group_id for it in changes if isinstance(it.key, EpochKey)}
        came = {(it.key.group_id, it.new.instance_id) for it in changes if isinstance(it.key, MemberKey) and it.new is not None}
        for change in changes:
            key = change.key
            if not isinstance(key, MemberKey) or change.new is not None or change.old is None or key.group_id in bumped:
                continue
            group, instance_id = log.consumers.get(key.group_id), change.old.instance_id
            if group is None or not group.members or (instance_id is not None and (key.group_id, instance_id) in came):
                continue
            self.fail_in(log, change, f"takes {key.member_id} out of group {key.group_id}, which stays in epoch {group.epoch}")
