"""`kraftlite start --supervised` as a container runs it, on this machine: a controller, killed and restarted by our commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.local import process
from kraftlite.local.door import SOCKET_NAME
from kraftlite.local.faults import listed
from kraftlite.local.ledger import read_faults
from kraftlite.local.state import load
from tests.harness.cluster import free_ports
from tests.harness.local import wait_for


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="supervised-") as made:  # the path of a Unix socket has at most 107 bytes
        yield Path(made)


def environment(directory: Path, **more: str) -> dict[str, str]:
    (port,) = free_ports(directory, 1)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
        "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:GRPC",
        "KAFKA_LOG_DIRS": str(directory / "data"),
        "KRAFTLITE_DATA_DIR": str(directory / "cluster"),
        "KRAFTLITE_SECURE_NODES": f"1@127.0.0.1:{port}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


def started(environment: dict[str, str], *options: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "kraftlite", "start", "--supervised", *options], env=environment, stdout=subprocess.PIPE, text=True
    )
    wait_started(child)
    return child


def wait_started(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert any("Kafka Server started" in line for line in child.stdout)


def run(directory: Path, *args: str) -> Result:
    done = CliRunner().invoke(cli, [*args, "--data-dir", str(directory / "cluster"), "-o", "json"])
    assert done.exit_code == 0, done.output
    return done


def test_a_supervised_node_is_killed_and_restarted_and_takes_faults(directory: Path) -> None:
    child = started(environment(directory, KAFKA_KRAFTLITE_FAULTS_ENABLE="true"))
    try:
        node = load(directory / "cluster").node(1)
        assert (node.is_supervised, node.state) == (True, process.RUNNING)
        run(directory, "kill", "controller")
        assert (node.state, child.poll()) == (process.STOPPED, None)
        run(directory, "restart", "1")
        assert node.state == process.RUNNING
        run(directory, "fault", "clock", "1", "+1h", "--for", "200ms")
        wait_for("the node ends it", lambda: not listed(directory / "cluster"))
        run(directory, "restart", "1")
        (clock,) = [it for it in read_faults(directory / "cluster") if it.kind == "wall-jump"]
        assert clock.ended_by is not None and clock.ended_by.door == "node", "the node has the ledger of its cluster"
        child.terminate()
        assert child.wait(60) == 0
    finally:
        end(child)
    kinds = [(it.kind, it.active) for it in read_faults(directory / "cluster")]
    assert kinds == [("kill", False), ("restart", False), ("wall-jump", False), ("restart", False)]


def test_a_node_that_does_not_allow_faults_is_the_process_itself(directory: Path) -> None:
    """It records where all containers look, and has no door; that of a supervisor that was killed before is gone."""
    own = directory / "cluster" / "node-1"
    own.mkdir(parents=True)
    (own / SOCKET_NAME).touch()
    child = started(environment(directory))
    try:
        assert Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text() == ""
        assert (own / "trace.jsonl").stat().st_size > 0 and not (own / SOCKET_NAME).exists()
        assert load(directory / "cluster").node(1).state == process.UNKNOWN
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        end(child)


@pytest.mark.parametrize(
    ("more", "options", "says"),
    [
        ({"KRAFTLITE_SECURE_NODES": "2@other:9093"}, (), "node 1"),
        ({}, ("--config", "server.properties"), "--supervised is for a node that is configured by its environment"),
    ],
)
def test_what_cannot_be_supervised_is_told(directory: Path, more: dict[str, str], options: tuple[str, ...], says: str) -> None:
    given = environment(directory, KAFKA_KRAFTLITE_FAULTS_ENABLE="true", **more)
    (directory / "server.properties").write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://:0\n"
        "controller.quorum.voters=1@localhost:9093\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "kraftlite", "start", "--supervised", *options],
        env=given,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (1, 2) and says in done.stderr and "Traceback" not in done.stderr


def end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        child.terminate()
        child.wait(60)
    assert child.stdout is not None
    child.stdout.close()
