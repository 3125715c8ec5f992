"""The requests of simulated transactional clients: the production handlers of the transaction APIs, with domain types.

An error is part of the answer, as on the wire. `version` is the `transaction.version` that the version of a request would show: 0
for clients that add partitions themselves, 2 for those that leave it to the leaders (KIP-890).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.coordinators import TRANSACTION, find_coordinator
from kraftlite.broker.handlers.produce import ProduceCall, ProduceItem, produce
from kraftlite.broker.handlers.producer_ids import init_producer_id
from kraftlite.broker.handlers.transaction_offsets import TransactionOfOffsets, commit_in_transaction
from kraftlite.broker.handlers.transactions import (
    add_offsets,
    add_partitions,
    describe_transaction,
    end_transaction,
    list_transactions,
)
from kraftlite.coordinator.api import CommitRequest, OffsetToCommit
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.replication.api import ProduceResult
from kraftlite.replication.enrol_driver import Identity
from kraftlite.runtime.ports import Handlers, route
from kraftlite.sim.services.groups import CLIENT_LISTENER, Told, told


@dataclass(frozen=True, slots=True)
class FindAsk:
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitAsk:
    """`expected` None: the producer has nothing yet."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


@dataclass(frozen=True, slots=True)
class AddAsk:
    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsetsAsk:
    transactional_id: str
    producer: Producer
    group_id: str


@dataclass(frozen=True, slots=True)
class EndAsk:
    transactional_id: str
    producer: Producer
    commit: bool
    version: int


@dataclass(frozen=True, slots=True)
class TransactionalBatch:
    tp: TopicPartition
    batch: bytes


@dataclass(frozen=True, slots=True)
class TransactionalProduceAsk:
    transactional_id: str
    version: int
    batches: tuple[TransactionalBatch, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommitAsk:
    """A TxnOffsetCommit; with what it begins with, of somebody outside of the group's protocol."""

    transactional_id: str
    producer: Producer
    version: int
    group_id: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeAsk:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListAsk:
    """`min_duration_ms` negative: whatever; the other filters where they are not empty."""

    states: tuple[str, ...]
    producer_ids: tuple[int, ...]
    min_duration_ms: int
    pattern: str | None


FIND: Final = Method("Client", "FindTransactionCoordinator", FindAsk, Told)
INIT: Final = Method("Client", "InitProducerId", InitAsk, Told)
ADD: Final = Method("Client", "AddPartitionsToTxn", AddAsk, Told)
ADD_OFFSETS: Final = Method("Client", "AddOffsetsToTxn", AddOffsetsAsk, Told)
END: Final = Method("Client", "EndTxn", EndAsk, Told)
PRODUCE: Final = Method("Client", "TransactionalProduce", TransactionalProduceAsk, Told)
COMMIT: Final = Method("Client", "TxnOffsetCommit", TransactionalCommitAsk, Told)
DESCRIBE: Final = Method("Client", "DescribeTransactions", DescribeAsk, Told)
LIST: Final = Method("Client", "ListTransactions", ListAsk, Told)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    service = _Transactions(node.broker.context)
    return dict(
        (
            route(FIND, service.find),
            route(INIT, service.init),
            route(ADD, service.add),
            route(ADD_OFFSETS, service.add_offsets),
            route(END, service.end),
            route(PRODUCE, service.produce),
            route(COMMIT, service.commit),
            route(DESCRIBE, service.describe),
            route(LIST, service.listed),
        )
    )


class _Transactions:
    def __init__(self, context: BrokerContext) -> None:
        self._ctx = context

    async def find(self, ask: FindAsk) -> Told:
        """The result is a `BrokerEndpoint`."""
        found = find_coordinator(self._ctx, CLIENT_LISTENER, TRANSACTION, ask.transactional_id)
        return Told(found.error, found.broker)

    async def init(self, ask: InitAsk) -> Told:
        """The result is a `Producer`."""
        expected = ask.expected or Producer(-1, -1)
        return await told(
            lambda: init_producer_id(
                self._ctx,
                transactional_id=ask.transactional_id,
                transaction_timeout_ms=ask.timeout_ms,
                producer_id=expected.producer_id,
                producer_epoch=expected.producer_epoch,
            )
        )

    async def add(self, ask: AddAsk) -> Told:
        """The result has a pair (partition, error) for each."""
        found = await add_partitions(self._ctx, ask.transactional_id, ask.producer, ask.partitions, version=0, from_client=True)
        return Told(ErrorCode.NONE, tuple(found.items()))

    async def add_offsets(self, ask: AddOffsetsAsk) -> Told:
        return await told(lambda: add_offsets(self._ctx, ask.transactional_id, ask.producer, ask.group_id))

    async def end(self, ask: EndAsk) -> Told:
        """The result is the `Producer` to go on with."""
        return await told(
            lambda: end_transaction(self._ctx, ask.transactional_id, ask.producer, commit=ask.commit, version=ask.version)
        )

    async def produce(self, ask: TransactionalProduceAsk) -> Told:
        """The result has a `ProduceResult` for each batch."""
        done: asyncio.Future[list[ProduceResult]] = asyncio.get_running_loop().create_future()
        items = [ProduceItem(it.tp.topic, None, it.tp.partition, memoryview(bytearray(it.batch))) for it in ask.batches]
        call = ProduceCall(
            acks=-1,
            timeout_ms=ask.timeout_ms,
            transactional_id=ask.transactional_id,
            client_id=None,
            zstd_allowed=True,
            items=items,
            transaction_version=ask.version,
            knows_abortable=ask.version >= 2,
        )
        produce(self._ctx, call, lambda results: None if done.done() else done.set_result(results))
        return Told(ErrorCode.NONE, tuple(await done))

    async def commit(self, ask: TransactionalCommitAsk) -> Told:
        """The result has one error for each offset."""
        base = CommitRequest(
            group_id=ask.group_id,
            generation=ask.generation,
            member_id=ask.member_id,
            instance_id=ask.instance_id,
            offsets=(),
            producer=ask.producer,
        )
        transaction = TransactionOfOffsets(
            Identity(ask.transactional_id, *ask.producer), version=ask.version, knows_abortable=True
        )
        offsets = [OffsetToCommit(tp, offset, None, "") for tp, offset in ask.offsets]
        return await told(lambda: commit_in_transaction(self._ctx, base, transaction, offsets))

    async def describe(self, ask: DescribeAsk) -> Told:
        """The result is a `TransactionDescription`."""

        async def work() -> Any:
            return describe_transaction(self._ctx, ask.transactional_id)

        return await told(work)

    async def listed(self, ask: ListAsk) -> Told:
        """The result is a `TransactionListing`."""
        return await told(
            lambda: list_transactions(
                self._ctx,
                states=ask.states,
                producer_ids=ask.producer_ids,
                min_duration_ms=ask.min_duration_ms,
                pattern=ask.pattern,
            )
        )
