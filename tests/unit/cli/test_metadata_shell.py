"""`kraftlite metadata shell`, `explain --metadata` and `compat kafka-metadata-shell` as a user types them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.metadata.records import ConfigRecord, PartitionChangeRecord
from kraftlite.model.ids import NodeId
from tests.harness.exports import READERS
from tests.harness.metadata_log import MetadataLog, snapshot
from tests.harness.metadata_support import broker, nodes, topic

HOSTILE = "a\x1b[2J\x07\u202eb"
SHOWN = "a\\x1b[2J\\x07\\u202eb"
PATIENCE_S = 30.0


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    found = MetadataLog(tmp_path / "node-1" / "data" / "__cluster_metadata-0")
    found.leader(1_700_000_000_000, 1, 1)
    found.add(1_700_000_001_000, broker(1, fenced=False), broker(2, fenced=False), *topic("orders", 1, 2, (1, 2)))
    change = PartitionChangeRecord(topic_id=topic("orders", 1)[0].topic_id, partition=0, isr=nodes(2), leader=NodeId(2))  # type: ignore[union-attr]
    found.add(1_700_000_002_000, change, ConfigRecord(resource_type=2, resource_name="orders", name="k", value=HOSTILE))
    return found


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)


def shell(*arguments: object, stdin: str | None = None) -> Result:
    return run("metadata", "shell", *arguments, stdin=stdin)


def test_to_22_one_command(log: MetadataLog, tmp_path: Path) -> None:
    for given in ((tmp_path,), (log.directory,), (log.path,)):
        done = shell(*given, "ls", "/topics/byName/orders")
        assert (done.exit_code, done.stdout.split(), done.stderr) == (0, ["0", "1", "id", "name"], "")
    done = shell(log.directory, "cat", "/nope")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "cat: /nope: No such file or directory.\n")


def test_to_22_a_snapshot(tmp_path: Path) -> None:
    path = snapshot(tmp_path, 17, topic("orders", 1), epoch=2, time_ms=1_700_000_000_500)
    assert shell(path, "cat", "/provenance").stdout == "offset 16, epoch 2, time 2023-11-14T22:13:20.5Z[UTC]\n"
    kafkas = run("compat", "kafka-metadata-shell", "--snapshot", path, "cat", "/image/provenance")
    assert kafkas.stdout == "offset 2, epoch 2, time 2023-11-14T22:13:20.5Z[UTC]\n", "Kafka counts in the file"


def test_to_41_time_travel(log: MetadataLog) -> None:
    assert "leader=1," in shell(log.directory, "--at-offset", 5, "cat", "/topics/byName/orders/0").stdout
    assert "leader=2," in shell("--at-offset", 6, log.directory, "cat", "/topics/byName/orders/0").stdout
    done = shell(log.directory, "history", "/topics/byName/orders/0")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["@3", "@4", "@6"]
    assert "~ /image/topics/byName/orders/0: isr [1, 2] → [2], leader 1 → 2" in shell(log.directory, "diff", 5, 6).stdout
    done = shell(log.directory, "--at-offset", 8, "ls", "/")
    assert done.exit_code == 1 and "there is no offset 8; what can be read ends with offset 7" in done.stderr


def test_names_and_values_are_text(log: MetadataLog) -> None:
    for command in (("tree", "/"), ("cat", "/configs/TOPIC:orders/k"), ("history", "/configs"), ("diff", 0)):
        done = shell(log.directory, *command)
        assert SHOWN in done.stdout and "\x1b" not in done.output, command
    assert "\x1b" not in run("explain", "--metadata", log.directory, "topic", "orders").output
    value = json.loads(run("explain", "--metadata", log.directory, "--json").stdout)
    for tool, read in READERS.items():
        exported = run("explain", "--metadata", log.directory, "--format", tool).stdout.rstrip("\n")
        assert len(read(exported)) == sum(len(story["steps"]) for story in value["stories"]) > 0
    done = shell(log.directory, "cat", HOSTILE)
    assert SHOWN in done.stderr and "\x1b" not in done.output


def test_what_cannot_be_read_is_said_on_standard_error(log: MetadataLog) -> None:
    log.raw(log.path.read_bytes()[:40].replace(b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\x08"))
    done = shell(log.directory, "ls", "/topics/byName")
    assert (done.exit_code, done.stdout) == (0, "orders\n")
    assert done.stderr.startswith("note: ") and "are the beginning of a batch" in done.stderr
    assert "are the beginning of a batch" in run("explain", "--metadata", log.directory).stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("NOWHERE", "ls"), 2, "NOWHERE: there is no such file or directory, and no such command (at, cat,"),
        (("--cluster", "DIR", "ls"), 2, "--cluster and DIR exclude each other"),
        (("EMPTY", "ls"), 1, "there is no __cluster_metadata-0 with segments or snapshots in or below it"),
        (("DIR", "cd", "/image"), 2, "cd makes sense in an interactive shell alone"),
        (("DIR", "--at-offset", "-1", "ls"), 2, "-1 is not in the range x>=0"),
        (("DIR", "ls", "/topics", "nothing"), 1, "ls: nothing: no such file or directory."),
        (("--data-dir", "EMPTY", "ls"), 1, "EMPTY"),
    ],
)
def test_mistakes_are_one_line(log: MetadataLog, tmp_path: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    (tmp_path / "EMPTY").mkdir()
    places = {"DIR": str(log.directory), "EMPTY": str(tmp_path / "EMPTY"), "NOWHERE": str(tmp_path / "NOWHERE")}
    done = subprocess.run(
        [sys.executable, "-m", "kraftlite", "metadata", "shell", *(places.get(it, it) for it in arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_script_on_standard_input(log: MetadataLog) -> None:
    script = "cd /image/topics\npwd\n\nls 'byName'\nfrob\nls \"open\nat 2\nls byName\nexit\nls\n"
    done = shell(log.directory, stdin=script)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["/image/topics", "orders", "offset 2, epoch 1, time 2023-11-14T22:13:21Z[UTC]"]
    assert "frob: there is no such command" in done.stderr and "no closing quotation" in done.stderr


class Terminal:
    """A process with a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:  # pragma: no cover - the process that becomes the command
            os.environ["TERM"] = "dumb"
            os.execv(sys.executable, [sys.executable, "-m", "kraftlite", *map(str, arguments)])

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str, *, press: str = "") -> str:
        """What it prints up to this text. `press` is pressed each two seconds: Python's readline may sleep over a signal."""
        found, deadline, pressed_s = "", time.monotonic() + PATIENCE_S, 0.0
        while text not in found:
            assert time.monotonic() < deadline, f"{text!r} not in {found!r}"
            if press and time.monotonic() > pressed_s + 2:
                self.type(press)
                pressed_s = time.monotonic()
            if select.select([self.descriptor], [], [], 0.1)[0]:
                found += os.read(self.descriptor, 4096).decode(errors="replace")
        return found

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_to_22_an_interactive_shell_completes(log: MetadataLog) -> None:
    terminal = Terminal("metadata", "shell", log.directory)
    assert "Tab completes" in terminal.until(">> ")
    terminal.type("ls /topics/byN\tord\t\r")
    assert "/topics/byName/orders/" in (printed := terminal.until(">> ")) and "name" in printed
    terminal.type("ls /nope")
    terminal.until("/nope")
    terminal.until(">> ", press="\x03")  # Ctrl-C forgets the line
    terminal.type("cat /provenance\r")
    assert "offset 7, epoch 1" in terminal.until(">> ")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_to_42_explain_of_a_metadata_log(log: MetadataLog) -> None:
    whole = run("explain", "--metadata", log.directory)
    assert whole.exit_code == 0 and whole.stdout.startswith("cluster, ")
    assert "orders-0: leader 1 → 2" in whole.stdout and "This is what the metadata log tells." in whole.stdout
    found = json.loads(run("explain", "--metadata", log.directory, "partition", "orders-0", "-o", "json").stdout)
    assert [story["kind"] for story in found["stories"]] == ["created", "leader_changed"]
    assert len(found["not_in_the_log"]) == 3
    assert run("explain").exit_code == run("explain", "--metadata", log.directory, "--trace", log.path).exit_code == 2
    unknown = run("explain", "--metadata", log.directory, "partition", "nope-0")
    assert unknown.exit_code == 1 and "nothing is recorded of partition nope-0; there are: orders-0, orders-1" in unknown.output


