"""What a command that fails or is interrupted leaves behind: no process that nobody knows of, and no file; and it removes nothing
that it has not written."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, LocalError, load, locked, save

LONG_S = 60.0


@pytest.fixture(autouse=True)
def own_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    made = plan(tmp_path / "cluster", controllers=1, brokers=1, combined=False)
    write_files(made, {})
    save(made)
    return made


@pytest.mark.parametrize("extra", [{}, {"log.retention.hours": "abc"}])
def test_the_records_of_a_cluster_whose_description_is_gone_stay(cluster: LocalCluster, extra: dict[str, str]) -> None:
    data_dir, node = Path(cluster.data_dir), cluster.nodes[1]
    log = Path(node.data_dir) / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"records")
    properties = node.config_path.read_text()
    (data_dir / "cluster.json").unlink()
    with pytest.raises(LocalError, match=r"node-2 is there already, and .*cluster\.json.*bring that file back"):
        local.up(data_dir, controllers=1, brokers=1, extra=extra)
    assert log.read_bytes() == b"records"
    assert node.config_path.read_text() == properties
    assert not (data_dir / ".starting").exists(), "its ports are free"


def test_a_path_that_log_dirs_cannot_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"a,b/cluster cannot be .* comma"):
        local.up(tmp_path / "a,b" / "cluster")
    assert not (tmp_path / "a,b").exists()


def test_an_up_that_is_interrupted_before_its_description_is_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(local.__dict__, "check_config", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local.up(tmp_path / "new", controllers=1, brokers=1)
    assert not (tmp_path / "new").exists()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        yield child
        child.kill()


def test_a_node_whose_process_cannot_be_written_down_does_not_run(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """As on a full disk: nobody could stop it."""

    def launched(*_: Any, **__: Any) -> dict[int, int]:
        (Path(cluster.data_dir) / "cluster.json.tmp").mkdir()
        return {1: sleeper.pid}

    monkeypatch.setitem(local.__dict__, "_launch", launched)
    with pytest.raises(LocalError, match=r"cluster\.json cannot be written: Is a directory"):
        local.start(cluster, [cluster.nodes[0]], format_first=True)
    assert sleeper.wait(LONG_S) == -signal.SIGTERM
    assert load(Path(cluster.data_dir)) == cluster


def test_what_a_wipe_cannot_remove_is_told_and_can_be_tried_again(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = Path(cluster.data_dir)
    (data_dir / "cluster.json.tmp").touch()  # of a command that was killed

    def stuck(path: str | Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    with monkeypatch.context() as patched:
        patched.setitem(shutil.__dict__, "rmtree", stuck)
        with pytest.raises(LocalError, match=r"node-1 cannot be removed: Operation not permitted.*down --wipe"):
            local.down(data_dir, wipe=True)
    local.down(data_dir, wipe=True)
    assert not data_dir.exists()


def test_a_directory_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 300)
    with (
        pytest.raises(LocalError, match=r"x/local cannot be used as the directory of a cluster: File name too long"),
        locked(home / "local" / ".up.lock"),
    ):
        pass


_LAUNCH = """
import errno, os, signal, sys, time
from kraftlite.local import launch
real, calls, place, launcher = os.fork, [], sys.argv[1], os.getpid()

def fork():
    calls.append(1)
    if len(calls) == TOLD and os.getpid() == launcher:
        os.kill(os.getpid(), signal.SIGTERM)
    if len(calls) == FAILS:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return real()

def run(config, overrides):
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "a node could not be stopped"
    open(os.path.join(place, f"pid-{os.getpid()}"), "w").close()
    time.sleep(600)

os.fork = fork
orders = [launch.Order(id=i, config="c", log=os.path.join(place, "log")) for i in (1, 2)]
sys.exit(launch._start(orders, run))
"""


def _processes_of(place: Path) -> list[int]:
    """Those that run still, and are ended."""
    found = []
    for path in place.glob("pid-*"):
        pid = int(path.name.removeprefix("pid-"))
        if process.start_mark(pid) is not None:
            found.append(pid)
            os.kill(pid, signal.SIGKILL)
    return found


def test_the_launcher_starts_no_node_when_the_system_has_no_process_for_another(tmp_path: Path) -> None:
    code = textwrap.dedent(_LAUNCH).replace("FAILS", "3").replace("TOLD", "0")  # that of the second node itself
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no process can be made for a node")
    assert _processes_of(tmp_path) == []


@pytest.mark.parametrize("fork", [1, 2])
def test_the_launcher_starts_no_node_for_a_command_that_waits_no_longer(tmp_path: Path, fork: int) -> None:
    """A node would run whose pid stands nowhere, and hold the lock of its directory against every restart."""
    code = textwrap.dedent(_LAUNCH).replace("FAILS", "0").replace("TOLD", str(fork))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert _processes_of(tmp_path) == []
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the command that started them waits no longer\n"


_SLOW = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print(sys.stdin.read(), "at last", flush=True), sys.exit(0)))
print("begins", flush=True)
time.sleep(600)
"""


def test_a_program_that_takes_too_long_is_told_so_and_its_late_answer_counts(tmp_path: Path) -> None:
    done = process.answer_of([sys.executable, "-c", _SLOW], "the pids", cwd=str(tmp_path), timeout_s=5)
    assert (done.returncode, done.stdout) == (0, "begins\nthe pids at last\n")


def test_a_program_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(str(os.getpid()), 'w'); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        process.answer_of([sys.executable, "-c", deaf], "", cwd=str(tmp_path), timeout_s=5)
    (pid,) = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    assert process.start_mark(pid) is None


def test_the_launcher_starts_no_node_for_a_command_that_was_killed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    code = textwrap.dedent(_LAUNCH).replace("FAILS", "0").replace("TOLD", "0")
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=writing, timeout=LONG_S, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert _processes_of(tmp_path) == []
