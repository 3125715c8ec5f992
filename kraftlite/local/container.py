"""A closed cluster of containers: what `KRAFTLITE_SECURE=1` makes of nodes that are configured by their environment.

All nodes share the directory `KRAFTLITE_DATA_DIR`. Whichever comes first makes certificates, users and client files there, as
`kraftlite.local.secure` does, under a lock; the others find them. Each node's listeners then speak TLS: those between nodes with
certificates on both sides, those for clients with passwords, and brokers get one more, `SSL`, for clients with certificates.

`KRAFTLITE_SECURE_NODES` lists all nodes as the others see them: a controller is `ID@HOST:PORT`, a broker is
`ID@HOST:PORT:SASL_SSL:SSL`. PORT is the one for nodes; SASL_SSL and SSL are the ports of this machine at which clients reach it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kraftlite.config.environment import cluster_id_from_environment, keys_from_environment
from kraftlite.local import process
from kraftlite.local.layout import counted
from kraftlite.local.secure import TLS_LISTENER, create, first_credentials, node_security, secure_dir
from kraftlite.local.state import STATE_NAME, LocalCluster, LocalError, LocalNode, default_data_dir, load, locked, save

SECURE_VARIABLE: Final = "KRAFTLITE_SECURE"
NODES_VARIABLE: Final = "KRAFTLITE_SECURE_NODES"
TLS_PORT: Final = 9093
"""The port of a broker's container at which clients show a certificate."""
_CLOSED: Final = {"GRPC": "GRPC_TLS", "PLAINTEXT": "SASL_SSL"}
_WORDS: Final = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
_NODE: Final = re.compile(r"(\d{1,9})@([A-Za-z0-9][A-Za-z0-9.-]{0,252}):(\d{1,5})(?::(\d{1,5}):(\d{1,5}))?", re.ASCII)
_MAX_NODES: Final = 100


def closing(env: Mapping[str, str]) -> dict[str, str]:
    """The keys that close the node of this environment; empty for one of an open cluster. Raises LocalError."""
    cluster = _cluster(env)
    if cluster is None:
        return {}
    given = {key: value for key, (value, _variable) in keys_from_environment(env).items()}
    for key, variable in _NEEDED.items():
        if not given.get(key):
            raise LocalError(f"{SECURE_VARIABLE}: {variable} is missing, from which the listeners of a closed node are made")
    node = _node(cluster, given["node.id"])
    roles = tuple(it.strip() for it in given["process.roles"].split(","))
    if roles != node.roles:
        raise LocalError(
            f"KAFKA_PROCESS_ROLES={given['process.roles']}: {NODES_VARIABLE} says {node.roles[0]} of node {node.id}; "
            "a node of a closed cluster of containers has one role"
        )
    protocols = dict(_protocol(item) for item in given["listener.security.protocol.map"].split(","))
    own = [item.partition("://")[0].strip() for item in given["listeners"].split(",")]
    values = node_security(cluster, node, [name for name in own if protocols.get(name) == "SASL_SSL"])
    if node.tls is not None:
        protocols[TLS_LISTENER] = "SSL"
        values["listeners"] = f"{given['listeners']},{TLS_LISTENER}://:{TLS_PORT}"
        values["advertised.listeners"] = f"{given.get('advertised.listeners') or given['listeners']},{TLS_LISTENER}://{node.tls}"
    values["listener.security.protocol.map"] = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    return values


def make(env: Mapping[str, str], *, formatted: bool) -> tuple[str, ...]:
    """Make the certificates, users and client files of the cluster, unless another node has. Return the first users'
    credentials, as `format --add-scram` takes them; none for a cluster that is open. They stay beside the client files, because
    each controller is formatted when it comes. `formatted`: whether the node has begun its life before. Raises LocalError."""
    cluster = _cluster(env)
    if cluster is None:
        return ()
    data_dir = Path(cluster.data_dir)
    with locked(data_dir / ".cluster.lock"):
        if not _is_made(data_dir):
            if formatted:
                raise LocalError(
                    f"{SECURE_VARIABLE}: this node belongs to a cluster that was made open, and cannot be closed later; "
                    "docker compose down -v removes it with all its data"
                )
            if secure_dir(data_dir).exists():  # of a node that was stopped while it made them
                shutil.rmtree(secure_dir(data_dir))
            create(cluster)
            save(cluster)
        elif _as_contained(load(data_dir)) != cluster:
            raise LocalError(
                f"{data_dir} has the certificates of another cluster or of other nodes than {NODES_VARIABLE} and CLUSTER_ID say; "
                "docker compose down -v removes it with all its data"
            )
        elif load(data_dir) != cluster:
            save(cluster)  # an earlier version did not note that its nodes are in containers
    return tuple(first_credentials(cluster))


def _as_contained(cluster: LocalCluster) -> LocalCluster:
    return replace(cluster, nodes=tuple(replace(node, contained=True) for node in cluster.nodes))


