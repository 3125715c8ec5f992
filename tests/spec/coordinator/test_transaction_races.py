"""The races of a transaction coordinator, each with the crash, the clock or the other request at the very step (docs/TESTING.md,
"Races of transactions"). Source: TX-09 to TX-63; KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from kraftlite.coordinator.transactions.states import LAST_EPOCH, Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.transaction_world import COMPLETED, STARTED, VERSIONS, A, B, TransactionWorld, obeys_the_order, world

S = TransactionState
E = ErrorCode
STEPS: Final = ("lost", "appended", "decided", "one marked", "all marked", "complete")
"""The steps at which a coordinator goes: its record of the outcome is lost with it, or is in the log of the next one; it is
committed and no marker is written, one is, all are; the id is complete."""
HOUR_MS: Final = 3_600_000


def one_outcome(w: TransactionWorld, commit: bool) -> None:
    """Every marker that was ever written says this, and the log has no other."""
    assert {marker.commit for _, _, marker in w.history} <= {commit}
    assert {tp for tp, _, _ in w.history} == {A, B}
    obeys_the_order(w.states("t"))


def go_at(w: TransactionWorld, step: str) -> None:
    """Behind an EndTxn that was asked: the coordinator goes, and another takes over."""
    if step == "lost":
        w.fail_over()
        return
    if step == "appended":
        w.fail_over(len(w.log))
        return
    w.commit()
    for sent, tp in w.under_way()[: {"decided": 0, "one marked": 1}.get(step, 2)]:
        w.deliver(sent, tp)
    if step == "complete":
        w.commit()
    w.fail_over()


# --- R1, R2: who comes first


@VERSIONS
def test_tx_62_the_end_comes_first_and_then_the_timeout(version: int) -> None:
    w = world(version, timeouts_interval_ms=1_000)
    producer = w.begun(A, B, timeout_ms=5_000)
    w.pass_time(4_999)
    ended = w.end(producer, commit=True)
    w.pass_time(10_000)
    assert isinstance(w.now(ended), Producer)
    w.pass_time(10_000)
    w.settle()
    one_outcome(w, True)
    assert w.current().state is S.COMPLETE_COMMIT


@VERSIONS
def test_tx_62_the_timeout_comes_first_and_then_the_end(version: int) -> None:
    w = world(version, timeouts_interval_ms=1_000)
    producer = w.begun(A, B, timeout_ms=5_000)
    w.pass_time(7_000)
    assert w.waiting == 1, "the abort is on its way"
    early = w.end(producer, commit=True)
    w.settle()
    assert isinstance(w.answer(early), ErrorCode)
    assert w.answer(w.end(producer, commit=True)) in (E.PRODUCER_FENCED, E.INVALID_TXN_STATE)
    one_outcome(w, False)


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_tx_47_the_end_comes_first_and_then_another_instance(version: int, commit: bool) -> None:
    w = world(version)
    producer = w.begun(A, B)
    ended, other = w.end(producer, commit=commit), w.init()
    assert w.answer(other) is E.CONCURRENT_TRANSACTIONS
    assert isinstance(w.now(ended), Producer)
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS, "its markers are under way"
    w.settle()
    one_outcome(w, commit)
    successor = w.now(w.init())
    assert successor.producer_epoch > producer.producer_epoch


@VERSIONS
def test_tx_13_another_instance_comes_first_and_then_the_end(version: int) -> None:
    w = world(version)
    producer = w.begun(A, B)
    other, ended = w.init(), w.end(producer, commit=True)
    w.settle()
    assert w.answer(other) is E.CONCURRENT_TRANSACTIONS and isinstance(w.answer(ended), ErrorCode)
    one_outcome(w, False)
    assert w.now(w.init()).producer_epoch == producer.producer_epoch + 2


# --- R3, R9: the coordinator goes, and is asked again


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_tx_47_a_coordinator_goes_at_each_step_and_the_client_asks_the_next_one(version: int, commit: bool, step: str) -> None:
    w = world(version)
    producer = w.begun(A, B)
    w.end(producer, commit=commit)
    go_at(w, step)
    for _ in range(3):
        again = w.end(producer, commit=commit)
        w.settle()
    assert w.answer(again) == (producer._replace(producer_epoch=1) if version == 2 else producer)
    assert w.current().state is COMPLETED[commit]
    one_outcome(w, commit)


@VERSIONS
@pytest.mark.parametrize("step", STEPS[1:])
def test_tx_47_the_next_coordinator_takes_no_other_outcome(version: int, step: str) -> None:
    w = world(version, timeouts_interval_ms=1_000)
    producer = w.begun(A, B, timeout_ms=5_000)
    w.end(producer, commit=True)
    go_at(w, step)
    assert isinstance(w.answer(w.end(producer, commit=False)), ErrorCode)
    w.init()
    w.pass_time(20_000)
    w.settle()
    one_outcome(w, True)


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("step", STEPS)
def test_tx_45_the_answer_of_an_end_in_the_last_epochs_is_lost(version: int, epoch: int, step: str) -> None:
    w = world(version)
    w.load("t", ongoing(epoch, version))
    producer = Producer(7, epoch)
    w.end(producer)
    go_at(w, step)
    for _ in range(3):
        again = w.end(producer)
        w.settle()
    after = w.answer(again)
    if version == 0:
        assert after == producer
    elif epoch < LAST_EPOCH:
        assert after == Producer(7, LAST_EPOCH)
    else:
        assert after.producer_id != 7 and after.producer_epoch == 0
    one_outcome(w, True)
    assert after == w.answer(w.end(producer)), "as often as it asks"


def ongoing(epoch: int, version: int) -> Transaction:
    return Transaction(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=S.ONGOING,
        partitions=frozenset({A, B}),
        start_ms=1_700_000_000_000,
        updated_ms=1_700_000_000_000,
        version=version,
    )


# --- R4: who was replaced comes back


@VERSIONS
def test_tx_61_markers_of_a_coordinator_that_was_replaced_come_late(version: int) -> None:
    w = world(version)
    producer = w.begun(A, B)
    w.now(w.end(producer))
    old = list(w.under_way())
    w.fail_over()
    w.settle()
    following = w.answer(w.end(producer))
    assert w.now(w.add(following, A)) == following
    for sent, tp in old:
        w.deliver(sent, tp)
    assert w.current().state is S.ONGOING
    assert all(marker.coordinator_epoch == w.leader_epoch for marker in w.partitions.values())
    assert isinstance(w.now(w.end(following)), Producer)
    w.settle()
    one_outcome(w, True)


# --- R19, R20: ids


@VERSIONS
def test_tx_63_an_id_is_asked_for_while_it_is_forgotten(version: int) -> None:
    w = world(version, expiration_ms=10_000, expiry_interval_ms=10_000)
    before = w.now(w.init())
    w.pass_time(20_000)
    assert w.waiting == 1, "the tombstone is on its way"
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS
    w.commit()
    after = w.now(w.init())
    assert after.producer_id != before.producer_id and after.producer_epoch == 0
    w.fail_over()
    assert w.current().producer_id == after.producer_id
    assert w.answer(w.end(before)) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [LAST_EPOCH])
def test_tx_17_no_producer_id_is_at_hand_when_the_epochs_are_used_up(epoch: int) -> None:
    w = world(2)
    w.load("t", replace(ongoing(epoch, 2), state=S.EMPTY, partitions=frozenset()))
    w.no_ids = True
    assert w.answer(w.init()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert w.answer(w.end(Producer(7, epoch), commit=False)) is E.COORDINATOR_LOAD_IN_PROGRESS
    w.fail_over()
    w.no_ids = False
    assert w.now(w.init()).producer_epoch == 0
    obeys_the_order(w.states("t"))


def test_tx_17_a_transaction_in_the_last_epoch_is_timed_out_when_an_id_is_at_hand() -> None:
    """Its producer goes on with that one, as behind an end of its own, also after a failover (TX-45)."""
    w = world(2, timeouts_interval_ms=1_000)
    producer = Producer(7, LAST_EPOCH)
    w.load("t", replace(ongoing(LAST_EPOCH, 2), timeout_ms=5_000))
    w.no_ids = True
    assert w.answer(w.init()) is E.COORDINATOR_LOAD_IN_PROGRESS
    w.pass_time(10_000)
    assert w.current().state is S.ONGOING and not w.sent
    w.no_ids = False
    w.pass_time(10_000)
    w.settle()
    one_outcome(w, False)
    assert w.answer(w.end(producer, commit=True)) is E.INVALID_TXN_STATE
    for _ in range(2):
        after = w.now(w.end(producer, commit=False))
        assert after.producer_id != 7 and after.producer_epoch == 0
        w.fail_over()
    assert w.now(w.add(after, A)) == after
    obeys_the_order(w.states("t"))


# --- R21, R22: clocks and versions


@VERSIONS
def test_tx_62_the_clock_jumps_forward_and_ends_what_is_open(version: int) -> None:
    w = world(version, timeouts_interval_ms=1_000)
    producer = w.begun(A, B)
    w.wall_shift = HOUR_MS
    w.pass_time(2_000)
    w.settle()
    assert isinstance(w.answer(w.end(producer)), ErrorCode)
    one_outcome(w, False)


@VERSIONS
def test_tx_62_the_clock_jumps_back_and_nothing_is_ended_or_stuck(version: int) -> None:
    w = world(version, timeouts_interval_ms=1_000)
    w.wall_shift = HOUR_MS
    producer = w.begun(A, B, timeout_ms=5_000)
    w.wall_shift = 0
    w.pass_time(60_000)
    assert w.current().state is S.ONGOING
    assert isinstance(w.now(w.end(producer)), Producer)
    w.settle()
    one_outcome(w, True)


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("ended_by", ["client", "timeout", "another"])
def test_tx_40_transaction_version_changes_under_an_open_transaction(before: int, after: int, ended_by: str) -> None:
    w = world(before, timeouts_interval_ms=1_000)
    producer = w.begun(A, B, timeout_ms=5_000)
    w.version = after
    if ended_by == "client":
        assert isinstance(w.now(w.end(producer, version=before)), Producer)
    elif ended_by == "timeout":
        w.pass_time(10_000)
    else:
        w.init()
    w.commit()
    w.fail_over()
    w.settle()
    one_outcome(w, ended_by == "client")
    fresh = w.now(w.init())
    assert w.now(w.add(fresh, A)) == fresh


def test_ta_08_records_are_of_the_version_that_the_cluster_has_now() -> None:
    """Back and forth, under an open transaction and through a load. By version 0 the id before the last one is not in the record:
    what is lost is that an end which is asked once more behind it is known."""
    w = world(2)
    w.load("t", replace(STARTED, state=TransactionState.EMPTY, partitions=frozenset(), producer_epoch=LAST_EPOCH - 1))
    last = w.now(w.init())
    assert w.now(w.add(last, A)) == last
    written = [len(w.log)]
    w.version = 0
    fresh = w.now(w.end(last, version=2))
    w.settle()
    assert w.now(w.end(last, version=2)) == fresh != last
    w.fail_over()
    assert w.answer(w.end(last, version=2)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    written.append(len(w.log))
    w.version = 2
    assert w.now(w.add(fresh, A)) == fresh
    w.fail_over()
    assert isinstance(w.now(w.end(fresh)), Producer)
    w.settle()
    versions = [record.value[:2] for batch in w.log for record in batch.records if record.value is not None]
    old, new = b"\x00\x00", b"\x00\x01"
    assert set(versions[: written[0]]) == {new} and set(versions[written[1] :]) == {new}
    assert set(versions[written[0] : written[1]]) == {old}


# --- R24: everything restarts


@VERSIONS
def test_tx_60_every_id_that_is_decided_is_carried_out_after_a_restart(version: int) -> None:
    w = world(version)
    names = [f"t{index}" for index in range(50)]
    for index, name in enumerate(names):
        w.end(w.begun(A, B, name=name), commit=index % 2 == 0, name=name)
        w.commit()
    assert len(w.under_way()) == 100
    w.fail_over()
    w.settle()
    for index, name in enumerate(names):
        assert w.current(name).state is COMPLETED[index % 2 == 0]
        obeys_the_order(w.states(name))
