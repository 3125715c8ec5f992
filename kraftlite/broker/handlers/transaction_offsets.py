"""Offsets that count when their transaction does. Source: TG-01 to TG-03; KIP-98, KIP-447, KIP-890."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.coordinators import group_coordinator
from kraftlite.broker.handlers.group_offsets import COMMITTED_AT_ONCE
from kraftlite.coordinator.api import CommitRequest, OffsetToCommit
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.enrol_driver import Identity

_TOLD: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""The codes that clients are told for answers of the transaction's coordinator: those that they know, and try again behind."""


class TransactionOfOffsets(NamedTuple):
    """The transaction that offsets are committed in. `version`: the transaction.version that the client's request shows; from 2
    on the commit adds the partition of the group. `knows_abortable`: the client understands TRANSACTION_ABORTABLE."""

    identity: Identity
    version: int
    knows_abortable: bool


async def commit_in_transaction(
    ctx: BrokerContext, base: CommitRequest, transaction: TransactionOfOffsets, offsets: Sequence[OffsetToCommit]
) -> list[ErrorCode]:
    """`base` without its offsets; one error per offset, in order. A refusal as a whole is everybody's error, but for partitions
    that do not exist (TG-01)."""
    unknown: list[bool] = []
    known: list[OffsetToCommit] = []
    async for offset in ctx.turns.each(offsets):
        unknown.append(ctx.metadata.partition(offset.tp.topic, offset.tp.partition) is None)
        if not unknown[-1]:
            known.append(offset)

    async def enrol(tp: TopicPartition) -> TransactionTerms | None:
        try:
            return await ctx.replicas.enroller.enrol(transaction.identity, tp, version=transaction.version)
        except ApiError as error:
            raise _told(error, transaction) from error

    found: list[ErrorCode] = []
    async for first in ctx.turns.each(range(0, len(known), COMMITTED_AT_ONCE)):
        part = tuple(known[first : first + COMMITTED_AT_ONCE])
        try:
            found += await group_coordinator(ctx).commit_in_transaction(replace(base, offsets=part), enrol)
        except ApiError as error:
            found += [error.code] * len(part)
    answers = iter(found)
    return [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else next(answers) for missing in unknown]


def _told(error: ApiError, transaction: TransactionOfOffsets) -> ApiError:
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and not transaction.knows_abortable:
        return ApiError(ErrorCode.INVALID_TXN_STATE, error.message)
    return ApiError(_TOLD.get(error.code, error.code), error.message)
