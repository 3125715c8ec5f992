"""Invariant 43: who is no member, or not in this generation or epoch, neither commits nor is told that all is well
(CP-32, CP-34, CP-36, CG-02, CG-07, TG-02)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from kraftlite.coordinator.api import ConsumerHeartbeatRequest, HeartbeatRequest, SyncRequest
from kraftlite.coordinator.consumer_protocol import parse_assignment
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.coordinator.modern.member import Parts
from kraftlite.coordinator.modern.records import CurrentKey, MemberKey
from kraftlite.coordinator.records import GroupKey, GroupValue, OffsetKey
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupMemberRemoved, GroupTypeChanged, StaticMemberReplaced
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog
from kraftlite.sim.services import transactions
from kraftlite.sim.services.groups import BEAT, COMMIT, HEARTBEAT, JOIN, SYNC, CommitAsk, Told
from kraftlite.sim.services.transactions import TransactionalCommitAsk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_AWAY = -2
"""The epoch of a static member that has left for a while."""
_WELL = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


class FencedMembers(GroupChecker):
    """A commit says in its metadata who made it, and in which generation. In the order of the log, that member was in the group
    and in that generation or epoch, or had the partition since that epoch, in the consumer protocol; and one from outside of the
    group came while the group had no members. A member that a coordinator has removed or replaced gets nothing but refusals from
    it afterwards, and its heartbeat or sync of another generation is refused. A commit in a transaction comes from a member, and
    in a classic group it names a generation that is not over when it comes: they only grow. (In the consumer protocol an older
    epoch counts for what the member has had since then, which the order of the log shows.)"""

    numbers: ClassVar[tuple[int, ...]] = (43,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._gone: dict[GroupDriver, dict[tuple[str, str], int]] = {}
        """By coordination: (group, member) → when it was removed."""
        self._arrived: dict[AnyExchange, tuple[int, GroupDriver | None, int | None]] = {}
        """The time, the coordination, and the group's generation at the arrival of a request."""
        self._leaving: dict[tuple[str, str], None] = {}
        """Members of the consumer protocol that have said that they go, and were not served since: the log may not take that."""
        self._since: dict[tuple[str, str], dict[tuple[UUID, int], int]] = {}
        """Per member of the consumer protocol the epoch in which it got each of its partitions, in the order of the log."""
        self._commits: dict[AnyExchange, tuple[GroupDriver, int | None]] = {}
        """The coordination, and the generation or epoch of the member, when its commit in a transaction came first."""

    # --- the log

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        self._check_released(log, changes)
        left: dict[tuple[str, str], dict[tuple[UUID, int], int]] = {}
        for change in changes:
            if isinstance(change.key, MemberKey):
                self._note_heir(change, left)
            elif isinstance(change.key, CurrentKey):
                if change.new is None:
                    left[change.key.group_id, change.key.member_id] = self._since.get(
                        (change.key.group_id, change.key.member_id), {}
                    )
                self._note_assignment(change)
            elif isinstance(change.key, GroupKey) and change.old is not None and change.new is None:
                self._note_converted(change.key.group_id, change.old, left)
            elif isinstance(change.key, OffsetKey) and change.new is not None:
                author = change.new.metadata.split("|")
                if len(author) == 3:
                    self._check_author(log, change, author[0], int(author[1]))

    def _check_released(self, log: GroupLog, changes: Sequence[Change]) -> None:
        """Nobody takes a static member's place in the consumer protocol but when that one is away for a while, has said that it
        goes, or is no member any more; else it is told UNRELEASED_INSTANCE_ID, and the two would take the place from each other
        for ever (CG-07)."""
        epochs: dict[tuple[str, str], int] = {}
        former: dict[tuple[str, str], str] = {}
        for change in changes:
            key = change.key
            if isinstance(key, CurrentKey) and change.new is None and change.old is not None:
                epochs[key.group_id, key.member_id] = change.old.epoch
            elif not isinstance(key, MemberKey):
                continue
            elif change.new is None:
                if change.old is not None and change.old.instance_id is not None and change.old.classic is None:
                    former[key.group_id, change.old.instance_id] = key.member_id
            elif change.old is None and change.new.classic is None and change.new.instance_id is not None:
                name = key.group_id, former.get((key.group_id, change.new.instance_id), key.member_id)
                held = name[1] != key.member_id and epochs.get(name, _AWAY) != _AWAY
                if held and name not in self._leaving and not any(name in gone for gone in self._gone.values()):
                    self.fail_in(log, change, f"takes the place of {name[1]}, which is in epoch {epochs[name]} and has not left")

    def _check_author(self, log: GroupLog, change: Change, member_id: str, generation: int) -> None:
        group_id = change.key.group_id
        members = log.members(group_id)
        if generation < 0:
            if members:
                self.fail_in(log, change, f"is a commit from outside of group {group_id}, which has the members {list(members)}")
        elif members.get(member_id) != generation and not self._has_had(change, member_id, generation, members):
            self.fail_in(
                log,
                change,
                f"is a commit of {member_id} in generation {generation} of group {group_id}, whose members are then {members}",
            )

    def _note_heir(self, change: Change, left: dict[tuple[str, str], dict[tuple[UUID, int], int]]) -> None:
        """The heir of a static member has its partitions since that one had them. `left`: by group and the name of who goes in
        this batch, first the member's id, then its instance's."""
        group_id, member_id = change.key.group_id, change.key.member_id
        said = change.old if change.new is None else change.new
        if said is None or said.instance_id is None:
            return
        if change.new is None:
            left[group_id, said.instance_id] = left.pop((group_id, member_id), {})
        elif change.old is None and (group_id, said.instance_id) in left:
            self._since[group_id, member_id] = left.pop((group_id, said.instance_id))

    def _note_converted(self, group_id: str, old: GroupValue, left: dict[tuple[str, str], dict[tuple[UUID, int], int]]) -> None:
        """The heir of a static member may be what converts a classic group. The batch then has no assignment of its former self,
        which had its partitions since the last generation."""
        latest = self.groups.replicas.metadata.history.latest
        for member in old.members:
            assigned = parse_assignment(member.assignment) if member.instance_id is not None else None
            if assigned is None or member.instance_id is None:
                continue
            topics = ((latest.topic_named(name), indexes) for name, indexes in assigned.topics)
            places = {(topic[0], index): old.generation for topic, indexes in topics if topic is not None for index in indexes}
            left[group_id, member.instance_id] = places

    def _note_assignment(self, change: Change) -> None:
        """A partition that a member had it has since then, until it is given up; another one it has from this epoch on. One that
        is away for a while has all from the beginning when it comes back (KIP-1251). Of one that was in an epoch before, whose
        earlier records were compacted away until they counted as committed, the record alone says since when."""
        name = change.key.group_id, change.key.member_id
        before = self._since.pop(name, {})
        if change.new is None:
            return
        if change.old is None and change.new.previous_epoch > 0:
            before = {(topic_id, index): got for topic_id, of in change.new.since.items() for index, got in of.items()} | before
        had = before if change.old is None else _places(change.old.assigned)
        found = {place: before.get(place, 0) for place in _places(change.new.revoking)}
        for place in _places(change.new.assigned):
            found[place] = before[place] if place in had and place in before else max(change.new.epoch, 0)
        self._since[name] = dict.fromkeys(found, 0) if change.new.epoch < 0 else found

    def _has_had(self, change: Change, member_id: str, epoch: int, members: dict[str, int]) -> bool:
        """Return whether a member of the consumer protocol has had a partition of this number since this epoch, or longer."""
        since = self._since.get((change.key.group_id, member_id), {})
        held = any(index == change.key.tp.partition and got <= epoch for (_, index), got in since.items())
        return member_id in members and epoch < members[member_id] and held

    # --- requests

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, GroupMemberRemoved):
            self._note(node, event.group, event.member, now_us)
            self._check_static(node, event)
        elif isinstance(event, StaticMemberReplaced):
            self._note(node, event.group, event.old, now_us)
        elif isinstance(event, GroupTypeChanged) and event.type == "consumer":
            self._note_back(node, event.group)

    def _note_back(self, node: SimHost, group_id: str) -> None:
        """A group that could not become a classic one has again whose going was the reason (CG-08)."""
        driver = self.groups.driver(node, group_id)
        group = None if driver is None or not driver.loaded else driver.shard.consumers.by_id.get(group_id)
        if driver is not None and group is not None:
            for member_id in group.members:
                self._gone.get(driver, {}).pop((group_id, member_id), None)

    def _check_static(self, node: SimHost, event: GroupMemberRemoved) -> None:
        """A rebalance does not wait for static members that are away, and does not drop them: only the end of their session does
        (CP-34, KIP-345). In a group of the consumer protocol who speaks the classic one is dropped."""
        driver = self.groups.driver(node, event.group)
        classic = driver is not None and event.group in driver.shard.groups.by_id
        if event.instance is not None and event.reason == "did not rejoin in time" and classic:
            self.fail(f"static member {event.member} of group {event.group} is dropped because it did not rejoin in time")

    def _note(self, node: SimHost, group_id: str, member_id: str, now_us: int) -> None:
        driver = self.groups.driver(node, group_id)
        if driver is not None:
            self._gone.setdefault(driver, {})[(group_id, member_id)] = now_us

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is JOIN:
            self._on_join(exchange)
        elif exchange.method is transactions.COMMIT:
            self._on_transactional_commit(exchange)
        elif exchange.method in (HEARTBEAT, SYNC, COMMIT, BEAT):
            request = exchange.request
            group_id = request.base.group_id if isinstance(request, CommitAsk) else request.group_id
            driver = self.groups.driver(self.world.nodes[exchange.target], group_id)
            if isinstance(request, ConsumerHeartbeatRequest) and request.member_epoch == 0 and driver is not None:
                self._gone.get(driver, {}).pop((group_id, request.member_id), None)  # it makes its id itself, and may come again
            if isinstance(request, ConsumerHeartbeatRequest) and request.member_epoch < 0:
                self._leaving[group_id, request.member_id] = None
            self._arrived.setdefault(exchange, (self.world.cluster.loop.now_us(), driver, _generation(driver, group_id)))

    def _on_transactional_commit(self, exchange: AnyExchange) -> None:
        ask: TransactionalCommitAsk = exchange.request
        driver = self.groups.driver(self.world.nodes[exchange.target], ask.group_id)
        if ask.generation >= 0 and driver is not None and driver.loaded:
            self._commits.setdefault(exchange, (driver, _epoch_of(driver, ask.group_id, ask.member_id)))

    def _check_transactional_commit(self, exchange: AnyExchange, response: object) -> None:
        found = self._commits.pop(exchange, None)
        if found is None or not isinstance(response, Told) or response.error is not ErrorCode.NONE:
            return
        driver, epoch = found
        ask: TransactionalCommitAsk = exchange.request
        is_there = self.groups.driver(self.world.nodes[exchange.target], ask.group_id) is driver
        if not is_there or ErrorCode.NONE not in response.result:
            return
        still = _epoch_of(driver, ask.group_id, ask.member_id) == ask.generation  # what could not be written was taken back
        older = epoch is not None and epoch > ask.generation and ask.group_id not in driver.shard.consumers.by_id
        if not still and (epoch is None or older):
            now = "it was no member" if epoch is None else f"it was in {epoch} already"
            self.fail(
                f"group {ask.group_id}: node {exchange.target} takes a commit in a transaction of {ask.member_id} in generation "
                f"{ask.generation}; when it came, {now}"
            )

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is transactions.COMMIT:
            self._check_transactional_commit(exchange, response)
            return
        arrived = self._arrived.pop(exchange, None)
        if arrived is None:
            return
        request = exchange.request
        at_us, driver, was = arrived
        if driver is None or self.groups.driver(self.world.nodes[exchange.target], _group(request)) is not driver:
            return
        if isinstance(request, CommitAsk):
            assert isinstance(response, Told)
            well = response.error is ErrorCode.NONE and ErrorCode.NONE in response.result
            self._check_gone(exchange, driver, at_us, request.base.member_id, well=well and request.base.generation >= 0)
            return
        assert isinstance(request, HeartbeatRequest | SyncRequest | ConsumerHeartbeatRequest)
        well = getattr(response, "error", None) in _WELL if exchange.method is HEARTBEAT else _is_none(response)
        if isinstance(request, ConsumerHeartbeatRequest):
            if well and _epoch_of(driver, request.group_id, request.member_id) is not None and request.member_epoch == 0:
                # It came before the member that it was is removed, and was looked at behind that.
                self._gone.get(driver, {}).pop((request.group_id, request.member_id), None)
            well = well and request.member_epoch > 0
            if well:
                self._leaving.pop((request.group_id, request.member_id), None)
        self._check_gone(exchange, driver, at_us, request.member_id, well=well)
        if isinstance(request, HeartbeatRequest | SyncRequest) and well and was is not None:
            now = _generation(driver, request.group_id)
            if request.generation not in (was, now):
                self.fail(
                    f"group {request.group_id}: {exchange.method} of {request.member_id} in generation {request.generation} is "
                    f"answered {response}; the group was in {was} when it came, and is in {now}"
                )

    def _on_join(self, exchange: AnyExchange) -> None:
        """A group of the consumer protocol takes a member of the classic one back under its old id: it does not remember to whom
        it gave which. By the time of the answer it may be a classic group, with this member."""
        request = exchange.request
        driver = self.groups.driver(self.world.nodes[exchange.target], request.group_id)
        if driver is not None and _generation(driver, request.group_id) is None:
            self._gone.get(driver, {}).pop((request.group_id, request.member_id), None)

    def _check_gone(self, exchange: AnyExchange, driver: GroupDriver, at_us: int, member_id: str, *, well: bool) -> None:
        group_id = _group(exchange.request)
        gone_us = self._gone.get(driver, {}).get((group_id, member_id))
        if well and gone_us is not None and gone_us < at_us and not _is_back(driver, group_id, member_id):
            self.fail(
                f"group {group_id}: node {exchange.target} serves {exchange.method} of {member_id}, which it removed or replaced "
                f"{(at_us - gone_us) // 1000} ms before"
            )


