"""`kraftlite logs` on trace files: what is shown, how, and how it follows files that grow and are rotated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli import logs
from kraftlite.cli.main import cli
from kraftlite.local.state import LocalCluster, LocalNode

NOW = int(time.time() * 1000)
DAY_MS = 24 * 3_600_000
TRACES = {
    "1": [
        {"ts": NOW - 40 * DAY_MS, "node": 1, "event": "node.starting", "roles": "controller"},
        {"ts": NOW, "node": 1, "event": "controller.record_appended", "offset": 8, "record": "PartitionChange", "isr": [2, 3]},
    ],
    "2": [
        {"ts": NOW - 40 * DAY_MS, "node": 2, "event": "node.starting", "roles": "broker"},
        {"ts": NOW, "node": 2, "event": "partition.leader_started", "tp": ["orders", 0], "cause": "record@8"},
        {"ts": NOW + 1, "node": 2, "event": "raft.fetch_timed_out", "leader_id": 1},
        {"ts": NOW + 2, "node": 2, "event": "later.version", "text": "\x1b[2J\u202eevil", "more": {"a": "\x9b"}},
    ],
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The broker's is named first."""
    for name, lines in TRACES.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["--trace", str(tmp_path / "2"), "--trace", str(tmp_path / "1")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["logs", *arguments])


def events(*arguments: str) -> list[str]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line)["event"] for line in done.stdout.splitlines()]


def test_all_nodes_by_time_and_by_cause(files: list[str]) -> None:
    done = run(*files)
    assert done.exit_code == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert [" ".join(line.split()[2:6]) for line in lines[:4]] == [
        "node 2 INFO node.starting",
        "node 1 INFO node.starting",
        "node 1 INFO controller.record_appended",
        "node 2 INFO partition.leader_started",
    ]
    assert lines[2].endswith("offset=8 record=PartitionChange isr=(2,3)")
    assert lines[3].endswith("tp=orders-0 cause=record@8") and "WARNING  raft.fetch_timed_out" in lines[4]


def test_names_of_clients_are_text(files: list[str]) -> None:
    for more in ((), ("--json",)):
        done = run(*files, *more)
        assert all(line.isprintable() for line in done.stdout.splitlines()) and "evil" in done.stdout
    shown = [json.loads(line) for line in run(*files, "--json").stdout.splitlines()]
    levels = {"raft.fetch_timed_out": "warning"}
    assert shown[-1] == {**TRACES["2"][-1], "level": "info"}
    assert all(line["level"] == levels.get(line["event"], "info") for line in shown)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--node", "1"), ["node.starting", "controller.record_appended"]),
        (("--level", "warning"), ["raft.fetch_timed_out"]),
        (("--level", "error"), []),
        (("--grep", "orders-0", "--node", "2"), []),
        (("--grep", '"orders"'), ["partition.leader_started"]),
        (("--since", "24h", "--node", "2"), ["partition.leader_started", "raft.fetch_timed_out", "later.version"]),
        (("--since", "2999-01-01"), []),
        (("--since", "90d", "--node", "1", "--node", "2", "--grep", "starting"), ["node.starting", "node.starting"]),
    ],
)
def test_filters(files: list[str], filters: tuple[str, ...], expected: list[str]) -> None:
    assert events(*files, *filters) == expected


def test_grep_looks_at_what_is_printed(files: list[str]) -> None:
    assert len(run(*files, "--grep", "tp=orders-0").stdout.splitlines()) == 1


def test_colours_are_on_a_terminal_only(files: list[str]) -> None:
    found = json.loads(run(*files, "--json", "--level", "warning").stdout)
    (line,) = (it for it in _lines_of(files) if it.event.event == found["event"])
    assert "\x1b" not in logs._text_line(coloured=False)(line, "warning")
    assert "\x1b[33mWARNING" in logs._text_line(coloured=True)(line, "warning")
    assert "\x1b" not in run(*files).stdout


def _lines_of(files: list[str]) -> Iterator[logs.Line]:
    for path in files[1::2]:
        tail = logs.Tail(Path(path))
        tail.look()
        while tail.head is not None:
            yield tail.take()
        tail.close()


def followed(sources: Callable[[], Iterable[Path]], *todo: Callable[[], object]) -> list[logs.Line]:
    """The lines that `--follow` prints, with what happens in each of its pauses; then Ctrl-C."""
    left = iter(todo)

    def pause() -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    found: list[logs.Line] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(logs.lines(sources, pause))
    return found


