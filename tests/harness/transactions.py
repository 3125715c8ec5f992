"""Transactions against replica managers: batches, markers, and a way to coordinators that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry, ProduceEntry, ProduceResult, ProduceTransaction
from kraftlite.replication.ports import NO_TOPIC_IDS
from tests.harness.replication_cluster import TP, Node
from tests.harness.replication_loop import LoopCluster

OTHER = TopicPartition("payments", 0)
OTHER_ID = UUID(int=2002)


@dataclass
class Question:
    """One call of `ask`; answered at once unless the gate is held."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    add: bool
    answered: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = field(repr=False)
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)

    def answer(self, code: ErrorCode = ErrorCode.NONE, **other: ErrorCode) -> None:
        """One code for all partitions but those of the topics in `other`."""
        self.answered.set_result({tp: other.get(tp.topic, code) for tp in self.partitions})


class FakeGate:
    """`TransactionGate`. `code` answers at once; None holds the questions until the test answers them."""

    def __init__(self, code: ErrorCode | None = ErrorCode.NONE) -> None:
        self.code = code
        self.error: ApiError | None = None
        self.questions: list[Question] = []

    async def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        topic_ids: Mapping[TopicPartition, UUID] = NO_TOPIC_IDS,
    ) -> Mapping[TopicPartition, ErrorCode]:
        if self.error is not None:
            raise self.error
        future: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        question = Question(transactional_id, producer_id, producer_epoch, tuple(partitions), add, future, topic_ids)
        self.questions.append(question)
        if self.code is not None:
            question.answer(self.code)
        return await future


def txn_batch(*values: str, pid: int = 7, epoch: int = 0, seq: int = 0) -> bytearray:
    records = [Record(None, value.encode()) for value in values or ("x",)]
    made = build_batch(
        records,
        timestamp_ms=1_700_000_000_000,
        transactional=True,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=seq,
    )
    return bytearray(made)


class Lease:
    def __init__(self) -> None:
        self.held = self.released = 0

    def failed(self, error: Exception) -> None:
        raise error

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.released += 1


class GatedCluster(LoopCluster):
    """Broker 1 leads everything; the test is its way to coordinators."""

    def __init__(self, count: int = 1, code: ErrorCode | None = ErrorCode.NONE, **options: Any) -> None:
        super().__init__(count, **options)
        self.gate = FakeGate(code)

    async def __aenter__(self) -> GatedCluster:
        await super().__aenter__()
        self.create(tuple(int(it) for it in self.nodes))
        self.create((1,), name=OTHER.topic, topic_id=OTHER_ID)
        for node in self.nodes.values():
            node.manager.enroller.gate = self.gate
        await self.settle()
        return self

    def send(
        self,
        *batches: bytearray | tuple[TopicPartition, bytearray],
        version: int = 0,
        acks: int = 1,
        abortable: bool = True,
        lease: Lease | None = None,
        transactional_id: str = "t",
    ) -> list[ProduceResult]:
        done: list[ProduceResult] = []
        entries = [
            ProduceEntry(tp=it[0], topic_id=None, records=it[1])
            if isinstance(it, tuple)
            else ProduceEntry(tp=TP, topic_id=None, records=it)
            for it in batches
        ]
        transaction = ProduceTransaction(transactional_id, version, abortable)
        self[1].manager.append(entries, acks=acks, timeout_ms=30_000, on_done=done.extend, lease=lease, transaction=transaction)
        return done


def mark(node: Node, *markers: MarkerEntry, timeout_ms: int = 30_000) -> list[list[ErrorCode]]:
    """One element as soon as it is answered."""
    done: list[list[ErrorCode]] = []
    node.manager.write_markers(markers, timeout_ms=timeout_ms, on_done=done.append)
    return done


def marker(
    tp: TopicPartition = TP,
    *,
    pid: int = 7,
    epoch: int = 0,
    coordinator: int = 0,
    commit: bool = True,
    version: int = 0,
    topic_id: UUID | None = None,
) -> MarkerEntry:
    return MarkerEntry(pid, epoch, coordinator, commit, version, tp, topic_id)


def errors(results: Sequence[ProduceResult]) -> list[ErrorCode]:
    return [it.error for it in results]