def _is_back(driver: GroupDriver, group_id: str, member_id: str) -> bool:
    """Return whether the log did not take who came in the place of this static member, so that it has its place again (CP-34)."""
    group = driver.shard.groups.by_id.get(group_id)
    return group is not None and member_id in group.static.values()


def _group(request: object) -> str:
    group_id = request.base.group_id if isinstance(request, CommitAsk) else request.group_id  # type: ignore[attr-defined]
    assert isinstance(group_id, str)
    return group_id


def _places(parts: Parts) -> dict[tuple[UUID, int], None]:
    return dict.fromkeys((topic_id, index) for topic_id, indexes in sorted(parts.items()) for index in sorted(indexes))


def _epoch_of(driver: GroupDriver, group_id: str, member_id: str) -> int | None:
    """The generation or member epoch of a member, as the coordinator has it; None for who is no member."""
    consumers = driver.shard.consumers.by_id.get(group_id)
    if consumers is not None:
        member = consumers.members.get(member_id)
        return None if member is None else member.epoch
    group = driver.shard.groups.by_id.get(group_id)
    return None if group is None or member_id not in group.members else group.generation


def _is_none(response: object) -> bool:
    return getattr(response, "error", None) is ErrorCode.NONE


def _generation(driver: GroupDriver | None, group_id: str) -> int | None:
    """The generation of a classic group that the coordinator has loaded."""
    if driver is None or not driver.loaded:
        return None
    group = driver.shard.groups.by_id.get(group_id)
    return None if group is None else group.generation
