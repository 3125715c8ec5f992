"""random-uuid, format, storage info and config explain, as a user types them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.host.disk import HostDisk
from kraftlite.metadata.records import FeatureLevelRecord
from kraftlite.node.storage import read_bootstrap

Run = Callable[..., Result]
ID = "xAnarm01TwSKb6sp_r7iNQ"


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: object, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], env=env)

    return invoke


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "listeners=PLAINTEXT://localhost:9092,REPLICATION://localhost:9192,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\ninter.broker.listener.name=REPLICATION\n"
        f"log.dirs={tmp_path}/b\nmetadata.log.dir={tmp_path}/a\n"
    )
    return path


def test_to_01_random_uuid(run: Run) -> None:
    seen = set()
    for _ in range(1000):
        result = run("random-uuid")
        text = result.output.rstrip("\n")
        assert result.exit_code == 0
        assert result.output == text + "\n"
        assert len(text) == 22
        assert not text.startswith("-")
        raw = base64.urlsafe_b64decode(text + "==")
        assert len(raw) == 16
        assert int.from_bytes(raw) >= 100
        seen.add(text)
    assert len(seen) == 1000


def test_to_02_format_prints_a_line_for_each_directory(run: Run, config: Path, tmp_path: Path) -> None:
    result = run("format", "--config", config, "--cluster-id", ID)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 2
    for line, name in zip(sorted(lines, key=lambda line: f"{tmp_path}/b" in line), "ab", strict=True):
        assert line.startswith("Formatting ")
        assert f"{tmp_path}/{name} with metadata.version" in line
        assert (tmp_path / name / "meta.properties").exists()


def test_to_02_what_is_missing_is_a_usage_error(run: Run, config: Path) -> None:
    for arguments in (("format", "--cluster-id", ID), ("format", "--config", config), ("storage", "info")):
        result = run(*arguments)
        assert result.exit_code != 0
        assert "is missing" in result.output


def test_to_03_formatting_twice(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("format", "-c", config, "-t", ID).exit_code == 0
    twice = run("format", "-c", config, "-t", ID)
    assert twice.exit_code == 1
    assert "already formatted" in twice.output
    assert "--ignore-formatted" in twice.output
    assert str(tmp_path) in twice.output
    ignored = run("format", "-c", config, "-t", ID, "--ignore-formatted")
    assert ignored.exit_code == 0
    assert "already formatted" in ignored.output
    (tmp_path / "b" / "meta.properties").unlink()
    half = run("format", "-c", config, "-t", ID, "-g")
    assert half.exit_code == 0
    assert half.output.count("Formatting") == 1
    other = run("format", "-c", config, "-t", "AAAAAAAAAAAAAAAAAAAAbQ", "-g")
    assert other.exit_code == 1
    assert ID in other.output


def test_to_05_an_unsupported_release_writes_nothing(run: Run, config: Path, tmp_path: Path) -> None:
    result = run("format", "-c", config, "-t", ID, "--release-version", "1.0-IV0")
    assert result.exit_code == 1
    assert "1.0-IV0" in result.output
    assert not (tmp_path / "a").exists()


def test_to_06_storage_info(run: Run, config: Path, tmp_path: Path) -> None:
    unformatted = run("storage", "info", "-c", config)
    assert unformatted.exit_code == 1
    assert "Found problem" in unformatted.output
    run("format", "-c", config, "-t", ID)
    found = run("storage", "info", "-c", config)
    assert found.exit_code == 0
    assert f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n" in found.output
    assert f"Found metadata: {{cluster.id={ID}, directory.id=" in found.output
    as_json = json.loads(run("storage", "info", "-c", config, "-o", "json").output)
    assert as_json["directories"] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert as_json["problems"] == []


def test_to_08_a_configuration_that_cannot_work_ends_with_all_its_problems(run: Run, config: Path) -> None:
    result = run("start", "-c", config, "--override", "node.id=7", "--override", "num.partitions=none")
    assert result.exit_code == 1
    assert "2 problems" in result.output
    assert "num.partitions=none" in result.output
    assert "node.id=7" in result.output
    assert "Traceback" not in result.output


def test_config_explain_says_where_values_come_from(run: Run, config: Path) -> None:
    result = run("config", "explain", "-c", config, "--override", "num.partitions=4", env={"KAFKA_LOG_RETENTION_HOURS": "5"})
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.output.splitlines()}
    assert "flag --override" in lines["num.partitions"]
    assert "environment KAFKA_LOG_RETENTION_HOURS" in lines["log.retention.hours"]
    assert f"{config}:2" in lines["node.id"]
    assert "num.io.threads" not in lines
    everything = run("config", "explain", "-c", config, "--all", "-o", "json")
    values = {item["key"]: item for item in json.loads(everything.output)["values"]}
    assert values["num.io.threads"] == {"key": "num.io.threads", "value": "8", "source": "default", "known": True}
    broken = run("config", "explain", "-c", config, "--override", "num.partitions=x")
    assert broken.exit_code == 1
    assert "problem: num.partitions=x" in broken.output


KAFKAS = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""


DIRECTORY = "3Db5QLSqSZieL3rJBUUegA"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--standalone",), "Formatting dynamic metadata voter directory"),
        (("--initial-controllers", f"1@localhost:9093:{DIRECTORY}"), "Formatting dynamic metadata voter directory"),
        (("--initial-controllers", f"2@localhost:9093:{DIRECTORY}"), "Formatting dynamic metadata directory"),
        (("--no-initial-controllers",), "Formatting metadata directory"),
    ],
)
def test_dq_20_dq_22_a_quorum_is_formed_by_an_option(run: Run, tmp_path: Path, option: tuple[str, ...], said: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{KAFKAS}log.dirs={tmp_path}/data\n")
    done = run("compat", "kafka-storage", "format", "-t", ID, "-c", path, *option, "--feature", "kraft.version=1")
    assert done.exit_code == 0 and f"{said} {tmp_path}/data with metadata.version 4.3-IV0." in done.output
    checkpoint = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    assert checkpoint.exists() == (option[0] != "--no-initial-controllers")
    assert (tmp_path / "data" / "bootstrap.checkpoint").exists()
    named = f"directory.id={DIRECTORY}" in (tmp_path / "data" / "meta.properties").read_text()
    assert named == (option[-1].startswith("1@"))
    dumped = run("log", "dump", tmp_path / "data").output
    assert '"type":"FEATURE_LEVEL_RECORD"' in dumped.replace(" ", ""), "what the cluster begins with is not left out"
    again = run("format", "-t", ID, "-c", path, "--override", f"log.dirs={tmp_path}/other", *option)
    assert again.exit_code == 0, "kraftlite's own command takes them too"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--standalone", "--no-initial-controllers"), "exclude one another"),
        (("--initial-controllers", "1@localhost:9093"), "allowed is id@host:port:directoryId"),
        (("--initial-controllers", f"1@h:1:{DIRECTORY},1@h:2:{DIRECTORY}"), "each id and each directory id once"),
        (("--standalone", "--feature", "kraft.version=0"), "Cannot set kraft.version to 0"),
        (("--standalone", "--feature", "kraft.version=2"), "allowed is 0 or 1"),
        (("--feature", "kraft.version=1"), "Cannot set kraft.version to 1"),
    ],
)
def test_dq_21_options_that_do_not_fit(run: Run, tmp_path: Path, option: tuple[str, ...], said: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{KAFKAS}log.dirs={tmp_path}/data\n")
    refused = run("compat", "kafka-storage", "format", "-t", ID, "-c", path, *option)
    assert refused.exit_code == 1 and said in refused.output
    assert "Traceback" not in refused.output and not (tmp_path / "data").exists()


def test_dq_20_a_controller_must_say_how_its_quorum_begins(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{KAFKAS.replace('=localhost:9093', '=localhost:9093,other:9093')}log.dirs={tmp_path}/data\n")
    refused = run("compat", "kafka-storage", "format", "-t", ID, "-c", path)
    assert refused.exit_code == 1 and not (tmp_path / "data").exists()
    assert (
        "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
        "--standalone, --initial-controllers, or --no-initial-controllers." in refused.output
    )


def test_dq_20_options_of_a_dynamic_quorum_with_static_voters(run: Run, config: Path, tmp_path: Path) -> None:
    refused = run("compat", "kafka-storage", "format", "-t", ID, "-c", config, "--standalone")
    assert refused.exit_code == 1 and "you cannot specify controller.quorum.voters" in refused.output
    assert not (tmp_path / "a").exists()
    assert run("compat", "kafka-storage", "format", "-t", ID, "-c", config, "--no-initial-controllers").exit_code == 0, "as Kafka"


@pytest.mark.parametrize(("level", "status"), [("0", 0), ("1", 1)])
def test_dq_21_the_feature_of_dynamic_quorums(run: Run, config: Path, level: str, status: int) -> None:
    done = run("compat", "kafka-storage", "format", "-t", ID, "-c", config, "--feature", f"kraft.version={level}")
    assert done.exit_code == status
    assert ("Cannot set kraft.version to 1 unless" in done.output) == bool(status)


def test_to_05_features_of_a_new_cluster(run: Run, config: Path, tmp_path: Path) -> None:
    """A level that is given counts; 0 leaves a feature out that the release has otherwise; the others are the release's."""
    options = ("--release-version", "4.0", "-f", "eligible.leader.replicas.version=1", "-f", "group.version=0")
    done = run("compat", "kafka-storage", "format", "-t", ID, "-c", config, *options)
    assert done.exit_code == 0, done.output
    records = read_bootstrap(HostDisk(), f"{tmp_path}/a")
    assert {it.name: it.level for it in records if isinstance(it, FeatureLevelRecord)} == {
        "metadata.version": 25,
        "eligible.leader.replicas.version": 1,
        "transaction.version": 2,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-r", "3.9", "-f", "eligible.leader.replicas.version=1"), "depends on metadata.version level 23"),
        (("-f", "nonsense=1"), "Unsupported feature: nonsense. Supported features are: "),
        (("-f", "transaction.version=9"), "transaction.version=9: allowed is a level from 0 to 2"),
        (("-f", "group.version=x"), "Can't parse feature=level string group.version=x: unable to parse x as a short."),
        (("-f", "group.version"), "equals sign not found"),
    ],
)
def test_to_05_features_that_there_are_not(run: Run, config: Path, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    refused = run("compat", "kafka-storage", "format", "-t", ID, "-c", config, *options)
    assert refused.exit_code == 1 and said in refused.output
    assert "Traceback" not in refused.output and not (tmp_path / "a").exists()


def test_config_keys_says_what_becomes_of_each_key(run: Run) -> None:
    found = {item["key"]: item for item in json.loads(run("config", "keys", "-o", "json").output)}
    assert len(found) > 360
    assert found["num.partitions"] == {"key": "num.partitions", "effect": "applied", "default": "1", "words": ""}
    assert found["num.io.threads"]["effect"] == "no effect" and found["num.io.threads"]["words"]
    listed = run("config", "keys", "authorizer", "super").output.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["authorizer.class.name", "applied"], ["super.users", "applied"]]
    none = run("config", "keys", "no-such-part")
    assert none.exit_code == 1 and "no configuration key contains no-such-part" in none.output


