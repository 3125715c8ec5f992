"""`start` and `format` with configurations that cannot work: one message with every problem, and nothing is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.configdef import ConfigType

ID = "xAnarm01TwSKb6sp_r7iNQ"
BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192",
    "inter.broker.listener.name": "REPLICATION",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def run(command: str, folder: Path, values: Mapping[str, str | None] | str, env: Mapping[str, str] | None = None) -> Result:
    path = folder / "server.properties"
    if isinstance(values, str):
        path.write_text(values)
    else:
        text = "".join(f"{key}={value}\n" for key, value in values.items() if value is not None)
        path.write_text(f"{text}log.dirs={folder}/data\n")
    arguments = [command, "--config", str(path)] + (["--cluster-id", ID] if command == "format" else [])
    result = CliRunner().invoke(cli, arguments, env=dict(env or {}))
    assert "Traceback" not in result.output
    assert not (folder / "data").exists()
    return result


# (role, what is changed, what the message must name)
MISTAKES: list[tuple[dict[str, str], dict[str, str | None], tuple[str, ...]]] = [
    (BROKER, {"process.roles": None}, ("process.roles is not set", "allowed is broker, controller")),
    (BROKER, {"process.roles": "zookeeper"}, ("process.roles=zookeeper", "allowed")),
    (BROKER, {"process.roles": "broker,broker"}, ("process.roles=broker,broker", "twice")),
    (BROKER, {"node.id": None}, ("node.id is not set", "allowed")),
    (BROKER, {"node.id": "-1"}, ("node.id=-1", "allowed")),
    (BROKER, {"node.id": "four"}, ("node.id=four", "allowed is a whole number")),
    (BROKER, {"node.id": "1"}, ("node.id=1", "voters")),
    (BROKER, {"broker.id": "5"}, ("node.id=4", "broker.id=5", "disagree")),
    (CONTROLLER, {"node.id": "2"}, ("node.id=2", "not among the voters 1")),
    (BROKER, {"controller.quorum.voters": None}, ("controller.quorum.voters is not set",)),
    (BROKER, {"controller.quorum.voters": "1@localhost"}, ("controller.quorum.voters: 1@localhost", "id@host:port")),
    (BROKER, {"controller.quorum.voters": "1@a:1,1@b:2"}, ("id 1 is there twice",)),
    (BROKER, {"controller.quorum.voters": "1@a:99999"}, ("1@a:99999", "id@host:port")),
    (BROKER, {"controller.quorum.voters": "1@0.0.0.0:9093"}, ("0.0.0.0 is not an address",)),
    (BROKER, {"controller.listener.names": None}, ("controller.listener.names is not set",)),
    (CONTROLLER, {"controller.listener.names": "OTHER"}, ("OTHER", "listeners")),
    (CONTROLLER, {"listeners": None}, ("listeners is not set", "CONTROLLER://:9093")),
    (CONTROLLER, {"advertised.listeners": "PLAINTEXT://h:1"}, ("advertised.listeners", "PLAINTEXT")),
    (BROKER, {"listeners": "PLAINTEXT:9092"}, ("listeners: PLAINTEXT:9092", "NAME://host:port")),
    (BROKER, {"listeners": "PLAINTEXT://:9092,REPLICATION://:9092"}, ("both use port 9092",)),
    (BROKER, {"listeners": "PLAINTEXT://:9092,REPLICATION://:99999"}, ("REPLICATION://:99999", "between 0 and 65535")),
    (BROKER, {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,REPLICATION://:3"}, ("PLAINTEXT is there twice",)),
    (BROKER, {"listeners": "NOPE://:9092,REPLICATION://:9192"}, ("listener.security.protocol.map has no protocol for NOPE",)),
    (BROKER, {"listeners": "SASL_SSL://:9092,REPLICATION://:9192"}, ("ssl.keystore.location is not set", "GSSAPI, which is")),
    (BROKER, {"listeners": "REPLICATION://:9192"}, ("a broker needs a listener for clients",)),
    (BROKER, {"listener.security.protocol.map": "PLAINTEXT"}, ("listener.security.protocol.map: PLAINTEXT", "NAME:PROTOCOL")),
    (BROKER, {"inter.broker.listener.name": "NOPE"}, ("inter.broker.listener.name=NOPE", "PLAINTEXT, REPLICATION")),
    (BROKER, {"inter.broker.listener.name": "CONTROLLER"}, ("inter.broker.listener.name=CONTROLLER",)),
    (BROKER, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092,REPLICATION://h:1"}, ("0.0.0.0", "advertised.listeners")),
    (BROKER, {"advertised.listeners": "PLAINTEXT://h:9092"}, ("REPLICATION must be advertised",)),
    (BROKER, {"advertised.listeners": "PLAINTEXT://h:0x1,REPLICATION://h:1"}, ("PLAINTEXT://h:0x1",)),
    (BROKER, {"num.partitions": "0"}, ("num.partitions=0", "at least 1")),
    (BROKER, {"num.partitions": ""}, ("num.partitions=", "allowed is a whole number")),
    (BROKER, {"min.insync.replicas": "0"}, ("min.insync.replicas=0", "at least 1")),
    (BROKER, {"auto.create.topics.enable": "yes"}, ("auto.create.topics.enable=yes", "true or false")),
    (BROKER, {"log.cleanup.policy": "shred"}, ("log.cleanup.policy=shred", "compact, delete")),
    (BROKER, {"compression.type": "rar"}, ("compression.type=rar", "zstd")),
    (BROKER, {"log.retention.ms": "0"}, ("log.retention.ms=0",)),
    (BROKER, {"log.segment.bytes": "12"}, ("log.segment.bytes=12", "at least")),
    (BROKER, {"broker.session.timeout.ms": "1000"}, ("broker.heartbeat.interval.ms=2000", "broker.session.timeout.ms=1000")),
    (BROKER, {"replica.lag.time.max.ms": "100"}, ("replica.fetch.wait.max.ms=500", "replica.lag.time.max.ms=100")),
]


@pytest.mark.parametrize("command", ["start", "format"])
@pytest.mark.parametrize(
    ("base", "changes", "words"), MISTAKES, ids=lambda value: str(value) if isinstance(value, dict) and len(value) < 3 else ""
)
def test_bl_25_rf_58_a_mistake_is_one_line(
    folder: Path, command: str, base: dict[str, str], changes: dict[str, str | None], words: tuple[str, ...]
) -> None:
    result = run(command, folder, {**base, **changes})
    assert result.exit_code == 1
    for word in words:
        assert word in result.output
    errors = [line for line in result.output.splitlines() if not line.startswith("warning: ")]
    assert errors[0].startswith("Error: configuration: ")


def test_every_problem_is_told_at_once(folder: Path) -> None:
    wrong = [
        {"node.id": "x", "num.partitions": "0"},
        {"listeners": "PLAINTEXT:9092", "controller.quorum.voters": "1@", "log.cleanup.policy": "no"},
    ]
    result = run("start", folder, {**BROKER, **wrong[0], **wrong[1]})
    assert "problems" in result.output
    for key in (*wrong[0], *wrong[1]):
        assert key in result.output


def test_a_bad_value_of_every_typed_key_is_named_with_what_is_allowed(folder: Path) -> None:
    typed = [
        key
        for key, definition in BROKER_CONFIGS.items()
        if definition.type in (ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE)
    ]
    assert len(typed) > 100
    result = run("start", folder, {**BROKER, **dict.fromkeys(typed, "1..2")})
    lines = result.output.splitlines()
    for key in typed:
        told = [line for line in lines if line.startswith(f"  - {key}=1..2: allowed is ")]
        assert len(told) == 1, f"{key}: {told}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("process.roles is not set", "node.id is not set")),
        ("\\u12zz=1\n", ("server.properties: line 1", "not an escape")),
        ("this is not a properties file\n", ("process.roles is not set",)),
    ],
)
def test_a_file_that_says_nothing_or_nonsense(folder: Path, text: str, words: tuple[str, ...]) -> None:
    result = run("start", folder, text)
    assert result.exit_code == 1
    for word in words:
        assert word in result.output


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00node.id=1")
    for path in (tmp_path / "absent", tmp_path, binary):
        result = CliRunner().invoke(cli, ["start", "--config", str(path)])
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: configuration: {path}"), result.output
        assert len(result.output.splitlines()) == 1


def test_a_byte_order_mark_and_windows_lines_are_read(folder: Path) -> None:
    path = folder / "server.properties"
    lines = "".join(f"{key}={value}\r\n" for key, value in BROKER.items())
    path.write_bytes(f"\ufeff{lines}num.partitions=zero\r\n".encode())
    result = CliRunner().invoke(cli, ["start", "--config", str(path)])
    assert "num.partitions=zero: allowed" in result.output
    assert "problems" not in result.output


def test_the_environment_wins_over_the_file_and_is_named(folder: Path) -> None:
    result = run("start", folder, {**BROKER, "num.partitions": "3"}, {"KAFKA_NUM_PARTITIONS": "many"})
    assert "num.partitions=many" in result.output
    assert "environment KAFKA_NUM_PARTITIONS" in result.output


def test_unknown_keys_are_warnings_wherever_they_stand(folder: Path) -> None:
    """The image's spelling: one underscore is a dot, two are an underscore, three a dash."""
    result = run(
        "start",
        folder,
        {**BROKER, "nosuch.key": "1", "num.partitions": "x"},
        {"KAFKA_MY__KEY___WITH_DOTS": "1", "KAFKA_OPTS": "-Xmx1g", "KAFKA_HEAP_OPTS": "-Xmx1g"},
    )
    assert result.exit_code == 1
    shown = CliRunner().invoke(
        cli, ["config", "explain", "--config", str(folder / "server.properties")], env={"KAFKA_MY__KEY___WITH_DOTS": "1"}
    )
    assert "unknown configuration key nosuch.key" in shown.output
    assert "unknown configuration key my_key-with.dots" in shown.output
    assert "opts" not in shown.output


def test_overrides_are_checked_too(folder: Path) -> None:
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in BROKER.items()))
    for override, words in (("num.partitions=0", "num.partitions=0"), ("novalue", "allowed is key=value")):
        result = CliRunner().invoke(cli, ["start", "--config", str(path), "--override", override])
        assert result.exit_code != 0
        assert words in result.output


def test_the_command_line_itself_ends_with_one_line_and_a_status(tmp_path: Path) -> None:
    """As a process: where in-process tests might hide a stack trace."""
    path = tmp_path / "server.properties"
    path.write_text("process.roles=broker\nnode.id=4\n")
    for arguments in (
        ["start", "-c", str(path)],
        ["format", "-c", str(path), "-t", ID],
        ["format", "-c", str(path)],
        ["start", "--nope"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kraftlite", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "CLUSTER_ID": ""},
        )
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(("error: ", "warning: "))
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
