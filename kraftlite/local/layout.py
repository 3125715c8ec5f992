"""The layout of a local cluster: its nodes, where they listen, and the `server.properties` of each."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kraftlite.config.properties import format_properties, parse_properties
from kraftlite.host.files import read_bounded
from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.ports import HOST, reserve
from kraftlite.local.secure import SASL_LISTENER, TLS_LISTENER, node_security
from kraftlite.local.state import STATE_NAME, LocalCluster, LocalError, LocalNode
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.limits import MIB

KAFKA_BASE = 9092
REPLICATION_BASE = 9192
CONTROLLER_BASE = 9292
METRICS_BASE = 9392
TLS_BASE = 9492
METRICS_PORT = "kraftlite.metrics.port"
FAULTS_ENABLE = "kraftlite.faults.enable"
MAX_NODES = 100


def plan(data_dir: Path, *, controllers: int, brokers: int, combined: bool, secure: bool = False) -> LocalCluster:
    """A new cluster: controllers 1..N, brokers N+1.. (combined: nodes 1..N are both). Reserves its ports.

    Combined with more brokers than controllers (or the other way round): the first are both, the rest have one role. The voters
    of its metadata quorum are in the log, and can be changed (KIP-853).
    """
    if controllers < 1 or brokers < 1:
        raise LocalError(f"{controllers} controllers and {brokers} brokers: allowed is at least one of each")
    if controllers + brokers > MAX_NODES:
        raise LocalError(f"{controllers} controllers and {brokers} brokers: allowed are at most {MAX_NODES} nodes")
    roles: list[tuple[str, ...]] = []
    if combined:
        both = min(controllers, brokers)
        roles += [("broker", "controller")] * both
        roles += [("controller",)] * (controllers - both) + [("broker",)] * (brokers - both)
    else:
        roles += [("controller",)] * controllers + [("broker",)] * brokers
    wanted: list[int] = []
    counts = {"broker": 0, "controller": 0}
    for node_roles in roles:
        if "broker" in node_roles:
            wanted += [KAFKA_BASE + counts["broker"], REPLICATION_BASE + counts["broker"]]
            wanted += [TLS_BASE + counts["broker"]] if secure else []
            counts["broker"] += 1
        if "controller" in node_roles:
            wanted.append(CONTROLLER_BASE + counts["controller"])
            counts["controller"] += 1
    ports = iter(reserve(data_dir, wanted))
    nodes = []
    for node_id, node_roles in enumerate(roles, start=1):
        kafka = f"{HOST}:{next(ports)}" if "broker" in node_roles else None
        replication = f"{HOST}:{next(ports)}" if "broker" in node_roles else None
        tls = f"{HOST}:{next(ports)}" if secure and "broker" in node_roles else None
        controller = f"{HOST}:{next(ports)}" if "controller" in node_roles else None
        nodes.append(
            LocalNode(
                id=node_id,
                roles=node_roles,
                kafka=kafka,
                replication=replication,
                controller=controller,
                tls=tls,
                directory=str(data_dir / f"node-{node_id}"),
                directory_id=new_id() if "controller" in node_roles else None,
            )
        )
    return LocalCluster(
        data_dir=str(data_dir),
        cluster_id=new_id(),
        controllers=controllers,
        brokers=brokers,
        combined=combined,
        nodes=tuple(nodes),
        secure=secure,
        dynamic=True,
    )


def new_id() -> str:
    """A random id of a cluster or directory, as text."""
    return uuid_to_str(random_uuid(random.SystemRandom()))


def node_properties(cluster: LocalCluster, node: LocalNode, extra: Mapping[str, str]) -> dict[str, str]:
    """The node's configuration; `extra` (`up --config`) has the last word."""
    listeners, between = [], "GRPC_TLS" if cluster.secure else "GRPC"
    if node.kafka is not None:
        listeners += [f"{SASL_LISTENER}://{node.kafka}", f"{TLS_LISTENER}://{node.tls}"] if cluster.secure else []
        listeners += [] if cluster.secure else [f"PLAINTEXT://{node.kafka}"]
        listeners.append(f"REPLICATION://{node.replication}")
    if node.controller is not None:
        listeners.append(f"CONTROLLER://{node.controller}")
    protocols = f"{SASL_LISTENER}:SASL_SSL,{TLS_LISTENER}:SSL" if cluster.secure else "PLAINTEXT:PLAINTEXT"
    controllers = [other for other in cluster.nodes if other.controller is not None]
    if cluster.dynamic:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(str(other.controller) for other in controllers)}
    else:
        quorum = {"controller.quorum.voters": ",".join(f"{other.id}@{other.controller}" for other in controllers)}
    replicas = min(3, sum(other.is_broker for other in cluster.nodes))
    values = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        **quorum,
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": f"{protocols},REPLICATION:{between},CONTROLLER:{between}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "REPLICATION",
        "log.dirs": node.data_dir,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "group.initial.rebalance.delay.ms": "0",
        "kraftlite.trace.file": str(node.trace_path),
    }
    if not node.is_broker:
        del values["inter.broker.listener.name"]
    if cluster.secure:
        values |= node_security(cluster, node)
    values |= extra
    if values.get(FAULTS_ENABLE, "").strip() == "true":
        values.setdefault("kraftlite.faults.ledger", str(Path(cluster.data_dir) / LEDGER_NAME))
    if METRICS_PORT in extra and node.metrics is not None:
        values[METRICS_PORT] = str(_port(node.metrics))
    return values


