"""The outcomes of transactions: decided, carried out by markers, kept over failovers; and what time does to ids. Source: TX-40 to
TX-63; KIP-98, KIP-890."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from kraftlite.coordinator.core.shards import Written
from kraftlite.coordinator.transactions.events import Fenced, Marked
from kraftlite.coordinator.transactions.states import FENCING_EPOCH, LAST_EPOCH, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.transaction_world import COMPLETED, FIRST_ID, STARTED, VERSIONS, WALL_MS, A, B, C, world

S = TransactionState
E = ErrorCode
# --- ends


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_tx_40_the_answer_comes_before_the_markers(version: int, commit: bool) -> None:
    w = world(version)
    producer = w.begun(A, B)
    answer = w.now(w.end(producer, commit=commit))
    assert answer == (producer._replace(producer_epoch=1) if version == 2 else producer)
    assert w.current().state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    w.settle()
    assert w.current().state is COMPLETED[commit]
    assert {tp: (it.epoch, it.commit) for tp, _, it in w.history} == dict.fromkeys((A, B), (answer.producer_epoch, commit))


@pytest.mark.parametrize("commit", [True, False])
def test_tx_43_an_end_is_asked_once_more_after_a_failover(commit: bool) -> None:
    w = world(2)
    producer = w.begun(A)
    w.end(producer, commit=commit)
    w.fail_over(len(w.log))
    assert w.answer(w.end(producer, commit=commit)) is E.CONCURRENT_TRANSACTIONS
    assert w.answer(w.end(producer, commit=not commit)) is E.CONCURRENT_TRANSACTIONS, "pending is looked at first (TX-42)"
    w.settle()
    assert w.answer(w.end(producer, commit=commit)) == producer._replace(producer_epoch=1)
    assert w.answer(w.end(producer, commit=not commit)) is E.INVALID_TXN_STATE


def test_tx_44_an_abort_without_a_transaction_is_one_more_epoch() -> None:
    w = world(2)
    producer = w.now(w.init())
    w.pass_time(3_000)
    after = w.now(w.end(producer, commit=False))
    assert after == producer._replace(producer_epoch=1)
    w.commit()
    assert (w.current().state, w.current().start_ms, w.sent) == (S.COMPLETE_ABORT, WALL_MS + 3_000, [])
    assert w.answer(w.end(after, commit=True)) is E.INVALID_TXN_STATE
    assert w.now(w.end(after, commit=False)) == producer._replace(producer_epoch=2)


@pytest.mark.parametrize("commit", [True, False])
def test_tx_45_behind_the_last_epoch_the_producer_goes_on_with_another_id(commit: bool) -> None:
    w = world(2)
    w.load("t", replace(STARTED, producer_epoch=LAST_EPOCH))
    last, fresh = Producer(70, LAST_EPOCH), Producer(FIRST_ID + 1, 0)
    assert w.now(w.end(last, commit=commit)) == fresh
    assert {sent.mark.producer for sent in w.sent} == {Producer(70, FENCING_EPOCH)}
    w.fail_over()
    w.settle()
    assert Producer(w.current().producer_id, w.current().producer_epoch) == fresh
    assert w.answer(w.end(last, commit=commit)) == fresh, "asked once more, after a failover"
    w.no_ids = True
    w.load("u", replace(STARTED, producer_id=71, producer_epoch=LAST_EPOCH))
    assert w.answer(w.end(Producer(71, LAST_EPOCH), name="u")) is E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", [0, 2])
def test_tx_45_the_id_before_is_known_until_the_next_one_is_used(version: int) -> None:
    """A request of the old one that comes late neither aborts what its successor has open, nor hears of its outcome."""
    w = world(2)
    w.load("t", replace(STARTED, producer_epoch=LAST_EPOCH))
    last = Producer(70, LAST_EPOCH)
    fresh = w.now(w.end(last, commit=True))
    w.settle()
    assert w.now(w.end(last, commit=True)) == fresh, "it is the end once more"
    assert w.now(w.add(fresh, A, version=version)) == fresh
    for _ in range(2):
        assert w.now(w.init(expected=last)) is E.PRODUCER_FENCED and w.current().state is S.ONGOING
        assert w.now(w.end(last, commit=True)) is E.INVALID_PRODUCER_ID_MAPPING
        w.fail_over()
    assert isinstance(w.now(w.end(fresh, commit=True, version=version)), Producer)
    w.settle()
    assert w.now(w.end(last, commit=True)) is E.INVALID_PRODUCER_ID_MAPPING


def test_tx_46_the_epoch_of_fencing_can_still_be_aborted() -> None:
    w = world(2)
    w.load("t", replace(STARTED, producer_epoch=FENCING_EPOCH))
    assert w.now(w.init()) is E.CONCURRENT_TRANSACTIONS
    w.settle()
    assert {sent.mark.producer for sent in w.sent} == {Producer(70, FENCING_EPOCH)}
    assert (w.current().state, w.current().producer_epoch) == (S.COMPLETE_ABORT, 0)
    assert w.now(w.init()) == Producer(FIRST_ID + 1, 1)


@VERSIONS
def test_tx_47_nothing_aborts_what_is_committed(version: int) -> None:
    """Not the client, not its timeout, not another instance, and not the next coordinators."""
    w = world(version)
    producer = w.begun(A, B, timeout_ms=1_000)
    w.now(w.end(producer, commit=True))
    for _ in range(3):
        w.pass_time(100_000)
        w.end(producer, commit=False)
        w.init()
        sent, tp = w.under_way()[0]
        w.deliver(sent, tp, answered=False)
        w.fail_over(len(w.log))
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT
    assert {marker.commit for _, _, marker in w.history} == {True}
    assert S.PREPARE_ABORT not in {state.state for state in w.states("t") if state is not None}


# --- markers


@pytest.mark.parametrize("version", [0, 2])
def test_tx_50_complete_is_written_behind_the_last_marker(version: int) -> None:
    w = world(version)
    producer = w.begun(A, B, C)
    w.now(w.end(producer))
    (sent,) = w.sent
    assert sent.mark.partitions == (A, B, C) and sent.coordinator_epoch == w.leader_epoch
    left = {A, B, C}
    for tp in (B, A, C):
        assert w.current().state is S.PREPARE_COMMIT and w.hw == len(w.log)
        found = w.shard.describe("t")
        assert found is not None and found.partitions == left, "those without a marker yet are shown"
        w.deliver(sent, tp)
        left.discard(tp)
    w.commit()
    assert (w.current().state, w.current().partitions) == (S.COMPLETE_COMMIT, frozenset())


def test_tx_53_markers_that_a_newer_coordinator_fences_are_sent_no_more() -> None:
    w = world(0)
    producer = w.begun(A, B)
    w.now(w.end(producer))
    (sent,) = w.sent
    w.step(Fenced(transactional_id="t", attempt=sent.mark.attempt))
    for tp in (A, B):
        w.step(Marked(transactional_id="t", attempt=sent.mark.attempt, partitions=frozenset({tp})))
    w.commit()
    assert w.current().state is S.PREPARE_COMMIT
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS
    w.fail_over()
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("failure", [E.NOT_ENOUGH_REPLICAS, E.UNKNOWN_SERVER_ERROR])
def test_tx_54_complete_is_written_again(failure: ErrorCode) -> None:
    w = world()
    producer = w.begun(A)
    w.now(w.end(producer))
    w.refuse, w.refuse_once = failure, False
    w.deliver_all()
    w.pass_time(1_000)
    assert w.shard.written_again == 1
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS, "the state is pending all the time"
    w.refuse = None
    w.pass_time(1_000)
    w.commit()
    assert w.current().state is S.COMPLETE_COMMIT and w.shard.written_again == 0


def test_tx_54_complete_is_dropped_where_another_coordinates() -> None:
    w = world()
    producer = w.begun(A)
    w.now(w.end(producer))
    w.refuse = E.NOT_LEADER_OR_FOLLOWER
    w.deliver_all()
    assert w.shard.written_again == 0 and w.current().state is S.PREPARE_COMMIT
    w.fail_over()
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT


@VERSIONS
def test_tx_55_answers_to_older_markers_change_nothing(version: int) -> None:
    w = world(version)
    producer = w.begun(A)
    after = w.now(w.end(producer))
    (first,) = w.sent
    w.deliver(first, A)
    w.commit()
    w.now(w.add(after, A))
    w.now(w.end(after, commit=False))
    w.step(Marked(transactional_id="t", attempt=first.mark.attempt, partitions=frozenset({A})))
    w.step(Fenced(transactional_id="t", attempt=first.mark.attempt))
    w.commit()
    assert w.current().state is S.PREPARE_ABORT, "the marker of the second transaction is not there yet"
    w.settle()
    assert w.current().state is S.COMPLETE_ABORT


# --- failover, time


@VERSIONS
def test_tx_60_what_was_decided_is_carried_out_after_a_load(version: int) -> None:
    w = world(version)
    for name, commit in (("t", True), ("u", False)):
        producer = w.begun(A, B, name=name)
        w.now(w.end(producer, name=name, commit=commit))
    w.fail_over()
    found = {sent.mark.transactional_id: sent for sent in w.sent if sent.shard is w.shard}
    assert {name: sent.mark.commit for name, sent in found.items()} == {"t": True, "u": False}
    assert {sent.coordinator_epoch for sent in found.values()} == {1}
    w.settle()
    assert (w.current("t").state, w.current("u").state) == (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


def test_tx_61_who_resigns_forgets_its_markers() -> None:
    w = world()
    producer = w.begun(A)
    w.now(w.end(producer))
    (sent,) = w.sent
    w.fail_over()
    assert sent.dropped
    w.settle()


@VERSIONS
def test_tx_62_a_transaction_that_takes_too_long_is_aborted(version: int) -> None:
    w = world(version, timeouts_interval_ms=10_000)
    producer = w.begun(A, timeout_ms=15_000)
    w.pass_time(19_999)
    assert w.hw == len(w.log), "it is looked for every ten seconds"
    w.pass_time(1)
    w.commit()
    assert (w.current().state, w.current().producer_epoch) == (S.PREPARE_ABORT, 1)
    assert w.sent[-1].mark.version == version
    w.settle()
    assert w.answer(w.add(producer, A)) is E.PRODUCER_FENCED
    assert w.answer(w.end(producer, commit=True)) is (E.INVALID_TXN_STATE if version == 2 else E.PRODUCER_FENCED)


def test_tx_62_the_time_runs_from_the_first_partition_and_not_while_something_is_pending() -> None:
    w = world()
    producer = w.begun(A, timeout_ms=15_000)
    w.pass_time(14_000)
    w.now(w.add(producer, B))
    ended = w.end(producer, commit=True)
    w.pass_time(30_000)
    assert w.now(ended) == producer._replace(producer_epoch=1)
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT


@VERSIONS
def test_tx_63_an_id_that_nobody_uses_is_forgotten(version: int) -> None:
    w = world(version, expiration_ms=1_000_000, expiry_interval_ms=100_000)
    old = [w.now(w.init(f"old-{index}")) for index in range(150)]
    w.pass_time(500_000)
    w.now(w.init("young"))
    open_ = w.begun(A, name="open", timeout_ms=900_000)
    w.pass_time(500_000)
    assert [len(batch.records) for batch in w.log[w.hw :]] == [100, 50], "tombstones come in batches"
    assert w.answer(w.init("old-3")) is E.CONCURRENT_TRANSACTIONS
    assert w.shard.describe("old-3") is None and "old-3" not in dict(chain.from_iterable(w.shard.listed()))
    w.commit()
    assert set(w.shard.by_id) == {"young", "open"}
    assert w.answer(w.add(old[3], A, name="old-3")) is E.INVALID_PRODUCER_ID_MAPPING
    assert w.now(w.init("old-3")) == Producer(FIRST_ID + 153, 0)
    assert w.now(w.add(open_, B, name="open")) == open_
    w.fail_over()
    assert set(w.shard.by_id) == {"young", "open", "old-3"}


def test_tx_63_an_id_stays_when_its_tombstone_cannot_be_written() -> None:
    w = world(expiration_ms=1_000_000, expiry_interval_ms=1_000_000)
    w.now(w.init())
    w.refuse = E.NOT_ENOUGH_REPLICAS
    w.pass_time(1_000_000)
    assert w.shard.by_id["t"].pending is None
    assert w.now(w.init()) == Producer(FIRST_ID + 1, 1)


@pytest.mark.parametrize("error", [E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE])
def test_tx_63_tombstones_that_do_not_fit_into_a_batch_are_written_in_smaller_ones(error: ErrorCode) -> None:
    """A hundred ids of 20 kB are more than `message.max.bytes` allows. One that does not fit alone stays."""
    w = world(expiration_ms=1_000_000, expiry_interval_ms=1_000_000)
    for index in range(5):
        w.now(w.init(f"old-{index}"))
    written = len(w.log)
    w.refuse = error
    w.pass_time(1_000_000)
    assert [len(batch.records) for batch in w.log[written:]] == [2, 3] and w.answer(w.init("old-4")) is E.CONCURRENT_TRANSACTIONS
    w.commit()
    assert not w.shard.by_id
    w.now(w.init("long"))
    w.refuse, w.refuse_once = error, False
    w.pass_time(1_000_000)
    assert w.shard.by_id["long"].pending is None


def test_tx_08_a_resigned_coordinator_hears_of_no_append() -> None:
    """The driver drops the fates of appends of an older leader epoch; what the log says is read by the loader alone."""
    w = world()
    producer = w.begun(A)
    w.end(producer, commit=True)
    before = w.shard
    w.fail_over()  # without the outcome
    assert w.current().state is S.ONGOING and before is not w.shard
    assert w.now(w.end(producer, commit=False)) == producer._replace(producer_epoch=1)
    w.settle()
    assert w.current().state is S.COMPLETE_ABORT


def test_a_fate_that_nobody_waits_for_is_a_bug() -> None:
    w = world()
    with pytest.raises(KeyError):
        w.step(Written(token=99, error=E.NONE))