def test_follow_sees_new_lines_and_rotated_files(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "1"

    def append(number: int) -> None:
        line = {"ts": NOW + 10 + number, "node": 1, "event": f"new.{number}"}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def rotate() -> None:
        append(1)
        path.replace(tmp_path / "1.1")
        append(2)

    paths = [Path(file) for file in files[1::2]]
    found = followed(lambda: paths, lambda: append(0), rotate, lambda: append(3), lambda: None)
    assert [line.event.event for line in found[-4:]] == ["new.0", "new.1", "new.2", "new.3"]
    assert len(found) == 4 + sum(map(len, TRACES.values()))


def test_errors_are_one_line(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for arguments, status, words in (
        ((*files, "--since", "5x"), 2, "--since 5x: allowed are 5m"),
        ((*files, "--since", "9" * 30 + "d"), 2, "allowed are 5m"),
        ((*files, "--level", "loud"), 2, "'loud' is not one of 'debug'"),
        (("--trace", str(tmp_path / "empty")), 1, f"nothing is recorded in {tmp_path / 'empty'}"),
        (("--data-dir", str(tmp_path / "none")), 1, "there is no local cluster in"),
    ):
        done = run(*arguments)
        assert done.exit_code == status and words in done.stderr, done.output
        assert len(done.stderr.splitlines()) <= 4 and "Traceback" not in done.stderr


def cluster(directory: Path, *ids: int) -> None:
    nodes = []
    for node in ids:
        home = directory / f"node-{node}"
        home.mkdir(exist_ok=True)
        (home / "trace.jsonl").write_text(json.dumps({"ts": NOW + node, "node": node, "event": "node.starting"}) + "\n")
        nodes.append(LocalNode(id=node, roles=("broker",), kafka=None, replication=None, controller=None, directory=str(home)))
    state = LocalCluster(
        data_dir=str(directory), cluster_id="c", controllers=0, brokers=len(ids), combined=False, nodes=tuple(nodes)
    )
    (directory / "cluster.json").write_text(json.dumps(asdict(state)))


def test_a_local_cluster_with_its_ledger_and_a_node_that_comes(tmp_path: Path) -> None:
    cluster(tmp_path, 1, 2)
    asked = {"ts": NOW + 9, "node": 2, "event": "fault.asked", "id": "x", "kind": "kill", "who": "anna", "door": "cli"}
    (tmp_path / "faults.ledger").write_text(json.dumps(asked) + "\n")
    here = ("--data-dir", str(tmp_path))
    assert events(*here) == ["node.starting", "node.starting", "fault.asked"]
    assert events(*here, "--node", "2") == ["node.starting", "fault.asked"]
    assert events(*here, "--level", "warning") == ["fault.asked"]
    done = run(*here, "--node", "9")
    assert done.exit_code == 1 and "there is no node 9 in" in done.stderr
    sources = logs.cluster_files(tmp_path, ())
    found = followed(sources, lambda: cluster(tmp_path, 1, 2, 3), (tmp_path / "cluster.json").unlink, lambda: None)
    assert [line.event.node for line in found] == [1, 2, 2, 3]


def led(ms: int, node: int, topic: str, epoch: int, record: int) -> dict[str, object]:
    more = {"leader_epoch": epoch, "partition_epoch": epoch, "isr": [2, 3], "min_isr": 1, "epoch_start_offset": 0, "hw": 0}
    return {
        "ts": ms, "node": node, "event": "partition.leader_started", "tp": [topic, 0], **more, "cause": f"record@{record}",
    }  # fmt: skip


def test_a_story_has_its_lines_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    lines = [led(NOW, 2, "orders", 3, 8), led(NOW, 2, "other", 3, 9), led(NOW + 5, 3, "orders", 4, 11)]
    lines.append({"ts": NOW + 6, "node": 3, "event": "raft.fetch_timed_out", "leader_id": 1})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [json.loads(line) for line in run("--trace", str(path), "--story", "orders-0", "--json").stdout.splitlines()]
    assert [(it["ts"] - NOW, it["node"], it["tp"]) for it in told] == [(0, 2, ["orders", 0]), (5, 3, ["orders", 0])]
    assert events("--trace", str(path), "--story", "partition=orders-0", "--node", "3") == ["partition.leader_started"]


@pytest.mark.parametrize(
    ("story", "status", "words"),
    [
        (["--story", "none-0"], 1, "none-0"),
        (["--story", "node=x"], 2, "--story node=x"),
        (["--story", "nonsense=x"], 2, "--story nonsense=x"),
        (["--story", "orders-0", "--follow"], 2, "excludes --follow"),
    ],
)
def test_a_story_of_nothing_is_refused(files: list[str], story: list[str], status: int, words: str) -> None:
    done = run("--trace", files[2 + 1], *story)
    assert done.exit_code == status and words in done.stderr
