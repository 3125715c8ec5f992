"""kafka-dump-log: which parts of a file its options show, and the records of `__consumer_offsets` (TO-23, TO-24)."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.coordinator.records import CommittedOffset, GroupValue, MemberValue, group_record, offset_record, offset_tombstone
from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import TopicRecord
from kraftlite.model.ids import uuid_from_str
from kraftlite.model.topic_partition import TopicPartition

NAME = f"{0:020}.log"
Rows = list[tuple[bytes | None, bytes | None]]


def tool(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compat", "kafka-dump-log", *map(str, arguments)], catch_exceptions=False)


def written(folder: Path, *batches: Rows) -> Path:
    """A segment with these keys and values."""
    data, at = b"", 0
    for batch in batches:
        data += build_batch([Record(key, value) for key, value in batch], base_offset=at, timestamp_ms=1)
        at += len(batch)
    path = folder / NAME
    path.write_bytes(data)
    return path


def rows(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines()[2:] if not line.startswith("baseOffset: ")]


def test_to_23_deep_iteration_shows_records_without_their_contents(tmp_path: Path) -> None:
    path = written(tmp_path, [(b"k", b"v"), (None, None)])
    assert rows(tool("--files", path)) == []
    deep = rows(tool("--files", path, "--deep-iteration"))
    assert deep[0] == "| offset: 0 CreateTime: 1 keySize: 1 valueSize: 1 sequence: -1 headerKeys: []"
    printed = rows(tool("--files", path, "--print-data-log"))
    assert printed == [f"{deep[0]} key: k payload: v", deep[1]], "what has no value has no payload"
    assert rows(tool("--files", path, "--key-decoder-class")) == printed


def test_to_23_what_is_to_be_skipped_is_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, [(b"k", b"v"), (None, b"w")])
    assert rows(tool("--files", path, "--print-data-log", "--skip-record-metadata")) == ["| key: k payload: v", "| payload: w"]
    assert rows(tool("--files", path, "--deep-iteration", "--skip-record-metadata")) == ["", ""]


def test_to_23_no_batch_is_read_beyond_the_bytes_that_are_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, [(b"k", b"v")], [(b"l", b"w")])
    size = path.stat().st_size // 2
    for limit, count in ((size - 1, 0), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
        said = tool("--files", path, "--max-bytes", limit).stdout
        assert said.count("baseOffset: ") == count, limit


def test_to_23_batches_behind_one_of_an_unknown_magic_are_shown(tmp_path: Path) -> None:
    """The dump ended there, as if all that follows were no batches. Kafka's tool reads it as the newest format that it knows."""
    path = written(tmp_path, [(b"k", b"v")], [(b"l", b"w")])
    data = bytearray(path.read_bytes())
    data[16] = 7
    path.write_bytes(data)
    said = tool("--files", path, "--print-data-log").stdout.splitlines()
    assert [line.split(" magic: ")[1][0] for line in said if line.startswith("baseOffset: ")] == ["7", "2"]
    assert [line.rsplit(" payload: ")[1] for line in said if line.startswith("| ")] == ["v", "w"]
    assert f"Found a batch with the unknown magic 7 in {path} at position 0, offset 0" in said
    assert CliRunner().invoke(cli, ["log", "dump", str(path)]).exit_code == 1
    data[16] = 1
    path.write_bytes(data)
    older = tool("--files", path).stdout.splitlines()
    assert f"Found a batch of an older format, magic 1, in {path} at position 0" in older
    assert [line.split()[1] for line in older if line.startswith("baseOffset: ")] == ["1"]


def test_to_23_indexes_are_checked_without_being_printed(tmp_path: Path) -> None:
    written(tmp_path, [(b"k", b"v")])
    index = tmp_path / f"{0:020}.index"
    index.write_bytes(struct.pack(">ii", 0, 0))
    assert tool("--files", index).stdout == f"Dumping {index}\noffset: 0 position: 0\n"
    assert tool("--files", index, "--verify-index-only").stdout == f"Dumping {index}\n"
    assert tool("--files", index, "--index-sanity-check").stdout == f"Dumping {index}\n{index} passed sanity check.\n"
    index.write_bytes(struct.pack(">ii", 0, 9999))
    assert "Index mismatch" in tool("--files", index, "--verify-index-only").stdout
    assert "passed" not in tool("--files", index, "--index-sanity-check").stdout
    index.write_bytes(b"")
    assert tool("--files", index).stdout == f"Dumping {index}\n{index} is empty.\n"


def test_to_23_an_unknown_file_is_passed_over(tmp_path: Path) -> None:
    strange, path = tmp_path / "a.foo", written(tmp_path, [(b"k", b"v")])
    strange.touch()
    result = tool("--files", f"{strange},{path}")
    assert result.exit_code == 0
    assert f"Ignoring unknown file {strange}" in result.stderr
    assert f"Dumping {path}" in result.stdout


