"""kafka-metadata-shell: Apache Kafka's and ours say the same of the same file, line by line.

Each file of the incident of docs/POSTMORTEM.md, which a real Apache Kafka wrote. Not compared: the version of the program.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlite.cli.compat import metadata_shell
from tests.clients.java import tools
from tests.postmortem.make import ARCHIVE

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
TRIES = 10
COMMANDS = (
    ("ls", "/"),
    ("ls", "/image"),
    ("ls", "/image/configs", "/image/topics/byName/*", "/image/provenance", "/image/acls/byId"),
    ("tree", "/image"),
    ("find", "/image"),
    ("find", "/image/topics/byName"),
    ("cat", "/image/provenance"),
    ("cat", "/image/features/*"),
    ("cat", "/image/cluster/{brokers,controllers}/?"),
    ("cat", "/image/topics/byName/orders/0", "/image/topics/byName", "/image/nope"),
    ("ls", "/image/nope", "../..", "/image/p*"),
    ("frob",),
    ("cat",),
)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("incident")
    with lzma.open(ARCHIVE) as raw, tarfile.open(fileobj=raw) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture
def both(java: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[list[str], list[str]]]:
    """What Kafka's shell prints, and what ours prints. Kafka's may begin to answer before it has read the file: what it says of
    the first paths is then what an empty cluster has. It is asked again until both say the same, or for the last time."""

    def run(path: Path, *command: str) -> tuple[list[str], list[str]]:
        assert metadata_shell.run(["--snapshot", str(path), *command]) == 0
        ours, theirs = capsys.readouterr().out.splitlines(), list[str]()
        for _ in range(TRIES):
            done = tools.kafka_tool("kafka-metadata-shell", "--snapshot", str(path), *command)
            assert done.code == 0, done.err
            theirs = done.lines
            if theirs == ours:
                break
        return theirs, ours

    return run


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_to_22_a_segment(incident: Path, both: Callable[..., tuple[list[str], list[str]]], command: tuple[str, ...]) -> None:
    theirs, ours = both(incident / "node-2" / "__cluster_metadata-0" / "00000000000000000000.log", *command)
    assert theirs == ours


@pytest.mark.parametrize("command", [("tree", "/image"), ("find", "/image/topics")], ids=" ".join)
def test_to_22_snapshots(incident: Path, both: Callable[..., tuple[list[str], list[str]]], command: tuple[str, ...]) -> None:
    found = sorted(incident.glob("node-*/__cluster_metadata-0/*.checkpoint"))
    assert len(found) >= 3
    for path in found:
        theirs, ours = both(path, *command)
        assert theirs == ours, path
