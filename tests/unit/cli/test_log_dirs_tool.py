"""kafka-log-dirs: which brokers are asked, and what is shown of what they answer. Source: TO-26; Kafka's LogDirsCommand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraftlite.cli.compat import log_dirs


class Cluster:
    def brokers(self) -> dict[int, None]:
        return {1: None, 2: None}


def described(_cluster: Any, broker: int) -> list[dict[str, Any]]:
    """A directory with a topic that was deleted meanwhile, and one that has failed."""
    held = [{"partition": name, "size": 1, "offsetLag": 0, "isFuture": False} for name in ("a-b-0", "gone-1")]
    more = {"totalBytes": 9, "usableBytes": 9, "cordoned": False}
    return [
        {"logDir": f"/{broker}", "error": None, "partitions": held, **more},
        {"logDir": "/bad", "error": "KAFKA_STORAGE_ERROR", "partitions": [], **more},
    ]


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "cluster_of", lambda _options: Cluster())
    monkeypatch.setattr(log_dirs, "describe_log_dirs", described)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    assert log_dirs.run(["--bootstrap-server", "x:1", "--describe", *arguments]) == 0
    _, received, found = capsys.readouterr().out.splitlines()
    return received, json.loads(found)["brokers"]


def test_a_broker_that_is_named_twice_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    received, brokers = shown(capsys, "--broker-list", "2,1,2")
    assert received == "Received log directory information from brokers 2,1"
    assert [one["broker"] for one in brokers] == [2, 1]


@pytest.mark.parametrize(
    ("topics", "names"), [("gone", ["gone-1"]), ("a-b,gone", ["a-b-0", "gone-1"]), ("a", []), ("", ["a-b-0", "gone-1"])]
)
def test_a_topic_is_looked_for_in_what_the_broker_has(topics: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, brokers = shown(capsys, "--broker-list", "1", "--topic-list", topics)
    assert [one["partition"] for one in brokers[0]["logDirs"][0]["partitions"]] == names


def test_a_failed_directory_is_told_with_the_class_of_its_exception(capsys: pytest.CaptureFixture[str]) -> None:
    _, brokers = shown(capsys, "--broker-list", "1")
    assert [one["error"] for one in brokers[0]["logDirs"]] == [None, "org.apache.kafka.common.errors.KafkaStorageException"]