def test_to_24_offsets_and_groups_are_decoded(tmp_path: Path) -> None:
    tp = TopicPartition("orders", 2)
    subscription = struct.pack(">hi", 0, 1) + struct.pack(">h6s", 6, b"orders") + struct.pack(">i", -1)
    member = MemberValue(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        session_timeout_ms=6,
        subscription=subscription,
        assignment=b"\xff",
    )
    group = GroupValue(
        protocol_type="consumer", generation=1, protocol_name="range", leader_id="m", state_since_ms=7, members=(member,)
    )
    records = [
        offset_record("g", tp, CommittedOffset(5, None, "note", 9)),
        offset_record("g", tp, CommittedOffset(5, 3, "", 9, 11)),
        offset_tombstone("g", tp),
        group_record("g", group),
        (b"\x00\x05rest", b""),
        (b"\x00\x01", b""),
    ]
    path = written(tmp_path, [(key, value) for key, value in records])
    key = 'key: {"type":"1","data":{"group":"g","topic":"orders","partition":2}} payload: '
    found = [line.removeprefix("| ") for line in rows(tool("--files", path, "--offsets-decoder", "--skip-record-metadata"))]
    assert found[0] == key + '{"version":"3","data":{"offset":5,"leaderEpoch":-1,"metadata":"note","commitTimestamp":9}}'
    assert found[1] == key + '{"version":"1","data":{"offset":5,"metadata":"","commitTimestamp":9,"expireTimestamp":11}}'
    assert found[2] == key + "<DELETE>"
    assert found[3] == (
        'key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":"consumer","generation":1,'
        '"protocol":"range","leader":"m","currentStateTimestamp":7,"members":[{"memberId":"m","groupInstanceId":null,'
        '"clientId":"c","clientHost":"/h","rebalanceTimeout":5,"sessionTimeout":6,'
        '"subscription":{"topics":["orders"],"userData":null},"assignment":"/w=="}]}}'
    )
    assert found[4] == "key: No decoder for record type 5 at offset 4, skipping."
    assert found[5].startswith("key: Error at offset 5, skipping. ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--share-group-state-decoder"], "there are no share groups"),
        (["--value-decoder-class", "nope"], "nope is not supported"),
        (["--max-bytes", "x"], "'x'"),
    ],
)
def test_to_23_what_cannot_be_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = tool("--files", written(tmp_path, [(b"k", b"v")]), *arguments)
    assert result.exit_code == 1
    assert said in result.stderr


def test_to_23_the_unused_rest_of_an_index_is_no_entry(tmp_path: Path) -> None:
    """An index of the active segment is as long as it may get, and Kafka's tool stops at the first entry that is zero."""
    log = written(tmp_path, [(b"k", b"v")], [(b"l", b"w")])
    index, times = tmp_path / f"{0:020}.index", tmp_path / f"{0:020}.timeindex"
    index.write_bytes(struct.pack(">ii", 1, log.stat().st_size // 2) + bytes(64))
    times.write_bytes(struct.pack(">qi", 1, 1) + bytes(48))
    shown = tool("--files", f"{index},{times}").stdout.splitlines()
    assert [line.split()[:2] for line in shown] == [
        ["Dumping", str(index)], ["offset:", "1"], ["Dumping", str(times)], ["timestamp:", "1"],
    ]  # fmt: skip


def test_to_23_an_index_that_is_damaged_says_so_and_the_next_file_is_shown(tmp_path: Path) -> None:
    log = written(tmp_path, [(b"k", b"v")])
    index, aborted = tmp_path / f"{0:020}.index", tmp_path / f"{0:020}.txnindex"
    index.write_bytes(struct.pack(">ii", 5, -1))
    aborted.write_bytes(struct.pack(">hqqqq", 512, 1, 2, 3, 4))
    result = tool("--files", f"{index},{aborted},{log}")
    said = result.output
    assert result.exit_code == 0 and f"Index mismatch in {index.name}: offset 5 at position -1" in said
    assert f"version 512 in {aborted.name}" in said and "version: 512 producerId: 1" in said
    assert "baseOffset: 0" in said


def test_to_24_an_offset_of_apache_kafka_names_its_topic_by_id(tmp_path: Path) -> None:
    """Kafka 4.2 and later write the offsets of groups in version 4, with the topic's id in a tagged field."""
    key = offset_record("g", TopicPartition("t", 0), CommittedOffset(5, None, "", 9))[0]
    start = struct.pack(">hqi", 4, 1, 0) + b"\x01" + struct.pack(">q", 9)
    topic_id = uuid_from_str("73iqUSY1T4q6UKbvyL6Frw").bytes
    values = [start + tags for tags in (b"\x00", b"\x01\x00\x10" + topic_id, b"\x01\x00\x10" + bytes(16), b"\x01\x00\x04abcd")]
    path = written(tmp_path, [(key, value) for value in values])
    shown = rows(tool("--files", path, "--offsets-decoder", "--skip-record-metadata"))
    plain = '{"version":"4","data":{"offset":1,"leaderEpoch":0,"metadata":"","commitTimestamp":9}}'
    assert [line.partition(" payload: ")[2] for line in shown[:3]] == [
        plain, plain.replace(':9}', ':9,"topicId":"73iqUSY1T4q6UKbvyL6Frw"}'), plain,
    ]  # fmt: skip
    assert "Error at offset 3, skipping." in shown[3]


def metadata(name: str) -> bytes:
    return MetadataSerde().encode(TopicRecord(name=name, topic_id=UUID(int=5)))


def test_to_24_metadata_is_decoded_wherever_its_file_lies(tmp_path: Path) -> None:
    """Kafka's tool goes by --cluster-metadata-decoder alone: a segment that was copied elsewhere is one as well."""
    path = written(tmp_path, [(None, metadata("orders"))])
    (line,) = rows(tool("--files", path, "--cluster-metadata-decoder"))
    assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"orders"' in line


def test_to_24_a_record_that_does_not_decode_costs_no_other_record(tmp_path: Path) -> None:
    """Kafka's ClusterMetadataLogMessageParser says "Error at 1, skipping." in its place, and goes on."""
    newer = bytes((1, 99, 0, 0))
    path = written(tmp_path, [(None, metadata("a")), (None, newer), (None, metadata("b"))])
    lines = rows(tool("--files", path, "--cluster-metadata-decoder"))
    assert [f'"name":"{name}"' in "".join(lines) for name in "ab"] == [True, True]
    assert sum(line.startswith("| offset: 1 ") for line in lines) == 1
    assert sum(line.startswith("Found a record that does not decode at offset 1: ") for line in lines) == 1
