"""Output layouts that people grep (TO-11, TO-20)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kraftlite.cli.quorum import replication_lines, status_lines
from kraftlite.cli.topics import _print_topic


def replica(node: int, leo: int, caught_up: int = 1000, directory: str | None = None) -> dict[str, Any]:
    return {
        "id": node,
        "directory_id": directory,
        "log_end_offset": leo,
        "last_fetch_timestamp": caught_up,
        "last_caught_up_timestamp": caught_up,
        "endpoints": [f"CONTROLLER://c{node}:9093"] if node < 4 else [],
    }


QUORUM = {
    "leader_id": 2,
    "leader_epoch": 5,
    "high_watermark": 40,
    "voters": [replica(1, 38, 900), replica(2, 42), replica(3, 42, 950)],
    "observers": [replica(4, 41, directory="xAnarm01TwSKb6sp_r7iNQ")],
}


def test_to_20_status() -> None:
    lines = status_lines(QUORUM, "abc")
    assert lines[:6] == [
        "ClusterId:              abc",
        "LeaderId:               2",
        "LeaderEpoch:            5",
        "HighWatermark:          40",
        "MaxFollowerLag:         4",
        "MaxFollowerLagTimeMs:   100",
    ]
    assert lines[6].startswith('CurrentVoters:          [{"id": 1, "endpoints": ["CONTROLLER://c1:9093"]}, {"id": 2,')
    assert lines[7] == 'CurrentObservers:       [{"id": 4, "directoryId": "xAnarm01TwSKb6sp_r7iNQ"}]'


@pytest.mark.parametrize(
    ("voters", "lag", "time"),
    [
        ([replica(1, 40, 900), replica(2, 42)], 2, 100),
        ([replica(2, 42), replica(1, 42, 900)], 0, 0),  # the first of the shortest logs is the leader's
        ([replica(1, 42, 900), replica(2, 42), replica(3, 42, 100)], 0, 100),
        ([replica(2, 42), replica(1, -1, -1)], 43, -1),
    ],
)
def test_to_20_the_lag_is_that_of_the_voter_with_the_shortest_log(voters: list[dict[str, Any]], lag: int, time: int) -> None:
    lines = status_lines({**QUORUM, "voters": voters}, "abc")
    assert [line.split()[1] for line in lines[4:6]] == [str(lag), str(time)]


def test_to_20_a_voter_that_has_not_fetched_lags_by_one_more_than_the_log() -> None:
    lines = replication_lines({**QUORUM, "voters": [replica(2, 42), replica(1, -1, -1)], "observers": []})
    assert lines[2].split()[2:4] == ["-1", "43"]


def test_to_20_replication_has_the_leader_first() -> None:
    lines = replication_lines(QUORUM)
    assert lines[0].split() == [
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status",
    ]  # fmt: skip
    rows = [line.split() for line in lines[1:]]
    assert [(row[0], row[2], row[3], row[6]) for row in rows] == [
        ("2", "42", "0", "Leader"),
        ("1", "38", "4", "Follower"),
        ("3", "42", "0", "Follower"),
        ("4", "41", "1", "Observer"),
    ]
    assert all("\t" in line for line in lines)
    assert "100 ms ago" in replication_lines(QUORUM, now_ms=1000)[2]


def test_to_11_describe(capsys: pytest.CaptureFixture[str]) -> None:
    partition = {"partition": 0, "leader": None, "replicas": [1, 2], "isr": [2], "elr": [], "last_known_elr": None}
    entry = {
        "topic": "t",
        "topic_id": "xAnarm01TwSKb6sp_r7iNQ",
        "partition_count": 1,
        "replication_factor": 2,
        "configs": {"retention.ms": "5", "min.insync.replicas": "2"},
        "partitions": [partition],
    }
    _print_topic(entry, header=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "Topic: t\tTopicId: xAnarm01TwSKb6sp_r7iNQ\tPartitionCount: 1\tReplicationFactor: 2"
        "\tConfigs: min.insync.replicas=2,retention.ms=5"
    )
    assert re.fullmatch(r"\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 2\tElr: \tLastKnownElr: N/A", lines[1])
