"""kafka-get-offsets and the other tools that take topics and numbers as Kafka's do. Source: TO-34; Kafka's GetOffsetShell."""

from __future__ import annotations

import warnings
from types import SimpleNamespace as Of
from typing import Any

import pytest

from kraftlite.cli.compat import get_offsets, leader_election
from kraftlite.cli.compat.get_offsets import chosen, show
from kraftlite.cli.compat.tool import ToolError, UsageError, whole
from kraftlite.client.admin import list_offsets
from kraftlite.model.errors import ErrorCode

NOBODY = "127.0.0.1:1"
THERE = [*(("m", n) for n in range(12)), ("m2", 0), ("n", 0)]
ALL = [f"{topic}:{index}" for topic, index in THERE]


class Cluster:
    """Every partition has 5 records and broker 1 as its leader. `versions`: of the requests."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.versions: list[int] = []

    def leaders(self, _topics: Any = None) -> dict[tuple[str, int], int]:
        return dict.fromkeys([*THERE, ("__consumer_offsets", 0)], 1)

    def at_leaders(self, leaders: dict[Any, Any], ask: Any, _code: Any) -> Any:
        return ask(1, list(leaders))

    def call(self, _key: int, version: int, values: Any, **_more: Any) -> Any:
        self.versions.append(version)
        answer = {"error_code": self.code, "offset": 5, "timestamp": -1}
        topics = [
            Of(name=one["name"], partitions=[Of(partition_index=it["partition_index"], **answer) for it in one["partitions"]])
            for one in values["topics"]
        ]
        return Of(topics=topics)


def matched(**options: str) -> list[str]:
    given = Of(**{"topic_partitions": None, "topic": None, "partitions": None} | options)
    rule = chosen(given)  # type: ignore[arg-type]
    return [f"{topic}:{index}" for topic, index in THERE if rule(topic, index)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ALL),
        ({"topic": "m,n", "partitions": "0"}, ["m:0", "n:0"]),
        ({"topic": " m2, n"}, ["m2:0", "n:0"]),
        ({"topic": "'m2'"}, ["m2:0"]),
        ({"topic": r"\Qm2\E"}, ["m2:0"]),
        ({"topic": ""}, []),
        ({"partitions": "11,"}, ["m:11"]),
        ({"topic": "m2", "partitions": ""}, ["m2:0"]),
        ({"topic": "m2", "partitions": ","}, ["m2:0"]),
        ({"topic_partitions": "m2:,n"}, ["m2:0", "n:0"]),
        ({"topic_partitions": "m:11,"}, ["m:11"]),
        ({"topic_partitions": ":11"}, ["m:11"]),
        ({"topic_partitions": '"m":10-'}, ["m:10", "m:11"]),
        ({"topic_partitions": "m:-1"}, ["m:0"]),
        ({"topic_partitions": "m:3-2"}, []),
        ({"topic_partitions": ","}, []),
        ({"topic_partitions": ""}, ALL),
    ],
)
def test_to_34_partitions_are_chosen_as_kafkas_tool_chooses_them(options: dict[str, str], found: list[str]) -> None:
    """`m:11,` showed all partitions of the cluster, and `m,n` none."""
    assert matched(**options) == found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"partitions": "0, 1"}, "--partitions expects a comma separated list of numeric partition ids, but received: 0, 1"),
        ({"partitions": "1_0"}, "but received: 1_0"),
        ({"partitions": "99999999999"}, "but received: 99999999999"),
        ({"topic_partitions": "m:x"}, "Invalid rule specification: m:x"),
        ({"topic_partitions": "m:99999999999"}, 'For input string: "99999999999"'),
        ({"topic": "["}, r"\[ is an invalid regex"),
    ],
)
def test_what_is_no_partition_is_refused_by_name(options: dict[str, str], told: str) -> None:
    with pytest.raises(ToolError, match=told):
        matched(**options)


def test_a_pattern_with_words_of_another_language_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matched(topic="[[:alpha:]]") == []


@pytest.mark.parametrize("time", ["1_500", " -1", "9" * 20, ""])
def test_a_time_is_a_long(time: str) -> None:
    with pytest.raises(ToolError, match=f"Malformed time argument {time}. Please use"):
        get_offsets.run(["--bootstrap-server", NOBODY, "--time", time])


@pytest.mark.parametrize("more", [["--topic", ""], ["--partitions", "0"]])
def test_partitions_are_given_in_one_way(more: list[str]) -> None:
    with pytest.raises(UsageError, match="--topic-partitions cannot be used with --topic or --partitions"):
        get_offsets.run(["--bootstrap-server", NOBODY, "--topic-partitions", "", *more])


def test_to_34_lines_are_sorted_by_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    cluster: Any = Cluster()
    show(cluster, lambda topic, _index: topic == "m", -1, internal=True)
    shown = [line.split(":")[1] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"]


def test_an_error_is_told_with_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    cluster: Any = Cluster(ErrorCode.UNSUPPORTED_VERSION)
    show(cluster, lambda topic, _index: topic == "n", -7, internal=True)
    assert capsys.readouterr().err == (
        "Skip getting offsets for topic-partition n-0 due to error: "
        "org.apache.kafka.common.errors.UnsupportedVersionException: The version of API is not supported.\n"
    )


@pytest.mark.parametrize(("timestamp", "version"), [(0, 7), (-3, 7), (-5, 10), (-6, 11)])
def test_a_request_has_a_version_that_knows_the_time(timestamp: int, version: int) -> None:
    """The offset of what is to be uploaded (KIP-1023) was refused: it is known from version 11 on."""
    cluster: Any = Cluster()
    list_offsets(cluster, {("n", 0): timestamp}, {("n", 0): 1})
    assert cluster.versions == [version]


@pytest.mark.parametrize("text", ["1_0", " 1", "\u0661", "1.0", "", "+", str(2**31)])
def test_a_number_is_written_as_java_reads_it(text: str) -> None:
    """`--partitions 1_0` made ten."""
    with pytest.raises(UsageError):
        leader_election.run(["--bootstrap-server", NOBODY, "--election-type", "preferred", "--topic", "t", "--partition", text])


@pytest.mark.parametrize(("text", "number"), [("+1", 1), ("-7", -7), ("007", 7), (str(2**31 - 1), 2**31 - 1)])
def test_signs_and_zeros_are_taken(text: str, number: int) -> None:
    assert whole(32)(text) == number


def test_an_election_has_one_file_of_properties() -> None:
    given = ["--admin.config", "a", "--command-config", "b"]
    with pytest.raises(UsageError, match=r'Option "\[admin.config\]" can\'t be used with option "\[command-config\]"'):
        leader_election.run(["--bootstrap-server", NOBODY, "--election-type", "preferred", "--all-topic-partitions", *given])
