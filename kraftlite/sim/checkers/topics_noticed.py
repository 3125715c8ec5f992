"""A consumer group notices that topics which it subscribes to come, go and grow (KIP-848)."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.model.errors import ErrorCode
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.group_log import coordination
from kraftlite.sim.services.groups import BEAT, Told
from kraftlite.simhost.network import AnyExchange

_SLACK_US: Final = 2_000_000
"""The groups are gone through in steps when topics have changed."""


class _Missed(NamedTuple):
    """Topics by whose hash a group does not go yet, and since when it might."""

    driver: GroupDriver
    wanted: int
    since_us: int


class TopicsNoticed(Checker):
    """The first heartbeat of a member after its coordinator has seen a change of the group's topics begins another epoch of the
    group, whose hash is that of the topics."""

    only_methods = (BEAT,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._missed: dict[str, _Missed] = {}
        self.judged = 0

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is not BEAT:
            return
        assert isinstance(response, Told)
        node, name = self.world.nodes[exchange.target], exchange.request.group_id
        if response.error is not ErrorCode.NONE or node.node is None:
            return
        driver, missed = coordination(node, name), self._missed.pop(name, None)
        group = None if driver is None else driver.shard.consumers.by_id.get(name)
        if driver is None or group is None:
            return
        wanted, now_us = group.hash_of(driver.shard.consumers.cluster.topics), self.world.cluster.loop.now_us()
        self.judged += 1
        if wanted == group.metadata_hash or not group.members:
            return
        if missed is None or missed[:2] != (driver, wanted):
            missed = _Missed(driver, wanted, now_us)
        elif now_us - missed.since_us > _SLACK_US:
            self.fail(
                f"node {exchange.target} answers a heartbeat of group {name}, whose topics changed {now_us - missed.since_us} us "
                f"ago or earlier, and which is in epoch {group.epoch} still"
            )
        self._missed[name] = missed
