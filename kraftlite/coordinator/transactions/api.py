"""The answers of the transaction coordinator to those who look: KIP-664, KIP-994, KIP-1152; TA-01, TA-02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id. `start_ms` -1: nothing is open. While an outcome is being carried out, `partitions` are those in
    which it is not written yet."""

    transactional_id: str
    state: TransactionState
    timeout_ms: int
    start_ms: int
    producer: Producer
    partitions: frozenset[TopicPartition]


class TransactionOverview(NamedTuple):
    """One transactional id, as a list shows it."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """`unknown_states`: the names that were asked for and are no states, in the order given."""

    transactions: tuple[TransactionOverview, ...]
    unknown_states: tuple[str, ...] = ()
