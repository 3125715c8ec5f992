"""How commands end when they are told to: with the status of the signal, without a stack and without what they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60

OWN_COMMAND = """
import signal, sys, click
from kraftlite.cli import main
from kraftlite.cli.common import local_errors

def wait(ending):
    try:
        print("begun", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        print("cleaned up", flush=True)
        ending()

def swallow(): pass
def again(): raise KeyboardInterrupt
def lost(): raise SystemError("returned NULL without setting an exception")

for name, ending in {{"swallow": swallow, "again": again, "lost": lost}}.items():
    setattr(main, "_" + name, click.Command(name, callback=lambda ending=ending: wait(ending)))
    main.COMMANDS[name] = ("main", "_" + name, "")
main.COMMANDS["compat"] = ("main", "_swallow", "")
main.main([{name!r}])
"""


pytestmark = pytest.mark.usefixtures("signals_of_a_terminal")


@contextmanager
def running(*command: str, **more: object) -> Iterator[subprocess.Popen[str]]:
    """A process with a session of its own; whatever is left of it is killed in the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, *command], start_new_session=True, **{**pipes, **more})  # type: ignore[call-overload]
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)


def begun(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(
    ("name", "number", "status"),
    [
        ("swallow", signal.SIGINT, 0),
        ("swallow", signal.SIGTERM, 143),
        ("swallow", signal.SIGHUP, 129),
        ("again", signal.SIGINT, 130),
        ("again", signal.SIGTERM, 143),
        ("lost", signal.SIGINT, 130),
        ("compat", signal.SIGINT, 130),
        ("compat", signal.SIGTERM, 143),
    ],
)
def test_a_command_cleans_up_and_says_which_signal_it_was(name: str, number: signal.Signals, status: int) -> None:
    with running("-c", OWN_COMMAND.format(name=name)) as process:
        assert begun(process) == "begun\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (status, "cleaned up\n")
    assert err.strip() in ("", "interrupted")


def test_a_signal_that_somebody_had_ignored_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running("-c", OWN_COMMAND.format(name="again")) as process:
            signal.signal(signal.SIGHUP, before)
            begun(process)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 143


def test_a_reader_that_goes_ends_a_run_without_a_word(tmp_path: Path) -> None:
    with running("-m", "kraftlite", "sim", "--seed", "5", "--duration", "600", "--trace", "-") as process:
        begun(process)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr.read() == ""
        process.stdout = None


def workers_of(pid: int) -> list[int]:
    """The processes in its session, but for itself and those that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != pid:
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "everybody", "status"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143), (signal.SIGKILL, False, -9)]
)
def test_a_swarm_leaves_no_worker_behind(number: signal.Signals, everybody: bool, status: int) -> None:
    """Ctrl-C reaches the workers, too, wherever they are; the others only who started them. Here they are still importing. One
    that was being started when its starter was killed gets nothing to do, and says so as Python does, before any of our code."""
    swarm = ("-m", "kraftlite", "swarm", "--seeds", "500", "--workers", "2", "--duration", "600")
    with running(*swarm) as process:
        until(lambda: len(workers_of(process.pid)) >= 3, "the workers and the one that counts what they share")
        (os.killpg if everybody else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status
        assert "Traceback" not in err or (number is signal.SIGKILL and "Ran out of input" in err), err
        until(lambda: not workers_of(process.pid), "workers that go on")
