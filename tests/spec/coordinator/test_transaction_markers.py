"""Markers on their way to the leaders of partitions: look-ups, batches, retries, and what a coordinator hears. Source: TX-50 to
TX-55."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kraftlite.coordinator.transactions.events import Fenced, Mark, Marked
from kraftlite.coordinator.transactions.markers import (
    MARKERS_PER_REQUEST,
    ROUTED_AT_ONCE,
    SEND_AGAIN_MS,
    Fate,
    Gone,
    Item,
    MarkerQueues,
    Order,
    fate_of,
)
from kraftlite.coordinator.transactions.markers_driver import MarkerSender, ShardOutbox
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_MARKER_REQUESTS_IN_FLIGHT
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.ports import TransportError
from tests.harness.broker_ports import TestBed
from tests.harness.wire_fakes import broker, image, partition

E = ErrorCode
A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RETRIED = (
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
    E.NETWORK_EXCEPTION,
)


def mark(*tps: TopicPartition, name: str = "t", attempt: int = 1, commit: bool = True) -> Mark:
    return Mark(name, attempt, Producer(7, 3), commit, 2, tps)


class Queues:
    """The core, with a table of leaders."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, NodeId | Gone | None] = {A: NodeId(1), B: NodeId(2), C: NodeId(1)}
        self.core = MarkerQueues(lambda tp: self.leaders.get(tp, NodeId(1)))
        self.heard: list[Marked | Fenced] = []

    def order(self, *tps: TopicPartition, name: str = "t", attempt: int = 1) -> Order:
        order = Order(mark(*tps, name=name, attempt=attempt), 5, self.heard.append)
        self.core.add(order)
        return order

    def sent(self, now_ms: int = 0) -> dict[int, list[TopicPartition]]:
        return {int(node): [item.tp for item in batch] for node, batch in self.core.batches(now_ms)}


def marked(*tps: TopicPartition, name: str = "t", attempt: int = 1) -> Marked:
    return Marked(transactional_id=name, attempt=attempt, partitions=frozenset(tps))


def test_tx_50_markers_to_one_broker_travel_together() -> None:
    q = Queues()
    q.order(A, B)
    q.order(C, name="u")
    batches = dict(q.core.batches(0))
    assert {int(node): [item.tp for item in batch] for node, batch in batches.items()} == {1: [A, C], 2: [B]}
    q.core.answered(NodeId(1), batches[NodeId(1)], [E.NONE, E.NONE], 0)
    assert q.heard == [marked(A), marked(C, name="u")]
    q.core.answered(NodeId(2), batches[NodeId(2)], [E.NONE], 0)
    assert q.heard[2:] == [marked(B)] and q.core.next_due_ms() is None


def test_tx_50_batches_and_requests_under_way_are_bounded() -> None:
    q = Queues()
    count = MARKERS_PER_REQUEST * (MAX_MARKER_REQUESTS_IN_FLIGHT + 2)
    q.order(*(TopicPartition("many", index) for index in range(count)))
    batches: list[list[Item]] = []
    while q.core.more:
        looked_up = [batch for _, batch in q.core.batches(0)]
        assert sum(map(len, looked_up)) <= ROUTED_AT_ONCE, "so many are looked up in a turn"
        batches += looked_up
    assert [len(batch) for batch in batches] == [MARKERS_PER_REQUEST] * MAX_MARKER_REQUESTS_IN_FLIGHT
    assert q.sent() == {}
    q.core.answered(NodeId(1), batches[0], [E.NONE] * len(batches[0]), 0)
    assert len(q.sent()[1]) == MARKERS_PER_REQUEST


@pytest.mark.parametrize("error", RETRIED)
def test_tx_51_an_error_that_passes_is_tried_again_at_the_leader_of_then(error: ErrorCode) -> None:
    q = Queues()
    q.order(A)
    for attempt, node in enumerate((1, 1, 2)):
        q.leaders[A] = NodeId(node)
        now_ms = attempt * SEND_AGAIN_MS
        ((leader, batch),) = q.core.batches(now_ms)
        assert leader == node
        assert q.sent(now_ms) == {}, "it is under way"
        q.core.answered(leader, batch, [error], now_ms)
        assert q.heard == [] and q.sent(now_ms) == {}
        assert q.core.next_due_ms() == now_ms + SEND_AGAIN_MS
    q.core.look_again()
    assert q.sent(2 * SEND_AGAIN_MS) == {2: [A]}, "at once when the metadata has changed"


