"""Produce: what is refused before the log is asked, and the answers put back in the order of the request.

Source: CP-16, CP-17, RP-01, RP-10; TP-01, TP-03, TP-07; KIP-98 and KIP-890 (transactional checks), KIP-110 (zstd from v7 on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.log.batch import CODEC_MASK, TRANSACTIONAL_BIT, attributes_of, parse_header
from kraftlite.log.codecs import ZSTD
from kraftlite.model.acls import Operation
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import Lease, ProduceEntry, ProduceResult, ProduceTransaction
from kraftlite.security.gate import Rights

ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's own tools may write to internal topics; they say so by this client id."""


class ProduceItem(NamedTuple):
    """One partition of a request: by `name`, or by `topic_id` when `name` is None. `records`: exactly one batch is expected."""

    name: str | None
    topic_id: UUID | None
    partition: int
    records: memoryview | None


class ProduceCall(NamedTuple):
    """A request. `zstd_allowed`: its version may carry zstd. `lease`: of the memory of its records, when it is not its own.
    `transaction_version`, `knows_abortable`: what the request's version says of the client (`ProduceTransaction`)."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    client_id: str | None
    zstd_allowed: bool
    items: Sequence[ProduceItem]
    lease: Lease | None = None
    transaction_version: int = 0
    knows_abortable: bool = False
    rights: Rights | None = None
    """The client's rights; None: it may do everything."""


def produce(ctx: BrokerContext, call: ProduceCall, on_done: Callable[[list[ProduceResult]], None]) -> None:
    """Append and call `on_done` once, with a result per item in the order of the items: before returning unless the entries wait
    for their followers, take long to check, or begin a transaction, about which its coordinator is asked first. No `records` is
    looked at after the return, but between `hold` and `release` of the lease. What is looked at here of a batch is only what its
    request allows; `log.validation` says what a batch must be."""
    results: list[ProduceResult | None] = []
    entries: list[ProduceEntry] = []
    try:
        transaction = None if call.transactional_id is None else _transaction(call, call.transactional_id)
        if call.rights is not None and transaction is not None:
            _check_transaction(call.rights, transaction)
        for item in call.items:
            checked = _check(ctx, call, item)
            if isinstance(checked, ProduceResult):
                results.append(checked)
            else:
                results.append(None)
                entries.append(checked)
    except ApiError as error:  # of the request, whatever is right in it
        on_done([_refused(TopicPartition(it.name or "", it.partition), error.code, error.message) for it in call.items])
        return
    if len(entries) == len(results):
        if entries:
            ctx.replicas.append(
                entries,
                acks=call.acks,
                timeout_ms=call.timeout_ms,
                on_done=lambda done: on_done([_told(call, result) for result in done] if _failed(done) else done),
                lease=call.lease,
                transaction=transaction,
            )
        else:
            on_done([])
        return

    def merge(done: list[ProduceResult]) -> None:
        appended = iter(done)
        on_done([_told(call, next(appended)) if found is None else found for found in results])

    if entries:
        ctx.replicas.append(
            entries,
            acks=call.acks,
            timeout_ms=call.timeout_ms,
            on_done=merge,
            lease=call.lease,
            transaction=transaction,
        )
    else:
        merge([])


def _failed(results: list[ProduceResult]) -> bool:
    for result in results:  # noqa: SIM110 - a generator would cost more than the check
        if result.error is not ErrorCode.NONE:
            return True
    return False


def _transaction(call: ProduceCall, transactional_id: str) -> ProduceTransaction | None:
    """The transaction of the request; None when no batch of it is in one. ApiError(INVALID_PRODUCER_ID_MAPPING) when its batches
    are of several producers (TP-01)."""
    producers = set()
    for item in call.items:
        if item.records is not None and attributes_of(item.records) & TRANSACTIONAL_BIT:
            header = parse_header(item.records)
            producers.add((header.producer_id, header.producer_epoch))
    if len(producers) > 1:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records contain more than one producer id")
    return ProduceTransaction(transactional_id, call.transaction_version, call.knows_abortable) if producers else None


def _check_transaction(rights: Rights, transaction: ProduceTransaction) -> None:
    """Raise ApiError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED) unless the client may write with this transactional id (SE-40)."""
    if not rights.transaction(Operation.WRITE, transaction.transactional_id):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _check(ctx: BrokerContext, call: ProduceCall, item: ProduceItem) -> ProduceEntry | ProduceResult:
    """ApiError: the whole request is refused (TP-01)."""
    name, topic_id, partition, records = item
    if name is None:
        topic = ctx.metadata.topic_by_id(topic_id or ZERO_UUID)
        tp = TopicPartition("" if topic is None else topic.name, partition)
        if topic is None:
            return _refused(tp, ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        topic = ctx.metadata.topic(name)
        tp = TopicPartition(name, partition)
    if call.rights is not None and not call.rights.topic(Operation.WRITE, tp.topic):
        return _refused(tp, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None or partition not in topic.partitions:
        return _refused(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT_ID:
        return _refused(tp, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {tp.topic}")
    if records is None:
        records = memoryview(b"")
    attributes = attributes_of(records)
    if attributes & TRANSACTIONAL_BIT and call.transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records need a transactional id")
    if attributes & CODEC_MASK == ZSTD and not call.zstd_allowed:
        return _refused(tp, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
    return ProduceEntry(tp=tp, topic_id=topic.topic_id, records=records)


def _refused(tp: TopicPartition, error: ErrorCode, message: str | None = None) -> ProduceResult:
    return ProduceResult(tp=tp, error=error, message=message)


def _told(call: ProduceCall, result: ProduceResult) -> ProduceResult:
    """A client whose topic was deleted and made again meanwhile hears that it is not known, in the words for how it named it."""
    if result.error is ErrorCode.INCONSISTENT_TOPIC_ID:
        by_id = call.items[0].name is None
        return replace(result, error=ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return result
