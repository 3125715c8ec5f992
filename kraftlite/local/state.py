"""The state of a local cluster: `<data-dir>/cluster.json`, written atomically and under a lock by whoever changes it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from kraftlite.client.opening import open_at_once
from kraftlite.local import door, process
from kraftlite.model.ids import Endpoint, is_reserved_uuid, uuid_from_str

STATE_NAME = "cluster.json"
STARTING_NAME = ".starting"
"""There while a cluster starts for the first time."""
PAGE_NAME, PAGE_LOG = "ui.json", "ui.log"
"""The process of the page beside the cluster (`kraftlite up --ui`), and what it says when something is wrong."""
TARGETS_NAME = "prometheus-targets.json"
"""The metrics pages of the nodes, as `file_sd_configs` of Prometheus reads them; there while the nodes have pages."""
TEMPORARY = ".json.tmp"
OWN_FILES = (STATE_NAME, TARGETS_NAME, PAGE_NAME, PAGE_LOG, *(Path(it).stem + TEMPORARY for it in (STATE_NAME, TARGETS_NAME)))
DATA_DIR_VARIABLE = "KRAFTLITE_DATA_DIR"
BOOTSTRAP_VARIABLE = "KRAFTLITE_BOOTSTRAP_SERVER"


TOLD_AFTER_S = 1.0
_HOLDER = re.compile(rb"([0-9]{1,10}) ([a-z-]{1,30})\n")


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
    """The address of its Prometheus page; None unless `up --config kraftlite.metrics.port=…` asked for pages."""
    tls: str | None = None
    """The address at which clients show a certificate; None unless the cluster is secure."""
    directory_id: str | None = None
    """The id of a controller's metadata directory, by which the voters know it (KIP-853); None where voters are static."""
    pid: int | None = None
    mark: str | None = None
    contained: bool = False
    """It runs in a container of its own, which others begin and end (`kraftlite.local.container`)."""

    @property
    def is_supervised(self) -> bool:
        """It has, or had, a supervisor of its own (`kraftlite.local.supervisor`), as in a container."""
        return self.pid is None and self.door_path.exists()

    @property
    def state(self) -> str:
        """running, paused or stopped; unknown in a container without a supervisor. A supervised node whose container is frozen is
        paused."""
        if self.is_supervised:
            return door.state(self.door_path)
        return process.UNKNOWN if self.contained else process.state_of(self.pid, self.mark)

    def send(self, number: signal.Signals) -> bool:
        """Signal the node, itself or by its supervisor; return whether it was there."""
        return door.do(self.door_path, number.name) if self.is_supervised else process.send(self.pid, self.mark, number)

    @property
    def endpoint(self) -> Endpoint:
        """The address at which it answers other nodes."""
        host, _, port = self.grpc.rpartition(":")
        return Endpoint(host, int(port))

    @property
    def door_path(self) -> Path:
        return Path(self.directory) / door.SOCKET_NAME

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
    def addresses(self) -> tuple[str, ...]:
        """All addresses of its listeners."""
        return tuple(one for one in (self.kafka, self.replication, self.controller, self.tls) if one is not None)

    @property
    def grpc(self) -> str:
        """The address at which other nodes reach this one: a broker's replication listener, else the controller listener."""
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
                **({"tls": self.tls} if self.tls is not None else {}),
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
    secure: bool = False
    """Clients and nodes must say who they are: see `kraftlite.local.secure`."""
    dynamic: bool = False
    """The voters of the metadata quorum are in its log, and can be added and removed; False: `controller.quorum.voters` says
    them, as in clusters of earlier versions."""

    @property
    def bootstrap_servers(self) -> str:
        """Every broker's client address, whether it runs or not."""
        return ",".join(node.kafka for node in self.nodes if node.kafka is not None)

    @property
    def tls_bootstrap_servers(self) -> str:
        """Every broker's address for clients that show a certificate."""
        return ",".join(node.tls for node in self.nodes if node.tls is not None)

    @property
    def running(self) -> bool:
        return any(node.state != process.STOPPED for node in self.nodes)

    @property
    def is_contained(self) -> bool:
        """Its nodes run in containers, also those without supervisors."""
        return any(node.contained or node.is_supervised for node in self.nodes)

    @property
    def first_voters(self) -> str:
        """The controllers as `format --initial-controllers` takes them; empty where the voters are static."""
        known = [node for node in self.nodes if node.directory_id is not None]
        return ",".join(f"{node.id}@{node.controller}:{node.directory_id}" for node in known)

    def node(self, node_id: int) -> LocalNode:
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise LocalError(f"there is no node {node_id} in {self.data_dir}; its nodes are {known}")


