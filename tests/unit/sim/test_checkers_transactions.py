"""Each checker of transactions finds what is wrong in a made-up history, and nothing in one that is right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.log.appends import AppendOrigin
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.log.indexes import AbortedTransaction, TransactionIndex
from kraftlite.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.base import CheckerFactory, Losses, Violation, World
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.h_transactions import TransactionsSeen
from kraftlite.sim.checkers.i65_transaction_states import TransactionStates
from kraftlite.sim.checkers.i66_transaction_outcomes import TransactionOutcomes
from kraftlite.sim.checkers.i67_stable_offsets import StableOffsets
from kraftlite.sim.checkers.replica_views import Batch
from kraftlite.sim.checkers.transaction_log import InLog, TransactionWatch, transaction_facts
from kraftlite.sim.cluster import CLIENT, SimCluster
from kraftlite.sim.history import History
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.sim.shape import NAMED
from kraftlite.sim.workloads.transactions_history import Given, Outcome, Reading, Sent, Tried
from tests.harness.orders_cluster import TP, Orders
from tests.harness.violations import Cases, assert_found

S = TransactionState
STATE = TopicPartition(TRANSACTION_TOPIC, 0)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
T = UUID(int=7)
PRODUCER = 1001


class Log:
    """A world in which nothing runs: the records and batches are written by hand."""

    def __init__(self, factory: CheckerFactory) -> None:
        self.cluster = SimCluster(VirtualLoop(1), NAMED["1+1"], 1)
        self.world = World(cluster=self.cluster, history=History(), losses=Losses(), rng=random.Random(1))
        self.metadata = MetadataWatch(self.world).facts.history
        self.metadata_end = 0
        self.create("t", T)
        self.facts = transaction_facts(self.world)
        self.checker = factory(self.world)
        self.seen = self.world.history.transactions
        self.offset = 0

    def create(self, name: str, topic_id: UUID) -> None:
        self.replay(TopicRecord(name=name, topic_id=topic_id))
        for index in (0, 1):
            here = (NodeId(2),)
            partition = PartitionRecord(
                topic_id=topic_id, partition=index, replicas=here, isr=here, leader=here[0], leader_epoch=0, partition_epoch=0
            )
            self.replay(partition)

    def replay(self, record: MetadataRecord) -> None:
        self.metadata.replay(record, self.metadata_end)
        self.metadata_end += 1

    def state(self, state: TransactionState, epoch: int, *partitions: TopicPartition, name: str = "x", **more: Any) -> None:
        """Nothing else happens in the same step of its node."""
        self.written(state, epoch, *partitions, name=name, **more)
        self.checker.on_step(next(iter(self.world.nodes.values())))

    def written(self, state: TransactionState, epoch: int, *partitions: TopicPartition, name: str = "x", **more: Any) -> None:
        values = {"producer_id": PRODUCER, "timeout_ms": 1, "start_ms": 1, "updated_ms": 1, "version": 2} | more
        value = Transaction(state=state, producer_epoch=epoch, partitions=frozenset(partitions), **values)
        self.offset += 1
        self.facts.replay(STATE, self.offset, name, value)

    def batch(self, tp: TopicPartition, epoch: int, *, commit: bool | None = None, coordinator_epoch: int = 0) -> None:
        """A batch, or with `commit` a marker, is appended and committed."""
        self.offset += 1
        batch = Batch(self.offset, self.offset + 1, 0, self.offset, 1, PRODUCER, epoch, 0, 0, commit is not None)
        marker = None if commit is None else EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch)
        key = TopicIdPartition(T, tp.partition)
        self.facts.appended(InLog(key, tp, batch, marker, None))
        self.facts.committed(self.facts.in_log[key][batch])

    def tried(self, outcome: Outcome, *values: str) -> None:
        sends = [Sent(tp=A, value=value) for value in values]
        producer = Producer(PRODUCER, 0)
        tried = Tried(transactional_id="x", instance=0, producer=producer, version=2, began_us=0, sends=sends, outcome=outcome)
        self.seen.tried.append(tried)

    def settle(self) -> None:
        left = self.checker.unsettled()
        if left is not None:
            self.checker.fail(left)


CASES: list[tuple[CheckerFactory, Callable[[Log], Any], str]] = []


def breaks(checker: CheckerFactory, words: str) -> Callable[[Callable[[Log], Any]], Callable[[Log], Any]]:
    def note(function: Callable[[Log], Any]) -> Callable[[Log], Any]:
        CASES.append((checker, function, words))
        return function

    return note


# --- 65


@breaks(TransactionStates, "says PrepareAbort behind PrepareCommit")
def an_outcome_flips_in_the_log(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.state(S.PREPARE_COMMIT, 1, A)
    log.state(S.PREPARE_ABORT, 2, A)


@breaks(TransactionStates, "goes from epoch 3 of Empty to 2 of Ongoing")
def an_epoch_goes_back(log: Log) -> None:
    log.state(S.EMPTY, 3)
    log.state(S.ONGOING, 2, A)


@breaks(TransactionStates, "goes from epoch 0 of Ongoing to 0 of PrepareAbort")
def a_transaction_is_decided_in_its_own_epoch(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.state(S.PREPARE_ABORT, 0, A)


@breaks(TransactionStates, "changes the producer id")
def a_producer_id_changes_too_early(log: Log) -> None:
    log.state(S.EMPTY, 3)
    log.state(S.EMPTY, 0, producer_id=9)


@breaks(TransactionStates, "which is that of x")
def two_ids_have_one_producer_id(log: Log) -> None:
    log.state(S.EMPTY, 0)
    log.state(S.EMPTY, 0, name="y")


# --- 66


@breaks(TransactionOutcomes, "decided is nothing")
def a_marker_comes_before_the_decision(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.batch(A, 0)
    log.batch(A, 1, commit=True)


@breaks(TransactionOutcomes, "aborts producer 1001 in epoch 1; decided is .*committed")
def a_marker_has_the_other_outcome(log: Log) -> None:
    log.state(S.ONGOING, 0, A, B)
    log.state(S.PREPARE_COMMIT, 1, A, B)
    log.batch(A, 1, commit=True)
    log.batch(B, 1, commit=False)


@breaks(TransactionOutcomes, "is in no transaction")
def a_batch_is_in_no_transaction(log: Log) -> None:
    log.batch(A, 0)


@breaks(TransactionOutcomes, "is no part of the transaction of x")
def a_partition_is_not_in_the_transaction(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.batch(B, 0)


@breaks(TransactionOutcomes, "came behind the transaction of x .* and complete")
def a_batch_comes_late(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.state(S.PREPARE_ABORT, 1, A)
    log.batch(A, 1, commit=False)
    log.state(S.COMPLETE_ABORT, 1)
    log.batch(A, 0)


@breaks(TransactionOutcomes, "ends .* of the transaction of x .* which is open")
def a_marker_of_an_older_transaction_ends_the_next(log: Log) -> None:
    log.state(S.ONGOING, 0, A, version=0)
    log.state(S.PREPARE_COMMIT, 0, A, version=0)
    log.batch(A, 0, commit=True)
    log.state(S.COMPLETE_COMMIT, 0, version=0)
    log.state(S.ONGOING, 0, A, version=0)
    log.batch(A, 0)
    log.batch(A, 0, commit=True)


@breaks(TransactionOutcomes, "comes from coordinator epoch 3, the one before it from 4")
def a_coordinator_that_was_replaced_writes_again(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.state(S.PREPARE_COMMIT, 1, A)
    log.batch(A, 1, commit=True, coordinator_epoch=3)
    log.batch(A, 1, commit=True, coordinator_epoch=4)
    log.batch(A, 1, commit=True, coordinator_epoch=3)


@breaks(TransactionOutcomes, "t-1 has no marker")
def a_transaction_is_complete_too_early(log: Log) -> None:
    log.state(S.ONGOING, 0, A, B)
    log.state(S.PREPARE_COMMIT, 1, A, B)
    log.batch(A, 1, commit=True)
    log.state(S.COMPLETE_COMMIT, 1)


def test_a_coordinator_that_is_alone_goes_from_the_outcome_to_the_end_in_one_step() -> None:
    """Its log is looked at first, and the logs of the partitions behind it."""
    log = Log(TransactionOutcomes)
    log.state(S.ONGOING, 0, A)
    log.written(S.PREPARE_COMMIT, 1, A)
    log.written(S.COMPLETE_COMMIT, 1)
    log.batch(A, 1, commit=True)
    log.state(S.ONGOING, 2, B)


@breaks(TransactionOutcomes, "u-0 has no marker")
def a_marker_is_only_in_the_partition_of_the_same_number_of_another_topic(log: Log) -> None:
    log.create("u", UUID(int=8))
    other = TopicPartition("u", 0)
    log.state(S.ONGOING, 0, A, other)
    log.state(S.PREPARE_COMMIT, 1, A, other)
    log.batch(A, 1, commit=True)
    log.state(S.COMPLETE_COMMIT, 1)


@breaks(TransactionOutcomes, "which is open")
def a_transaction_stays_open(log: Log) -> None:
    log.state(S.ONGOING, 0, A)
    log.settle()


# --- what clients saw


def committed(checker: TransactionsSeen, log: Log, *records: tuple[int, str]) -> None:
    """The log of the partition has these, by its markers."""
    checker._final = lambda: iter([(A, list(records))])  # type: ignore[method-assign]
    log.seen.topics.append("t")
    checker.at_end()


@breaks(TransactionsSeen, "of a transaction that was not committed")
def a_reader_sees_what_was_aborted(log: Log) -> None:
    log.tried(Outcome.NOT_COMMITTED, "v")
    log.seen.readings.append(Reading(client="r", tp=A, end=2, records=[(0, "v")]))
    committed(log.checker, log)  # type: ignore[arg-type]


def test_a_reader_of_a_partition_that_lost_a_marker_is_excused() -> None:
    """The next marker of the producer then ends the transaction whose own marker a power cut took, the only copy of it."""
    log = Log(TransactionsSeen)
    log.tried(Outcome.NOT_COMMITTED, "v")
    log.seen.readings.append(Reading(client="r", tp=A, end=2, records=[(0, "v")]))
    log.world.losses.excused[A] = "its only copy lost what was not flushed"
    log.seen.topics.append("t")
    log.checker.at_end()


@breaks(TransactionsSeen, r"was not given \[\(0, 'v'\)\]")
def a_reader_misses_a_record(log: Log) -> None:
    log.tried(Outcome.COMMITTED, "v")
    log.seen.readings.append(Reading(client="r", tp=A, end=2))
    committed(log.checker, log, (0, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "w is not there; its commit was acknowledged")
def a_committed_record_is_lost(log: Log) -> None:
    log.tried(Outcome.COMMITTED, "v", "w")
    committed(log.checker, log, (0, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "v is committed and w of t-0 is not")
def half_a_transaction_is_there(log: Log) -> None:
    log.tried(Outcome.UNKNOWN, "v", "w")
    committed(log.checker, log, (0, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "v is committed by a transaction that was not")
def an_aborted_record_counts(log: Log) -> None:
    log.tried(Outcome.NOT_COMMITTED, "v")
    committed(log.checker, log, (0, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "v is committed 2 times")
def a_record_is_there_twice(log: Log) -> None:
    log.tried(Outcome.COMMITTED, "v")
    committed(log.checker, log, (0, "v"), (1, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "c:t-0@0 was copied 2 times")
def a_record_is_copied_twice(log: Log) -> None:
    log.tried(Outcome.COMMITTED, "c:t-0@0#1")
    log.tried(Outcome.COMMITTED, "c:t-0@0#2")
    committed(log.checker, log, (0, "c:t-0@0#1"), (1, "c:t-0@0#2"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "x:t-0@0 was never copied; the offset of the group is 1")
def a_record_is_not_copied(log: Log) -> None:
    log.tried(Outcome.COMMITTED, "v")
    log.tried(Outcome.COMMITTED)
    log.seen.tried[-1].moved[A] = (0, 1)
    log.seen.tried[-1].copier = "x"
    committed(log.checker, log, (0, "v"))  # type: ignore[arg-type]


@breaks(TransactionsSeen, "which instance 0 of x has")
def two_instances_are_one_producer(log: Log) -> None:
    for instance in (0, 1):
        given = Given(transactional_id="x", instance=instance, producer=Producer(PRODUCER, 0), by="InitProducerId", at_us=0)
        log.seen.given.append(given)
    log.checker.at_end()


@pytest.mark.parametrize(
    ("checker", "violate", "words"), CASES, ids=[f"{it.__name__}-{violate.__name__}" for it, violate, _ in CASES]
)  # type: ignore[attr-defined]
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Log], Any], words: str) -> None:
    with pytest.raises(Violation, match=words) as caught:
        violate(Log(checker))
    assert caught.value.checker.startswith(checker.__name__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("checker", [TransactionStates, TransactionOutcomes])
@pytest.mark.parametrize("version", [0, 2])
def test_what_really_happens_is_no_violation(checker: CheckerFactory, version: int) -> None:
    log = Log(checker)
    log.state(S.EMPTY, 0, version=version)
    log.state(S.ONGOING, 0, A, version=version)
    log.batch(A, 0)
    log.state(S.ONGOING, 0, A, B, version=version)
    log.batch(B, 0)
    end = 1 if version else 0
    log.state(S.PREPARE_COMMIT, end, A, B, version=version)
    log.batch(A, 0)
    log.batch(A, end, commit=True)
    log.batch(B, end, commit=True)
    log.batch(B, end, commit=True)
    log.state(S.COMPLETE_COMMIT, end, version=version)
    log.state(S.ONGOING, end, B, version=version)
    log.batch(B, end)
    log.state(S.PREPARE_ABORT, end + 1, B, version=version)
    log.batch(B, end + 1, commit=False)
    log.state(S.COMPLETE_ABORT, end + 1, version=version)
    log.settle()


def test_a_topic_that_is_made_again_before_the_transaction_is_over_needs_no_marker() -> None:
    log = Log(TransactionOutcomes)
    log.state(S.ONGOING, 0, A, B)
    log.state(S.PREPARE_COMMIT, 1, A, B)
    log.batch(A, 1, commit=True)
    log.replay(RemoveTopicRecord(topic_id=T))
    log.create("t", UUID(int=8))
    log.state(S.COMPLETE_COMMIT, 1)


# --- 67: on logs


class Transactional(Orders):
    """Three records outside of transactions, and an open transaction of one record at offset 3."""

    def start(self) -> Transactional:
        super().start()
        batch = build_batch(
            [Record(key=None, value=b"v")],
            timestamp_ms=self.cluster.wall_ms(),
            transactional=True,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=0,
        )
        self.append(batch)
        return self

    def abort_one_amid_another(self) -> None:
        """The transaction of another producer begins behind the one that is open and is aborted before it."""
        other, stamp = PRODUCER + 1, self.cluster.wall_ms()
        batch = build_batch(
            [Record(key=None, value=b"w")],
            timestamp_ms=stamp,
            transactional=True,
            producer_id=other,
            producer_epoch=0,
            base_sequence=0,
        )
        self.append(batch)
        marker = EndTxnMarker(commit=False, coordinator_epoch=0)
        self.append(bytes(control_batch([marker], timestamp_ms=stamp, producer_id=other, producer_epoch=1)))
        self.abort()
        self.produce()

    def read_committed(self) -> tuple[FetchAsk, FetchResult]:
        """What a consumer is given from the beginning on."""
        ask = FetchAsk(TP, 0, None, 0, 1 << 20, read_committed=True)
        result = self.do(self.client.call(Endpoint(f"n{self.leader.node_id}", 9092), FETCH, ask, 3_000))
        assert isinstance(result, FetchResult)
        return ask, result

    def append(self, batch: bytes) -> None:
        self.log(self.leader).append_as_leader(
            bytearray(batch), leader_epoch=0, wall_ms=self.cluster.wall_ms(), origin=AppendOrigin.COORDINATOR
        )

    def abort(self) -> None:
        marker = EndTxnMarker(commit=False, coordinator_epoch=0)
        stamp = self.cluster.wall_ms()
        self.append(bytes(control_batch([marker], timestamp_ms=stamp, producer_id=PRODUCER, producer_epoch=1)))


LOG_CASES: Cases[Transactional] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Transactional]]:
    made: list[Transactional] = []

    def start(*factories: CheckerFactory) -> Transactional:
        made.append(Transactional(*factories))
        return made[-1].start()

    yield start
    for cluster in made:
        cluster.close()


@LOG_CASES.breaks(StableOffsets, "has the LSO 5 at the HW 5; open are .1001: 3.")
def an_open_transaction_does_not_hold_the_lso(cluster: Transactional) -> None:
    cluster.log(cluster.leader)._ctx.producers._open.clear()
    cluster.produce()


@LOG_CASES.breaks(StableOffsets, r"has the aborted transactions \[\] in its index")
def an_aborted_transaction_is_not_in_the_index(cluster: Transactional) -> None:
    cluster.produce()
    cluster.abort()
    cluster.log(cluster.leader).segments[-1].txn_index.truncate(0)
    cluster.produce()


class _UpToTheNextMarker(TransactionIndex):
    """Tells of no transaction behind the first one that ends."""

    def ending_from(self, offset: int) -> Iterator[AbortedTransaction]:
        return itertools.islice(super().ending_from(offset), 1)


@LOG_CASES.breaks(StableOffsets, r"between 3 and 4 \[\(1001, 3\)\] are missing")
def a_lookup_stops_at_the_first_marker(cluster: Transactional) -> None:
    segment = cluster.log(cluster.leader).segments[-1]
    segment.txn_index = _UpToTheNextMarker(segment.txn_index.path)
    cluster.abort_one_amid_another()


@LOG_CASES.breaks(StableOffsets, r"answered by orders-0 .* between 0 and 8 \[\(1001, 3\)\] are missing; over are \[\]")
def a_reader_is_not_told_of_an_abort(cluster: Transactional) -> None:
    cluster.abort_one_amid_another()
    ask, result = cluster.read_committed()
    assert result.aborted is not None and len(result.aborted) == 2
    answer = replace(result, aborted=result.aborted[:1])
    cluster._tell(lambda it: it.on_answer(CLIENT, cluster.leader.node_id, FETCH, ask, answer))
    cluster.go(1)


@pytest.mark.parametrize(("checker", "violate", "words"), LOG_CASES, ids=LOG_CASES.ids)
def test_a_violation_on_a_log_is_found(
    make: Callable[..., Transactional], checker: CheckerFactory, violate: Callable[[Transactional], Any], words: str
) -> None:
    assert_found(make(TransactionWatch, checker), checker, violate, words)


def test_stable_offsets_that_are_right_are_no_violation(make: Callable[..., Transactional]) -> None:
    cluster = make(TransactionWatch, StableOffsets)
    cluster.produce()
    assert cluster.log(cluster.leader).last_stable_offset == 3
    cluster.abort()
    cluster.produce()
    assert cluster.log(cluster.leader).last_stable_offset == 7
    assert cluster.read_committed()[1].aborted == ((PRODUCER, 3),)
