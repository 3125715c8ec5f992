"""The steps of a group and a member after a heartbeat: subscription, group epoch, target assignment, reconciliation.

Source: KIP-848; `GroupMetadataManager.consumerGroupHeartbeat` and `TargetAssignmentBuilder` of Kafka 4.
"""

from __future__ import annotations

from typing import Final

from kraftlite.coordinator.api import Sees
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.effects import Effects
from kraftlite.coordinator.modern.assignors import ASSIGNORS, Subscriber
from kraftlite.coordinator.modern.cluster import Cluster
from kraftlite.coordinator.modern.group import INITIAL_EPOCH, ConsumerGroup, topic_ids
from kraftlite.coordinator.modern.journal import Change
from kraftlite.coordinator.modern.member import NO_PARTS, Member, Parts
from kraftlite.coordinator.modern.reconcile import Aim, reconcile
from kraftlite.coordinator.modern.records import (
    CurrentKey,
    EpochKey,
    EpochValue,
    MemberKey,
    PartitionMetadataKey,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    current_value,
    member_value,
)
from kraftlite.coordinator.modern.regex import matching

METADATA_REFRESH_MS: Final = 3_600_000
"""The topics of a group are looked at this often even when nothing is known to have changed; Kafka's constant."""
REGEX_REFRESH_MIN_MS: Final = 10_000
"""New topics are matched at most this often per group; Kafka's constant."""
NAMES_AT_ONCE: Final = 20_000
"""A heartbeat matches expressions with about so many names, 2 us each: a group may have as many expressions as members."""


class Steps:
    """Called with a change under way, whose group may have the member's former self. Nothing is refused here."""

    def __init__(self, config: GroupConfig, effects: Effects, cluster: Cluster) -> None:
        self._config = config
        self._effects = effects
        self._cluster = cluster

    def update(self, change: Change, before: Member, after: Member, owned: Parts | None, sees: Sees | None = None) -> Member:
        """The member with what it says now, one step further; all that follows for the group is in the change. `sees`: the
        topics that its client may describe; None: all."""
        group = change.group
        key = MemberKey(group.group_id, after.member_id)
        if after.subscription != before.subscription or after.member_id not in group.members:
            change.emit(key, member_value(after))
        resubscribed = after.topics != before.topics or after.regex != before.regex
        if before.regex and before.regex != after.regex and not group.subscribers_of(before.regex):
            change.emit(RegexKey(group.group_id, before.regex), None)
        matches_changed = self._match(change, sees)
        self._advance_epoch(change, bump=group.epoch <= INITIAL_EPOCH or resubscribed or matches_changed)
        if group.epoch > group.target_epoch and self._is_due(group):
            self._assign(change)
        return self._reconcile(change, group.members[after.member_id], owned, resubscribed=resubscribed)

    # --- regular expressions ------------------------------------------------------------------------------------------

    def _match(self, change: Change, sees: Sees | None) -> bool:
        """Look up the group's regular expressions if there is reason to, and return whether other topics match than before. As
        in Kafka the rights of the member whose heartbeat gives the reason decide, for the whole group."""
        group, cluster = change.group, self._cluster
        wanted = group.subscribed_regexes()
        if not wanted:
            return False
        wall_ms = self._effects.wall_ms
        due = [regex for regex in wanted if self._must_look_up(group.regexes.get(regex), wall_ms)]
        if not due:
            return False
        changed = False
        names = tuple(cluster.topics.by_name)
        for regex in due[: max(1, NAMES_AT_ONCE // max(1, len(names)))]:  # the next heartbeat looks the others up
            found = matching(regex, names)
            topics = tuple(sorted(found if sees is None else filter(sees, found)))
            former = group.regexes.get(regex)
            changed = changed or topics != (() if former is None else former.topics)
            change.emit(RegexKey(group.group_id, regex), RegexValue(topics, cluster.image.offset, wall_ms))
        return changed

    def _must_look_up(self, found: RegexValue | None, wall_ms: int) -> bool:
        """Return whether there is reason to look an expression up: it is new, topics came, or it was long ago. A group may have
        many expressions, so one that is new is no reason to look up the others. (In Kafka, which does it in another thread, it
        is.)"""
        if found is None:
            return True
        age_ms = wall_ms - found.timestamp_ms
        if 0 <= age_ms <= REGEX_REFRESH_MIN_MS:
            return False
        return found.version < self._cluster.topics_created_at or age_ms > self._config.consumer_regex_refresh_ms

    # --- epoch and target ---------------------------------------------------------------------------------------------

    def _advance_epoch(self, change: Change, *, bump: bool) -> None:
        group = change.group
        if not bump and self._effects.now_ms < group.metadata_stale_at_ms:
            return
        if bump or group.hash_of(self._cluster.topics) != group.metadata_hash:
            self.bump_epoch(change)
        group.metadata_stale_at_ms = self._effects.now_ms + METADATA_REFRESH_MS
        if group.has_partition_metadata:
            change.emit(PartitionMetadataKey(group.group_id), None)

    def bump_epoch(self, change: Change) -> None:
        """The group wants another assignment, which the next heartbeat makes."""
        group = change.group
        change.emit(EpochKey(group.group_id), EpochValue(group.epoch + 1, group.hash_of(self._cluster.topics)))

    def _is_due(self, group: ConsumerGroup) -> bool:
        """Return whether the target assignment has lasted for its interval. One of the future has: a clock was set back, and
        nobody knows when it was made."""
        age_ms = self._effects.wall_ms - group.target_ms
        return age_ms < 0 or age_ms >= self._cluster.assignment_interval_ms(group.group_id)

    def _assign(self, change: Change) -> None:
        group = change.group
        new = self._target(group)
        for member_id in group.members:
            parts = new.get(member_id, NO_PARTS)
            if group.target.get(member_id) != parts:
                change.emit(TargetKey(group.group_id, member_id), TargetValue(parts))
        change.emit(TargetEpochKey(group.group_id), TargetEpochValue(group.epoch, self._effects.wall_ms))

    def _target(self, group: ConsumerGroup) -> dict[str, Parts]:
        assignor = ASSIGNORS[group.assignor(self._config.consumer_assignors[0])]
        topics = self._cluster.topics
        sizes = dict(topic_ids(group.subscribed_topics(), topics))
        subscribers = {
            member.member_id: Subscriber(
                tuple(topic_ids(group.topics_of(member), topics)), group.target.get(member.member_id, NO_PARTS)
            )
            for member in _in_order(group)
        }
        return assignor(subscribers, sizes)

    # --- reconciliation -----------------------------------------------------------------------------------------------

    def _reconcile(self, change: Change, member: Member, owned: Parts | None, *, resubscribed: bool) -> Member:
        group = change.group
        aim = Aim(
            epoch=group.target_epoch,
            target=group.target.get(member.member_id, NO_PARTS),
            is_held=group.is_held,
            subscribed=topic_ids(group.topics_of(member), self._cluster.topics),
            subscription_changed=resubscribed,
            owned=owned,
        )
        after = reconcile(member, aim)
        if after.progress != member.progress:
            change.emit(CurrentKey(group.group_id, member.member_id), current_value(after))
        return after


def _in_order(group: ConsumerGroup) -> list[Member]:
    """Static members by instance id, then the others by member id: a restart of all changes no range."""
    return sorted(group.members.values(), key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
