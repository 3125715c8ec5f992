"""The story is told from the metadata log; here from one that was made by hand."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kraftlite.local.chaos import Times
from kraftlite.local.report import tell
from kraftlite.local.story import History
from kraftlite.local.stream import Gap, Ledger
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftlite.model.ids import NodeId
from kraftlite.postmortem.reading import read_metadata_log
from tests.harness.metadata_log import MetadataLog

TOPIC_ID = UUID(int=500)
N4, N5, N6 = NodeId(4), NodeId(5), NodeId(6)


@pytest.fixture
def history(tmp_path: Path) -> History:
    log = MetadataLog(tmp_path / "__cluster_metadata-0")
    log.leader(900, 1, 1)
    log.add(
        1000,
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            topic_id=TOPIC_ID,
            partition=0,
            replicas=(N4, N5, N6),
            isr=(N4, N5, N6),
            leader=N4,
            leader_epoch=0,
            partition_epoch=0,
        ),
    )
    log.add(
        19_000,
        BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=3, fenced=True),
        PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, isr=(N5, N6), leader=N5),
    )
    log.leader(21_500, 2, 2)
    log.add(25_000, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=9, fenced=False))
    log.add(26_000, PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, isr=(N4, N5, N6)))
    log.raw(b"torn")
    return History(read_metadata_log(log.directory), "t")


def test_changes_have_offsets_and_times(history: History) -> None:
    fenced = history.first("fenced", since_ms=10_000, node=4)
    assert fenced is not None
    assert (fenced.offset, fenced.time_ms) == (3, 19_000)
    leads = history.first("leads the quorum", since_ms=20_000)
    assert leads is not None
    assert (leads.node, leads.what) == (2, "leads the quorum in epoch 2")
    (move,) = history.new_leaders(since_ms=10_000, until_ms=20_000, instead_of=4)
    assert (move.offset, move.after.leader, move.after.leader_epoch, move.after.isr) == (4, 5, 1, (5, 6))
    whole = history.whole_since(after_ms=22_000)
    assert whole is not None
    assert (whole.offset, whole.time_ms) == (7, 26_000)
    assert history.whole_since(after_ms=27_000) is None


def test_the_story_names_nodes_records_and_times(history: History) -> None:
    ledger = Ledger()
    ledger.gaps[0] = Gap(last_ack_ms=30_000, longest_ms=9_200, began_ms=9_990, ended_ms=19_190)
    times = Times(
        broker=4,
        led=(0,),
        broker_killed_ms=10_000,
        controller=1,
        controller_epoch=1,
        controller_killed_ms=20_000,
        restarted_ms=22_000,
    )
    trace = [{"ts": 21_000, "node": 2, "event": "raft.fetch_timed_out", "leader_id": 1}]
    text = "\n".join(tell(times, history, trace, ledger))
    for words in (
        "node 4 was killed with SIGKILL; it led partitions 0",
        "+9.00 s  fenced by record @3",
        "partition 0: leader 4 -> 5, leader epoch 0 -> 1, ISR [4,5,6] -> [5,6] (record @4)",
        "+9.19 s  partition 0 could be written again, after 9.20 s",
        "active controller of epoch 1",
        "+1.00 s  node 2: raft.fetch_timed_out leader_id=1",
        "+1.50 s  node 2 leads the quorum in epoch 2 (LeaderChange record @5)",
        "+3.00 s  node 4 unfenced (record @6)",
        "+4.00 s  every ISR is whole again (record @7)",
    ):
        assert words in text, text


def test_nothing_that_happened_nothing_to_tell(tmp_path: Path) -> None:
    assert list(tell(Times(), History(read_metadata_log(tmp_path), "t"), [], Ledger())) == []
