"""The checkers of what coordinators have in memory, and of what those that were replaced are told, find what is wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.api import FetchedOffset
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.coordinator.records import CommittedOffset, CoordinatorRecord, offset_record, offset_tombstone
from kraftlite.coordinator.shard_core import GroupShard
from kraftlite.coordinator.transactions.events import Add
from kraftlite.coordinator.transactions.held import Held
from kraftlite.coordinator.transactions.records import record_of
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ENROLL
from kraftlite.model.messages.transactions import EnrolledPartition, EnrollRequest, EnrollResponse
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.replication.api import ProduceResult
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.group import GroupsLoaded
from kraftlite.runtime.trace.transaction import TransactionsLoaded
from kraftlite.sim.checkers.base import CheckerFactory, Losses, Violation, World
from kraftlite.sim.checkers.coordinator_memory import Remembered
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.group_log import GroupLog, group_facts
from kraftlite.sim.checkers.i65_transaction_states import TransactionStates
from kraftlite.sim.checkers.i68_transaction_memory import CoordinatorMemory
from kraftlite.sim.checkers.i69_fenced_producers import FencedProducers
from kraftlite.sim.checkers.i70_stable_fetches import StableFetches
from kraftlite.sim.checkers.i71_pending_offsets import PendingOffsetsKept
from kraftlite.sim.checkers.i72_transaction_refusals import TransactionRefusals
from kraftlite.sim.checkers.replica_views import Batch
from kraftlite.sim.checkers.transaction_log import InLog, transaction_facts
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.history import History
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.services.groups import OFFSET_FETCH, OffsetFetchAsk, Told
from kraftlite.sim.services.transactions import (
    ADD,
    COMMIT,
    END,
    INIT,
    PRODUCE,
    AddAsk,
    EndAsk,
    InitAsk,
    TransactionalBatch,
    TransactionalCommitAsk,
    TransactionalProduceAsk,
)
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.network import Exchange
from tests.harness.transaction_world import TransactionWorld

S = TransactionState
STATE, OFFSETS, A = TopicPartition(TRANSACTION_TOPIC, 0), TopicPartition(OFFSETS_TOPIC, 0), TopicPartition("t", 0)
BROKER = NodeId(2)
FIRST, SECOND = Producer(1001, 0), Producer(1001, 1)
CASES: list[tuple[CheckerFactory, Callable[[Place], Any], str]] = []


class Driver:
    """The coordination of a partition by node 2."""

    loaded, loading, leader_epoch = True, False, 0

    def __init__(self, tp: TopicPartition, shard: GroupShard | TransactionShard) -> None:
        self.tp, self.shard = tp, shard
        self._events: list[object] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}


class Place:
    """A world in which nothing runs: logs, memory and messages are made by hand."""

    def __init__(self, factory: CheckerFactory) -> None:
        self.loop = VirtualLoop(1)
        self.cluster = SimCluster(self.loop, NAMED["1+1"], 1)
        self.world = World(cluster=self.cluster, history=History(), losses=Losses(), rng=random.Random(1))
        history = MetadataWatch(self.world).facts.history
        history.replay(FeatureLevelRecord(name="transaction.version", level=2), 0)
        for number, tp in enumerate((STATE, OFFSETS, A), 1):
            topic_id, here = UUID(int=number), (BROKER,)
            history.replay(TopicRecord(name=tp.topic, topic_id=topic_id), 2 * number)
            partition = PartitionRecord(
                topic_id=topic_id, partition=0, replicas=here, isr=here, leader=BROKER, leader_epoch=0, partition_epoch=0
            )
            history.replay(partition, 2 * number + 1)
        self.facts, self.groups = transaction_facts(self.world), group_facts(self.world)
        self.log = self.groups.logs[OFFSETS] = GroupLog(OFFSETS)
        self.ids = Driver(STATE, TransactionWorld().shard)
        self.offsets = Driver(OFFSETS, GroupShard(GroupConfig.from_values({}), NullTracer(), random.Random(1)))
        self.groups.driver = lambda node, group_id: self.offsets  # type: ignore[method-assign, assignment, return-value]
        self.checker: Any = factory(self.world)
        self.node = self.cluster.nodes[BROKER]
        self.offset = 0

    # --- __transaction_state

    def value(self, state: TransactionState, epoch: int, **more: Any) -> Transaction:
        values: dict[str, Any] = {"producer_id": 1001, "timeout_ms": 1, "start_ms": 1, "updated_ms": 1, "version": 2}
        values = values | {"partitions": frozenset({A})} | more
        return Transaction(state=state, producer_epoch=epoch, **values)

    def state(self, value: Transaction, name: str = "x", *, epoch: int = 0) -> None:
        self.offset += 1
        self.facts.replay(STATE, self.offset, name, value, epoch=epoch)

    def remembers(self, value: Transaction, name: str = "x") -> None:
        assert isinstance(self.ids.shard, TransactionShard)
        key, data = record_of(name, value, transaction_version=2)
        self.ids.shard.replay(key, data, wall_ms=0)

    def compare_ids(self) -> None:
        self.checker._compare(self.node, self.ids)

    # --- __consumer_offsets

    def write(self, record: CoordinatorRecord, producer_id: int | None = None) -> None:
        self.log.apply(self.log.end, *record, producer_id)
        self.log.end += 1

    def commit(self, offset: int, producer_id: int | None = None) -> CoordinatorRecord:
        record = offset_record("g", A, CommittedOffset(offset, None, "", 1))
        self.write(record, producer_id)
        return record

    def load(self, record: CoordinatorRecord, producer_id: int | None = None) -> None:
        assert isinstance(self.offsets.shard, GroupShard)
        self.offsets.shard.replay(*record, producer_id=producer_id, wall_ms=0)

    def compare_offsets(self) -> None:
        self.checker._compare(self.node, self.offsets, self.log)

    # --- messages

    def serve(self, method: Any, request: Any, result: Any, between: Callable[[], Any] = lambda: None) -> None:
        exchange = Exchange(NodeId(1100), BROKER, method, request, self.loop.create_future())
        self.checker.on_arrival(exchange)
        between()
        error = result if isinstance(result, ErrorCode) else ErrorCode.NONE
        self.checker.on_served(exchange, Told(error, None if isinstance(result, ErrorCode) else result))

    def init(self, producer: Producer) -> None:
        self.serve(INIT, InitAsk(transactional_id="x", timeout_ms=1), producer)

    def commit_in_transaction(self, offset: int) -> CoordinatorRecord:
        record = self.commit(offset, FIRST.producer_id)
        ask = TransactionalCommitAsk(transactional_id="x", producer=FIRST, version=2, group_id="g", offsets=((A, offset),))
        self.serve(COMMIT, ask, (ErrorCode.NONE,))
        return record

    def end(self, *, commit: bool = True) -> None:
        self.serve(END, EndAsk("x", FIRST, commit, 2), SECOND)

    def fetch(self, offset: int, error: ErrorCode = ErrorCode.NONE, *, stable: bool = True) -> None:
        ask = OffsetFetchAsk(group_id="g", partitions=(A,), require_stable=stable)
        self.serve(OFFSET_FETCH, ask, [FetchedOffset(A, error, offset, None, "")])


def breaks(checker: CheckerFactory, words: str) -> Callable[[Callable[[Place], Any]], Callable[[Place], Any]]:
    def note(function: Callable[[Place], Any]) -> Callable[[Place], Any]:
        CASES.append((checker, function, words))
        return function

    return note


# --- 65


@breaks(TransactionStates, "is of leader epoch 3, and lies behind one of 4")
def a_replaced_coordinator_writes(place: Place) -> None:
    place.state(place.value(S.ONGOING, 0), epoch=4)
    place.state(place.value(S.ONGOING, 0), epoch=3)


# --- 68


@breaks(CoordinatorMemory, "x is None, committed is Transaction")
def an_id_is_forgotten(place: Place) -> None:
    place.state(place.value(S.ONGOING, 0))
    place.compare_ids()


@breaks(CoordinatorMemory, "x is Transaction.*committed is None")
def an_id_is_in_memory_alone(place: Place) -> None:
    place.remembers(place.value(S.EMPTY, 0))
    place.compare_ids()


@pytest.mark.parametrize(
    "other",
    [
        {"state": S.PREPARE_COMMIT},
        {"producer_epoch": 4},
        {"producer_id": 7},
        {"timeout_ms": 9},
        {"partitions": frozenset()},
        {"start_ms": 5},
        {"previous_producer_id": 5},
        {"next_producer_id": 5},
        {"version": 0},
    ],
    ids=lambda it: next(iter(it)),
)
def test_each_field_that_is_logged_counts(other: dict[str, Any]) -> None:
    place = Place(CoordinatorMemory)
    place.state(place.value(S.ONGOING, 3))
    place.remembers(place.value(**({"state": S.ONGOING, "epoch": 3} | _as_arguments(other))))
    with pytest.raises(Violation, match="x is Transaction"):
        place.compare_ids()


def _as_arguments(other: dict[str, Any]) -> dict[str, Any]:
    return {"epoch" if name == "producer_epoch" else name: value for name, value in other.items()}


@breaks(CoordinatorMemory, "nodes 2 and 3 coordinate in leader epoch 0")
def two_coordinate_at_once(place: Place) -> None:
    loaded = TransactionsLoaded(tp=STATE, leader_epoch=0, end_offset=0, ids=0, decided=0, elapsed_ms=0)
    place.checker.on_event(0, place.node, loaded)
    other = SimCluster(place.loop, NAMED["1+3"], 1).nodes[NodeId(3)]
    place.checker.on_event(0, other, loaded)


@breaks(CoordinatorMemory, "a request of x is held, and nothing is under way for it")
def a_held_request_is_forgotten(place: Place) -> None:
    place.state(place.value(S.ONGOING, 0))
    place.remembers(place.value(S.ONGOING, 0))
    assert isinstance(place.ids.shard, TransactionShard)
    add = Add(transactional_id="x", producer=FIRST, partitions=frozenset({A}), version=2, wait_ms=9)
    place.ids.shard._held.hold(Held(1, add, 9), 0)
    place.compare_ids()


@breaks(CoordinatorMemory, "request 1 has no answer, and nothing is under way")
def a_request_is_never_answered(place: Place) -> None:
    place.ids._waiting[1] = place.loop.create_future()
    place.compare_ids()


# --- 69


@breaks(FencedProducers, r"grants EndAsk of x to \(1001, 0\); when it came, \(1001, 1\) was given out")
def who_was_replaced_commits(place: Place) -> None:
    place.init(FIRST)
    place.init(SECOND)
    place.serve(END, EndAsk("x", FIRST, True, 2), FIRST)


@breaks(FencedProducers, "grants AddAsk")
def who_was_replaced_adds_a_partition(place: Place) -> None:
    place.init(FIRST)
    place.init(SECOND)
    place.serve(ADD, AddAsk("x", FIRST, (A,)), ((A, ErrorCode.NONE),))


@breaks(FencedProducers, "grants EndAsk")
def who_has_the_producer_id_of_before_commits(place: Place) -> None:
    place.init(FIRST)
    place.init(Producer(2002, 0))
    place.serve(END, EndAsk("x", FIRST, True, 2), FIRST)


@breaks(FencedProducers, r"of epoch 0 came when \(1001, 1\) was given out")
def who_was_replaced_writes(place: Place) -> None:
    place.state(place.value(S.ONGOING, 0))
    place.init(SECOND)
    batch = Batch(5, 6, 0, 5, 1, 1001, 0, 0, 0, False)
    place.facts.appended(InLog(TopicIdPartition(UUID(int=3), 0), A, batch, None, None))


# --- 70


@breaks(StableFetches, "answers 4 for t-0 of group g to a stable fetch")
def a_fetch_does_not_wait_for_the_marker(place: Place) -> None:
    place.commit(4)
    place.commit_in_transaction(7)
    place.end()
    place.fetch(4)


# --- 72


def refuse(place: Place, epoch: int, *, version: int = 2, between: Callable[[], Any] = lambda: None) -> None:
    batch = build_batch(
        [Record(key=None, value=b"x")],
        timestamp_ms=1,
        transactional=True,
        producer_id=1001,
        producer_epoch=epoch,
        base_sequence=0,
    )
    ask = TransactionalProduceAsk("x", version, (TransactionalBatch(A, bytes(batch)),), 1_000)
    place.serve(PRODUCE, ask, (ProduceResult(tp=A, error=ErrorCode.INVALID_TXN_STATE),), between)


@breaks(TransactionRefusals, "as in no transaction; nobody has ended it")
def a_batch_of_an_open_transaction_is_refused(place: Place) -> None:
    place.state(place.value(S.ONGOING, 3))
    refuse(place, 3)


@breaks(TransactionRefusals, "as in no transaction; nobody has ended it")
def the_first_batch_of_a_transaction_is_refused(place: Place) -> None:
    place.state(place.value(S.ONGOING, 2))
    place.state(place.value(S.PREPARE_COMMIT, 3))
    refuse(place, 3, between=lambda: place.state(place.value(S.COMPLETE_COMMIT, 3)))


@breaks(TransactionRefusals, "its log has epoch 4, and the producer could go on")
def an_old_batch_is_told_the_wrong_reason(place: Place) -> None:
    place.checker._newest_epoch = lambda exchange, tp, producer_id: 4
    refuse(place, 3, version=0)


@breaks(TransactionRefusals, "is the first of its producer there, which begins with sequence 0")
def the_second_batch_comes_first(place: Place) -> None:
    place.state(place.value(S.ONGOING, 0))
    batch = Batch(5, 6, 0, 5, 1, 1001, 0, 3, 3, False)
    place.facts.appended(InLog(TopicIdPartition(UUID(int=3), 0), A, batch, None, None))


def test_what_is_over_may_be_refused() -> None:
    place = Place(TransactionRefusals)
    place.state(place.value(S.ONGOING, 3))
    refuse(place, 2)
    refuse(place, 3, between=lambda: place.state(place.value(S.PREPARE_ABORT, 4)))
    assert place.checker.judged == 2


def test_an_end_of_version_0_leaves_the_epoch() -> None:
    place = Place(TransactionRefusals)
    place.state(place.value(S.ONGOING, 3))
    refuse(place, 3, between=lambda: place.state(place.value(S.PREPARE_ABORT, 3, version=0)))
    place.state(place.value(S.COMPLETE_ABORT, 3))
    refuse(place, 3, between=lambda: place.state(place.value(S.ONGOING, 3)))


@breaks(TransactionRefusals, "answers that t-0 is not in the transaction of x .CONCURRENT_TRANSACTIONS.")
def a_partition_of_an_open_transaction_is_not_verified(place: Place) -> None:
    place.checker._in_memory = lambda exchange: Remembered(place.ids, place.value(S.ONGOING, 3))
    asked = (EnrolledPartition(topic="t", partition=0),)
    ask = EnrollRequest(cluster_id="", transactional_id="x", producer_id=1001, producer_epoch=3, add=False, partitions=asked)
    exchange = Exchange(NodeId(3), BROKER, ENROLL, ask, place.loop.create_future())
    place.checker.on_arrival(exchange)
    place.checker.on_served(exchange, EnrollResponse(errors=(ErrorCode.CONCURRENT_TRANSACTIONS,)))


@breaks(TransactionRefusals, "answers that .'t-1'. are in the transaction of x, which is")
def a_partition_is_said_to_be_added_and_is_not(place: Place) -> None:
    place.checker._in_memory = lambda exchange: Remembered(place.ids, place.value(S.ONGOING, 3))
    added = ((A, ErrorCode.NONE), (TopicPartition("t", 1), ErrorCode.NONE), (TopicPartition("t", 2), ErrorCode.INVALID_TXN_STATE))
    place.serve(ADD, AddAsk("x", Producer(1001, 3), tuple(tp for tp, _ in added)), added)


# --- 71


def loaded(place: Place) -> None:
    place.checker.on_event(
        0, place.node, GroupsLoaded(tp=OFFSETS, leader_epoch=0, end_offset=place.log.end, groups=0, offsets=0, elapsed_ms=0)
    )


@breaks(PendingOffsetsKept, "at offset 0 is not pending, and has no marker yet")
def a_pending_offset_is_not_loaded(place: Place) -> None:
    place.commit(7, FIRST.producer_id)
    loaded(place)
    place.compare_offsets()


@breaks(PendingOffsetsKept, "at offset 0 is not pending, and has no marker yet")
def an_acknowledged_offset_is_not_pending(place: Place) -> None:
    place.commit_in_transaction(7)
    place.compare_offsets()


@breaks(PendingOffsetsKept, "is pending, the log has CommittedOffset.offset=8")
def another_offset_is_pending(place: Place) -> None:
    place.load(place.commit(7, FIRST.producer_id), FIRST.producer_id)
    place.commit(8, FIRST.producer_id)
    place.compare_offsets()


@breaks(PendingOffsetsKept, "is pending; the record at 1, behind 0, counts already")
def a_plain_commit_does_not_overtake(place: Place) -> None:
    place.load(place.commit(7, FIRST.producer_id), FIRST.producer_id)
    place.commit(8)
    place.compare_offsets()


@breaks(PendingOffsetsKept, "is pending; the tombstone at 1 has taken it away")
def a_tombstone_leaves_a_pending_offset(place: Place) -> None:
    place.load(place.commit(7, FIRST.producer_id), FIRST.producer_id)
    place.write(offset_tombstone("g", A))
    place.compare_offsets()


@breaks(PendingOffsetsKept, "the offset of t-0 in g is CommittedOffset.offset=4.*versions are")
def an_older_offset_counts(place: Place) -> None:
    """Its client was told that it is late."""
    place.load(place.commit(4))
    place.commit(7)
    place.compare_offsets()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=[f"{it.__name__}-{how.__name__}" for it, how, _ in CASES])
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Place], Any], words: str) -> None:
    with pytest.raises(Violation, match=words) as caught:
        violate(Place(checker))
    assert caught.value.checker.startswith(checker.__name__)


# --- what is right


def test_memory_that_agrees_with_the_log_is_no_violation() -> None:
    place = Place(CoordinatorMemory)
    for value in (place.value(S.EMPTY, 0, partitions=frozenset()), place.value(S.ONGOING, 0), place.value(S.PREPARE_COMMIT, 1)):
        place.state(value)
        place.remembers(value)
        place.compare_ids()
    assert place.checker.compared == 3


def test_a_refusal_of_who_was_replaced_is_counted_and_an_epoch_of_endtxn_fences_nobody() -> None:
    place = Place(FencedProducers)
    place.init(FIRST)
    place.end()
    place.serve(END, EndAsk("x", FIRST, True, 2), SECOND)
    place.init(Producer(1001, 2))
    place.serve(END, EndAsk("x", FIRST, True, 2), ErrorCode.PRODUCER_FENCED)
    assert place.checker.refused == 1


def test_a_request_that_comes_twice_is_judged_by_when_it_came_first() -> None:
    place = Place(FencedProducers)
    place.init(FIRST)
    ask = EndAsk("x", FIRST, True, 2)
    exchange = Exchange(NodeId(1100), BROKER, END, ask, place.loop.create_future())
    place.checker.on_arrival(exchange)
    place.init(SECOND)
    place.checker.on_arrival(exchange)
    place.checker.on_served(exchange, Told(ErrorCode.NONE, FIRST))


def test_a_stable_fetch_may_wait_answer_the_new_offset_or_come_before_the_end() -> None:
    place = Place(StableFetches)
    place.commit(4)
    place.commit_in_transaction(7)
    place.fetch(4)
    place.end()
    place.fetch(4, stable=False)
    place.fetch(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    place.log.end_transaction(FIRST.producer_id, commit=True)
    place.fetch(7)
    place.commit(9)
    place.fetch(9)
    assert place.checker.judged == 2


def test_an_aborted_transaction_binds_no_fetch() -> None:
    place = Place(StableFetches)
    place.commit(4)
    place.commit_in_transaction(7)
    place.end(commit=False)
    place.fetch(4)


def test_pending_offsets_that_are_right_are_no_violation() -> None:
    place = Place(PendingOffsetsKept)
    place.load(place.commit_in_transaction(7), FIRST.producer_id)
    place.compare_offsets()
    place.load(place.commit(8))
    place.compare_offsets()
    record = offset_tombstone("g", A)
    place.write(record)
    place.load(record)
    place.compare_offsets()
    assert place.checker.compared == 3
