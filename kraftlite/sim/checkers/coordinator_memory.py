"""The memory of the coordinator of transactions that is asked."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.transactions.states import Transaction
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.simhost.network import AnyExchange


@dataclass(frozen=True, slots=True)
class Remembered:
    """The state of a transactional id in the memory of a coordinator at one moment."""

    driver: object
    state: Transaction


def remembered(
    checker: ReplicaChecker, exchange: AnyExchange, transactional_id: str, *, settled: bool = False
) -> Remembered | None:
    """The id of a question in the memory of the coordinator that is asked. None: it has none or, where it must be `settled`,
    something is under way."""
    node = checker.world.nodes[exchange.target].node
    broker = None if node is None else node.broker
    topic = checker.facts.metadata.history.latest.topic_named(TRANSACTION_TOPIC)
    if broker is None or topic is None:
        return None
    driver = broker.transactions.led.get(partition_for(transactional_id, len(topic[1].partitions)))
    entry = None if driver is None or not driver.loaded else driver.shard.by_id.get(transactional_id)
    if entry is None or (settled and entry.pending is not None):
        return None
    return Remembered(driver, entry.current)
