"""LG-44: tombstones with any time, kept for any length of time."""

from __future__ import annotations

import pytest

from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records, record_timestamp
from kraftlite.log.config import LogConfig
from kraftlite.model.limits import MAX_INT64
from tests.harness.cleaning import clean, keyed
from tests.harness.log_support import NOW, everything
from tests.spec.log.test_cleaner import DAY, fresh, rolled


@pytest.mark.parametrize("delete_retention_ms", [DAY, MAX_INT64])
@pytest.mark.parametrize("sent_ms", [NOW, -1, -MAX_INT64 - 1, MAX_INT64])
def test_lg_44_a_tombstone_of_any_time_keeps_it_for_any_length_of_time(sent_ms: int, delete_retention_ms: int) -> None:
    disk, log = fresh(LogConfig(cleanup_policy=("compact",), delete_retention_ms=delete_retention_ms))
    log.append_as_follower(build_batch([Record(b"k", None), Record(b"j", b"v")], leader_epoch=0, timestamp_ms=sent_ms))
    rolled(log)
    clean(log, disk)
    header, batch = next(iter_batches(everything(log)))
    assert header.has_delete_horizon and header.base_timestamp == min(NOW + delete_retention_ms, MAX_INT64)
    assert [record_timestamp(header, record) for record in iter_records(batch)] == [sent_ms, sent_ms]
    rolled(log)
    clean(log, disk, wall_ms=NOW + DAY - 1)
    assert (0, b"k", None) in keyed(log)
