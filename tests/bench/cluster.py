"""A local cluster for measuring: started and stopped through the command line, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
"""Of a command: a broker with many partitions takes its time to start and to stop."""


def cpu_s(pid: int) -> float:
    """Processor time of all threads of a process, ended ones left out: their share is small. To the nanosecond, where `stat`
    counts in 10 ms. Raises FileNotFoundError or ProcessLookupError when there is no such process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@dataclass(frozen=True)
class Node:
    node_id: int
    roles: tuple[str, ...]
    pid: int
    kafka: str | None

    @property
    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.pid)


class BenchCluster(AbstractContextManager["BenchCluster"]):
    """`kraftlite up --detach` in a temporary directory; `down --wipe` on exit."""

    def __init__(
        self, *, controllers: int = 3, brokers: int = 3, combined: bool = False, config: dict[str, str] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kraftlite-bench-")
        self.data_dir = Path(self._folder.name) / "cluster"
        self._arguments = ["--controllers", str(controllers), "--brokers", str(brokers)] + (["--combined"] if combined else [])
        for key, value in (config or {}).items():
            self._arguments += ["--config", f"{key}={value}"]
        self.started_s = 0.0
        self._up = False

    def __enter__(self) -> BenchCluster:
        begin = time.perf_counter()
        self._up = True
        self.kraftlite("up", "--detach", *self._arguments)
        self.started_s = time.perf_counter() - begin
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()

    def down(self) -> None:
        """Stopped, and its files removed. Once: a second call does nothing."""
        if self._up:
            self._up = False
            self.kraftlite("down", "--wipe")
            self._folder.cleanup()

    def start_node(self, node_id: int) -> None:
        """Start a node that was killed; returns when it is ready."""
        self.kraftlite("restart", str(node_id))

    def kraftlite(self, *arguments: str) -> str:
        environment = {**os.environ, "KRAFTLITE_DATA_DIR": str(self.data_dir)}
        done = subprocess.run(
            [sys.executable, "-m", "kraftlite.cli.main", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kraftlite {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def nodes(self) -> list[Node]:
        listed = json.loads(self.kraftlite("ps", "-o", "json"))["nodes"]
        return [Node(n["id"], tuple(n["roles"]), n["pid"] or 0, n["addresses"].get("kafka")) for n in listed]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.kafka for node in self.nodes() if node.kafka)


def until(what: str, probe: Callable[[], Any], *, timeout_s: float = 60, every_s: float = 0.01) -> Any:
    """Poll `probe` until it is truthy; returns what it gave."""
    deadline = time.perf_counter() + timeout_s
    while not (found := probe()):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not within {timeout_s} s: {what}")
        time.sleep(every_s)
    return found
