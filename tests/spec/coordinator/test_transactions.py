"""A partition of transactional ids, as producers and its log see it. Source: TX-03 to TX-63; KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kraftlite.coordinator.core.shards import Asked
from kraftlite.coordinator.transactions.events import Init
from kraftlite.coordinator.transactions.records import decode_value, encode_key, encode_value
from kraftlite.coordinator.transactions.shard_core import WRITE_AGAIN_MS
from kraftlite.coordinator.transactions.states import LAST_EPOCH, TransactionState
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_TRANSACTION_RECORD_BYTES
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.transaction_world import FIRST_ID, STARTED, VERSIONS, WALL_MS, A, B, C, world

S = TransactionState
E = ErrorCode
# --- records


def test_tx_03_records_are_kafkas() -> None:
    """Byte for byte what Kafka's own schemas give."""
    assert encode_key("ab") == b"\x00\x00\x00\x02ab"
    old = encode_value(STARTED, transaction_version=0)
    assert old[:17] == b"\x00\x00" + (70).to_bytes(8, "big") + b"\x00\x03" + (60_000).to_bytes(4, "big") + b"\x01"
    assert (
        old[17:47]
        == (b"\x00\x00\x00\x02" + b"\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x00" + b"\x00\x01b\x00\x00\x00\x01\x00\x00\x00\x07")
        + old[43:47]
    )
    assert old[-16:] == (WALL_MS - 10).to_bytes(8, "big") + (WALL_MS - 20).to_bytes(8, "big")
    new = encode_value(replace(STARTED, previous_producer_id=5, next_producer_id=6, version=2), transaction_version=1)
    assert new[:2] == b"\x00\x01" and new[17:18] == b"\x03", "two topics in the compact encoding"
    tags = b"\x03\x00\x08" + (5).to_bytes(8, "big") + b"\x01\x08" + (6).to_bytes(8, "big") + b"\x02\x02\x00\x02"
    assert new.endswith(tags)
    for version in (0, 1, 2):
        idle = replace(STARTED, state=S.EMPTY, partitions=frozenset())
        raw = encode_value(idle, transaction_version=version)
        assert raw[17:18] == (b"\xff" if version == 0 else b"\x00"), "no partitions are null"
        assert decode_value(raw) == idle
        assert decode_value(encode_value(STARTED, transaction_version=version)) == STARTED


@VERSIONS
def test_tx_03_one_record_for_a_state(version: int) -> None:
    w = world(version)
    producer = w.begun(A, C)
    w.now(w.end(producer))
    w.settle()
    assert [len(batch.records) for batch in w.log] == [1] * 4
    values = [record.value for batch in w.log for record in batch.records]
    assert {None if value is None else value[:2] for value in values} == {b"\x00\x01" if version else b"\x00\x00"}


def test_tx_04_what_is_newer_is_passed_over_and_what_is_broken_is_not() -> None:
    w = world()
    w.shard.replay(b"\x00\x01" + b"\x00\x01t", b"\x00\x09", wall_ms=0)
    w.shard.replay(encode_key("t"), b"\x00\x02what comes later", wall_ms=0)
    assert not w.shard.by_id
    raw = bytearray(encode_value(STARTED, transaction_version=1))
    w.shard.replay(encode_key("t"), bytes(raw), wall_ms=0)
    assert w.current() == STARTED
    for status in (6, 7, 99):
        raw[16] = status
        with pytest.raises(ApiError, match=f"status {status}"):
            w.shard.replay(encode_key("t"), bytes(raw), wall_ms=0)
    for broken in (b"\x00\x01", bytes(raw[:-1]), b""):
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
            w.shard.replay(encode_key("t"), broken, wall_ms=0)
    w.shard.replay(encode_key("t"), None, wall_ms=0)
    assert not w.shard.by_id


def test_tx_05_a_state_that_cannot_follow_is_a_fault() -> None:
    w = world()
    w.begun(A)
    entry = w.shard.by_id["t"]
    with pytest.raises(AssertionError, match="CompleteCommit cannot follow Ongoing"):
        w.shard._write("t", entry, replace(entry.current, state=S.COMPLETE_COMMIT), lambda error: None)


# --- writing


@VERSIONS
def test_tx_06_a_step_counts_at_the_high_watermark(version: int) -> None:
    w = world(version)
    producer = w.begun(A)
    ended = w.end(producer, commit=True)
    assert ended not in w.answers and w.current().state is S.ONGOING
    for asked in (w.init(), w.add(producer, B), w.end(producer, commit=False)):
        assert w.answer(asked) is E.CONCURRENT_TRANSACTIONS
    w.commit()
    assert w.answer(ended) == (producer._replace(producer_epoch=1) if version == 2 else producer)
    assert w.current().state is S.PREPARE_COMMIT


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_tx_07_after_an_append_that_failed_the_old_state_stands(failure: ErrorCode, told: ErrorCode) -> None:
    w = world()
    producer = w.begun(A)
    before = w.current()
    for ask in (partial(w.add, producer, B), partial(w.end, producer), w.init):
        w.refuse = failure
        assert w.answer(ask()) is told
        assert w.current() == before and w.shard.by_id["t"].pending is None
    assert w.now(w.end(producer)) == Producer(producer.producer_id, 1)


