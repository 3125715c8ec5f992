"""Kafka's own tools on the cluster of all clients (`tests/clients/conftest.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.java import tools
from tests.clients.java.apache import ApacheKafka
from tests.clients.java.secured import certify, secured_kafka
from tests.harness.local import Cluster


class Kafka:
    """`kafka("topics", "--list")` is `bin/kafka-topics.sh --bootstrap-server … --list`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, tool: str, *args: str, stdin: str = "", code: int = 0) -> tools.Done:
        """Fails when the tool does not end with `code`."""
        done = self.run(tool, "--bootstrap-server", self.bootstrap, *args, stdin=stdin)
        assert done.code == code, f"kafka-{tool} {' '.join(args)} ended with {done.code}:\n{done.out}{done.err}"
        return done

    def run(self, tool: str, *args: str, stdin: str = "") -> tools.Done:
        """Without the address, and however it ends."""
        return tools.kafka_tool(f"kafka-{tool}", *args, stdin=stdin)

    def rows(self, tool: str, *args: str) -> list[dict[str, str]]:
        """Of a tool that prints a table with a heading, of words without blanks."""
        lines = [line.split() for line in self(tool, *args).lines if line.strip()]
        heading, rows = lines[0], lines[1:]
        return [dict(zip(heading, row, strict=False)) for row in rows]


@pytest.fixture(scope="session")
def java() -> None:
    if (reason := tools.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the certificates of `secured`."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    certify(folder)
    return folder


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest, java: None, authority: Path) -> Iterator[ApacheKafka]:
    if request.config.getoption("--kafka-external") is not None:
        pytest.skip("--kafka-external: this starts a cluster itself")
    with secured_kafka(authority) as found:
        yield found


@pytest.fixture
def kafka(java: None, cluster: Cluster) -> Kafka:
    return Kafka(cluster.bootstrap)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A file for what a tool wants as JSON."""
    return tmp_path / "plan.json"
