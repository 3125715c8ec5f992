"""Guards: what a leader keeps of a transactional batch while the coordinator is asked whether its transaction is open.

A batch that begins a transaction in a partition is appended only behind an answer of the transaction coordinator. In between a
marker may end that transaction, and the next one may begin: the answer is then about a transaction that is over. So each
question leaves a guard in the partition's memory, the first batch and any marker of its producer take the guard away, and only
the guard that is still there lets a batch in.

Guards are never written to disk and end with the leadership in which they were made.

Source: KIP-890; TP-04, TP-05, TP-10, TP-11, TP-14.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.log.batch import BatchHeader
from kraftlite.model.errors import ApiError, ErrorCode

MAX_GUARDS: Final = 10_000
"""Guards of one partition. Beyond it the oldest is dropped, and the batch that it was made for must ask anew."""


class Guard:
    """One producer's question, of one epoch; shared by all its batches that wait. It is valid while it is the remembered one.

    `adds`: the question adds the partition to the transaction (transaction.version 2), so that each transaction has an epoch of
    its own. `lowest_sequence`: the smallest first sequence that was seen waiting.
    """

    __slots__ = ("adds", "created_ms", "leader_epoch", "lowest_sequence", "producer_epoch")

    def __init__(self, leader_epoch: int, producer_epoch: int, lowest_sequence: int, created_ms: int, *, adds: bool) -> None:
        self.leader_epoch = leader_epoch
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.created_ms = created_ms
        self.adds = adds


class TransactionTerms(NamedTuple):
    """The terms of an append that belongs to a transaction. A batch: its transaction is open in the partition, or `guard` is the
    current one. A marker: its epoch is checked by the rules of `version`, the transaction.version of its transaction (TP-22).
    `refusal`: the coordinator's answer, when it did not take the batch."""

    guard: Guard | None = None
    version: int = 0
    refusal: ApiError | None = None


class Guards:
    """The guards of one partition, one for each producer at most."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Guard] = {}

    def begin(self, header: BatchHeader, leader_epoch: int, wall_ms: int, *, adds: bool) -> Guard:
        """The guard for a batch of this producer and epoch, made when it is not there. A newer epoch takes the place of an older
        one's guard; an older one is refused with INVALID_PRODUCER_EPOCH."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        guard = self.by_producer.get(producer_id)
        if guard is not None and guard.producer_epoch == epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            return guard
        if guard is not None and guard.producer_epoch > epoch:
            raise _fenced(header, guard)
        self.by_producer.pop(producer_id, None)
        if len(self.by_producer) >= MAX_GUARDS:
            del self.by_producer[next(iter(self.by_producer))]
        guard = self.by_producer[producer_id] = Guard(leader_epoch, epoch, sequence, wall_ms, adds=adds)
        return guard

    def check(self, header: BatchHeader, guard: Guard | None, leader_epoch: int) -> None:
        """Let a batch in whose transaction is not open here only by the current guard. INVALID_PRODUCER_EPOCH when a newer epoch
        has asked since, NOT_LEADER_OR_FOLLOWER when it was asked under an earlier leadership (which producers try again), else
        INVALID_TXN_STATE (TP-04, TP-06)."""
        current = self.by_producer.get(header.producer_id)
        if current is not None and current is guard:
            return
        if guard is not None and guard.leader_epoch != leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"leader epoch {leader_epoch} began while the coordinator was asked")
        if current is not None and current.producer_epoch > header.producer_epoch:
            raise _fenced(header, current)
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} with epoch {header.producer_epoch} has no open transaction in this partition",
        )

    def check_leadership(self, leader_epoch: int) -> None:
        """Raise AssertionError when a guard was made under another leadership than that of now."""
        other = next((it for it in self.by_producer.items() if it[1].leader_epoch != leader_epoch), None)
        assert other is None, f"producer {other[0]} has a guard of leader epoch {other[1].leader_epoch}, now is {leader_epoch}"

    def check_sequence(self, header: BatchHeader, *, known: bool) -> None:
        """Refuse a batch that would hide one with a lower sequence: OUT_OF_ORDER_SEQUENCE_NUMBER (TP-10, TP-11).

        `known`: the partition knows batches of this producer.
        """
        guard = self.by_producer.get(header.producer_id)
        if guard is None or guard.producer_epoch != header.producer_epoch:
            return
        lowest = 0 if guard.adds and not known else guard.lowest_sequence
        if header.base_sequence > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {header.base_sequence}, expected at most {lowest}:"
                " its transaction has not begun in this partition",
            )

    def forget(self, producer_id: int) -> None:
        """A batch of this producer's transaction was appended."""
        self.by_producer.pop(producer_id, None)

    def end(self, producer_id: int, producer_epoch: int) -> None:
        """A marker was appended. With transaction.version 2 it carries the epoch of the *next* transaction: a guard of that epoch
        belongs to the next one and stays."""
        guard = self.by_producer.get(producer_id)
        if guard is not None and not (guard.adds and guard.producer_epoch == producer_epoch):
            del self.by_producer[producer_id]

    def drop(self, producer_id: int, guard: Guard) -> None:
        """The question was answered with a refusal that no retry will change."""
        if self.by_producer.get(producer_id) is guard:
            del self.by_producer[producer_id]

    def remove_expired(self, wall_ms: int, expiration_ms: int) -> None:
        """Forget guards whose batch never came back (TP-14)."""
        for producer_id in [it for it, guard in self.by_producer.items() if wall_ms - guard.created_ms >= expiration_ms]:
            del self.by_producer[producer_id]

    def clear(self) -> None:
        self.by_producer.clear()


def _fenced(header: BatchHeader, newer: Guard) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} has epoch {header.producer_epoch}, a transaction of epoch {newer.producer_epoch} is about"
        " to begin",
    )
