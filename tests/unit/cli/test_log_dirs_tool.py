"""kafka-log-dirs: which brokers are asked, and what is shown of what they answer. Source: TO-26; Kafka's LogDirsCommand."""

from __future__ import annotations

import json
from types import SimpleNamespace as Of
from typing import Any

import pytest

from kraftlite.cli.compat import log_dirs
from kraftlite.model.errors import ErrorCode


class Cluster:
    """Two brokers, each with a directory that holds a topic that was deleted, and one that has failed."""

    def brokers(self) -> dict[int, None]:
        return {1: None, 2: None}

    def call(self, key: int, _version: int, values: dict[str, Any], *, broker: int, timeout_ms: int | None) -> Any:
        assert (key, values, timeout_ms) == (35, {"topics": None}, None)
        part = Of(partition_size=1, offset_lag=0, is_future_key=False)
        held = [Of(name=name, partitions=[Of(partition_index=at, **vars(part))]) for name, at in (("a-b", 0), ("gone", 1))]
        room = {"total_bytes": 9, "usable_bytes": 9, "is_cordoned": False}
        good = Of(log_dir=f"/{broker}", error_code=ErrorCode.NONE, topics=held, **room)
        bad = Of(log_dir="/bad", error_code=ErrorCode.KAFKA_STORAGE_ERROR, topics=[], **room)
        return Of(error_code=ErrorCode.NONE, results=[good, bad])


def shown(capsys: pytest.CaptureFixture[str], brokers: str, topics: str = "") -> tuple[str, list[dict[str, Any]]]:
    cluster: Any = Cluster()
    log_dirs.describe(cluster, brokers, topics)
    _, received, found = capsys.readouterr().out.splitlines()
    return received, json.loads(found)["brokers"]


def test_a_broker_that_is_named_twice_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    received, brokers = shown(capsys, "2,1,2")
    assert received == "Received log directory information from brokers 2,1"
    assert [one["broker"] for one in brokers] == [2, 1]


@pytest.mark.parametrize(
    ("topics", "names"), [("gone", ["gone-1"]), ("a-b,gone", ["a-b-0", "gone-1"]), ("a", []), ("", ["a-b-0", "gone-1"])]
)
def test_a_topic_is_looked_for_in_what_the_broker_has(topics: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, brokers = shown(capsys, "1", topics)
    assert [one["partition"] for one in brokers[0]["logDirs"][0]["partitions"]] == names


def test_a_failed_directory_is_told_with_the_class_of_its_exception(capsys: pytest.CaptureFixture[str]) -> None:
    _, brokers = shown(capsys, "1")
    assert [one["error"] for one in brokers[0]["logDirs"]] == [None, "org.apache.kafka.common.errors.KafkaStorageException"]
