from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlite.config.server import load
from kraftlite.host.disk import HostDisk
from kraftlite.model.errors import Fault
from kraftlite.node import serve
from kraftlite.node.faults import FaultSink
from kraftlite.node.storage import format_directories
from kraftlite.runtime.trace import ListTracer


async def test_the_first_fault_decides_and_a_fault_is_one_line() -> None:
    sink, tracer = FaultSink(), ListTracer()
    sink.attach(tracer)
    assert sink.reason is None
    sink(Fault("the disk is gone"), "log dirs")
    sink(RuntimeError("a consequence"), "raft")
    assert await sink.wait() == "log dirs: the disk is gone"
    first, second = tracer.events
    assert first.facts() == {"where": "log dirs", "reason": "the disk is gone"}
    assert "RuntimeError" in second.facts()["trace"], "a bug is traced with its stack"


@pytest.fixture(autouse=True)
def collector_of_the_other_tests() -> Iterator[None]:
    """A node that runs in this process tunes the cycle collector; that ends with the test."""
    thresholds, callbacks = gc.get_threshold(), gc.callbacks[:]
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


@pytest.fixture
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("KAFKA_") or name == "CLUSTER_ID":
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("quiet_environment")
def test_to_08_all_problems_of_the_configuration_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text("process.roles=broker\nnum.partitions=none\n")
    assert serve.run(str(path)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("num.partitions=none" in line for line in lines) and any("node.id" in line for line in lines)
    assert all(line.startswith("kraftlite: configuration: ") for line in lines)


@pytest.mark.usefixtures("quiet_environment")
def test_to_08_an_unformatted_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://localhost:0\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@localhost:19093\nlog.dirs={tmp_path / 'data'}\nkraftlite.malloc.tuning=false\n"
    )
    assert serve.run(str(path), {}) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kraftlite: ") and str(tmp_path / "data") in line and "not formatted" in line
    assert not (tmp_path / "data").exists(), "a refused start leaves nothing behind"


@pytest.mark.usefixtures("quiet_environment")
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("kraftlite.trace.file=/dev/null/trace.jsonl", "kraftlite.trace.file=/dev/null/trace.jsonl: "),
        ("kraftlite.metrics.port=0\nkraftlite.metrics.host=a..b", "kraftlite.metrics.port=0 of a..b: "),
        ("kraftlite.metrics.port=0\nkraftlite.metrics.host=203.0.113.1", "kraftlite.metrics.port=0 of 203.0.113.1: "),
    ],
)
def test_what_cannot_be_opened_is_one_line_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: str, words: str
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://localhost:0\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@localhost:19093\nlog.dirs={tmp_path / 'data'}\nkraftlite.malloc.tuning=false\n{extra}\n"
    )
    format_directories(HostDisk(), load(path), "xAnarm01TwSKb6sp_r7iNQ")
    assert serve.run(str(path), {}) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kraftlite: ")]
    assert words in line
