"""The group commands against a live cluster, as a user types them (TO-27, TO-28)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from tests.harness.local import CALM, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cli")]

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=2, config=CALM) as found:
        yield found


@pytest.fixture(autouse=True)
def surroundings(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFTLITE_DATA_DIR", str(cluster.data_dir))
    monkeypatch.delenv("KRAFTLITE_BOOTSTRAP_SERVER", raising=False)


@pytest.fixture
def names(cluster: Cluster) -> tuple[str, str]:
    """A topic of two partitions with ten records each, and a group that has committed 4 in partition 0."""
    number = next(_NUMBERS)
    topic, group = f"topic-{number}", f"group-{number}"
    cluster.create_topic(topic, partitions=2, replication=2)
    for partition in range(2):
        assert cluster.produce(topic, [str(n) for n in range(10)], partition=partition) == []
    consumer = member(cluster, group)
    from confluent_kafka import TopicPartition

    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    return topic, group


def member(cluster: Cluster, group: str, **config: Any) -> Any:
    from confluent_kafka import Consumer

    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "client.id": "me", "log_level": 0, **config})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["group", *(str(argument) for argument in arguments)])


def good(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]


def test_to_27_list_and_describe_without_members(names: tuple[str, str]) -> None:
    topic, group = names
    assert group in good("list").splitlines()
    assert [group, "Empty"] in rows(good("list", "--state"))
    assert [group, "Classic", "Empty"] in rows(good("list", "--type", "classic", "--state", "empty,stable"))
    assert group not in good("list", "--state", "stable")
    assert {"group": group, "state": "Empty", "type": "Classic"} in json.loads(good("list", "-o", "json"))
    result = run("describe", group)
    assert rows(result.stdout) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        [group, topic, "0", "4", "10", "6", "-", "-", "-"],
    ]
    assert f"Consumer group '{group}' has no active members." in result.stderr
    header, state = good("describe", group, "--state").splitlines()[1:]
    assert header.split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert state.split()[0] == group and state.split()[-2:] == ["Empty", "0"]


def test_to_27_describe_members(cluster: Cluster, names: tuple[str, str]) -> None:
    topic, group = names
    consumer = member(cluster, group, **{"group.instance.id": "one", "partition.assignment.strategy": "range"})
    consumer.subscribe([topic])
    try:
        wait_for("the member has its partitions", lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2)
        header, row = rows(good("describe", group, "--members", "--verbose"))
        common = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
        assert header == [*common, "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        assert row[0] == group and row[2:] == ["one", "/127.0.0.1", "me", "2", "-", f"{topic}:0,1", "-", "-"]
        _, first, second = rows(good("describe", group))
        assert first[:6] == [group, topic, "0", "4", "10", "6"] and first[6].startswith("one-")
        assert second[:6] == [group, topic, "1", "-", "10", "-"]
        _, state = rows(good("describe", group, "--state"))
        assert state[-3:] == ["range", "Stable", "1"]
        (found,) = json.loads(good("describe", group, "-o", "json"))
        assert found["members"][0]["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        for refused in (("reset-offsets", group, "--all-topics", "--to-latest"), ("delete", group)):
            assert run(*refused).exit_code == 1
        busy = run("delete-offsets", group, "--topic", topic)
        assert busy.exit_code == 1 and "GROUP_SUBSCRIBED_TO_TOPIC" in busy.output
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 10}),
        (("--to-current",), {0: 4, 1: 10}),
        (("--to-offset", 7), {0: 7, 1: 7}),
        (("--to-offset", 99), {0: 10, 1: 10}),
        (("--by-duration", "P1D"), {0: 0, 1: 0}),
        (("--to-datetime", "2999-01-01T00:00:00"), {0: 10, 1: 10}),
    ],
)
def test_to_28_reset_offsets(names: tuple[str, str], scenario: tuple[object, ...], expected: dict[int, int]) -> None:
    topic, group = names
    planned = rows(good("reset-offsets", group, "--topic", topic, *scenario))
    assert planned[0] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert {int(row[2]): int(row[3]) for row in planned[1:]} == expected
    assert [row[3] for row in rows(good("describe", group))[1:]] == ["4"], "nothing is done without --execute"
    good("reset-offsets", group, "--topic", topic, *scenario, "--execute")
    assert {int(row[2]): int(row[3]) for row in rows(good("describe", group))[1:]} == expected


def test_to_28_shift_export_and_import(names: tuple[str, str], tmp_path: Path) -> None:
    topic, group = names
    good("reset-offsets", group, "--all-topics", "--shift-by", "-3", "--execute")
    assert rows(good("describe", group))[1][3] == "1"
    missing = run("reset-offsets", group, "--topic", f"{topic}:1", "--shift-by", 1)
    assert missing.exit_code == 1 and f"{topic}-1" in missing.output
    file = tmp_path / "plan.csv"
    file.write_text(good("reset-offsets", group, "--topic", topic, "--to-offset", 2, "--export"))
    assert file.read_text() == f"{topic},0,2\n{topic},1,2\n"
    good("reset-offsets", group, "--from-file", file, "--execute")
    assert [row[3] for row in rows(good("describe", group))[1:]] == ["2", "2"]


def test_to_28_reset_for_a_group_that_does_not_exist_yet(names: tuple[str, str]) -> None:
    topic, group = names
    good("reset-offsets", f"new-{group}", "--topic", f"{topic}:1", "--to-offset", 3, "--execute")
    assert rows(good("describe", f"new-{group}"))[1][1:4] == [topic, "1", "3"]


def test_to_28_delete(names: tuple[str, str]) -> None:
    topic, group = names
    done = rows(good("delete-offsets", group, "--topic", f"{topic}:0"))
    assert done[-1] == [topic, "0", "Successful"]
    assert topic not in good("describe", group)
    assert good("delete", group) == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    again = run("delete", group)
    assert again.exit_code == 1 and f"Group '{group}' could not be deleted due to: GROUP_ID_NOT_FOUND" in again.output
    gone = run("describe", group)
    assert gone.exit_code == 1 and f"Consumer group '{group}' does not exist." in gone.output


def test_usage_mistakes_are_one_line(names: tuple[str, str]) -> None:
    topic, group = names
    for wrong in (
        ("describe",),
        ("describe", group, "--all-groups"),
        ("reset-offsets", group, "--topic", topic),
        ("reset-offsets", group, "--to-latest"),
        ("reset-offsets", group, "--topic", f"{topic}:x", "--to-latest"),
        ("delete",),
    ):
        result = run(*wrong)
        assert result.exit_code == 2, (wrong, result.output)
    nowhere = run("reset-offsets", group, "--topic", "nowhere", "--to-latest")
    assert nowhere.exit_code == 1 and "nowhere does not exist" in nowhere.output
