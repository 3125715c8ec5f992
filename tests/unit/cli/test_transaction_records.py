"""`__transaction_state` as Kafka's own tools of 4.3 show it: they were asked for each of these records. Source: TA-09."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.compat import dump_log
from kraftlite.cli.dump import dump
from kraftlite.cli.transaction_records import dumped, formatted
from kraftlite.coordinator.transactions.records import record_of
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition

S = TransactionState
USUAL: dict[str, Any] = {
    "producer_id": 7,
    "producer_epoch": 3,
    "timeout_ms": 60_000,
    "state": S.ONGOING,
    "partitions": frozenset({TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("a", 1)}),
    "start_ms": 1_700_000_000_123,
    "updated_ms": 1_700_000_000_456,
    "version": 2,
    "previous_producer_id": 6,
}
IN_ALL = (
    '"transactionPartitions":[{"topic":"a","partitionIds":[1]},{"topic":"t","partitionIds":[0,2]}],'
    '"transactionLastUpdateTimestampMs":1700000000456,"transactionStartTimestampMs":1700000000123'
)
ONGOING = (
    '"data":{"producerId":7,"previousProducerId":6,"producerEpoch":3,"transactionTimeoutMs":60000,"transactionStatus":1,'
    + IN_ALL
    + ',"clientTransactionVersion":2}}'
)
ENDING = (
    '"data":{"producerId":7,"previousProducerId":6,"nextProducerId":9,"producerEpoch":3,"transactionTimeoutMs":60000,'
    '"transactionStatus":2,' + IN_ALL + ',"clientTransactionVersion":2}}'
)
OLD = '"data":{"producerId":7,"producerEpoch":3,"transactionTimeoutMs":60000,"transactionStatus":1,' + IN_ALL + "}}"
EMPTY = (
    '"data":{"producerId":7,"previousProducerId":6,"producerEpoch":3,"transactionTimeoutMs":60000,"transactionStatus":0,'
    '"transactionPartitions":null,"transactionLastUpdateTimestampMs":1700000000456,"transactionStartTimestampMs":-1,'
    '"clientTransactionVersion":2}}'
)


def record(name: str, version: int, **fields: Any) -> tuple[bytes, bytes | None]:
    found = record_of(name, Transaction(**{**USUAL, **fields}), transaction_version=version)
    return found.key, found.value


@pytest.mark.parametrize(
    ("raw", "key", "payload"),
    [
        (record("x", 2), '"x"', '{"version":"1",' + ONGOING),
        (record("x", 0), '"x"', '{"version":"0",' + OLD),
        (record("y", 2, state=S.EMPTY, partitions=frozenset(), start_ms=-1), '"y"', '{"version":"1",' + EMPTY),
        (record("y", 2, state=S.PREPARE_COMMIT, next_producer_id=9), '"y"', '{"version":"1",' + ENDING),
        ((record("x", 2)[0], None), '"x"', "<DELETE>"),
        ((record('naïve "q"\n', 2)[0], None), '"naïve \\"q\\"\\n"', "<DELETE>"),
    ],
)
def test_ta_09_a_record_as_kafka_dump_log_shows_it(raw: tuple[bytes, bytes | None], key: str, payload: str) -> None:
    _facts, text = dumped(*raw, 5)
    assert text == f' key: {{"type":"0","data":{{"transactionalId":{key}}}}} payload: {payload}'


def test_ta_09_what_is_newer_is_skipped_and_what_is_broken_is_told() -> None:
    assert dumped(b"\x00\x05abc", b"xx", 6)[1] == " key: Unknown record type 5 at offset 6, skipping."
    assert formatted(b"\x00\x05abc", b"xx") == b"" == formatted(None, b"xx")
    key = record("x", 2)[0]
    assert json.loads(formatted(key, b"\x00\x09later"))["value"] == {"version": 9, "data": "unknown"}
    for value in (b"", b"\x00\x01\x00", b"\x00\x01" + b"\xff" * 40):
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
            dumped(key, value, 0)
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        formatted(b"\x00\x00\x7f\xff", None)


def test_ta_09_a_record_as_kafkas_formatter_writes_it() -> None:
    key, value = record("x", 2)
    assert (
        formatted(key, value).decode() == '{"key":{"type":0,"data":{"transactionalId":"x"}},"value":{"version":1,' + ONGOING + "}"
    )
    assert formatted(key, None).decode() == '{"key":{"type":0,"data":{"transactionalId":"x"}},"value":null}'


def test_ta_09_a_directory_of_the_topic_is_decoded_and_a_file_by_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "__transaction_state-3" / "00000000000000000000.log"
    file.parent.mkdir()
    file.write_bytes(build_batch([Record(*record("x", 2)), Record(b"\x00\x00", b"")], timestamp_ms=1))
    done = CliRunner().invoke(dump, [str(file.parent)])
    assert f'payload: {{"version":"1",{ONGOING}' in done.output
    assert done.exit_code == 1 and "Found a record that does not decode at offset 1" in done.output
    as_json = CliRunner().invoke(dump, ["-o", "json", str(file.parent)]).output
    assert '"transactionalId": "x"' in as_json
    dump_log.run(["--files", str(file), "--transaction-log-decoder"])
    assert ONGOING in capsys.readouterr().out
    dump_log.run(["--files", str(file), "--print-data-log"])
    assert "transactionStatus" not in capsys.readouterr().out
