"""Markers and questions between brokers: who gets them, what is checked of what comes in, and how long is waited. Source: TX-31,
TX-50, TP-03, TP-07, TP-26."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId
from kraftlite.model.limits import MAX_ENROLLED_PARTITIONS, MAX_MARKERS_PER_REQUEST
from kraftlite.model.messages.methods import ENROLL, WRITE_MARKERS
from kraftlite.model.messages.transactions import (
    EnrolledPartition,
    EnrollRequest,
    EnrollResponse,
    TransactionMarker,
    WriteMarkersRequest,
    WriteMarkersResponse,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.ports import TransportError
from tests.harness.transaction_broker import CLUSTER, A, B, Coordinating, code
from tests.harness.wire_fakes import partition

S = TransactionState
E = ErrorCode


@pytest.fixture
async def c() -> AsyncIterator[Coordinating]:
    found = Coordinating()
    await found.apply()
    yield found
    await found.close()


# --- between brokers


def marker(tp: TopicPartition = A, **fields: Any) -> MarkerEntry:
    found = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 5, "commit": True, "version": 2, "tp": tp}
    return MarkerEntry(**{**found, **fields})


async def test_tp_26_markers_of_offsets_go_through_their_coordinator(c: Coordinating) -> None:
    offsets = TopicPartition(OFFSETS_TOPIC, 0)
    c.local.answers = {offsets: E.NOT_LEADER_OR_FOLLOWER, B: E.NOT_ENOUGH_REPLICAS}
    found = await c.writing.write_here([marker(A), marker(offsets), marker(B)], 100)
    assert found == [E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS], "in the order of the markers"
    assert {it.tp for it in c.local.completed} == {offsets} and {it.tp for it in c.local.written} == {A, B}
    assert await c.writing.write_here([], 100) == []


async def test_tx_50_markers_to_another_broker(c: Coordinating) -> None:
    c.transport.answer = lambda peer, method, request: WriteMarkersResponse(errors=(E.NONE, E.REQUEST_TIMED_OUT))
    found = await c.writing.write(NodeId(2), [marker(A), marker(B, topic_id=c.image().topics.topic("a").topic_id)])  # type: ignore[union-attr]
    assert found == (E.NONE, E.REQUEST_TIMED_OUT)
    ((peer, method, request),) = c.transport.calls
    assert (peer.port, method, request.cluster_id) == (9_002, WRITE_MARKERS, CLUSTER)
    c.transport.answer = None
    with pytest.raises(TransportError):
        await c.writing.write(NodeId(2), [marker()])
    with pytest.raises(TransportError, match="broker 77 is not registered"):
        await c.writing.write(NodeId(77), [marker()])
    served = await c.writing.serve(request)
    assert served == WriteMarkersResponse(errors=(E.NONE, E.NONE))
    assert c.local.written == [marker(A), marker(B, topic_id=c.image().topics.topic("a").topic_id)]  # type: ignore[union-attr]


def wire_marker(tp: TopicPartition = A) -> TransactionMarker:
    return TransactionMarker(
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=5,
        commit=True,
        transaction_version=2,
        topic=tp.topic,
        topic_id=ZERO_UUID,
        partition=tp.partition,
    )


async def test_tx_50_what_another_broker_may_ask_is_bounded(c: Coordinating) -> None:
    request = WriteMarkersRequest(cluster_id="another", timeout_ms=1, markers=(wire_marker(),))
    assert await code(c.writing.serve(request)) is E.INCONSISTENT_CLUSTER_ID
    many = (wire_marker(),) * (MAX_MARKERS_PER_REQUEST + 1)
    assert await code(c.writing.serve(WriteMarkersRequest(cluster_id=CLUSTER, timeout_ms=1, markers=many))) is E.INVALID_REQUEST
    await c.writing.serve(WriteMarkersRequest(cluster_id=CLUSTER, timeout_ms=10**9, markers=(wire_marker(),)))
    assert c.local.timeouts == [3_000] and len(c.local.written) == 1


def enroll(
    *tps: TopicPartition, add: bool, cluster_id: str = CLUSTER, epoch: int = 0, topic_id: UUID | None = None
) -> EnrollRequest:
    return EnrollRequest(
        cluster_id=cluster_id,
        transactional_id="t",
        producer_id=101,
        producer_epoch=epoch,
        add=add,
        partitions=tuple(EnrolledPartition(topic=tp.topic, partition=tp.partition, topic_id=topic_id) for tp in tps),
    )


async def test_tx_31_what_the_coordinators_broker_does_not_know_is_not_added(c: Coordinating) -> None:
    """TX-34; its marker would never be sent (TX-52)."""
    await c.init()
    unknown = TopicPartition("a", 99)
    found = await c.gate.serve(enroll(A, unknown, add=True))
    assert found.errors == (E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION), "one that is refused does not hinder the others (TP-07)"
    assert c.coordinator.describe("t").partitions == {A}
    assert (await c.gate.serve(enroll(A, B, add=True))).errors == (E.NONE, E.NONE)
    assert (await c.gate.serve(enroll(A, unknown, add=False))).errors == (E.NONE, E.TRANSACTION_ABORTABLE)
    assert await code(c.gate.serve(enroll(A, add=True, epoch=1))) is E.PRODUCER_FENCED
    assert c.coordinator.led.get(0).shard.by_id["t"].current.version == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("add", [False, True])
async def test_tx_52_a_topic_that_was_made_again_is_written_to_when_the_coordinators_broker_knows_it(
    c: Coordinating, add: bool
) -> None:
    """The metadata of the coordinator's broker may still have the old topic of that name. At the end of the transaction it may
    have none, when the old one is deleted: a batch in the new one would never get a marker."""
    await c.begun(A)
    known = c.image().topics.topic("a")
    assert known is not None
    other = UUID(int=77)
    assert (await c.gate.serve(enroll(A, add=add, topic_id=other))).errors == (E.COORDINATOR_NOT_AVAILABLE,)
    assert (await c.gate.serve(enroll(A, add=add, topic_id=known.topic_id))).errors == (E.NONE,)
    assert await c.gate.ask("t", 101, 0, [A], add=add, topic_ids={A: other}) == {A: E.COORDINATOR_NOT_AVAILABLE}
    assert await c.gate.ask("t", 101, 0, [A], add=add, topic_ids={A: known.topic_id}) == {A: E.NONE}
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([2, 1], leader_epoch=1)]})
    c.transport.answer = lambda peer, method, request: EnrollResponse(errors=(E.NONE,))
    await c.gate.ask("t", 101, 0, [A], add=add, topic_ids={A: other})
    assert c.transport.calls[-1][2] == enroll(A, add=add, topic_id=other)


async def test_tp_03_questions_are_bounded_in_size_and_time(c: Coordinating) -> None:
    await c.init()
    assert await code(c.gate.serve(enroll(A, add=True, cluster_id="another"))) is E.INCONSISTENT_CLUSTER_ID
    many = (A,) * (MAX_ENROLLED_PARTITIONS + 1)
    assert await code(c.gate.serve(enroll(*many, add=True))) is E.INVALID_REQUEST
    c.log.automatic = False
    asking = asyncio.ensure_future(c.gate.ask("t", 101, 0, [A], add=True))
    await c.run(2_999)
    assert not asking.done()
    await c.run(1)
    assert await asking == {A: E.NETWORK_EXCEPTION}


async def test_tp_07_the_way_to_the_coordinator(c: Coordinating) -> None:
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([2, 1], leader_epoch=1)]})
    c.transport.answer = lambda peer, method, request: EnrollResponse(errors=(E.CONCURRENT_TRANSACTIONS, E.NONE))
    found = await c.gate.ask("t", 101, 0, [A, B], add=True)
    assert found == {A: E.CONCURRENT_TRANSACTIONS, B: E.NONE}
    ((peer, method, request),) = c.transport.calls
    assert (peer.port, method, request) == (9_002, ENROLL, enroll(A, B, add=True))
    c.transport.answer = lambda peer, method, request: EnrollResponse(errors=(E.NONE,))
    assert await c.gate.ask("t", 101, 0, [A, B], add=True) == dict.fromkeys((A, B), E.NETWORK_EXCEPTION), "not as many"
    c.transport.answer = None
    assert await c.gate.ask("t", 101, 0, [A], add=False) == {A: E.NETWORK_EXCEPTION}
    c.brokers.pop()
    assert await c.gate.ask("t", 101, 0, [A], add=False) == {A: E.NETWORK_EXCEPTION}
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([2, 1], leader=None, leader_epoch=2)]})
    assert await code(c.gate.ask("t", 101, 0, [A], add=False)) is E.COORDINATOR_NOT_AVAILABLE
    await c.apply({name: it for name, it in c.topics.items() if name != TRANSACTION_TOPIC})
    assert await code(c.gate.ask("t", 101, 0, [A], add=False)) is E.COORDINATOR_NOT_AVAILABLE