def load(data_dir: Path, *, copied: bool = False) -> LocalCluster:
    """Raises LocalError when there is no cluster or its file is damaged, and for one that was made elsewhere, unless it may be
    `copied`: what nodes have written is then read here, and nothing else is done with it."""
    path = data_dir / STATE_NAME
    try:
        with open_at_once(path) as file:
            text = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise LocalError(f"there is no local cluster in {data_dir}; start one with: kraftlite up --data-dir {data_dir}") from None
    except OSError as error:
        raise LocalError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        if len(text) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        return _parse(data_dir, json.loads(text), copied=copied)
    except (ValueError, RecursionError) as error:
        raise LocalError(
            f"{path} does not describe a local cluster of kraftlite: {error}; use another --data-dir, or move the file away"
        ) from None


def _parse(data_dir: Path, raw: Any, *, copied: bool) -> LocalCluster:
    """Raises ValueError. What it says is believed only within `data_dir`: `down --wipe` removes the nodes' directories."""
    cluster = _fields(LocalCluster, raw, "the cluster", {"nodes": list})
    nodes = []
    for item in raw["nodes"]:
        node = _fields(LocalNode, item, "a node", {"roles": list, "pid": (int, type(None)), **_OPTIONAL})
        if not set(node["roles"]) <= {"broker", "controller"} or not node["roles"]:
            raise ValueError(f"a node's roles are {node['roles']!r}; allowed are broker and controller")
        for name in _OPTIONAL:
            if not _is_address(node[name], name):
                raise ValueError(f"a node's {name} is {node[name]!r}; allowed is host:port")
        if not _is_directory_id(node["directory_id"]):
            raise ValueError(f"a node's directory_id is {node['directory_id']!r}; allowed is an id such as random-uuid prints")
        directory = Path(node["directory"])
        if directory.name != f"node-{node['id']}" or not (copied or directory.parent.resolve() == data_dir.resolve()):
            raise ValueError(f"node {node['id']} is in {directory}, not in {data_dir}: a cluster cannot be moved")
        nodes.append(LocalNode(**{**node, "directory": str(data_dir / directory.name), "roles": tuple(node["roles"])}))
    if not nodes or len({node.id for node in nodes}) != len(nodes):
        raise ValueError("it has no nodes" if not nodes else "two of its nodes have the same id")
    return LocalCluster(**{**cluster, "data_dir": str(data_dir), "nodes": tuple(nodes)})


