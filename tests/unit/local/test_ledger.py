"""The ledger of faults: what is written, and what a damaged file still tells."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.layout import plan, write_files
from kraftlite.local.ledger import LEDGER_NAME, Ledger, author, read_events, read_faults
from kraftlite.local.state import LocalCluster, LocalError, save, update_node
from kraftlite.obs.explain_events import from_line
from kraftlite.obs.faults import Author, faults_of

ANNA = Author(who="anna", door="page")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = plan(tmp_path / "c", controllers=1, brokers=1, combined=False)
    write_files(made, {})
    save(made)
    return made


@pytest.fixture
def running(cluster: LocalCluster) -> Iterator[Path]:
    """A cluster whose node 2 is a process that sleeps."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    directory = Path(cluster.data_dir)
    update_node(directory, 2, pid=sleeper.pid, mark=process.start_mark(sleeper.pid))
    yield directory
    with contextlib.suppress(ProcessLookupError):
        sleeper.kill()
    sleeper.wait()


def test_who_did_what_when_it_was_seen_and_when_it_ended(running: Path) -> None:
    local.pause(running, 2, by=ANNA)
    paused = read_faults(running)
    assert [(fault.kind, fault.node, fault.by, fault.active) for fault in paused] == [("pause", 2, ANNA, True)]
    assert paused[0].seen_ms is not None and paused[0].asked_ms <= paused[0].seen_ms
    local.resume(running, 2, by=author("cli"))
    local.kill(running, 2, signal.SIGKILL, by=ANNA)
    pause, resume, kill = read_faults(running)
    assert (pause.active, pause.ended_how, pause.ended_by) == (False, "resume", author("cli"))
    assert (resume.kind, resume.active) == ("resume", False)
    assert (kill.kind, kill.active, kill.ended_ms) == ("kill", True, None) and kill.seen_ms is not None
    Ledger(running, ANNA).end(2, "start")
    assert read_faults(running)[-1].ended_how == "start"


def test_a_kill_ends_the_pause_of_the_node(running: Path) -> None:
    local.pause(running, 2)
    local.kill(running, 2, signal.SIGKILL)
    pause, kill = read_faults(running)
    assert (pause.ended_how, pause.active, kill.active) == ("kill", False, True)


def test_what_could_not_be_done_is_told_as_such(cluster: LocalCluster) -> None:
    directory = Path(cluster.data_dir)
    with pytest.raises(LocalError, match="node 2 is not running"):
        local.kill(directory, 2, signal.SIGKILL, by=ANNA)
    (fault,) = read_faults(directory)
    assert (fault.failed, fault.active, fault.silences(0, 1 << 60)) == ("it is not running", False, False)


def test_a_fault_that_nobody_could_trace_back_is_not_done(running: Path) -> None:
    (running / LEDGER_NAME).mkdir()
    with pytest.raises(LocalError, match=r"node 2 is left alone.*cannot be written"):
        local.kill(running, 2, signal.SIGKILL)
    assert local.load(running).node(2).state == process.RUNNING


def test_a_damaged_line_costs_itself_alone(cluster: LocalCluster) -> None:
    directory = Path(cluster.data_dir)
    ledger = Ledger(directory, ANNA)
    first = ledger.ask("kill", 2)
    with (directory / LEDGER_NAME).open("ab") as file:
        file.write(
            b'{"ts": 1}\n[]\n\xff\xfe\x00\n' + b"[" * 100_000 + b'\n{"ts":12,"node":2,"event":"fault.as'
        )  # cut off by a crash
    second = ledger.ask("pause", 2)
    ledger.see(first, 2)
    assert [(fault.id, fault.seen_ms is None) for fault in read_faults(directory)] == [(first, False), (second, True)]


@pytest.mark.parametrize(
    "line",
    [
        {"event": "fault.asked", "id": 7, "kind": "kill"},
        {"event": "fault.asked", "id": "a", "kind": "explode"},
        {"event": "fault.asked", "id": "a", "kind": ["kill"]},
        {"event": "fault.seen", "id": "never asked"},
        {"event": "node.starting", "id": "a", "kind": "kill"},
    ],
)
def test_what_is_no_fault_is_left_out(line: dict[str, object]) -> None:
    event = from_line({"ts": 1, "node": 2, **line})
    assert event is not None and faults_of([event]) == []


def test_long_words_are_cut(cluster: LocalCluster) -> None:
    directory = Path(cluster.data_dir)
    line = {"ts": 1, "node": 2, "event": "fault.asked", "id": "a", "kind": "kill", "who": "x" * 10_000, "door": "cli"}
    (directory / LEDGER_NAME).write_text(json.dumps(line) + "\n")
    assert len(read_faults(directory)[0].by.who) == 200


def test_those_who_write_at_once_do_not_mix_lines(cluster: LocalCluster) -> None:
    directory = Path(cluster.data_dir)

    def write() -> None:
        for _ in range(50):
            Ledger(directory, ANNA).ask("kill", 2)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({fault.id for fault in read_faults(directory)}) == 200


def test_the_file_is_bounded(cluster: LocalCluster) -> None:
    directory = Path(cluster.data_dir)
    ledger = Ledger(directory, ANNA, max_bytes=4_000)
    asked = [ledger.ask("kill", 2) for _ in range(200)]
    size = sum(path.stat().st_size for path in directory.glob(f"{LEDGER_NAME}*"))
    assert size < 5_000
    kept = [str(event.get("id")) for event in read_events(directory)]
    assert kept and kept == asked[-len(kept) :], "the newest are kept"
