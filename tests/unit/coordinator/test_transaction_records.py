"""Records of `__transaction_state`: whatever is written is read back, and whatever is damaged is refused by one error."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kraftlite.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from kraftlite.coordinator.transactions.states import FENCING_EPOCH, LOGGED, Transaction, TransactionState
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32, MAX_INT64
from kraftlite.model.topic_partition import TopicPartition

int64s = st.integers(-1, MAX_INT64)
partitions = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, MAX_INT32))
transactions = st.builds(
    Transaction,
    producer_id=int64s,
    producer_epoch=st.integers(-1, FENCING_EPOCH),
    previous_producer_id=int64s,
    next_producer_id=int64s,
    timeout_ms=st.integers(0, MAX_INT32),
    state=st.sampled_from(sorted(LOGGED - {TransactionState.EMPTY})),
    partitions=st.frozensets(partitions, max_size=4),
    start_ms=int64s,
    updated_ms=int64s,
    version=st.sampled_from((0, 2)),
)


@given(transactions, st.text(min_size=1, max_size=9))
def test_tx_03_what_is_written_is_read_back(value: Transaction, name: str) -> None:
    assert decode_key(encode_key(name)) == name
    assert decode_value(encode_value(value, transaction_version=1)) == value


@pytest.mark.parametrize("version", [0, 1])
@given(transactions, st.data())
def test_tx_04_damage_is_one_error(version: int, value: Transaction, data: st.DataObject) -> None:
    raw = bytearray(encode_value(value, transaction_version=version))
    at = data.draw(st.integers(0, len(raw) - 1))
    kind = data.draw(st.sampled_from(("cut", "changed", "more")))
    if kind == "cut":
        del raw[at:]
    else:
        raw[at : at + (kind == "changed")] = data.draw(st.binary(min_size=1, max_size=5))
    for decode in (decode_value, decode_key):
        with contextlib.suppress(ApiError):
            try:
                decode(bytes(raw))
            except ApiError as error:
                assert error.code is ErrorCode.CORRUPT_MESSAGE
                raise