@pytest.mark.parametrize("failure", [E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_tx_09_what_is_in_the_log_stays_pending_until_it_is_committed(failure: ErrorCode) -> None:
    """TX-47: the client is told to come again, and nothing else is begun for the id meanwhile."""
    w = world()
    producer = w.begun(A)
    ended = w.end(producer, commit=True)
    w.time_out(error=failure)
    assert w.answer(ended) is E.COORDINATOR_NOT_AVAILABLE
    w.pass_time(10 * WRITE_AGAIN_MS)
    assert w.answer(w.end(producer, commit=False)) is E.CONCURRENT_TRANSACTIONS
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS
    w.commit()
    assert w.current().state is S.PREPARE_COMMIT
    w.settle()
    states = [state.state for state in w.states("t") if state is not None]
    assert states[-2:] == [S.PREPARE_COMMIT, S.COMPLETE_COMMIT] and states.count(S.PREPARE_COMMIT) == 1
    assert w.answer(w.end(producer, commit=True)) == Producer(producer.producer_id, 1), "the end, asked once more"


def test_tx_09_an_append_waits_as_long_as_its_transaction_may_take() -> None:
    w = world()
    output = w.shard.step(Asked(request_id=1, request=Init(transactional_id="t", timeout_ms=12_345)), 0, WALL_MS)
    assert [append.timeout_ms for append in output.appends] == [12_345]


# --- InitProducerId


@VERSIONS
def test_tx_11_an_unknown_id_begins_with_a_fresh_producer(version: int) -> None:
    w = world(version)
    w.refuse = E.NOT_ENOUGH_REPLICAS
    assert w.answer(w.init()) is E.COORDINATOR_NOT_AVAILABLE
    assert w.now(w.init()) == Producer(FIRST_ID + 1, 0), "the id that was drawn is used"
    assert w.now(w.init("u")) == Producer(FIRST_ID + 2, 0)
    w.no_ids = True
    assert w.answer(w.init("v")) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert "v" not in w.shard.by_id


@VERSIONS
def test_tx_12_the_next_instance_has_the_next_epoch(version: int) -> None:
    w = world(version)
    first = w.begun(A, timeout_ms=60_000)
    w.now(w.end(first, commit=True))
    w.settle()
    before = w.current()
    second = w.now(w.init(timeout_ms=5_000))
    assert second == Producer(first.producer_id, before.producer_epoch + 1)
    now = w.current()
    assert (now.state, now.partitions, now.start_ms, now.timeout_ms, now.last_epoch) == (S.EMPTY, frozenset(), -1, 5_000, -1)


@VERSIONS
def test_tx_13_an_open_transaction_is_aborted_in_an_epoch_that_nobody_has(version: int) -> None:
    w = world(version)
    first = w.begun(A, B)
    assert w.now(w.init()) is E.CONCURRENT_TRANSACTIONS
    (sent,) = w.sent
    assert sent.mark.producer == Producer(first.producer_id, 1) and not sent.mark.commit
    assert sent.mark.version == version, "by the rules of the cluster's level"
    assert w.answer(w.init()) is E.CONCURRENT_TRANSACTIONS
    w.settle()
    assert w.current().state is S.COMPLETE_ABORT
    assert w.now(w.init()) == Producer(first.producer_id, 2)
    assert all(state is None or state.state is not S.PREPARE_EPOCH_FENCE for state in w.states("t"))


@VERSIONS
def test_tx_14_init_waits_for_every_marker(version: int) -> None:
    w = world(version)
    producer = w.begun(A, B)
    w.now(w.end(producer))
    before = w.current()
    for _ in range(2):
        assert w.now(w.init()) is E.CONCURRENT_TRANSACTIONS
        assert w.current() == before
        sent, tp = w.under_way()[0]
        w.deliver(sent, tp)
    w.commit()
    assert isinstance(w.now(w.init()), Producer)


def test_tx_15_a_producer_goes_on_with_what_it_has() -> None:
    w = world()
    first = w.now(w.init())
    second = w.now(w.init(expected=first))
    assert second == Producer(first.producer_id, 1)
    assert w.now(w.init(expected=first)) == second, "the answer was lost, and is given again"
    third = w.now(w.init())
    assert third == Producer(first.producer_id, 2)
    for fenced in (first, second):
        assert w.answer(w.init(expected=fenced)) is E.PRODUCER_FENCED
    assert w.answer(w.init(expected=Producer(99, 2))) is E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("why", ["timed out", "its own error"])
def test_tx_15_who_begins_anew_with_an_open_transaction_goes_on_by_version_2(version: int, why: str) -> None:
    """KIP-360: the client has lost an answer, or its time, and asks with what it has."""
    w = world(version)
    first = w.begun(A)
    if why == "timed out":
        w.pass_time(100_000)
    else:
        assert w.now(w.init(expected=first)) is E.CONCURRENT_TRANSACTIONS
    w.settle()
    assert w.current().state is S.COMPLETE_ABORT
    if version < 2:
        assert w.answer(w.init(expected=first)) is E.PRODUCER_FENCED
        return
    again = w.now(w.init(expected=first))
    assert again == Producer(first.producer_id, first.producer_epoch + 1)
    assert w.now(w.init(expected=first)) == again, "the answer was lost, and is given again"
    assert w.now(w.init()) == Producer(first.producer_id, first.producer_epoch + 2)
    for fenced in (first, again):
        assert w.answer(w.init(expected=fenced)) is E.PRODUCER_FENCED


def test_tx_16_the_last_epoch_is_not_in_the_log() -> None:
    w = world()
    first = w.now(w.init())
    w.now(w.init(expected=first))
    w.fail_over()
    assert w.answer(w.init(expected=first)) is E.PRODUCER_FENCED


@VERSIONS
def test_tx_17_the_last_epoch_is_followed_by_another_producer_id(version: int) -> None:
    w = world(version)
    w.load("t", replace(STARTED, state=S.EMPTY, partitions=frozenset(), producer_epoch=LAST_EPOCH - 1))
    last = w.now(w.init())
    assert last == Producer(70, LAST_EPOCH)
    fresh = w.now(w.init(expected=last))
    assert fresh == Producer(FIRST_ID + 1, 0)
    assert w.now(w.init(expected=last)) == fresh, "the answer was lost, and is given again"
    assert w.answer(w.init(expected=Producer(70, 3))) is E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_tx_19_a_fence_that_fails_costs_one_epoch(version: int) -> None:
    """KAFKA-9666, KAFKA-19367."""
    w = world(version)
    first = w.begun(A)
    for _ in range(5):
        w.refuse = E.NOT_ENOUGH_REPLICAS
        assert w.answer(w.init()) is E.COORDINATOR_NOT_AVAILABLE
        assert w.current().producer_epoch == (1 if version < 2 else 0)
        w.shard.check()
    assert w.now(w.init()) is E.CONCURRENT_TRANSACTIONS
    assert w.current().producer_epoch == 1
    w.settle()
    assert w.now(w.init()) == Producer(first.producer_id, 2)


@VERSIONS
def test_tx_20_two_instances_are_never_given_the_same(version: int) -> None:
    w = world(version)
    one, two = w.init(), w.init()
    assert w.answer(two) is E.CONCURRENT_TRANSACTIONS
    w.commit()
    assert w.now(w.init()) == w.answer(one)._replace(producer_epoch=1)


# --- partitions


@VERSIONS
def test_tx_32_the_time_runs_from_the_first_partition(version: int) -> None:
    w = world(version)
    producer = w.begun(A)
    began = w.current().start_ms
    w.pass_time(5_000)
    w.now(w.add(producer, B))
    assert (w.current().start_ms, w.current().partitions) == (began, frozenset({A, B}))
    assert w.current().updated_ms == began + 5_000
    logged = len(w.log)
    assert w.answer(w.add(producer, A, B)) == producer and len(w.log) == logged, "nothing to write"
    after = w.now(w.end(producer))
    w.settle()
    w.pass_time(5_000)
    w.now(w.add(after, C))
    assert (w.current().start_ms, w.current().partitions) == (began + 10_000, frozenset({C}))


def test_tx_33_the_transaction_remembers_what_its_client_knows() -> None:
    w = world(2)
    producer = w.now(w.init())
    w.now(w.add(producer, A, version=0))
    assert w.current().version == 0
    w.now(w.end(producer, version=0))
    assert w.sent[-1].mark.version == 0


@VERSIONS
def test_tx_34_verification_looks_at_what_is_in_the_log(version: int) -> None:
    w = world(version)
    producer = w.begun(A)
    w.add(producer, B)
    assert w.shard.verify("t", producer, [A, B]) == {A: E.NONE, B: E.TRANSACTION_ABORTABLE}, "pending does not matter"
    w.commit()
    assert w.shard.verify("t", producer, [A, B, C]) == {A: E.NONE, B: E.NONE, C: E.TRANSACTION_ABORTABLE}
    w.now(w.end(producer))
    after = Producer(producer.producer_id, w.current().producer_epoch)
    assert w.shard.verify("t", after, [A]) == {A: E.CONCURRENT_TRANSACTIONS}
    w.settle()
    assert w.shard.verify("t", after, [A]) == {A: E.TRANSACTION_ABORTABLE}
    assert w.shard.verify("unknown", after, [A]) == {A: E.INVALID_PRODUCER_ID_MAPPING}


def test_a_transaction_that_does_not_fit_into_a_record_is_refused_before_it_is_written() -> None:
    w = world()
    producer = w.begun(A)
    many = [TopicPartition("t", index) for index in range(MAX_TRANSACTION_RECORD_BYTES // 4 + 1)]
    logged = len(w.log)
    asked = w.add(producer, *many)
    assert w.answer(asked) is E.UNKNOWN_SERVER_ERROR and str(MAX_TRANSACTION_RECORD_BYTES) in str(w.answers[asked])
    assert len(w.log) == logged
    assert w.now(w.end(producer)) == producer._replace(producer_epoch=1)
