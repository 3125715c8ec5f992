"""Invariant 73: a coordinator aborts what is open for longer than its producer allowed (TX-12, TX-62)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.transactions.rules import Entry
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.producer import Producer
from kraftlite.replication.partition import Partition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.coordinator_memory import Remembered, remembered
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import INIT
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

Driver = ShardDriver[TransactionShard]
_LOOK_US: Final = 200_000
_GAP_US: Final = 600_000
"""A node of which nothing ran for so long was paused, or had nothing to do but to wait for its next look at the times."""
_SLACK_US: Final = 500_000
_WITHOUT_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a producer that takes part in commits of two phases: its transactions stay open."""


class TransactionTimeouts(Checker):
    """While a coordinator runs, and its log takes writes, no transaction of it is open and overdue, with nothing under way, for
    longer than its looks at the times are apart."""

    numbers: ClassVar[tuple[int, ...]] = (73,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._now_us = world.cluster.loop.now_us
        self._looked_us: dict[NodeId, int] = {}
        self._overdue_us: dict[tuple[Driver, str, int], int] = {}
        """By coordination, id and start of the transaction, since when it is known to be overdue."""

    def on_step(self, node: SimHost) -> None:
        now_us = self._now_us()
        since_us = now_us - self._looked_us.get(node.node_id, 0)
        if since_us < _LOOK_US:
            return
        self._looked_us[node.node_id] = now_us
        broker = None if node.node is None else node.node.broker
        if broker is None or node.now is None:
            return
        wall_ms, ids = node.now.clock.wall_ms(), broker.producer_ids
        short_of_ids = ids._next >= ids._end and ids._following is None
        for driver in broker.transactions.led.drivers():
            if driver.loaded:
                partition = broker.replicas.partition(driver.tp)
                afresh = since_us > _GAP_US or partition is None or not _takes_writes(partition, driver)
                self.look(node, driver, now_us, wall_ms, afresh=afresh, short_of_ids=short_of_ids)

    def look(self, node: SimHost, driver: Driver, now_us: int, wall_ms: int, *, afresh: bool, short_of_ids: bool = False) -> None:
        """`afresh`: what was known of it counts no more. `short_of_ids`: an id whose epochs are used up has to wait for another
        one, of which the broker has none and the controllers may give none (TX-17)."""
        shard = driver.shard
        limit_us = node.longest_us(shard._config.timeouts_interval_ms) + _SLACK_US
        for name in list(shard._open):
            entry = shard.by_id[name]
            key = (driver, name, entry.current.start_ms)
            if afresh or (short_of_ids and entry.current.exhausted) or not _is_overdue(entry, wall_ms):
                self._overdue_us.pop(key, None)
                continue
            late_us = now_us - self._overdue_us.setdefault(key, now_us)
            if late_us > limit_us:
                self.fail(
                    f"{driver.tp}: node {node.node_id} leaves the transaction of {name} open, which was to end "
                    f"{wall_ms - entry.current.start_ms - entry.current.timeout_ms} ms ago: {entry.current}"
                )


class TimeoutsAsked(ReplicaChecker):
    """An instance that begins has the timeout that it has asked for, and not that of the instance before it (TX-12)."""

    numbers: ClassVar[tuple[int, ...]] = (73,)
    only_methods = (INIT,)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is not INIT:
            return
        assert isinstance(response, Told)
        ask = exchange.request
        found = self._in_memory(exchange)
        state = None if found is None or response.error is not ErrorCode.NONE else found.state
        if state is None or state.state is not TransactionState.EMPTY:
            return
        if Producer(state.producer_id, state.producer_epoch) == response.result and state.timeout_ms != ask.timeout_ms:
            self.fail(
                f"node {exchange.target} gives {ask.transactional_id} a timeout of {state.timeout_ms} ms, and is asked for "
                f"{ask.timeout_ms} ms"
            )

    def _in_memory(self, exchange: AnyExchange) -> Remembered | None:
        return remembered(self, exchange, exchange.request.transactional_id, settled=True)


def _is_overdue(entry: Entry, wall_ms: int) -> bool:
    """Return whether it is open, nothing is under way for it, and it began longer ago than its timeout. This is said once more
    here, because the coordinator's own rule is what is checked."""
    current = entry.current
    if current.state is not TransactionState.ONGOING or entry.pending is not None or current.timeout_ms == _WITHOUT_TIMEOUT_MS:
        return False
    return wall_ms - current.start_ms > current.timeout_ms


def _takes_writes(partition: Partition, driver: Driver) -> bool:
    leader = partition.leader
    if leader is None or partition.leader_epoch != driver.leader_epoch:
        return False
    return len(leader.isr.committed) >= partition.min_isr and leader.isr.pending is None
