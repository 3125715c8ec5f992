"""Workers of Kafka Connect and nodes of MirrorMaker 2, as processes that a test kills and starts again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

from kraftlite.local.ports import reserve
from tests.clients.java import tools
from tests.clients.java.applications import jars
from tests.harness.local import wait_for

CONNECT: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
REQUEST_TIMEOUT_S: Final = 30
START_LIMIT_S: Final = 600
"""For a worker and its task, on a machine with a load of many times its cores."""
QUICK: Final = {"reconnect.backoff.max.ms": "200", "retry.backoff.ms": "50"}
TEXTS: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
GROUP: Final = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
    "offset.flush.interval.ms": "500",
}
"""How soon the other workers notice that one is gone."""


class Process:
    """One JVM with a file of properties, and its port for REST. Killed at the end of `started`."""

    def __init__(self, main: str, folder: Path, properties: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        (folder / ".starting").touch()  # the mark of a directory whose ports are taken
        (self.port,) = reserve(folder, [18083])
        self._log = folder / "log"
        self._file = folder / "settings.properties"
        settings = {"listeners": f"http://127.0.0.1:{self.port}", **properties}
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        flags = [*tools.FLAGS, "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        self._command = [*tools.java(main, heap_mb=512, log="info", flags=flags, of=jars()), str(self._file)]
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. Nothing if it does not run."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()
            self._running = None

    def log(self) -> str:
        """The end of what it has told."""
        return self._log.read_text()[-6000:]

    def check_alive(self) -> None:
        assert self._running is not None and self._running.poll() is None, f"it has ended:\n{self.log()}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request at its REST interface; None while it cannot answer, or is still coming up."""
        self.check_alive()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as refused:
            assert refused.code in (404, 409, 500, 503), f"{method} {path}: {refused.code} {refused.read()!r}"
            return None
        except (URLError, OSError):
            return None


@contextmanager
def started(main: str, folder: Path, properties: Mapping[str, str]) -> Iterator[Process]:
    process = Process(main, folder, properties)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def worker(bootstrap: str, name: str) -> dict[str, str]:
    """The settings of a distributed worker with exactly-once sources; workers of one name form a group."""
    topics = {f"{it}.storage.{what}": value for it in ("config", "offset", "status") for what, value in _storage(name, it)}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        **topics,
        **TEXTS,
        **GROUP,
        **QUICK,
    }


def _storage(name: str, kind: str) -> list[tuple[str, str]]:
    partitions = [] if kind == "config" else [("partitions", "3")]
    return [("topic", f"{name}-{kind}"), ("replication.factor", "3"), *partitions]


def configure(process: Process, name: str, config: Mapping[str, str]) -> None:
    """Make a connector, and wait until its task runs."""
    wait_for(
        f"connector {name} is taken",
        lambda: process.ask("PUT", f"/connectors/{name}/config", dict(config)),
        timeout_s=START_LIMIT_S,
    )
    wait_running(process, name)


def wait_running(process: Process, name: str) -> None:
    """Until its one task runs."""

    def running() -> bool:
        status = process.ask("GET", f"/connectors/{name}/status")
        states = [it["state"] for it in status["tasks"]] if status else []
        assert "FAILED" not in states, status
        return states == ["RUNNING"]

    try:
        wait_for(f"the task of {name} runs", running, timeout_s=START_LIMIT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{process.log()}") from None


def mirror(source: str, target: str, topics: str) -> dict[str, str]:
    """The settings of a node of MirrorMaker that copies topics from cluster `a` to `b`, where their names begin with `a.`."""
    return {
        "clusters": "a, b",
        "a.bootstrap.servers": source,
        "b.bootstrap.servers": target,
        "a->b.enabled": "true",
        "a->b.topics": topics,
        "b->a.enabled": "false",
        "b.exactly.once.source.support": "enabled",
        "a.consumer.isolation.level": "read_committed",
        "dedicated.mode.enable.internal.rest": "true",
        "refresh.topics.interval.seconds": "2",
        "sync.group.offsets.enabled": "true",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.interval.seconds": "1",
        "emit.heartbeats.interval.seconds": "1",
        **{f"{it}.replication.factor": "3" for it in _MIRRORED},
        "replication.factor": "3",
        **{f"{alias}.{key}": value for alias in ("a", "b") for key, value in {**GROUP, **QUICK}.items()},
    }


_MIRRORED: Final = (
    "checkpoints.topic",
    "heartbeats.topic",
    "offset-syncs.topic",
    "offset.storage",
    "status.storage",
    "config.storage",
)
"""The kinds of topics that MirrorMaker makes for itself."""