def test_tx_52_a_partition_that_is_gone_needs_no_marker_and_one_without_leader_waits() -> None:
    q = Queues()
    q.leaders |= {A: Gone.GONE, B: None}
    q.order(A, B)
    assert q.sent() == {} and q.heard == [marked(A)] and q.core.waiting == 1
    q.leaders[B] = NodeId(3)
    assert q.sent(SEND_AGAIN_MS - 1) == {}
    assert q.sent(SEND_AGAIN_MS) == {3: [B]} and q.core.waiting == 0


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_tx_53_a_newer_coordinator_ends_it_for_the_whole_transaction(error: ErrorCode) -> None:
    q = Queues()
    q.order(A, B)
    q.order(C, name="u")
    q.leaders[B] = None
    ((node, batch),) = q.core.batches(0)
    q.core.answered(node, batch, [error, E.NONE], 0)
    assert q.heard == [Fenced(transactional_id="t", attempt=1), marked(C, name="u")]
    q.leaders[B] = NodeId(2)
    assert q.sent(10 * SEND_AGAIN_MS) == {}


def test_tx_53_what_cannot_hold_a_marker_counts_as_written() -> None:
    q = Queues()
    q.order(A, C)
    ((node, batch),) = q.core.batches(0)
    q.core.answered(node, batch, [E.UNSUPPORTED_VERSION, E.UNSUPPORTED_FOR_MESSAGE_FORMAT], 0)
    assert q.heard == [marked(A, C)]


def test_tx_53_any_other_error_is_tried_again() -> None:
    known = {E.NONE, E.UNSUPPORTED_VERSION, E.UNSUPPORTED_FOR_MESSAGE_FORMAT}
    stops = {E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED}
    assert {error for error in E if fate_of(error) is not Fate.AGAIN} == known | stops


def test_tx_61_what_is_forgotten_is_not_sent_and_not_heard_of() -> None:
    q = Queues()
    heard: list[Marked | Fenced] = []
    outbox = ShardOutbox(q.core.add, 5)
    outbox.connect(heard.append)
    outbox.send(mark(A, B))
    ((node, batch), *rest) = q.core.batches(0)
    outbox.send(mark(C, name="u", attempt=2))
    outbox.forget()
    assert q.sent() == {}
    q.core.answered(node, batch, [E.NONE] * len(batch), 0)
    for other, items in rest:
        q.core.answered(other, items, [E.NOT_LEADER_OR_FOLLOWER] * len(items), 0)
    assert heard == [] and q.sent(SEND_AGAIN_MS) == {}


# --- the driver


