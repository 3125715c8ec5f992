"""DQ-43: the commands that add and remove a voter."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.cli.voters import VoterError, add_controller, remove_controller
from kraftlite.model.errors import ErrorCode

DIRECTORY = "3Db5QLSqSZieL3rJBUUegA"
ID = "MkU3OEVBNTcwNTJENDM2Qg"


class Cluster:
    """Answers every request with one code."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._answer = SimpleNamespace(error_code=code, error_message=message)

    def call(self, key: int, version: int, values: Any, *, timeout_ms: int) -> Any:
        self.asked.append((key, values))
        return self._answer


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=4\ncontroller.quorum.bootstrap.servers=c1:9093\nlisteners=CONTROLLER://c4:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/data\n"
    )
    return path


def formatted(config: Path) -> None:
    done = CliRunner().invoke(cli, ["format", "-t", ID, "-c", str(config), "--initial-controllers", f"4@c4:9093:{DIRECTORY}"])
    assert done.exit_code == 0, done.output


def test_dq_43_a_controller_is_added_by_what_its_files_say(config: Path) -> None:
    formatted(config)
    cluster: Any = Cluster()
    said = add_controller(cluster, config)
    assert said == f"Added controller 4 with directory id {DIRECTORY} and endpoints: CONTROLLER://c4:9093"
    ((key, values),) = cluster.asked
    assert key == 80 and values["voter_id"] == 4 and isinstance(values["voter_directory_id"], UUID)
    assert values["listeners"] == [{"name": "CONTROLLER", "host": "c4", "port": 9093}]
    cluster.asked.clear()
    assert add_controller(cluster, config, dry_run=True).startswith("DRY RUN") and not cluster.asked


def test_dq_43_a_controller_is_removed_by_id_and_directory() -> None:
    cluster: Any = Cluster()
    assert remove_controller(cluster, 4, DIRECTORY) == f"Removed  KRaft controller 4 with directory id {DIRECTORY}"
    ((key, values),) = cluster.asked
    assert key == 81 and values["voter_id"] == 4
    with pytest.raises(VoterError, match="controller-directory-id"):
        remove_controller(cluster, 4, "short")


def test_dq_43_a_refusal_is_told_and_what_cannot_be_a_voter_is_not_asked_for(config: Path) -> None:
    refusing: Any = Cluster(ErrorCode.DUPLICATE_VOTER, "node 4 is a voter already")
    with pytest.raises(VoterError, match="format the controller first"):
        add_controller(refusing, config)
    formatted(config)
    with pytest.raises(VoterError, match="DUPLICATE_VOTER: node 4 is a voter already"):
        add_controller(refusing, config)
    config.write_text(
        "process.roles=broker\nnode.id=4\ncontroller.quorum.bootstrap.servers=c1:9093\ncontroller.listener.names=CONTROLLER\n"
    )
    with pytest.raises(VoterError, match="only controllers vote"):
        add_controller(refusing, config)


def test_dq_43_kafkas_tool_says_what_is_missing() -> None:
    run = CliRunner()
    for arguments, words in (
        (["add-controller"], "--command-config names the server.properties"),
        (["remove-controller", "-i", "4"], "--controller-directory-id"),
        (["remove-controller", "-i", "x", "-d", DIRECTORY], "--controller-id"),
    ):
        done = run.invoke(cli, ["compat", "kafka-metadata-quorum", *arguments])
        assert done.exit_code != 0 and words in done.output


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "PLAINTEXT"])
def test_dq_43_kafkas_tool_logs_in_by_the_file_that_describes_the_controller(
    config: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    formatted(config)
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="amy" password="secret";'
    config.write_text(
        config.read_text()
        + f"security.protocol={protocol}\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\nrequest.timeout.ms=1234\n"
    )
    asked: list[Any] = []
    monkeypatch.setitem(add_controller.__globals__, "add_voter", lambda cluster, *_: asked.append(cluster))
    tool = ["compat", "kafka-metadata-quorum", "--bootstrap-server", "c1:9092", "--command-config", str(config)]
    done = CliRunner().invoke(cli, [*tool, "add-controller"])
    assert done.output == f"Added controller 4 with directory id {DIRECTORY} and endpoints: CONTROLLER://c4:9093\n"
    (settings,) = (cluster.settings for cluster in asked)
    assert settings.request_timeout_ms == 1234
    assert (settings.sasl is not None) == (protocol != "PLAINTEXT")
    config.write_text(config.read_text().replace("node.id=4", "node.id=-4"))
    done = CliRunner().invoke(cli, [*tool, "add-controller"])
    assert done.exit_code == 1 and "node.id" in done.output and len(asked) == 1
