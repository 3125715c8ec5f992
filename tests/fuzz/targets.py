"""What is fuzzed: a node that is controller and broker, inside this process or in one of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from kraftlite.local import cluster as local
from kraftlite.local.ports import HOST, reserve
from kraftlite.local.state import LocalError, load
from kraftlite.runtime.trace import TraceEvent
from kraftlite.testing import SyncCluster
from kraftlite.testing.errors import ClusterError
from tests.harness.certificates import Authority, Stores
from tests.harness.local import CALM
from tests.harness.secured_node import CLUSTER_ID, secured_node

NODE: Final = 1
CONFIG: Final = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Target(Protocol):
    """One node. Addresses stay the same over a restart."""

    kafka: tuple[str, int]
    grpc: tuple[tuple[str, int], ...]
    """Ports that speak gRPC: replication, controller. Empty where they are not sockets."""
    metrics: tuple[str, int] | None
    cluster_id: str
    in_process: bool
    doors: Mapping[str, tuple[str, int]]
    """Further addresses of clients, by the name of their door."""

    def ended(self) -> str | None:
        """Why the node runs no longer; None while it does."""

    def loop_cpu_s(self) -> float:
        """The processor time that the node's loop has had."""

    def rss_bytes(self) -> int: ...

    def errors(self) -> list[str]:
        """What the node has said at level error since this was asked last."""

    def restart(self) -> None:
        """Stop as by SIGTERM if it runs, and start again. Raises AssertionError with the node's words when it does not."""

    def close(self) -> None: ...