def with_metrics_ports(cluster: LocalCluster, extra: Mapping[str, str]) -> LocalCluster:
    """Give each node's Prometheus page a port of its own, if `extra` asks for pages: the one that it has had before, else the
    one that is asked for (0: from METRICS_BASE) and those above it. A port that changes with each start nobody can watch."""
    asked = extra.get(METRICS_PORT, "").strip()
    if not (asked.isascii() and asked.isdigit() and len(asked) <= 5) or all(node.metrics is not None for node in cluster.nodes):
        return cluster
    base = int(asked) or METRICS_BASE
    ports = reserve(Path(cluster.data_dir), [base + number for number in range(len(cluster.nodes))], _ports(cluster))
    host = extra.get("kraftlite.metrics.host", "").strip() or HOST
    nodes = tuple(replace(node, metrics=f"{host}:{port}") for node, port in zip(cluster.nodes, ports, strict=True))
    return replace(cluster, nodes=nodes)


def _ports(cluster: LocalCluster) -> list[int]:
    return [_port(address) for node in cluster.nodes for address in (*node.addresses, node.metrics) if address is not None]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def refuse_path(data_dir: Path) -> None:
    """Raises LocalError for a directory that the nodes' files cannot name: `log.dirs` has commas between its directories."""
    if "," in str(data_dir):
        raise LocalError(f"{data_dir} cannot be the directory of a cluster: its path has a comma, which separates log.dirs")


def refuse_leftovers(cluster: LocalCluster) -> None:
    """Raises LocalError when a new cluster would get the directories of another one, whose description is gone: its records are
    nobody's to remove. What an interrupted `up` has written is in nobody's way."""
    for node in cluster.nodes:
        directory = Path(node.directory)
        if directory.exists() and set(directory.iterdir()) - {node.config_path}:
            raise LocalError(
                f"{directory} is there already, and {Path(cluster.data_dir) / STATE_NAME}, which describes the cluster that it "
                "belongs to, is not: bring that file back, move the directory away, or use another --data-dir"
            )


def write_files(cluster: LocalCluster, extra: Mapping[str, str]) -> None:
    """Directories and configuration files of all nodes."""
    for node in cluster.nodes:
        _write(cluster, node, node_properties(cluster, node, extra))


@contextlib.contextmanager
def added_to_files(cluster: LocalCluster, extra: Mapping[str, str]) -> Iterator[None]:
    """The files of the nodes have `extra`, too, and what they were given before. When the block fails they are as they were."""
    before: dict[Path, str] = {}
    try:
        for node in cluster.nodes:
            made, path = node_properties(cluster, node, extra), node.config_path
            found = _read(node) if path.exists() else {}
            before |= {path: path.read_text()} if found else {}
            _write(cluster, node, {**made, **found, **{key: made[key] for key in extra}})
        yield
    except BaseException:
        for path, text in before.items():
            path.write_text(text)
        raise


