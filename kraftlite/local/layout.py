"""The layout of a local cluster: its nodes, where they listen, and the `server.properties` of each."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kraftlite.config.properties import format_properties
from kraftlite.local.ports import HOST, reserve
from kraftlite.local.secure import SASL_LISTENER, TLS_LISTENER, node_security
from kraftlite.local.state import LocalCluster, LocalError, LocalNode

KAFKA_BASE = 9092
REPLICATION_BASE = 9192
CONTROLLER_BASE = 9292
METRICS_BASE = 9392
TLS_BASE = 9492
METRICS_PORT = "kraftlite.metrics.port"
MAX_NODES = 100


def plan(data_dir: Path, *, controllers: int, brokers: int, combined: bool, secure: bool = False) -> LocalCluster:
    """A new cluster: controllers 1..N, brokers N+1.. (combined: nodes 1..N are both). Reserves its ports.

    Combined with more brokers than controllers (or the other way round): the first are both, the rest have one role.
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
            )
        )
    return LocalCluster(
        data_dir=str(data_dir),
        cluster_id=_random_cluster_id(),
        controllers=controllers,
        brokers=brokers,
        combined=combined,
        nodes=tuple(nodes),
        secure=secure,
    )


def _random_cluster_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text


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
    voters = ",".join(f"{other.id}@{other.controller}" for other in cluster.nodes if other.controller is not None)
    replicas = min(3, sum(other.is_broker for other in cluster.nodes))
    values = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "controller.quorum.voters": voters,
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
    known = [_port(address) for node in cluster.nodes for address in node.addresses]
    # What is reserved for a directory is reserved at once: its other ports again, too.
    ports = reserve(Path(cluster.data_dir), [*known, *(base + number for number in range(len(cluster.nodes)))])[len(known) :]
    host = extra.get("kraftlite.metrics.host", "").strip() or HOST
    nodes = tuple(replace(node, metrics=f"{host}:{port}") for node, port in zip(cluster.nodes, ports, strict=True))
    return replace(cluster, nodes=nodes)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def write_files(cluster: LocalCluster, extra: Mapping[str, str]) -> None:
    """Directories and configuration files of all nodes."""
    for node in cluster.nodes:
        directory = Path(node.directory)
        directory.mkdir(parents=True, exist_ok=True)
        header = f"# Written by kraftlite up for node {node.id} of the local cluster {cluster.data_dir}\n"
        node.config_path.write_text(header + format_properties(node_properties(cluster, node, extra)))
