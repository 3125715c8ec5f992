"""Invariant 42: an acknowledged offset is committed, stays, and is what a fetch answers (CP-37 to CP-40, CG-07; KIP-211)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kraftlite.coordinator.api import FetchedOffset
from kraftlite.coordinator.consumer_protocol import subscribed_topics
from kraftlite.coordinator.records import CommittedOffset, GroupKey, GroupValue, OffsetKey
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupStateChanged
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog, Version
from kraftlite.sim.services.groups import (
    COMMIT,
    DELETE,
    OFFSET_DELETE,
    OFFSET_FETCH,
    CommitAsk,
    DeleteAsk,
    OffsetDeleteAsk,
    OffsetFetchAsk,
    Told,
)
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_CLOCK_SLACK_MS = 2_000


@dataclass(frozen=True, slots=True)
class Asked:
    """The bound that a fetch may not fall behind: the latest version of each partition that somebody had been told of by then."""

    current: bool
    """The broker is the coordinator, by the controller's last word."""
    told: dict[TopicPartition, int]


class OffsetsKept(GroupChecker):
    """The log has a commit before it is acknowledged. A fetch at the coordinator answers the last version that anybody had been
    told of, or a later one; at one that was replaced and does not know, any version. An offset is removed by a request, with its
    topic, or when its time is over and no open transaction moves it; and while its group has members that read the topic, with
    the topic only."""

    numbers: ClassVar[tuple[int, ...]] = (42,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: dict[AnyExchange, Asked] = {}
        self._deleting: dict[AnyExchange, str] = {}
        """The groups of the requests under way that delete something."""
        self._deleted_ms: dict[str, int] = {}
        """The time at which the last such request of a group was over: its tombstones lie in front of what is committed later."""
        self._emptied: dict[str, None] = {}
        """Groups of the classic protocol that have lost their last member, whether that could be written or not."""
        config = world.cluster.brokers[0].config if world.cluster.brokers else None
        self._retention_ms = 60_000 * int(str(config.get("offsets.retention.minutes")) if config is not None else 10_080)

    # --- removal

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        removed = {it.key.group_id: it.old for it in reversed(changes) if isinstance(it.key, GroupKey) and it.old is not None}
        for change in changes:
            if isinstance(change.key, OffsetKey) and change.new is None and change.old is not None:
                stored = log.classic.get(change.key.group_id) or removed.get(change.key.group_id)
                self._check_removal(log, change, change.key, stored)

    def _check_removal(self, log: GroupLog, change: Change, key: OffsetKey, stored: GroupValue | None) -> None:
        if self._topic_went(key.tp.topic):
            return
        if key.tp.topic in self._subscribed(log, key.group_id):
            self.fail_in(log, change, f"removes the offset of {key.tp} of group {key.group_id}, whose members read it")
        value: CommittedOffset = change.old
        asked_ms = self._deleted_ms.get(key.group_id, -1) + _CLOCK_SLACK_MS
        if key.group_id in self._deleting.values() or value.commit_ms <= asked_ms:
            return
        for producer_id, records in log.pending.items():
            if any(at < change.offset and pending == key for at, pending, _ in records):
                what = f"removes the offset of {key.tp} of group {key.group_id}, for which nobody has asked"
                self.fail_in(log, change, f"{what}, though the transaction of producer id {producer_id} moves it")
        versions = log.offsets[key.group_id][key.tp]
        now_ms = self._wall_ms() + _CLOCK_SLACK_MS
        since_ms = self._since_ms(log, key.group_id, value, stored)
        due_ms = since_ms + self._retention_ms if value.expire_ms is None else value.expire_ms
        if now_ms < due_ms and not self._clocks_jumped():
            self.fail_in(
                log,
                change,
                f"removes the offset of {key.tp} of group {key.group_id}, committed as {versions[-2].value}, at {now_ms}: "
                f"it is due at {due_ms}, and nobody has asked for it",
            )

    def _since_ms(self, log: GroupLog, group_id: str, value: CommittedOffset, stored: GroupValue | None) -> int:
        """Return when the time of an offset began, at the earliest: when a group of the classic protocol became empty, as its
        last record says (`stored`), else with the commit. It may have become empty without a record, and before the commit."""
        if stored is not None and stored.protocol_type and not stored.members and stored.state_since_ms is not None:
            return stored.state_since_ms
        if group_id in self._emptied:
            everything = [it.value for all_of in log.offsets[group_id].values() for it in all_of if it.value is not None]
            return min(it.commit_ms for it in everything)
        return value.commit_ms

    def _wall_ms(self) -> int:
        return max(self.world.cluster.wall_ms(it.node_id) for it in self.world.cluster.brokers)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, GroupStateChanged) and event.state == "Empty":
            self._emptied[event.group] = None

    def _clocks_jumped(self) -> bool:
        """Return whether some clock goes ahead of others: whose commit it was is not known."""
        offsets = [self.world.cluster.wall_offset_ms.get(it.node_id, 0) for it in self.world.cluster.brokers]
        return len(set(offsets)) > 1 or self.world.cluster.shape.drift_ppm > 0

    def _topic_went(self, topic: str) -> bool:
        calls = self.world.history.admins
        return any(it.kind == "delete_topics" and it.facts.get("topic") == topic for it in calls)

    def _subscribed(self, log: GroupLog, group_id: str) -> Iterable[str]:
        consumers, classic = log.consumers.get(group_id), log.classic.get(group_id)
        if consumers is not None:
            return [topic for member_id in consumers.members for topic in consumers.topics_of(member_id)]
        found: list[str] = []
        for member in () if classic is None else classic.members:
            found += subscribed_topics(member.subscription) or ()
        return found

    # --- requests

    def on_arrival(self, exchange: AnyExchange) -> None:
        request = exchange.request
        if exchange.method is OFFSET_FETCH:
            assert isinstance(request, OffsetFetchAsk)
            log = self.groups.log_of(request.group_id)
            if log is not None and exchange not in self._asked:
                known = log.offsets.get(request.group_id, {})
                wanted = list(known) if request.partitions is None else request.partitions
                told = {tp: self.groups.told.get((request.group_id, tp), -1) for tp in wanted}
                self._asked[exchange] = Asked(self._is_current(exchange.target, request.group_id), told)
        elif exchange.method is OFFSET_DELETE or exchange.method is DELETE:
            assert isinstance(request, OffsetDeleteAsk | DeleteAsk)
            self._deleting[exchange] = request.group_id

    def _is_current(self, node_id: NodeId, group_id: str) -> bool:
        node = self.world.nodes[node_id]
        return self.groups.is_current(self.groups.driver(node, group_id), node)

    def on_death(self, node: SimHost, how: str) -> None:
        for exchange in [it for it in self._deleting if it.target == node.node_id]:
            self._deletion_over(exchange)

    def _deletion_over(self, exchange: AnyExchange) -> None:
        group_id = self._deleting.pop(exchange, None)
        if group_id is not None:
            self._deleted_ms[group_id] = max(self._wall_ms(), self._deleted_ms.get(group_id, -1))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        self._deletion_over(exchange)
        if exchange.method is COMMIT:
            assert isinstance(request, CommitAsk) and isinstance(response, Told)
            if response.error is ErrorCode.NONE:
                self._committed(exchange.target, request, response.result)
        elif exchange.method is OFFSET_FETCH:
            assert isinstance(request, OffsetFetchAsk) and isinstance(response, Told)
            asked = self._asked.pop(exchange, None)
            if asked is not None and response.error is ErrorCode.NONE:
                self._fetched(exchange.target, request, asked, response.result)

    def _committed(self, node_id: NodeId, request: CommitAsk, errors: Sequence[ErrorCode]) -> None:
        group_id = request.base.group_id
        log = self.groups.log_of(group_id)
        if log is None:
            return
        for commit, error in zip(request.commits, errors, strict=True):
            if error is not ErrorCode.NONE:
                continue
            tp = TopicPartition(commit.topic.name or "", commit.partition)
            versions = log.offsets.get(group_id, {}).get(tp, [])
            wanted = (commit.offset, commit.leader_epoch, commit.metadata)
            at = next((it.at for it in reversed(versions) if it.value is not None and tuple(it.value[:3]) == wanted), None)
            if at is None:
                self.fail(
                    f"{log.tp}: node {node_id} acknowledged {wanted} for {tp} of group {group_id}, which is not committed; the "
                    f"last is {versions[-1] if versions else None}"
                )
            self._note(group_id, tp, at)

    def _note(self, group_id: str, tp: TopicPartition, at: int | None) -> None:
        if at is not None:
            self.groups.told[(group_id, tp)] = max(at, self.groups.told.get((group_id, tp), -1))

    def _fetched(self, node_id: NodeId, request: OffsetFetchAsk, asked: Asked, found: Sequence[FetchedOffset]) -> None:
        group_id = request.group_id
        log = self.groups.log_of(group_id)
        if log is None:
            return
        current = asked.current and self._is_current(node_id, group_id)
        answers = {it.tp: it for it in found if it.error is ErrorCode.NONE}
        partitions = answers if request.partitions is not None else dict.fromkeys((*asked.told, *answers))
        refused = {it.tp: None for it in found if it.error is not ErrorCode.NONE}
        for tp in partitions:
            if tp in refused:
                continue
            it = answers.get(tp)
            versions = log.offsets.get(group_id, {}).get(tp, [])
            least = asked.told.get(tp, -1) if current else -1
            matching = [version for version in versions if _is(version, it) and version.at >= least]
            nothing = it is None or it.offset == -1
            if not matching and not (nothing and least < 0):
                self.fail(
                    f"{log.tp}: node {node_id} answers {it} for {tp} of group {group_id}; committed are {versions[-3:]}, and "
                    f"somebody has been told of the one at {least}"
                )
            if matching and current and not nothing:
                self._note(group_id, tp, matching[0].at)


def _is(version: Version, answer: FetchedOffset | None) -> bool:
    if version.value is None:
        return answer is None or answer.offset == -1
    return answer is not None and tuple(version.value[:3]) == (answer.offset, answer.leader_epoch, answer.metadata)