def _write(cluster: LocalCluster, node: LocalNode, values: dict[str, str]) -> None:
    directory = Path(node.directory)
    directory.mkdir(parents=True, exist_ok=True)
    if cluster.secure:  # records, and what is kept of passwords, are nobody else's business on this machine
        directory.chmod(0o700)
    header = f"# Written by kraftlite up for node {node.id} of the local cluster {cluster.data_dir}\n"
    node.config_path.write_text(header + format_properties(values))


# --- a cluster that grows and shrinks


def grown(cluster: LocalCluster, role: str) -> tuple[LocalCluster, LocalNode]:
    """The cluster with one more node of this role, under the next id, and that node. Reserves its ports."""
    if len(cluster.nodes) >= MAX_NODES:
        raise LocalError(f"the cluster has {len(cluster.nodes)} nodes; allowed are at most {MAX_NODES}")
    pages = [node.metrics for node in cluster.nodes if node.metrics is not None]
    bases = {"kafka": KAFKA_BASE, "replication": REPLICATION_BASE} if role == "broker" else {"controller": CONTROLLER_BASE}
    bases |= {"tls": TLS_BASE} if role == "broker" and cluster.secure else {}
    bases |= {"metrics": METRICS_BASE} if pages else {}
    number = cluster.brokers if role == "broker" else cluster.controllers
    ports = reserve(Path(cluster.data_dir), [base + number for base in bases.values()], _ports(cluster))
    found = {name: f"{HOST}:{port}" for name, port in zip(bases, ports, strict=True)}
    if pages:
        found["metrics"] = f"{pages[0].rpartition(':')[0]}:{_port(found['metrics'])}"
    node_id = max(node.id for node in cluster.nodes) + 1
    node = LocalNode(
        id=node_id,
        roles=(role,),
        kafka=found.get("kafka"),
        replication=found.get("replication"),
        controller=found.get("controller"),
        tls=found.get("tls"),
        metrics=found.get("metrics"),
        directory=str(Path(cluster.data_dir) / f"node-{node_id}"),
        directory_id=new_id() if role == "controller" and cluster.dynamic else None,
    )
    return counted(replace(cluster, nodes=(*cluster.nodes, node))), node


def counted(cluster: LocalCluster) -> LocalCluster:
    """The cluster with the numbers of controllers and brokers that it has."""
    nodes = cluster.nodes
    return replace(cluster, controllers=sum(it.is_controller for it in nodes), brokers=sum(it.is_broker for it in nodes))


def rewrite_files(before: LocalCluster, after: LocalCluster) -> None:
    """Write the configuration files anew, of a cluster that has grown or shrunk: what follows from its nodes changes, unless
    somebody has changed it by hand; a new node, and one without a file, gets what all others were given with `up --config`."""
    files = {node.id: _read(node) for node in before.nodes if node.config_path.exists()}
    given = _given(before, files)
    for node in after.nodes:
        if node.id not in files:
            page = {} if node.metrics is None else {METRICS_PORT: "0"}
            _write(after, node, node_properties(after, node, {**given, **page}))
            continue
        old, new = node_properties(before, node, {}), node_properties(after, node, {})
        found = files[node.id]
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key) and found.get(key) == old.get(key)]
        if changed:
            kept = {key: value for key, value in found.items() if key not in changed}
            _write(after, node, {**kept, **{key: new[key] for key in changed if key in new}})


def _given(cluster: LocalCluster, files: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    """The keys and values that every node's file has, and that do not follow from the cluster's nodes."""
    made = {node.id: node_properties(cluster, node, {}) for node in cluster.nodes}
    own = [{it for it in files[node_id].items() if made[node_id].get(it[0]) != it[1]} for node_id in files]
    return dict(set.intersection(*own)) if own else {}


def _read(node: LocalNode) -> dict[str, str]:
    try:
        return {item.key: item.value for item in parse_properties(read_bounded(node.config_path, MIB).decode())}
    except (OSError, ValueError) as error:
        raise LocalError(f"{node.config_path} cannot be read: {error}") from None