def _fields(cls: type[LocalCluster] | type[LocalNode], raw: Any, what: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass, each of its type (`kinds`, else by its annotation)."""
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is {type(raw).__name__}, not an object")
    names = {item.name: item.type for item in fields(cls)}
    found: dict[str, Any] = {**{name: value for name, value in _LATER.items() if name in names}, **raw}
    if unknown := sorted(set(found) - set(names)):
        raise ValueError(f"{what} has the field {unknown[0]!r}, which is not known")
    for name, annotation in names.items():
        kind = kinds.get(name) or _KINDS[str(annotation)]
        if name not in found or not isinstance(found[name], kind) or (kind is int and isinstance(found[name], bool)):
            raise ValueError(f"{what} has {'no' if name not in found else 'a wrong'} {name}")
    return found


_KINDS: dict[str, Any] = {"int": int, "str": str, "bool": bool, "str | None": (str, type(None))}
_OPTIONAL = dict.fromkeys(("kafka", "replication", "controller", "tls"), (str, type(None)))
_LATER: dict[str, Any] = {
    "metrics": None,
    "tls": None,
    "secure": False,
    "directory_id": None,
    "dynamic": False,
    "contained": False,
}
"""Fields that files of earlier versions do not have."""
_MAX_BYTES = 16 << 20


def _is_address(value: str | None, name: str) -> bool:
    if value is None:
        return True
    host, _, port = value.rpartition(":")
    return bool(host) and "," not in host and port.isdecimal() and 0 < int(port) < 65536


def _is_directory_id(value: str | None) -> bool:
    try:
        return value is None or not is_reserved_uuid(uuid_from_str(value))
    except ValueError:
        return False


def save(cluster: LocalCluster) -> None:
    """Write the description, and who asks for metrics where, from it. Raises LocalError when it cannot be written, and is as it
    was."""
    _replace(Path(cluster.data_dir) / STATE_NAME, asdict(cluster))
    targets = Path(cluster.data_dir) / TARGETS_NAME
    if groups := _targets(cluster):
        _replace(targets, groups)
    else:
        targets.unlink(missing_ok=True)


def _replace(path: Path, value: Any) -> None:
    temporary = path.with_suffix(TEMPORARY)
    try:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise LocalError(f"{path} cannot be written: {error.strerror or error}") from None


def _targets(cluster: LocalCluster) -> list[dict[str, Any]]:
    """A group for each node, with the labels by which stock boards choose (docker/observe/prometheus.yml). A node that does not
    run stays: that it does not answer is what Prometheus is to see."""
    return [
        {
            "targets": [node.metrics],
            "labels": {
                "job": "kafka-broker" if node.is_broker else "kafka-controller",
                "node": str(node.id),
                "cluster": "kraftlite",
                "namespace": "kraftlite",
                "env": "local",
                "container": "kafka",
                "strimzi_io_cluster": "kraftlite",
                "strimzi_io_name": "kraftlite-kafka",
                "kubernetes_pod_name": f"kraftlite-{node.id}",
            },
        }
        for node in cluster.nodes
        if node.metrics is not None
    ]


@contextlib.contextmanager
def locked(path: Path, command: str = "", on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """An exclusive lock on a file, created if need be with its directory, for as long as the block runs.

    `command`: what others are told that has it. `on_wait` is told once, after a second, that somebody else has it, and who.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        pass  # which opening the file says better
    except OSError as error:
        raise _unusable(path.parent, error) from None

    def wait(fd: int) -> None:
        if on_wait is not None and not process.wait_until(lambda: _take_lock(fd), TOLD_AFTER_S):
            on_wait(_who_has(path, fd))
        fcntl.flock(fd, fcntl.LOCK_EX)

    with _held(_lock(path, wait), command):
        yield


@contextlib.contextmanager
def locked_within(path: Path, timeout_s: float, command: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """The same in a directory that is there, with `on_wait` told at once. Raises LocalError when the lock is not free within the
    time."""

    def wait(fd: int) -> None:
        if _take_lock(fd):
            return
        on_wait(_who_has(path, fd))
        if not process.wait_until(lambda: _take_lock(fd), timeout_s):
            raise LocalError(
                f"another command has been changing the cluster in {path.parent} for {timeout_s:.0f} s (up, add-broker, "
                "add-controller, remove-broker or remove-controller): wait for it, or end it with Ctrl-C"
            )

    with _held(_lock(path, wait), command):
        yield


def _take_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _held(fd: int, command: str) -> Iterator[None]:
    """The lock is ours until the end, and its file says so if there is a `command`."""
    try:
        if command:
            with contextlib.suppress(OSError):  # a full disk: then nobody is told who it is
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()} {command}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _who_has(path: Path, fd: int) -> str:
    found = _HOLDER.fullmatch(os.pread(fd, 100, 0))
    who = f"process {int(found[1])} (kraftlite {found[2].decode()})" if found else "another command"
    return f"waiting for {path}: {who} is changing this cluster"


def _lock(path: Path, wait: Callable[[int], None]) -> int:
    """The file, open and locked. One that was removed while this waited (the cluster was wiped) locks nobody out."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(path.parent, error) from None
        try:
            wait(fd)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), path.stat()):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _unusable(directory: Path, error: OSError) -> LocalError:
    return LocalError(f"{directory} cannot be used as the directory of a cluster: {error.strerror or error}")


def update_node(data_dir: Path, node_id: int, **changes: Any) -> LocalCluster:
    """Replace fields of one node in the file."""
    with locked(data_dir / ".cluster.lock"):
        cluster = load(data_dir)
        cluster.node(node_id)
        nodes = tuple(replace(node, **changes) if node.id == node_id else node for node in cluster.nodes)
        cluster = replace(cluster, nodes=nodes)
        save(cluster)
        return cluster
