"""What is known of a local cluster: `<data-dir>/cluster.json`, written atomically and under a lock by whoever changes it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kraftlite.local import process

STATE_NAME = "cluster.json"
DATA_DIR_VARIABLE = "KRAFTLITE_DATA_DIR"


class LocalError(Exception):
    """Something that the user asked for cannot be done; the message says what and why, in one line."""


def default_data_dir(env: Mapping[str, str]) -> Path:
    """`KRAFTLITE_DATA_DIR`, else `~/.kraftlite/local`."""
    given = env.get(DATA_DIR_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".kraftlite" / "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """One node of the local cluster. `pid` and `mark` name the process started last, alive or not."""

    id: int
    roles: tuple[str, ...]
    kafka: str | None
    replication: str | None
    controller: str | None
    directory: str
    metrics: str | None = None
    """Where its Prometheus page is; None unless `up --config kraftlite.metrics.port=…` asked for pages."""
    pid: int | None = None
    mark: str | None = None

    @property
    def state(self) -> str:
        return process.state_of(self.pid, self.mark)

    @property
    def data_dir(self) -> str:
        """The node's log directory."""
        return str(Path(self.directory) / "data")

    @property
    def config_path(self) -> Path:
        return Path(self.directory) / "server.properties"

    @property
    def log_path(self) -> Path:
        return Path(self.directory) / "node.log"

    @property
    def trace_path(self) -> Path:
        return Path(self.directory) / "trace.jsonl"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def grpc(self) -> str:
        """Where other nodes reach this one: a broker's replication listener, else the controller listener."""
        return self.replication or self.controller or ""

    def describe(self) -> dict[str, Any]:
        """The shape of `ps -o json`."""
        state = self.state
        return {
            "id": self.id,
            "roles": list(self.roles),
            "pid": None if state == process.STOPPED else self.pid,
            "state": state,
            "data_dir": self.data_dir,
            "addresses": {
                "kafka": self.kafka,
                "grpc": self.grpc,
                **({"metrics": self.metrics} if self.metrics is not None else {}),
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """A local cluster. The value is a snapshot: `load` again to see what others changed."""

    data_dir: str
    cluster_id: str
    controllers: int
    brokers: int
    combined: bool
    nodes: tuple[LocalNode, ...]

    @property
    def bootstrap_servers(self) -> str:
        """Every broker's client address, whether it runs or not."""
        return ",".join(node.kafka for node in self.nodes if node.kafka is not None)

    @property
    def running(self) -> bool:
        return any(node.state != process.STOPPED for node in self.nodes)

    def node(self, node_id: int) -> LocalNode:
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise LocalError(f"there is no node {node_id} in {self.data_dir}; its nodes are {known}")


def load(data_dir: Path) -> LocalCluster:
    """Raises LocalError when there is no cluster or its file is damaged."""
    path = data_dir / STATE_NAME
    try:
        raw = json.loads(path.read_text())
        nodes = tuple(LocalNode(**{**node, "roles": tuple(node["roles"])}) for node in raw.pop("nodes"))
        return LocalCluster(**{**raw, "data_dir": str(data_dir), "nodes": nodes})
    except FileNotFoundError:
        raise LocalError(f"there is no local cluster in {data_dir}; start one with: kraftlite up --data-dir {data_dir}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LocalError(f"{path} cannot be used: {error}") from None


def save(cluster: LocalCluster) -> None:
    path = Path(cluster.data_dir) / STATE_NAME
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(asdict(cluster), indent=2) + "\n")
    temporary.replace(path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock on a file, created if need be, for as long as the block runs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LocalError(f"{path.parent} cannot be used as the directory of a cluster: {error.strerror or error}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def update_node(data_dir: Path, node_id: int, **changes: Any) -> LocalCluster:
    """Replace fields of one node in the file."""
    with locked(data_dir / ".cluster.lock"):
        cluster = load(data_dir)
        cluster.node(node_id)
        nodes = tuple(replace(node, **changes) if node.id == node_id else node for node in cluster.nodes)
        cluster = replace(cluster, nodes=nodes)
        save(cluster)
        return cluster
