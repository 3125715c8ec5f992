"""A consumer group notices that topics which it subscribes to come, go and grow, and shares out all of them (KIP-848)."""

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


class TopicsShared(Checker):
    """A target assignment shares out each partition of every topic to which a member of the group subscribes, and no other."""

    only_methods = (BEAT,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[str, tuple[GroupDriver, int]] = {}
        """Per group the target epoch that was seen last: only one that a coordination has made since then is judged. Another
        coordinator may have known more topics."""
        self.judged = 0

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is not BEAT:
            return
        node, name = self.world.nodes[exchange.target], exchange.request.group_id
        driver = coordination(node, name)
        group = None if driver is None else driver.shard.consumers.by_id.get(name)
        if driver is None or group is None:
            return
        seen, self._seen[name] = self._seen.get(name), (driver, group.target_epoch)
        topics = driver.shard.consumers.cluster.topics
        if seen is None or seen[0] is not driver or seen[1] == group.target_epoch or group.target_epoch != group.epoch:
            return
        if group.hash_of(topics) != group.metadata_hash:
            return  # they have changed since
        self.judged += 1
        known = (topics.topic(it) for it in group.subscribed_topics())
        wanted = {(it.topic_id, index) for it in known if it is not None for index in range(len(it.partitions))}
        shared = {(topic_id, index) for of in group.target.values() for topic_id, indexes in of.items() for index in indexes}
        if shared != wanted:
            self.fail(
                f"node {exchange.target} has a target assignment of group {name}, epoch {group.epoch}, in which nobody has "
                f"{sorted(wanted - shared)[:5]} and somebody {sorted(shared - wanted)[:5]}, which the group does not want"
            )