def test_dq_22_the_voters_of_the_beginning_from_the_environment(run: Run, tmp_path: Path) -> None:
    """As in a container, which has no file and no options."""
    voters = f"1@localhost:9093:{ID},2@other:9093:luhl6-V3T4mav8EfICTRNw"
    env = {
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENERS": "CONTROLLER://localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "localhost:9093,other:9093",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KRAFTLITE_INITIAL_CONTROLLERS": voters,
    }
    done = run("format", "--cluster-id", ID, env=env)
    assert "Formatting dynamic metadata voter directory" in done.output, done.output
    assert f"directory.id={ID}" in (tmp_path / "data" / "meta.properties").read_text()
    env["KAFKA_LOG_DIRS"] = str(tmp_path / "new")
    assert "Formatting metadata directory" in run("format", "--cluster-id", ID, "--no-initial-controllers", env=env).output


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        ("x", "--feature x: allowed is name=level"),
        ("=1", "--feature =1: allowed is name=level"),
        ("transaction.version=x", "transaction.version=x: allowed is a level from 0 to 32767"),
        ("transaction.version=\u00b2", "transaction.version=\u00b2: allowed is a level from 0 to 32767"),
        ("transaction.version=-1", "transaction.version=-1: allowed is a level from 0 to 32767"),
        ("transaction.version=40000", "transaction.version=40000: allowed is a level from 0 to 32767"),
        ("transaction.version=9", "transaction.version=9: allowed is a level from 0 to 2"),
        ("metadata.version=1.0", "Unknown metadata.version '1.0'"),
    ],
)
def test_to_02_a_feature_that_is_none_is_refused_by_name(run: Run, config: Path, tmp_path: Path, feature: str, told: str) -> None:
    result = run("format", "--config", config, "--cluster-id", ID, "--feature", feature)
    assert result.exit_code != 0
    error = result.exception if isinstance(result.exception, click.ClickException) else None
    assert told in (result.output if error is None else error.format_message())
    assert not isinstance(result.exception, ValueError)
    assert not (tmp_path / "a").exists()
