"""kafka-storage and kafka-leader-election: what they say of options that they cannot read, in the words of Kafka 4.3's."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.compat.leader_election import read_partitions
from kraftlite.cli.compat.tool import ToolError
from kraftlite.cli.main import cli

ID = "AAAAAAAAAAAAAAAAAAAAAg"


def tool(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compat", *arguments], catch_exceptions=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-r 9.9", "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "),
        ("-r 29", "Unknown metadata.version '29'. Supported metadata.version are: "),
        ("-f metadata.version=4.3", "Can't parse feature=level string metadata.version=4.3: unable to parse 4.3 as a short."),
        ("-f metadata.version=99", "No MetadataVersion with feature level 99. Valid feature levels are from 7 to "),
        ("-f metadata.version=29 -r 4.3", "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."),
        ("-f group.version", "Can't parse feature=level string group.version: equals sign not found."),
        ("-f group.version=70000", "Can't parse feature=level string group.version=70000: unable to parse 70000 as a short."),
        ("-f group.version=-1", "No feature:group.version with feature level -1"),
    ],
)
def test_a_version_that_there_is_not_formats_nothing(arguments: str, said: str, config: str, tmp_path: Path) -> None:
    result = tool("kafka-storage", "format", "-t", ID, "-c", config, "--standalone", *arguments.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-I", ""], "name at least one controller"),
        (["-s", "-S", "SCRAM-SHA-256=[name=alice,password=]"], "The 'password' of add-scram must not be empty"),
        (["-s", "-r", ""], "Unknown metadata.version ''"),
    ],
)
def test_an_empty_value_is_not_taken_for_none(options: list[str], said: str, config: str, tmp_path: Path) -> None:
    result = tool("kafka-storage", "format", "-t", ID, "-c", config, *options)
    assert result.exit_code == 1 and said in result.stderr
    assert not (tmp_path / "a").exists()


def test_no_release_has_no_name() -> None:
    result = tool("kafka-storage", "version-mapping", "-r", "")
    assert (result.exit_code, result.stdout) == (1, "") and "Unknown metadata.version ''." in result.stderr


def test_the_last_level_of_a_feature_counts(config: str) -> None:
    result = tool(
        "kafka-storage", "format", "-t", ID, "-c", config, "--standalone", "-f", " group.version = 9 ", "-f", "group.version=1"
    )
    assert result.exit_code == 0, result.output


def test_info_of_directories_that_are_not_there_names_no_directory(config: str, tmp_path: Path) -> None:
    result = tool("kafka-storage", "info", "-c", config)
    problems = f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b does not exist\n\n"
    assert (result.exit_code, result.stdout) == (1, problems)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("group.version", "Invalid feature format: group.version. Expected format: 'feature=version' (e.g. 'group.version=1')"),
        ("group.version=x", "Invalid version format: x for feature group.version"),
        ("group.version=99", "Feature level 99 is not supported for feature group.version"),
        ("nope=1", "Unknown feature: nope"),
        ("metadata.version=99", "Unknown metadata.version 99"),
    ],
)
def test_the_dependencies_of_no_feature(item: str, said: str) -> None:
    result = tool("kafka-storage", "feature-dependencies", "-f", item)
    assert result.exit_code == 1 and said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--topic t --partition 0", "Missing required option(s): election-type\n"),
        ("--election-type preferred", "is required: topic, all-topic-partitions, path-to-json-file\n"),
        ("--election-type preferred --topic t", "Missing required option(s): partition\n"),
        ("--election-type preferred --all-topic-partitions --partition 0", "Option partition is only allowed if topic is used\n"),
    ],
)
def test_leader_election_says_what_is_missing(arguments: str, said: str) -> None:
    result = tool("kafka-leader-election", "--bootstrap-server", "127.0.0.1:1", *arguments.split())
    assert result.exit_code == 1 and said in result.stderr


def test_an_election_for_no_partition_is_over(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text('{"partitions": []}')
    where = ["--bootstrap-server", "127.0.0.1:1", "--path-to-json-file", str(file)]
    result = tool("kafka-leader-election", "--election-type", "preferred", *where)
    assert (result.exit_code, result.output) == (0, "")
    file.write_text('{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}')
    with pytest.raises(ToolError, match=r"contains duplicate partitions: \[t-0\]"):
        read_partitions(str(file))
