"""Invariant 68: the memory of a transaction coordinator is what a replay of its partition would give (TX-06 to TX-09, TX-60)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.transactions.rules import Entry
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import NO_EPOCH, NO_PRODUCER_ID, Transaction
from kraftlite.metadata.features import TRANSACTION_VERSION
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.transaction import TransactionsLoaded
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.transaction_log import StateRecord, TransactionChecker
from kraftlite.simhost.host import SimHost

Driver = ShardDriver[TransactionShard]
TAGGED_FROM: Final = 1
"""The `transaction.version` of the cluster from which a record has all fields (TX-03)."""


class CoordinatorMemory(TransactionChecker):
    """In one leader epoch of a partition of `__transaction_state` one node coordinates. Whenever such a node leads by the
    controller's last word, has loaded, and has nothing under way, it has of each id of the partition every field that the
    committed log has, and no other id. Only an id whose first record was never written is in memory alone (TX-11), and only a
    fence that could not be written has used an epoch up that the log does not know (TX-19). It owes nobody an answer then but
    those who wait for a step of their id that is under way: its markers, which others write (TX-30)."""

    numbers: ClassVar[tuple[int, ...]] = (68,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._led: dict[tuple[TopicPartition, int], NodeId] = {}
        self._changed: dict[TopicPartition, None] = {}
        """The partitions that have something new, committed or loaded, since they were compared."""
        self._untagged = False
        """Some records may have been written without the fields of later versions."""
        self.compared = 0

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is TransactionsLoaded:
            other = self._led.setdefault((event.tp, event.leader_epoch), node.node_id)
            if other != node.node_id:
                self.fail(f"{event.tp}: nodes {other} and {node.node_id} coordinate in leader epoch {event.leader_epoch}")
            self._changed[event.tp] = None

    def on_state(self, record: StateRecord) -> None:
        self._changed[record.tp] = None

    def on_step(self, node: SimHost) -> None:
        if not self._changed:
            return
        for driver in self._drivers(node):
            if driver.tp in self._changed and self._is_idle(node, driver):
                del self._changed[driver.tp]
                self._compare(node, driver)

    def at_end(self) -> None:
        for node in self.world.cluster.brokers:
            for driver in self._drivers(node):
                if self._is_idle(node, driver):
                    self._compare(node, driver)

    def _drivers(self, node: SimHost) -> Iterator[Driver]:
        broker = None if node.node is None else node.node.broker
        yield from () if broker is None else broker.transactions.led.drivers()

    def _is_idle(self, node: SimHost, driver: Driver) -> bool:
        """Return whether the coordinator that counts has nothing to write, and has heard of all that is written."""
        facts = self.transactions
        if facts.unjudged or not driver.loaded:
            return False
        key = facts.key_of(driver.tp)
        registration = None if key is None else facts.replicas.registration(key)
        if key is None or registration is None:
            return False
        if (registration.leader, registration.leader_epoch) != (node.node_id, driver.leader_epoch):
            return False
        view = facts.replicas.view(node.node_id, driver.tp)
        if view is None or view.log is None or view.log.leo != view.log.hw or facts.ends.get(key, 0) != view.log.hw:
            return False
        shard = driver.shard
        return not (shard._effects._then or shard.written_again or driver._events)

    def _compare(self, node: SimHost, driver: Driver) -> None:
        self.compared += 1
        facts, shard = self.transactions, driver.shard
        latest = facts.replicas.metadata.history.latest
        self._untagged = self._untagged or latest.features.get(TRANSACTION_VERSION, 0) < TAGGED_FROM
        topic = latest.topic_named(TRANSACTION_TOPIC)
        count = 1 if topic is None else len(topic[1].partitions)
        wanted = {name: it for name, it in facts.states.items() if partition_for(name, count) == driver.tp.partition}
        where = f"{driver.tp} on node {node.node_id}, in leader epoch {driver.leader_epoch}"
        for name in dict.fromkeys((*wanted, *shard.by_id)):
            entry, stored = shard.by_id.get(name), wanted.get(name)
            if entry is None or stored is None:
                if entry is None or entry.current.producer_epoch != NO_EPOCH:
                    self.fail(f"{where}: {name} is {None if entry is None else entry.current}, committed is {stored}")
            elif self._logged(entry.current, entry, stored) != self._logged(stored, entry, stored):
                self.fail(f"{where}: {name} is {entry.current}, committed is {stored}")

        self._check_debts(where, driver)

    def _check_debts(self, where: str, driver: Driver) -> None:
        shard = driver.shard
        held = {it.request_id: name for name, waiting in shard._held._held.items() for it in waiting}
        for name in held.values():
            entry = shard.by_id.get(name)
            if entry is None or entry.pending is None:
                self.fail(f"{where}: a request of {name} is held, and nothing is under way for it")
        for request_id, answer in driver._waiting.items():
            if not answer.done() and request_id not in held:
                self.fail(f"{where}: request {request_id} has no answer, and nothing is under way")

    def _logged(self, it: Transaction, entry: Entry, stored: Transaction) -> Transaction:
        """The fields that a record has."""
        found = replace(it, last_epoch=NO_EPOCH)
        if entry.fence_failed:
            found = replace(found, producer_epoch=stored.producer_epoch)
        if self._untagged:
            found = replace(found, previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, version=0)
        return found
