"""A transaction coordinator, a writer of markers and a way to coordinators that answer what a test tells them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlite.coordinator.core.placement import partition_for
from kraftlite.coordinator.transactions.api import TransactionDescription, TransactionListing, TransactionOverview
from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.replication.enrol_driver import Identity

TRANSACTION_BODIES: Final[Mapping[int, dict[str, Any]]] = {
    22: {"transactional_id": None, "transaction_timeout": 0},
    24: {
        "transactions": [],
        "v3_and_below_transactional_id": "",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [],
    },
    26: {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "committed": True},
    27: {"markers": []},
    65: {"transactional_ids": []},
    66: {},
    61: {"topics": []},
}
"""The least that the requests of producers and transactions can say."""


class FakeTransactions:
    """Remembers what it is asked, and refuses with `error` when there is one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: ErrorCode | None = None
        self.producer = Producer(7, 3)
        self.verified: dict[TopicPartition, ErrorCode] = {}
        self.described: dict[str, TransactionDescription] = {}
        self.unknown_states: tuple[str, ...] = ()
        self.partitions = 3

    def _note(self, what: str, **details: Any) -> None:
        self.asked.append((what, details))
        if self.error is not None:
            raise ApiError(self.error, "as the test says")

    def partition_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.partitions)

    async def init_producer_id(self, transactional_id: str, *, timeout_ms: int, expected: Producer | None) -> Producer:
        self._note("init", id=transactional_id, timeout_ms=timeout_ms, expected=expected)
        return self.producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], *, version: int
    ) -> None:
        self._note("add", id=transactional_id, producer=producer, partitions=set(partitions), version=version)

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self._note("verify", id=transactional_id, producer=producer, partitions=set(partitions))
        return {tp: self.verified.get(tp, ErrorCode.NONE) for tp in sorted(partitions)}

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        self._note("end", id=transactional_id, producer=producer, commit=commit, version=version)
        return self.producer

    def describe(self, transactional_id: str) -> TransactionDescription:
        self._note("describe", id=transactional_id)
        found = self.described.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no {transactional_id}")
        return found

    async def listed(
        self, *, states: Sequence[str], producer_ids: Sequence[int], min_duration_ms: int, pattern: str | None
    ) -> TransactionListing:
        self._note("list", states=list(states), producer_ids=list(producer_ids), min_duration_ms=min_duration_ms, pattern=pattern)
        found = tuple(
            TransactionOverview(it.transactional_id, it.producer.producer_id, it.state) for it in self.described.values()
        )
        return TransactionListing(transactions=found, unknown_states=self.unknown_states)


def description(transactional_id: str, state: TransactionState, *partitions: TopicPartition, start_ms: int = -1) -> Any:
    return TransactionDescription(
        transactional_id=transactional_id,
        state=state,
        timeout_ms=60_000,
        start_ms=start_ms,
        producer=Producer(7, 3),
        partitions=frozenset(partitions),
    )


class FakeMarkers:
    """Writes all markers, but for partitions that have an error."""

    def __init__(self) -> None:
        self.written: list[MarkerEntry] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}

    async def write_here(self, markers: Sequence[MarkerEntry], timeout_ms: int) -> Sequence[ErrorCode]:
        assert timeout_ms > 0
        self.written += markers
        return [self.errors.get(it.tp, ErrorCode.NONE) for it in markers]


class FakeEnroller:
    """The transaction may write anywhere, unless there is an `error`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Identity, TopicPartition, int]] = []
        self.error: ErrorCode | None = None
        self.terms: TransactionTerms | None = TransactionTerms()

    async def enrol(self, identity: Identity, tp: TopicPartition, *, version: int) -> TransactionTerms | None:
        self.asked.append((identity, tp, version))
        if self.error is not None:
            raise ApiError(self.error, "as the test says")
        return self.terms


class FakeProducerIds:
    def __init__(self) -> None:
        self.following = 4000
        self.error: ApiError | None = None

    async def next_id(self) -> int:
        if self.error is not None:
            raise self.error
        self.following += 1
        return self.following - 1