def described(env: Mapping[str, str]) -> LocalCluster | None:
    """The cluster of this environment, once it is described in the directory that its nodes share, where commands find them;
    None where `KRAFTLITE_SECURE_NODES` lists none. That of a closed cluster is there since `make`. Raises LocalError."""
    closed = _cluster(env)
    listed = env.get(NODES_VARIABLE, "")
    if closed is not None or not listed:
        return closed
    found = _listed(env, listed, default_data_dir(env).absolute())
    cluster = replace(found, secure=False, nodes=tuple(replace(node, tls=None) for node in found.nodes))
    data_dir = Path(cluster.data_dir)
    with locked(data_dir / ".cluster.lock"):
        if not (data_dir / STATE_NAME).exists() or load(data_dir) != cluster:
            save(cluster)
    return cluster


def found(env: Mapping[str, str], wait_s: float) -> None:
    """Describe the cluster as `described` does, for a container beside the nodes; wait until they have made the certificates of
    a closed one. Does nothing where `KRAFTLITE_SECURE_NODES` lists none. Raises LocalError."""
    cluster = described(env)
    if cluster is not None and cluster.secure:
        data_dir = Path(cluster.data_dir)
        if not process.wait_until(lambda: _is_made(data_dir), wait_s):
            raise LocalError(f"no node has made the certificates of the cluster in {data_dir} within {wait_s:.0f} s")


def _is_made(data_dir: Path) -> bool:
    """Return whether the certificates of a closed cluster are there. The description alone may be that of an open one."""
    return (data_dir / STATE_NAME).exists() and load(data_dir).secure


_NEEDED: Final = {
    "node.id": "KAFKA_NODE_ID",
    "process.roles": "KAFKA_PROCESS_ROLES",
    "listeners": "KAFKA_LISTENERS",
    "listener.security.protocol.map": "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
}


def _cluster(env: Mapping[str, str]) -> LocalCluster | None:
    """The closed cluster of this environment. None when it asks for none, and none was made before: a closed one stays so."""
    asked = _asked(env.get(SECURE_VARIABLE, ""))
    listed = env.get(NODES_VARIABLE, "")
    if not listed:
        if asked:
            raise LocalError(f"{SECURE_VARIABLE}: {NODES_VARIABLE} is missing, which lists all nodes, as in docker-compose.yml")
        return None
    data_dir = default_data_dir(env).absolute()
    made = _is_made(data_dir)
    if made and asked is False:
        raise LocalError(
            f"{SECURE_VARIABLE}={env[SECURE_VARIABLE]}: the cluster was made closed, and stays so; leave the variable away, or "
            "remove the cluster with all its data: docker compose down -v"
        )
    return _listed(env, listed, data_dir) if asked or made else None


def _asked(text: str) -> bool | None:
    """None where the variable says nothing."""
    word = text.strip().lower()
    if word and word not in _WORDS:
        raise LocalError(f"{SECURE_VARIABLE}={text[:80]!r}: allowed are {', '.join(_WORDS)}, or nothing")
    return _WORDS.get(word)


def _listed(env: Mapping[str, str], listed: str, data_dir: Path) -> LocalCluster:
    cluster_id = cluster_id_from_environment(env)
    if cluster_id is None:
        raise LocalError(f"{SECURE_VARIABLE}: CLUSTER_ID is missing: the certificates belong to one cluster")
    nodes = tuple(_parse(item.strip(), data_dir) for item in listed.split(","))
    if len(nodes) > _MAX_NODES or len({node.id for node in nodes}) != len(nodes):
        raise LocalError(f"{NODES_VARIABLE} has {len(nodes)} nodes: allowed are at most {_MAX_NODES}, each with an id of its own")
    return counted(
        LocalCluster(
            data_dir=str(data_dir),
            cluster_id=cluster_id,
            controllers=0,
            brokers=0,
            combined=False,
            nodes=nodes,
            secure=True,
            dynamic=True,
        )
    )


def _parse(item: str, data_dir: Path) -> LocalNode:
    found = _NODE.fullmatch(item)
    ports = [int(port) for port in found.groups()[2:] if port is not None] if found else []
    if found is None or not all(0 < port < 65_536 for port in ports):
        raise LocalError(
            f"{NODES_VARIABLE}: {item[:80]!r}; allowed is ID@HOST:PORT for a controller and ID@HOST:PORT:SASL_SSL:SSL for a "
            "broker, with ports from 1 to 65535"
        )
    node_id, between = int(found[1]), f"{found[2]}:{ports[0]}"
    broker = len(ports) > 1
    return LocalNode(
        id=node_id,
        roles=("broker",) if broker else ("controller",),
        kafka=f"localhost:{ports[1]}" if broker else None,
        tls=f"localhost:{ports[2]}" if broker else None,
        replication=between if broker else None,
        controller=None if broker else between,
        directory=str(data_dir / f"node-{node_id}"),
        contained=True,
    )


def _node(cluster: LocalCluster, text: str) -> LocalNode:
    for node in cluster.nodes:
        if str(node.id) == text.strip():
            return node
    raise LocalError(f"KAFKA_NODE_ID={text[:80]}: {NODES_VARIABLE} lists {', '.join(str(it.id) for it in cluster.nodes)}")


def _protocol(item: str) -> tuple[str, str]:
    name, _, protocol = (part.strip() for part in item.partition(":"))
    return name, _CLOSED.get(protocol.upper(), protocol.upper())