def test_to_22_compat_says_what_kafka_says(log: MetadataLog) -> None:
    def kafkas(*arguments: object) -> Result:
        return run("compat", "kafka-metadata-shell", *arguments)

    assert kafkas("-s", log.path, "ls", "/").stdout.split() == ["image", "local"]
    assert kafkas("--snapshot", log.path, "frob").stdout == "invalid choice: 'frob' (choose from 'cat', 'find', 'ls', 'tree')\n"
    assert kafkas("--snapshot", log.path, "cat").stdout == "too few arguments\n"
    done = kafkas("--snapshot", log.path, "ls", "/topics")
    assert (done.exit_code, done.stdout) == (0, "ls: /topics: no such file or directory.\n")
    assert kafkas("ls").exit_code == kafkas("--snapshot", log.directory / "nope", "ls").exit_code == 1


def test_to_22_compat_reads_a_file_of_any_name(log: MetadataLog, tmp_path: Path) -> None:
    """Kafka's SnapshotFileReader opens what it is given: a copy may be called anything."""
    copy = tmp_path / "controller-2-metadata.bin"
    copy.write_bytes(log.path.read_bytes())
    said = run("compat", "kafka-metadata-shell", "--snapshot", copy, "cat", "/image/topics/byName/orders/0")
    assert (said.exit_code, said.stderr) == (0, "") and "leader=2," in said.stdout
    assert said.stdout == run("compat", "kafka-metadata-shell", "-s", log.path, "cat", "/image/topics/byName/orders/0").stdout
