"""Commands that change one local cluster at once: one goes after the other, and no process is forgotten."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

import pytest

from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, LocalError, load, locked, save, update_node

LONG_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    data_dir = tmp_path / "cluster"
    made = plan(data_dir, controllers=1, brokers=1, combined=False)
    write_files(made, {})
    save(made)
    return made


@pytest.mark.parametrize("wipe", [False, True])
def test_down_waits_for_an_up_that_is_under_way(cluster: LocalCluster, wipe: bool) -> None:
    data_dir, waits, order = Path(cluster.data_dir), threading.Event(), []

    def down() -> None:
        local.down(data_dir, wipe=wipe, on_wait=lambda line: waits.set())
        order.append("down")

    with locked(data_dir / ".up.lock"):
        other = threading.Thread(target=down)
        other.start()
        assert waits.wait(LONG_S)
        assert data_dir.exists()
        order.append("up")
    other.join(LONG_S)
    assert order == ["up", "down"]
    assert data_dir.exists() is not wipe


@pytest.mark.parametrize("command", ["add-broker", ""])
def test_who_waits_for_another_command_is_told_once_for_which(cluster: LocalCluster, command: str) -> None:
    """Not those that wait less than a second: nobody sees that."""
    path, told, entered = Path(cluster.data_dir) / ".up.lock", [], threading.Event()

    def up() -> None:
        with locked(path, "up", told.append):
            entered.set()

    with locked(path, command):
        other = threading.Thread(target=up)
        other.start()
        assert process.wait_until(lambda: bool(told), LONG_S)
    other.join(LONG_S)
    assert entered.is_set()
    who = f"process {os.getpid()} (kraftlite {command})" if command else "another command"
    assert told == [f"waiting for {path}: {who} is changing this cluster"]
    with locked(path, "up", told.append):
        assert path.read_text() == f"{os.getpid()} up\n"
    assert len(told) == 1


def test_down_says_that_it_waited_too_long(cluster: LocalCluster) -> None:
    data_dir = Path(cluster.data_dir)
    with locked(data_dir / ".up.lock"), pytest.raises(LocalError, match=r"another command .* for 0 s \(up, add-broker"):
        local.down(data_dir, patience_s=0.1)


def test_down_where_no_cluster_is_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no local cluster"):
        local.down(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_lock_whose_file_was_wiped_keeps_the_next_one_out(tmp_path: Path) -> None:
    """Who waited for a file that is gone has locked nothing: a third would take the new file beside it."""
    path, entered, third = tmp_path / ".up.lock", threading.Event(), []

    def wait() -> None:
        with locked(path):
            entered.set()
            third.append(path.exists())

    with locked(path):
        other = threading.Thread(target=wait)
        other.start()
        process.wait_until(lambda: _waits_for(path), LONG_S)
        path.unlink()
    other.join(LONG_S)
    assert entered.is_set()
    assert third == [True]


def _waits_for(path: Path) -> bool:
    """Another thread of this process has opened the file, too."""
    held = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held += descriptor.samefile(path)
    return held > 1


def test_a_node_that_was_started_again_meanwhile_is_not_forgotten(cluster: LocalCluster) -> None:
    """A `restart` beside `down` may come after it; its process is then still known, and the next `down` stops it."""
    data_dir = Path(cluster.data_dir)
    gone, here = cluster.nodes
    update_node(data_dir, gone.id, pid=1, mark="another process")
    update_node(data_dir, here.id, pid=os.getpid(), mark=process.start_mark(os.getpid()))
    local._forget_stopped(data_dir)
    assert [node.pid for node in load(data_dir).nodes] == [None, os.getpid()]
