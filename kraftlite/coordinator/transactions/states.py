"""The states of a transactional id, and which state may come after which. Source: TX-04, TX-05; KIP-98, KIP-890."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kraftlite.model.topic_partition import TopicPartition

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
"""The same one for all ids: each `frozenset()` is another of 216 bytes."""
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32766
"""The highest epoch that a client is ever given; the one above it is kept for fencing (TX-17)."""
FENCING_EPOCH: Final = 32767
NEVER_MS: Final = -1
TWO_PHASE_TIMEOUT_MS: Final = 2_147_483_647
"""The timeout of a transaction that is never aborted by time (KIP-939)."""


class TransactionState(IntEnum):
    """The states by the number that Kafka's records have for them. DEAD and PREPARE_EPOCH_FENCE are in memory only."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name in Kafka's tools."""
        return _TITLES[self]


_S = TransactionState
_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""Nothing is open: the id may begin, be taken over, or expire."""
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided, and markers are on their way."""
LOGGED: Final = IDLE | PREPARED | {_S.ONGOING}

PREDECESSORS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states that each state may follow. PREPARE_ABORT follows an idle state only at transaction.version 2, where a producer that
does not know whether anything began aborts (TX-44)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transactional id as of one record of `__transaction_state`; `last_epoch` is in memory only (TX-16).

    Times are milliseconds of the wall clock, -1: never. `version` is the `transaction.version` that the client of the transaction
    has shown. `previous_producer_id` and `next_producer_id` span the change to another id at the end of the epochs (TX-45)."""

    producer_id: int
    producer_epoch: int
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NEVER_MS
    updated_ms: int
    version: int = 0

    @property
    def exhausted(self) -> bool:
        """True when the epochs of the producer id are used up."""
        return self.producer_epoch >= LAST_EPOCH

    def may_follow(self, before: Transaction) -> bool:
        return before.state in PREDECESSORS[self.state]


_SLOTS: Final = tuple((name, vars(Transaction)[name].__get__, vars(Transaction)[name].__set__) for name in Transaction.__slots__)


def replace(before: Transaction, **changes: Any) -> Transaction:
    """`dataclasses.replace`, in less than half of its time: every step of a transaction makes one."""
    made = Transaction.__new__(Transaction)
    for name, get, put in _SLOTS:
        put(made, changes.pop(name) if name in changes else get(before))
    assert not changes, f"a transaction has no {', '.join(changes)}"
    return made
