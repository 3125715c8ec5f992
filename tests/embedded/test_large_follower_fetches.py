"""RP-15: what a leader answers at once."""

from __future__ import annotations

import pytest

from kraftlite.model.limits import MAX_INT32
from tests.harness.replication_cluster import StepCluster
from tests.spec.replication.test_followers import ask, raw


def test_rp_15_an_answer_fits_into_a_message_whatever_a_follower_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlite.replication.sessions.MAX_BATCH_BYTES", 1_000)
    c = StepCluster()
    c.create()
    for _ in range(20):
        c[1].produce(["x" * 200], acks=1)
    found = ask(c, 1, max_bytes=MAX_INT32, partition_max_bytes=MAX_INT32)
    assert 200 < found.records_length <= 1_000
    for _ in range(10):
        c.replicate()
    assert raw(c[1]) == raw(c[2]), "the rest comes with the answers after it"