def thread_cpu_s(pid: int | str, tid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/task/{tid}/schedstat").read_text()
    except OSError:  # it has ended
        return 0.0
    return int(text.split()[0]) / 1e9


def rss_bytes_of(pid: int | str) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * 4096


class Embedded:
    """In this process: quick to start, nothing on disk, gRPC is not there."""

    in_process = True
    doors: Mapping[str, tuple[str, int]] = MappingProxyType({})
    grpc: tuple[tuple[str, int], ...] = ()
    metrics: tuple[str, int] | None = None

    def __init__(self) -> None:
        self._cluster = SyncCluster(controllers=1, brokers=1, combined=True, config=CONFIG)
        self._cluster.start()
        self.cluster_id = self._cluster.cluster_id
        host, _, port = self._cluster.bootstrap_servers.rpartition(":")
        self.kafka = (host, int(port))
        self._errors: list[str] = []
        nodes: Any = self._cluster._nodes
        before = nodes.hosts[NODE].on_event

        def on_event(node: Any, event: TraceEvent) -> None:
            before(node, event)
            if event.level == "error":
                self._errors.append(f"{event.event} {event.facts()}")

        nodes.hosts[NODE].on_event = on_event
        tid: int | None = self._cluster._do(threading.get_native_id)
        assert tid is not None
        self._tid = tid

    def ended(self) -> str | None:
        nodes: Any = self._cluster._nodes
        found: str | None = nodes.failures.get(NODE)
        return found

    def loop_cpu_s(self) -> float:
        return thread_cpu_s("self", self._tid)

    def rss_bytes(self) -> int:
        return 0  # this process is not the node alone

    def errors(self) -> list[str]:
        nodes: Any = self._cluster._nodes
        found, self._errors = self._errors + list(nodes.bugs), []
        nodes.bugs.clear()
        return found

    def restart(self) -> None:
        try:
            self._cluster.restart(NODE)
        except ClusterError as error:
            raise AssertionError(f"it does not start again: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(ClusterError):  # what was found was told already
            self._cluster.close()


class Process:
    """In a process of its own, as in production: uvloop, real files, gRPC, metrics."""

    in_process = False
    doors: Mapping[str, tuple[str, int]] = MappingProxyType({})

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "cluster"
        (port,) = _metrics_port(folder / "metrics")
        extra = {**CALM, **CONFIG, "kraftlite.metrics.port": str(port), "kraftlite.metrics.host": HOST}
        local.up(self.data_dir, controllers=1, brokers=1, combined=True, extra=extra)
        node = load(self.data_dir).node(NODE)
        self.cluster_id = load(self.data_dir).cluster_id
        self.kafka = _address(node.kafka)
        self.grpc = tuple(_address(it) for it in (node.replication, node.controller) if it is not None)
        self._seen = 0
        self.metrics = (HOST, port)

    @property
    def node(self) -> Any:
        return load(self.data_dir).node(NODE)

    def ended(self) -> str | None:
        if self.node.state != "stopped":
            return None
        faults = [it for it in self._events(0) if "fault" in it.get("event", "").lower()]
        if faults:
            last = faults[-1]
            return f"{last.get('where')}: {last.get('reason')}"
        return "the process has ended: " + " | ".join(self.node.log_path.read_text().splitlines()[-3:])[:600]

    def _events(self, since: int) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.node.trace_path.parent.glob("trace.jsonl*"), reverse=True):
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # a line that is being written
                    found.append(json.loads(line))
        return found[since:]

    def loop_cpu_s(self) -> float:
        pid = self._pid()
        return thread_cpu_s(pid, pid)

    def _pid(self) -> int:
        return self.node.pid or 0

    def rss_bytes(self) -> int:
        return rss_bytes_of(self._pid())

    def errors(self) -> list[str]:
        lines = self.node.log_path.read_text(errors="replace").splitlines()
        fresh, self._seen = lines[self._seen :], len(lines)
        return [line[:2000] for line in fresh if _is_error(line)]

    def restart(self) -> None:
        cluster = load(self.data_dir)
        if cluster.node(NODE).state != "stopped":
            local.kill(self.data_dir, NODE, signal.SIGTERM)
            _wait_stopped(self.data_dir)
        cluster = load(self.data_dir)
        try:
            local.start(cluster, [cluster.node(NODE)])
        except LocalError as error:
            raise AssertionError(f"it does not start again: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(LocalError):  # it has ended
            local.kill(self.data_dir, NODE, signal.SIGKILL)


class Secured:
    """A process with a listener without authentication, for the good client, one with SASL, and one with TLS."""

    in_process = False
    grpc: tuple[tuple[str, int], ...] = ()
    metrics: tuple[str, int] | None = None
    cluster_id = CLUSTER_ID

    def __init__(self, folder: Path) -> None:
        certificates = folder / "certificates"
        certificates.mkdir(parents=True)
        authority = Authority()
        stores = Stores(certificates / "node").write(authority.issue("node"), authority).as_kafka()
        self._stack = contextlib.ExitStack()
        self._node = self._stack.enter_context(secured_node(folder, CONFIG, stores))
        self.kafka = _address(self._node.plain)
        self.doors = {"sasl": _address(self._node.sasl), "tls": _address(self._node.secure)}
        self._seen = 0

    @property
    def _pid(self) -> int:
        assert self._node.process is not None
        return self._node.process.pid

    def ended(self) -> str | None:
        assert self._node.process is not None
        if self._node.process.poll() is None:
            return None
        return "the process has ended: " + " | ".join(self._lines()[-3:])[:600]

    def _lines(self) -> list[str]:
        return (self._node.folder / "log").read_text(errors="replace").splitlines()

    def loop_cpu_s(self) -> float:
        return thread_cpu_s(self._pid, self._pid)

    def rss_bytes(self) -> int:
        return rss_bytes_of(self._pid)

    def errors(self) -> list[str]:
        lines = self._lines()
        fresh, self._seen = lines[self._seen :], len(lines)
        return [line[:2000] for line in fresh if _is_error(line)]

    def restart(self) -> None:
        self._node.stop()
        self._node.start()

    def close(self) -> None:
        self._stack.close()


def _is_error(line: str) -> bool:
    return '"level":"error"' in line or "[error" in line or "Traceback" in line


def _wait_stopped(data_dir: Path) -> None:
    from tests.harness.local import wait_for

    wait_for("the node has stopped", lambda: load(data_dir).node(NODE).state == "stopped")


def _metrics_port(owner: Path) -> list[int]:
    """Kept for as long as its owner's directory is there."""
    owner.mkdir(parents=True)
    (owner / ".starting").touch()
    return reserve(owner, [9404])


def _address(text: str | None) -> tuple[str, int]:
    assert text is not None
    host, _, port = text.rpartition(":")
    return host, int(port)


@contextmanager
def opened(kind: str) -> Iterator[Target]:
    """`kind`: embedded, process or secured."""
    with tempfile.TemporaryDirectory(prefix="kraftlite-fuzz-") as folder:
        kinds: Mapping[str, Callable[[], Target]] = {
            "embedded": Embedded,
            "process": lambda: Process(Path(folder)),
            "secured": lambda: Secured(Path(folder)),
        }
        target = kinds[kind]()
        try:
            yield target
        finally:
            target.close()
