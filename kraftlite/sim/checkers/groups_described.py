"""DescribeGroups, ConsumerGroupDescribe and ListGroups tell the groups that a broker coordinates as their members know them
(CP-40, CP-41)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kraftlite.coordinator.api import (
    ConsumerGroupDescription,
    ConsumerHeartbeatResult,
    GroupDescription,
    GroupOverview,
    SyncResult,
)
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.metadata.image import TopicsImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.group_log import coordination
from kraftlite.sim.services.groups import BEAT, DESCRIBE, LIST, SYNC, DescribeAsk, Told
from kraftlite.simhost.network import AnyExchange

_DEAD = "Dead"


class _Known(NamedTuple):
    """A group as its broker has it: what its state is, its generation or epoch, and the same of each member."""

    driver: GroupDriver
    type: str
    protocol_type: str
    state: str
    epoch: int
    members: Mapping[str, tuple[str | None, int]]
    """Instance id and member epoch."""


class _Given(NamedTuple):
    """The partitions that a member of the consumer protocol was told last."""

    driver: GroupDriver | None
    epoch: int
    parts: frozenset[tuple[UUID, int]]


class GroupsDescribed(Checker):
    """A group that has not changed from the question to the answer is told with its state and its members, and each list has it
    once. The assignment of a member of a stable classic group is what its last SyncGroup of this generation gave it; that of a
    member of the consumer protocol has all that its last heartbeat of this epoch gave it."""

    only_methods = (SYNC, BEAT, DESCRIBE, LIST)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before: dict[AnyExchange, dict[str, _Known]] = {}
        self._synced: dict[tuple[str, str], tuple[int, bytes]] = {}
        """By group and member: the generation of its last SyncGroup, and the assignment that it gave."""
        self._given: dict[tuple[str, str], _Given] = {}
        """By group and member: what it was told last, while it does not ask again."""
        self._held: dict[AnyExchange, _Given | None] = {}
        """The same of who asks."""
        self.judged = {"classic": 0, "consumer": 0, "listed": 0, "assignments": 0}

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method in (DESCRIBE, LIST):
            self._before.setdefault(exchange, self._groups(exchange.target))
        elif exchange.method is BEAT:
            request = exchange.request
            self._held[exchange] = self._given.pop((request.group_id, request.member_id), None)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        if exchange.method is SYNC:
            assert isinstance(response, SyncResult)
            driver = coordination(self.world.nodes[exchange.target], request.group_id)
            classic = driver is not None and request.group_id in driver.shard.groups.by_id
            if response.error is ErrorCode.NONE and classic:
                self._synced[request.group_id, request.member_id] = request.generation, response.assignment
            return
        if exchange.method is BEAT:
            assert isinstance(response, Told)
            held = self._held.pop(exchange, None)
            if response.error is ErrorCode.NONE:
                self._note_beat(exchange, response.result, held)
            return
        before = self._before.pop(exchange, None)
        if before is None or not isinstance(response, Told) or response.error is not ErrorCode.NONE:
            return
        now = self._groups(exchange.target)
        same = {name: it for name, it in now.items() if before.get(name) == it and it.state != _DEAD}
        where = f"node {exchange.target} answers {request}"
        if exchange.method is LIST:
            self._judge_list(where, response.result, before.keys() | now.keys(), same)
        elif (known := same.get(request.group_id)) is not None:
            self._judge(where, exchange, known, response.result)

    def _note_beat(self, exchange: AnyExchange, result: ConsumerHeartbeatResult, held: _Given | None) -> None:
        group = exchange.request.group_id
        if result.assignment is not None:
            parts = frozenset((topic_id, index) for topic_id, indexes in result.assignment for index in indexes)
            held = _Given(coordination(self.world.nodes[exchange.target], group), result.member_epoch, parts)
        if held is not None and held.epoch == result.member_epoch:
            self._given[group, result.member_id] = held

    def _groups(self, node_id: NodeId) -> dict[str, _Known]:
        node = self.world.nodes[node_id].node
        found: dict[str, _Known] = {}
        if node is None or node.broker is None:
            return found
        for driver in node.broker.groups.led.drivers():
            if not driver.loaded:
                continue
            for name, classic in driver.shard.groups.by_id.items():
                members = {it.member_id: (it.instance_id, classic.generation) for it in classic.members.values()}
                kind = classic.protocol_type or ""
                found[name] = _Known(driver, "classic", kind, classic.state.value, classic.generation, members)
            for name, group in driver.shard.consumers.by_id.items():
                members = {it.member_id: (it.instance_id, it.epoch) for it in group.members.values()}
                state = _DEAD if group.dead else group.state.value
                found[name] = _Known(driver, "consumer", "consumer", state, group.epoch, members)
        return found

    def _judge_list(self, where: str, told: tuple[GroupOverview, ...], known: Any, same: Mapping[str, _Known]) -> None:
        self.judged["listed"] += 1
        names = [it.group_id for it in told]
        if len(set(names)) < len(names) or not set(names) <= set(known):
            self.fail(f"{where} with {names}; it coordinates {sorted(known)}")
        lines = {it.group_id: (it.group_type, it.protocol_type, it.state) for it in told}
        for name, it in same.items():
            if lines.get(name) != (it.type, it.protocol_type, it.state):
                self.fail(f"{where} with {lines.get(name)} of group {name}, which is {(it.type, it.protocol_type, it.state)}")

    def _judge(self, where: str, exchange: AnyExchange, known: _Known, told: Any) -> None:
        ask: DescribeAsk = exchange.request
        if told is None or known.type != ("consumer" if ask.consumer else "classic"):
            self.fail(f"{where} with {told}; it is a group of type {known.type}")
        self.judged[known.type] += 1
        if told.state != known.state:
            self.fail(f"{where} with the state {told.state}; it is {known.state}")
        members = {it.member_id: it.instance_id for it in told.members}
        if members != {name: it[0] for name, it in known.members.items()} or len(members) < len(told.members):
            self.fail(f"{where} with the members {members}; there are {dict(known.members)}")
        if isinstance(told, GroupDescription):
            self._judge_classic(where, ask.group_id, known, told)
        else:
            node = self.world.nodes[exchange.target].node
            assert node is not None and node.broker is not None
            self._judge_consumers(where, ask.group_id, known, told, node.broker.cache.image.topics)

    def _judge_classic(self, where: str, group: str, known: _Known, told: GroupDescription) -> None:
        if told.protocol_type != known.protocol_type:
            self.fail(f"{where} with the protocol type {told.protocol_type}; it is {known.protocol_type}")
        settled = known.state == "Stable" and known.driver.tp not in self.world.losses.excused  # else generations come again
        for it in told.members if settled else ():
            generation, given = self._synced.get((group, it.member_id), (-1, b""))
            if generation == known.epoch:
                self.judged["assignments"] += 1
                if it.assignment != given:
                    self.fail(f"{where} with {it.assignment!r} for {it.member_id}, which got {given!r} in {generation}")

    def _judge_consumers(
        self, where: str, group: str, known: _Known, told: ConsumerGroupDescription, topics: TopicsImage
    ) -> None:
        if told.epoch != known.epoch:
            self.fail(f"{where} with epoch {told.epoch}; it is {known.epoch}")
        for it in told.members:
            if it.member_epoch != known.members[it.member_id][1]:
                self.fail(f"{where} with epoch {it.member_epoch} of {it.member_id}; it is {known.members[it.member_id][1]}")
            given = self._given.get((group, it.member_id))
            if given is None or given.epoch != it.member_epoch or given.driver is not known.driver:
                continue
            self.judged["assignments"] += 1
            has = {(topic.topic_id, index) for topic in it.assignment for index in topic.partitions}
            lacking = [(str(one), index) for one, index in given.parts - has if topics.topic_by_id(one) is not None]
            if lacking:
                self.fail(f"{where} without {sorted(lacking)} of {it.member_id}, which got them in epoch {given.epoch}")