class Post:
    """`answer(node, markers)` is what a broker does; without one, calls wait."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Sequence[MarkerEntry]]] = []
        self.answer: Any = None
        self.given_up = 0

    async def write(self, node: NodeId, markers: Sequence[MarkerEntry]) -> Sequence[ErrorCode]:
        self.calls.append((int(node), markers))
        if self.answer is None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.given_up += 1
        found: Sequence[ErrorCode] = self.answer(int(node), markers)
        return found


class Sending:
    def __init__(self) -> None:
        self.bed = TestBed()
        self.brokers = [broker(1), broker(2), broker(3)]
        self.topics = {"a": [partition([1, 2]), partition([2, 3])], "b": [partition([1, 3])]}
        self.post = Post()
        self.sender = MarkerSender(self.bed.ports, self.post, lambda: image(self.brokers, self.topics))
        self.heard: list[Marked | Fenced] = []
        self.outbox = self.sender.outbox(5)
        self.outbox.connect(self.heard.append)

    async def run(self, ms: int = 0) -> None:
        await self.bed.clock.run_for(ms)
        assert not self.bed.faults


@pytest.fixture
async def sending() -> AsyncIterator[Sending]:
    found = Sending()
    yield found
    found.sender.close()
    await found.bed.tasks.cancel_all()
    assert not found.bed.faults


async def test_tx_50_a_marker_says_all_that_its_partition_checks(sending: Sending) -> None:
    sending.post.answer = lambda node, markers: [E.NONE] * len(markers)
    sending.outbox.send(mark(A, B, C))
    await sending.run(1)
    assert [node for node, _ in sending.post.calls] == [1, 2]
    entry = sending.post.calls[0][1][0]
    found = image(sending.brokers, sending.topics).topics.topic("a")
    assert found is not None
    assert entry == MarkerEntry(7, 3, 5, True, 2, A, found.topic_id)
    assert {tp for told in sending.heard if isinstance(told, Marked) for tp in told.partitions} == {A, B, C}


@pytest.mark.parametrize(
    "failure", [TransportError("gone"), ApiError(E.INVALID_REQUEST), ApiError(E.INVALID_PRODUCER_EPOCH), "short"]
)
async def test_tx_51_an_answer_that_is_lost_is_asked_for_again(sending: Sending, failure: Exception | str) -> None:
    """An error of the whole request says nothing of any partition: it fences nobody and completes nothing."""

    def fail(node: int, markers: Sequence[MarkerEntry]) -> Sequence[ErrorCode]:
        if isinstance(failure, Exception):
            raise failure
        return [E.NONE] * (len(markers) + 1)

    sending.post.answer = fail
    sending.outbox.send(mark(A))
    await sending.run(3 * SEND_AGAIN_MS)
    assert len(sending.post.calls) >= 3 and sending.heard == []
    sending.post.answer = lambda node, markers: [E.NONE] * len(markers)
    await sending.run(SEND_AGAIN_MS)
    assert sending.heard == [marked(A)]


async def test_tx_51_who_is_gone_is_not_waited_for(sending: Sending) -> None:
    sending.outbox.send(mark(A))
    await sending.run(1)
    assert [node for node, _ in sending.post.calls] == [1]
    sending.brokers[0] = broker(1, fenced=True)
    sending.sender.metadata_changed()
    await sending.run(SEND_AGAIN_MS)
    assert sending.post.given_up == 1 and len(sending.post.calls) == 1, "its leader is the broker that is gone"
    assert sending.sender.waiting == 1
    sending.topics["a"][0] = partition([1, 2], leader=2, leader_epoch=1)
    sending.post.answer = lambda node, markers: [E.NONE] * len(markers)
    sending.sender.metadata_changed()
    await sending.run()
    assert [node for node, _ in sending.post.calls] == [1, 2] and sending.heard == [marked(A)]


async def test_tx_51_who_is_gone_before_anything_was_sent(sending: Sending) -> None:
    sending.outbox.send(mark(A))
    sending.bed.clock.advance(1)  # the task that sends is there, and has not begun
    sending.brokers[0] = broker(1, fenced=True)
    sending.sender.metadata_changed()
    await sending.run()
    assert sending.post.calls == []
    sending.topics["a"][0] = partition([1, 2], leader=2, leader_epoch=1)
    sending.post.answer = lambda node, markers: [E.NONE] * len(markers)
    sending.sender.metadata_changed()
    await sending.run(SEND_AGAIN_MS)
    assert [node for node, _ in sending.post.calls] == [2] and sending.heard == [marked(A)]


async def test_tx_52_a_topic_that_is_deleted_meanwhile(sending: Sending) -> None:
    sending.topics["a"][0] = partition([1, 2], leader=None)
    sending.outbox.send(mark(A))
    await sending.run(SEND_AGAIN_MS)
    assert sending.post.calls == [] and sending.heard == []
    del sending.topics["a"]
    sending.sender.metadata_changed()
    await sending.run()
    assert sending.heard == [marked(A)]


async def test_tx_53_the_trace_says_who_stopped_the_markers(sending: Sending) -> None:
    sending.post.answer = lambda node, markers: [E.TRANSACTION_COORDINATOR_FENCED] * len(markers)
    sending.outbox.send(mark(A))
    await sending.run(1)
    (event,) = sending.bed.events("transaction.markers_stopped")
    assert (event.transactional_id, event.tp, event.error) == ("t", A, "TRANSACTION_COORDINATOR_FENCED")
    assert sending.heard == [Fenced(transactional_id="t", attempt=1)]


async def test_tx_61_a_closed_sender_sends_nothing_more(sending: Sending) -> None:
    sending.outbox.send(mark(A))
    await sending.run(1)
    sending.outbox.send(mark(B, attempt=2))
    sending.sender.close()
    await sending.run(10 * SEND_AGAIN_MS)
    assert len(sending.post.calls) == 1 and sending.post.given_up == 1 and sending.heard == []
