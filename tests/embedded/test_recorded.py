"""An embedded cluster that is recorded: what the page shows of it afterwards."""

from __future__ import annotations

import pytest

from kraftlite.obs.recording_reader import read_bytes
from kraftlite.testing import ClusterError, SyncCluster, other_than
from kraftlite.ui.replay import states, tape_of


def test_a_failover_is_on_the_tape() -> None:
    with SyncCluster(controllers=1, brokers=2, record=True) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        old = cluster.leader("orders")
        assert old is not None
        cluster.kill(old)
        new = cluster.wait_for(topic="orders", leader=other_than(old)).leader
        first = cluster.recording()
        cluster.record()
        again = cluster.recording()
    tape = tape_of(lambda: read_bytes(first))
    assert tape["cluster"]["recording"]["source"] == "embedded" and tape["cluster"]["brokers"] == 2
    assert any(story["kind"] == "leader_changed" for story in tape["stories"]["orders-0"])
    seen = [
        (row["verdict"]["kind"], row["verdict"]["leader"])
        for _, shown in states(read_bytes(first), [])
        for row in shown["partitions"]["rows"]
        if row["name"] == "orders-0"
    ]
    wanted = [("agree", old), ("silent", old), ("agree", new)]
    assert [it for it in dict.fromkeys(seen) if it in wanted] == wanted
    later = tape_of(lambda: read_bytes(again))
    assert later["cluster"]["recording"]["begin"] >= tape["cluster"]["recording"]["end"]
    leads = [span for span in later["lanes"]["spans"] if span["lane"] == "orders-0" and span["until"] is None]
    assert len(leads) == 1, "who led when it began is in it"


def test_nothing_is_recorded_unasked() -> None:
    with SyncCluster(controllers=1, brokers=1) as cluster, pytest.raises(ClusterError, match=r"call record\(\) before"):
        cluster.recording()
