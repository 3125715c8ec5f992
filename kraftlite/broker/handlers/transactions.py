"""Transactions: what the metadata refuses, and the rest from the coordinator of the transactional id.

Source: TX-30 to TX-40, TP-26, TA-01, TA-02; KIP-98, KIP-664, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext, Transactions
from kraftlite.broker.handlers.coordinators import offsets_partition
from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.api import TransactionDescription, TransactionListing
from kraftlite.coordinator.transactions.states import NO_EPOCH, NO_PRODUCER_ID
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry

MARKERS_AT_ONCE: Final = 500
LOOKED_UP_AT_ONCE: Final = 50
OFFSETS_VERSION: Final = 0
"""The `transaction.version` of AddOffsetsToTxn, in all its versions (TX-35)."""


def coordinator_of(ctx: BrokerContext, transactional_id: str) -> Transactions:
    """This broker's coordinator, for an id. ApiError: INVALID_REQUEST for the empty id; NOT_COORDINATOR while there is no topic
    to coordinate by."""
    assert ctx.transactions is not None, "an API of transactions without a coordinator"
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if ctx.metadata.topic(TRANSACTION_TOPIC) is None:
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"{TRANSACTION_TOPIC} does not exist yet")
    return ctx.transactions


async def add_partitions(
    ctx: BrokerContext,
    transactional_id: str,
    producer: Producer,
    partitions: Sequence[TopicPartition],
    *,
    version: int,
    from_client: bool,
    verify_only: bool = False,
) -> Mapping[TopicPartition, ErrorCode]:
    """Add partitions to a transaction, or, with `verify_only`, find out whether they are in it (TX-30, TX-31, TX-34).

    Where one of them does not exist, or is of an internal topic and it is a client that asks, none is added: the others are
    OPERATION_NOT_ATTEMPTED. A refusal of the transaction is the error of all.
    """
    refused: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, ErrorCode] = {}
    for place, tp in enumerate(partitions):
        if place % LOOKED_UP_AT_ONCE == LOOKED_UP_AT_ONCE - 1:
            await ctx.turns.next()
        wanted[tp] = ErrorCode.OPERATION_NOT_ATTEMPTED
        if from_client and tp.topic in INTERNAL_TOPICS:
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif ctx.metadata.partition(tp.topic, tp.partition) is None:
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        return wanted | refused
    try:
        coordinator = coordinator_of(ctx, transactional_id)
        if verify_only:
            return await coordinator.verify_partitions(transactional_id, producer, frozenset(wanted))
        await coordinator.add_partitions(transactional_id, producer, frozenset(wanted), version=version)
    except ApiError as error:
        return dict.fromkeys(wanted, error.code)
    return dict.fromkeys(wanted, ErrorCode.NONE)


async def add_offsets(ctx: BrokerContext, transactional_id: str, producer: Producer, group_id: str) -> None:
    """Add the partition to which the offsets of a group go (TX-35). Raises ApiError.

    Departs: Kafka adds one that it does not know. A broker whose metadata is late takes it for deleted when the transaction ends,
    and its marker is never written.
    """
    coordinator = coordinator_of(ctx, transactional_id)
    partition = frozenset({offsets_partition(ctx, group_id)})
    await coordinator.add_partitions(transactional_id, producer, partition, version=OFFSETS_VERSION)


async def end_transaction(
    ctx: BrokerContext, transactional_id: str, producer: Producer, *, commit: bool, version: int
) -> Producer:
    """End a transaction; answers with the producer to go on with (TX-40). Raises ApiError."""
    return await coordinator_of(ctx, transactional_id).end(transactional_id, producer, commit=commit, version=version)


async def write_markers(ctx: BrokerContext, markers: Sequence[MarkerEntry]) -> list[ErrorCode]:
    """Write the ends of transactions into partitions that this broker leads, on behalf of an administrator (TP-26, TA-05). One
    error for each, once all are below the high watermark. A marker that no log can hold is UNKNOWN_SERVER_ERROR where this broker
    has a replica: Kafka's ends in an exception there."""
    assert ctx.markers is not None, "WriteTxnMarkers without a writer of markers"
    found: list[ErrorCode] = []
    async for first in ctx.turns.each(range(0, len(markers), MARKERS_AT_ONCE)):
        some = markers[first : first + MARKERS_AT_ONCE]
        sound = [it for it in some if _is_sound(it)]
        written = iter(await ctx.markers.write_here(sound, ctx.settings.request_timeout_ms) if sound else ())
        found += [next(written) if _is_sound(it) else _why_unsound(ctx, it.tp) for it in some]
    return found


def _why_unsound(ctx: BrokerContext, tp: TopicPartition) -> ErrorCode:
    found = ctx.metadata.partition(tp.topic, tp.partition)
    has_replica = found is not None and ctx.node_id in found.replicas
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_replica else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_sound(marker: MarkerEntry) -> bool:
    """Return whether the marker names a producer and an epoch that a batch can say, and a `transaction.version`."""
    return marker.producer_id != NO_PRODUCER_ID and marker.producer_epoch != NO_EPOCH and marker.version >= 0


def describe_transaction(ctx: BrokerContext, transactional_id: str) -> TransactionDescription:
    """Describe a transactional id (TA-01). Raises ApiError: TRANSACTIONAL_ID_NOT_FOUND."""
    return coordinator_of(ctx, transactional_id).describe(transactional_id)


async def list_transactions(
    ctx: BrokerContext, *, states: Sequence[str], producer_ids: Sequence[int], min_duration_ms: int, pattern: str | None
) -> TransactionListing:
    """List the ids that this broker coordinates (TA-02). Filters that are empty, negative or None let everything pass. Raises
    ApiError: INVALID_REGULAR_EXPRESSION; COORDINATOR_LOAD_IN_PROGRESS, while the list would lack some."""
    assert ctx.transactions is not None, "an API of transactions without a coordinator"
    return await ctx.transactions.listed(
        states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms, pattern=pattern or None
    )
