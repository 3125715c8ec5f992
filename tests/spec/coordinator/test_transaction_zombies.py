"""Producers that were replaced, of another transaction.version than their successor (TX-43)."""

from __future__ import annotations

import pytest

from kraftlite.coordinator.transactions import rules
from kraftlite.coordinator.transactions.rules import Answered, Entry, Refused
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer


@pytest.mark.parametrize("state", [TransactionState.COMPLETE_ABORT, TransactionState.PREPARE_ABORT])
def test_tx_43_the_end_of_a_replaced_producer_is_no_retry_of_its_successors(state: TransactionState) -> None:
    """The successor, of version 0, ended its transaction in epoch 2; the zombie, of version 2, ends its own in epoch 1."""
    ended = Transaction(producer_id=1, producer_epoch=2, timeout_ms=1, state=state, updated_ms=1, version=0)
    found = rules.end(Entry(current=ended), Producer(1, 1), commit=False, version=2, now_ms=2, new_id=lambda: None)
    assert found == Refused(ErrorCode.PRODUCER_FENCED)


def test_tx_43_the_end_of_a_transaction_of_version_2_may_be_asked_for_again() -> None:
    ended = Transaction(
        producer_id=1, producer_epoch=2, timeout_ms=1, state=TransactionState.COMPLETE_ABORT, updated_ms=1, version=2
    )
    found = rules.end(Entry(current=ended), Producer(1, 1), commit=False, version=2, now_ms=2, new_id=lambda: None)
    assert found == Answered(Producer(1, 2))
