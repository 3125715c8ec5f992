"""What a metadata log says in other records than those of the thing itself: transactions that were aborted, sets that are cleared
for all, fencings by the records of older software."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    UnfenceBrokerRecord,
)
from kraftlite.model.ids import NodeId
from kraftlite.obs.explain_history import History
from kraftlite.postmortem.commands import Opened, Shell
from kraftlite.postmortem.events import log_events
from kraftlite.postmortem.files import find
from kraftlite.postmortem.reading import read_metadata_log
from kraftlite.postmortem.replay import MetadataAt
from tests.harness.metadata_log import MetadataLog
from tests.harness.metadata_support import broker, nodes, topic

A = UUID(int=1)


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """1: the level, 2 and 3: brokers 1 and 2, 4 to 6: `orders` with two partitions."""
    found = MetadataLog(tmp_path / "__cluster_metadata-0")
    found.leader(1_700_000_000_000, 1, 1)
    found.add(1_700_000_001_000, FeatureLevelRecord(name="metadata.version", level=30), broker(1, 10, fenced=False))
    found.add(1_700_000_001_000, broker(2, 11, fenced=False), *topic("orders", 1, 2, (1, 2)))
    return found


def change(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=A, partition=0, **fields)  # type: ignore[arg-type]


def retention(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=value)


def told(log: MetadataLog, path: str) -> list[str]:
    """The history of a path: offset, record and change of each line. The last value must be that of the image."""
    lines: list[str] = []
    shell = Shell(Opened(MetadataAt(find([log.directory])[0])), lines.append)
    assert shell.run(["history", path])
    return [f"{line.split()[0]} {line.split(f'/image{path}')[-1].removeprefix(': ')}" for line in lines]


def events(log: MetadataLog) -> list[tuple[int, int, int]]:
    """(offset, partition epoch, leader epoch) of the partitions' records."""
    found = History(log_events(read_metadata_log(log.directory)), log_only=True).records.values()
    kept = [event for event in found if event.get("partition_epoch") is not None]
    return sorted((event.get("offset"), event.get("partition_epoch"), event.get("leader_epoch")) for event in kept)


def test_what_was_aborted_is_no_history(log: MetadataLog) -> None:
    """Its controller was gone before the end; the next one leads within it, and aborts it."""
    log.add(1_700_000_002_000, BeginTransactionRecord(name="half"), retention("100"), change(leader=NodeId(2)))
    log.leader(1_700_000_003_000, 2, 2)
    log.add(1_700_000_003_000, AbortTransactionRecord(reason="failover"))
    log.add(1_700_000_004_000, BeginTransactionRecord(name="whole"), retention("200"))
    log.add(1_700_000_005_000, change(isr=nodes(1)), EndTransactionRecord())
    log.add(1_700_000_006_000, change(isr=nodes(1, 2)), BeginTransactionRecord(name="open"), retention("300"))
    assert told(log, "/configs/TOPIC:orders/retention.ms") == ["@13 created: 200"]
    assert told(log, "/topics/byName/orders/0")[-2:] == [
        "@14 isr [1, 2] → [1], partitionEpoch 0 → 1",
        "@16 isr [1] → [1, 2], partitionEpoch 1 → 2",
    ]
    assert events(log)[-2:] == [(14, 1, 0), (16, 2, 0)]
    leaders = [event.node for event in log_events(read_metadata_log(log.directory)) if event.event == "raft.leader_elected"]
    assert leaders == [1, 2], "the quorum's own records are in no transaction"


@pytest.mark.parametrize("name", ["", "orders"])
def test_sets_that_are_cleared_are_history_of_their_partitions(log: MetadataLog, name: str) -> None:
    cleared: list[MetadataRecord] = [ClearElrRecord(topic_name=name)]
    log.add(1_700_000_002_000, change(isr=nodes(1), elr=nodes(2)))
    log.add(1_700_000_003_000, *cleared, change(isr=nodes(1, 2)), *cleared)
    assert told(log, "/topics/byName/orders/0")[-3:] == [
        "@7 isr [1, 2] → [1], elr [] → [2], partitionEpoch 0 → 1",
        "@8 elr [2] → [], partitionEpoch 1 → 2",
        "@9 isr [1] → [1, 2], partitionEpoch 2 → 3",
    ]
    assert [line.split()[0] for line in told(log, "/topics/byName/orders/1")] == ["@4", "@6"]
    assert events(log)[-2:] == [(7, 1, 0), (9, 3, 0)]


def test_fencings_of_older_software_are_history_of_their_brokers(log: MetadataLog) -> None:
    fence = FenceBrokerRecord(broker_id=NodeId(2), broker_epoch=11)
    log.add(1_700_000_002_000, fence, UnfenceBrokerRecord(broker_id=NodeId(2), broker_epoch=11))
    assert told(log, "/cluster/brokers/2")[-2:] == ["@7 fenced false → true", "@8 fenced true → false"]
