"""Real clients behind one contract, so that all of them are put through the same tests.

A program drives one client. It reads its job, an object of JSON, from the first line of standard input, and tells in lines of
JSON on standard output what happens, each with its `event`. Its last line is `{"event": "done"}`. What it writes to standard
error is shown when it fails. `bootstrap` is part of every job. Texts stand for bytes in UTF-8, null for null; times are in
milliseconds.

- `produce`: topic, acks ("0", "1", "all"), idempotent, codec, pause_ms between records, records (partition, key, value, headers,
  timestamp). For each record an `ack` (i, partition, offset) or a `fail` (i, error).
- `read`: topic, partition, offset or time_ms, count. A `record` each.
- `group`: group, topic, protocol (range, cooperative, consumer), instance, session_ms. Tells `assigned` and `revoked` with their
  partitions, and each `record`. A second line on standard input ends it: it commits what it has read, and leaves.
- `transact`: transactional_id, topic, steps. A `result` each: `begin`, `commit`, `abort`; `send` records, which are acknowledged
  when it is told; `copy` so many records of the topic `source` as a member of `group`, from where it has committed, and commit
  that within the transaction; `wait` for the second line on standard input. `group` stands in the job, and `timeout_ms` of a
  transaction if it is not a minute. A `warning` (error) for what the program, as an application, has to do again.
- `admin`: steps, which are objects with a `do`. A `result` each, with the result or an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.local import PATIENCE_S

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
BUILT = ROOT / "var" / "clients"
"""Where clients are built; git ignores it."""

Event = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Missing(Exception):
    """What a client needs to run is not on this machine; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """`prepare` returns the command that runs the program, after building it if need be, or raises Missing. `lacks` says which
    capabilities the client does not have, and why: their tests are skipped. `past`: an earlier release, of `years`.
    `timed_out`: part of the error that it shows for the end of a transaction that has timed out, as it does with Apache Kafka."""

    name: str
    version: Callable[[], str]
    prepare: Callable[[], Sequence[str]]
    lacks: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    past: bool = False
    timed_out: str = ""


class Run:
    """A program at work. Not for more than one thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._arrived: queue.Queue[Event | None] = queue.Queue()
        self.events: list[Event] = []
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._listen, daemon=True)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._arrived.put(json.loads(line))
            else:
                self.errors.append(line)
        self._arrived.put(None)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(self._process.stderr)

    def pump(self, wait_s: float = 0) -> bool:
        """Take what has arrived. False when the program has ended and all is taken."""
        try:
            while True:
                event = self._arrived.get(timeout=wait_s) if wait_s else self._arrived.get_nowait()
                if event is None:
                    self._arrived.put(None)
                    return False
                self.events.append(event)
                wait_s = 0
        except queue.Empty:
            return True

    def until(self, what: str, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        """Wait until the condition holds, and return what it returned. AssertionError names `what`."""
        deadline = time.monotonic() + timeout_s
        while True:
            alive = self.pump(0.02)
            if found := condition():
                return found
            assert alive, f"the program ended before: {what}\n{self.told()}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{self.told()}"

    def of(self, event: str) -> list[Event]:
        return [it for it in self.events if it["event"] == event]

    def assigned(self) -> list[int]:
        """The partitions that this member of a group owns by what it has told; those of one topic."""
        owned: dict[int, None] = {}
        for it in self.events:
            if it["event"] == "assigned":
                if not it.get("incremental", True):
                    owned.clear()
                owned.update(dict.fromkeys(it["partitions"]))
            elif it["event"] in ("revoked", "lost"):
                for partition in it["partitions"]:
                    owned.pop(partition, None)
        return sorted(owned)

    def values(self) -> list[Any]:
        return [it["value"] for it in self.of("record")]

    def done(self, timeout_s: float = PATIENCE_S) -> list[Event]:
        """Wait for its end. Raises AssertionError when it does not say that it is done."""
        self.until("done", lambda: self.of("done"), timeout_s)
        self._process.wait(timeout_s)
        return self.events

    def stop(self) -> list[Event]:
        """Let a member leave its group."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.done()

    def kill(self) -> None:
        """It and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def told(self) -> str:
        counts: dict[str, int] = {}
        for it in self.events:
            counts[it["event"]] = counts.get(it["event"], 0) + 1
        return f"events: {counts}, last: {self.events[-3:]}\n" + "".join(self.errors[-40:])


class Ready:
    """A client that can run, on one cluster."""

    def __init__(self, client: Client, command: Sequence[str], bootstrap: str) -> None:
        self.client = client
        self.command = list(command)
        self.bootstrap = bootstrap

    @contextmanager
    def start(self, **job: Any) -> Iterator[Run]:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **self.client.env},
        )
        run = Run(process)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"bootstrap": self.bootstrap, **job}) + "\n")
            process.stdin.flush()
            yield run
        finally:
            run.kill()

    def run(self, **job: Any) -> list[Event]:
        with self.start(**job) as run:
            return run.done()

    def produce(self, topic: str, records: Sequence[Mapping[str, Any]], **job: Any) -> list[Event]:
        """Its events; every record is acknowledged."""
        events = self.run(op="produce", topic=topic, records=list(records), **{"acks": "all", **job})
        failed = [it for it in events if it["event"] == "fail"]
        assert failed == []
        assert len([it for it in events if it["event"] == "ack"]) == len(records)
        return events

    def read(self, topic: str, count: int, *, partition: int = 0, **job: Any) -> list[Event]:
        """So many records of a partition from its beginning, or from `offset` or `time_ms`."""
        events = self.run(op="read", topic=topic, partition=partition, count=count, **job)
        return [it for it in events if it["event"] == "record"]

    def transact(self, topic: str, *steps: Mapping[str, Any], **job: Any) -> list[Any]:
        """The result of each step of a producer's transactions, as those of `admin`. Its id is the topic's name. No broker
        dies, so none is done again."""
        events = self.run(op="transact", topic=topic, transactional_id=topic, steps=list(steps), **job)
        assert [it for it in events if it["event"] == "warning"] == []
        return told_results(events)

    def admin(self, *steps: Mapping[str, Any]) -> list[Any]:
        """The result of each step, in order; an error's name as `Refused`."""
        found = told_results(self.run(op="admin", steps=list(steps)))
        assert len(found) == len(steps)
        return found


def told_results(events: Sequence[Event]) -> list[Any]:
    """The results that a program told, in order; an error's name as `Refused`."""
    found = [it for it in events if it["event"] == "result"]
    return [Refused(it["error"]) if "error" in it else it.get("result") for it in found]


class Refused(str):
    """The name of an error, as the client gives it."""


def go_program(folder: Path) -> list[str]:
    """Build the program, in the versions that go.mod pins. Raises Missing."""
    if shutil.which("go") is None:
        raise Missing("go is not installed")
    program = BUILT / folder.name / "program"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [str(program)]


def go_version(folder: Path, module: str) -> str:
    found = re.search(rf"{re.escape(module)} v(\S+)", (folder / "go.mod").read_text())
    assert found is not None
    return found[1]


def npm_packages(folder: Path) -> str:
    """Install what `package.json` pins, unless it is there; returns node. Raises Missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("node and npm are not installed")
    wanted = (folder / "package.json").read_text()
    there = BUILT / folder.name
    stamp = there / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        there.mkdir(parents=True, exist_ok=True)
        (there / "package.json").write_text(wanted)
        command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=there, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        stamp.write_text(wanted)
    return node


def python_program(folder: str) -> list[str]:
    return [sys.executable, "-m", f"tests.clients.{folder}.program"]
