"""log dump on healthy and damaged files (TO-23, TO-24)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    VoterNode,
    control_batch,
)
from kraftlite.model.ids import NodeId, VoterEndpoint


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["log", "dump", *[str(argument) for argument in arguments]])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    first = build_batch(
        [Record(b"k0", b"v0", (("h", b"x"),)), Record(None, b"v1")],
        leader_epoch=3,
        timestamp_ms=1000,
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
    )
    second = build_batch([Record(b"k2", None)], base_offset=2, leader_epoch=3, timestamp_ms=2000, codec=1)
    path.write_bytes(first + second)
    return path


def test_to_23_batches_and_records(log: Path) -> None:
    result = dump(log)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == f"Dumping {log}"
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 5 lastSequence: 6 producerId: 9 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
        "CreateTime: 1000 size: "
    )
    assert " magic: 2 compresscodec: none crc: " in lines[2]
    assert lines[2].endswith("isvalid: true")
    assert lines[3] == "| offset: 0 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: 5 headerKeys: [h] key: k0 payload: v0"
    assert "keySize: -1" in lines[4]
    assert "compresscodec: gzip" in lines[5]
    assert lines[6].endswith("key: k2")
    assert len(dump(log, "--batches-only").output.splitlines()) == 4


def test_to_23_json_lines(log: Path) -> None:
    values = [json.loads(line) for line in dump(log, "-o", "json").output.splitlines()]
    assert values[0] == {"file": str(log), "start_offset": 0}
    assert values[1]["lastOffset"] == 1
    assert values[2]["payload"] == "v0"


def test_to_23_damage_is_reported(log: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(data + b"torn")
    torn = dump(log)
    assert torn.exit_code == 1
    assert "Found 4 invalid bytes at the end of 00000000000000000000.log" in torn.output
    flipped = bytearray(data)
    flipped[70] ^= 1
    log.write_bytes(flipped)
    result = dump(log)
    assert result.exit_code == 1
    assert "isvalid: false" in result.output
    assert "wrong CRC" in result.output
    log.write_bytes(data + data)
    assert "non-consecutive offsets" in dump(log).output
    log.write_bytes(data + bytes(100))
    assert dump(log).exit_code == 0
    log.write_bytes(b"")
    assert dump(log).exit_code == 0


def test_to_24_indexes_are_checked_against_the_log(log: Path) -> None:
    index = log.with_suffix(".index")
    second = log.read_bytes().index(struct.pack(">q", 2), 8)
    index.write_bytes(struct.pack(">ii", 2, second))
    good = dump(index)
    assert good.exit_code == 0, good.output
    assert f"offset: 2 position: {second}" in good.output
    index.write_bytes(struct.pack(">ii", 7, second))
    assert "Index mismatch" in dump(index).output
    index.write_bytes(struct.pack(">ii", 2, 10**6))
    assert "behind the end" in dump(index).output
    index.write_bytes(b"odd")
    assert "3 invalid bytes" in dump(index).output
    times = log.with_suffix(".timeindex")
    times.write_bytes(struct.pack(">qi", 2000, 2) + struct.pack(">qi", 1000, 0))
    assert "out of order" in dump(times).output


def test_to_24_a_damaged_producer_snapshot_is_reported(log: Path) -> None:
    path = log.with_suffix(".snapshot")
    path.write_bytes(b"nonsense")
    assert dump(path).exit_code == 1


def test_to_23_control_records(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    one, two = UUID(int=1), UUID(int=2)
    endpoint = VoterEndpoint(name="CONTROLLER", host="a", port=9093)
    controls: list[ControlRecord] = [
        LeaderChange(leader_id=NodeId(2), voters=(NodeId(1), NodeId(2)), granting_voters=(NodeId(2),)),
        LeaderChange(
            leader_id=NodeId(2),
            voters=(NodeId(1), NodeId(2)),
            granting_voters=(NodeId(2),),
            voter_directories=(one, two),
            granting_directories=(two,),
        ),
        KRaftVersion(kraft_version=1),
        KRaftVoters(voters=(VoterNode(voter_id=NodeId(1), directory_id=one, endpoints=(endpoint,)),)),
        SnapshotHeader(last_contained_log_timestamp_ms=77),
        SnapshotFooter(),
    ]
    path.write_bytes(control_batch(controls, timestamp_ms=5, leader_epoch=7))
    result = dump(directory)
    assert result.exit_code == 0, result.output
    said = [line.partition("headerKeys: [] ")[2] for line in result.output.splitlines() if line.startswith("| offset")]
    assert said == [
        'LeaderChange: {"version":0,"leaderId":2,"voters":[{"voterId":1},{"voterId":2}],"grantingVoters":[{"voterId":2}]}',
        'LeaderChange: {"version":1,"leaderId":2,"voters":[{"voterId":1,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ"},'
        '{"voterId":2,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAg"}],'
        '"grantingVoters":[{"voterId":2,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAg"}]}',
        'KRaftVersion {"version":0,"kRaftVersion":1}',
        'KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ",'
        '"endpoints":[{"name":"CONTROLLER","host":"a","port":9093}],'
        '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}',
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":77}',
        'SnapshotFooter {"version":0}',
    ]


def test_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    result = dump(tmp_path)
    assert result.exit_code == 1
    assert "no log files" in result.output
    assert dump(tmp_path / "absent").exit_code == 2
