"""An administrator ends a transaction that hangs, just when its producer wakes (TA-05; KIP-664)."""

from __future__ import annotations

import pytest

from kraftlite.log.guards import TransactionTerms
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.log_support import append, end_txn, open_log

EPOCH = 3


def hanging() -> Log:
    """A transaction whose coordinator does not know it: it holds the LSO."""
    log = open_log()
    append(log, "a", pid=1, pepoch=EPOCH, seq=0, txn=True)
    append(log, "b")
    log.update_hw(log.leo)
    assert log.last_stable_offset == 0
    return log


def test_ta_05_the_administrator_comes_first() -> None:
    log = hanging()
    end_txn(log, 1, commit=False, pepoch=EPOCH, coordinator_epoch=0)
    with pytest.raises(ApiError) as caught:
        append(log, "c", pid=1, pepoch=EPOCH, seq=1, txn=True, terms=TransactionTerms())
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE, "it would hang again"
    log.update_hw(log.leo)
    assert log.last_stable_offset == log.leo


def test_ta_05_the_producer_comes_first() -> None:
    log = hanging()
    append(log, "c", pid=1, pepoch=EPOCH, seq=1, txn=True)
    end_txn(log, 1, commit=False, pepoch=EPOCH, coordinator_epoch=0)
    log.update_hw(log.leo)
    assert log.last_stable_offset == log.leo
    assert [(it.first_offset, it.last_offset) for it in log.aborted_between(0, log.leo)] == [(0, 3)]


def test_ta_05_another_producer_has_begun_meanwhile() -> None:
    log = hanging()
    append(log, "c", pid=1, pepoch=EPOCH + 1, seq=0, txn=True)
    with pytest.raises(ApiError) as caught:
        end_txn(log, 1, commit=False, pepoch=EPOCH, coordinator_epoch=0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
