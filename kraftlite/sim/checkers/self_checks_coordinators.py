"""The invariants that the shards of coordinators assert of themselves, asked for when one has answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from kraftlite.coordinator.classic.group import GroupState
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.shard_core import GroupShard
from kraftlite.model.method import AnyMethod
from kraftlite.sim.checkers.group_log import GroupChecker
from kraftlite.sim.services import groups, transactions
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_OF_GROUPS = (groups.JOIN, groups.SYNC, groups.HEARTBEAT, groups.LEAVE, groups.BEAT, groups.DELETE)
_OF_IDS = (transactions.INIT, transactions.ADD, transactions.END)


class SelfCheckCoordinators(GroupChecker):
    """`check` of every shard that is loaded, when its broker has answered a member or a transactional producer, and at the end.
    The assignments of groups of the consumer protocol are looked at unless their log has lost something. A shard of groups with
    no write under way that anybody waits for owes an answer only to members who wait for others, or for their assignment; and the
    join of a group that was not empty ends when everybody is there whom it waits for (CP-28)."""

    only_methods: ClassVar[tuple[AnyMethod, ...] | None] = (*_OF_GROUPS, *_OF_IDS)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        node = self.world.nodes[exchange.target]
        for driver in self._groups(node) if exchange.method in _OF_GROUPS else self._ids(node):
            self._ask(node, driver)

    def at_end(self) -> None:
        for node in self.world.cluster.brokers:
            for driver in (*self._groups(node), *self._ids(node)):
                self._ask(node, driver)

    def _groups(self, node: SimHost) -> Iterator[ShardDriver[Any]]:
        broker = None if node.node is None else node.node.broker
        yield from () if broker is None else broker.groups.led.drivers()

    def _ids(self, node: SimHost) -> Iterator[ShardDriver[Any]]:
        broker = None if node.node is None else node.node.broker
        yield from () if broker is None else broker.transactions.led.drivers()

    def _ask(self, node: SimHost, driver: ShardDriver[Any]) -> None:
        if not driver.loaded:
            return
        try:
            if driver.tp.topic == OFFSETS_TOPIC:
                log = self.groups.logs.get(driver.tp)
                driver.shard.check(assignments=log is not None and not self.groups.is_lost(log))
                _check_debts(driver)
                _check_joins(driver)
            else:
                driver.shard.check()
        except AssertionError as error:
            self.fail(f"the coordinator of {driver.tp} on node {node.node_id}: {error}")


def _check_debts(driver: ShardDriver[GroupShard]) -> None:
    shard = driver.shard
    if driver._events or driver._stepping or shard._effects._tell:
        return
    members = [member for group in shard.groups.by_id.values() for member in group.members.values()]
    owed = {request_id for member in members for request_id in (member.waiting_join, member.waiting_sync)}
    left = [request_id for request_id, answer in driver._waiting.items() if not answer.done() and request_id not in owed]
    assert not left, f"request {left[0]} has no answer, and nothing is under way that could give it one"


def _check_joins(driver: ShardDriver[GroupShard]) -> None:
    if driver._events or driver._stepping:
        return
    for group in driver.shard.groups.by_id.values():
        waits = group.first_round or group.state is not GroupState.PREPARING_REBALANCE
        assert waits or not group.all_joined, f"group {group.group_id} goes on waiting, and {list(group.members)} have all joined"
