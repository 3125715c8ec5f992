"""The layout of an embedded cluster: its nodes, their configuration, and the ports that stay theirs."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from kraftlite.config.server import ConfigError, ServerConfig, load

HOST: Final = "127.0.0.1"
MAX_NODES: Final = 100
MAX_DIRECTORIES: Final = 9

FAST: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "50",
    "broker.session.timeout.ms": "300",
    "replica.lag.time.max.ms": "300",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "50",
    "replica.socket.timeout.ms": "500",
    "controller.quorum.election.timeout.ms": "100",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.request.timeout.ms": "400",
    "controller.quorum.append.linger.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "kraftlite.faults.enable": "true",
}
"""The settings in which a node of an embedded cluster differs from production: failures are noticed in a third of a second,
not in nine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Node ids as `kraftlite up` gives them: controllers 1 … C, brokers C+1 …; combined: 1 … are both."""

    node_id: int
    roles: tuple[str, ...]
    rack: str | None = None
    """`broker.rack`, of a broker."""
    directories: int = 1

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """`/data`; of several `/d1`, `/d2` and so on, and the metadata log has a directory of its own, which does not fail."""
        return ("/data",) if self.directories == 1 else tuple(f"/d{number}" for number in range(1, self.directories + 1))

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


def plan(controllers: int, brokers: int, combined: bool, racks: Sequence[str] = (), directories: int = 1) -> tuple[NodePlan, ...]:
    """`racks`: of the brokers in turn. `directories`: of each broker. Raises ValueError when there is none of a role, or too
    many."""
    for name, count in (("controllers", controllers), ("brokers", brokers)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name}={count!r}: allowed is a whole number of at least 1")
    if controllers + brokers > MAX_NODES:
        raise ValueError(f"controllers={controllers} and brokers={brokers}: allowed are at most {MAX_NODES} nodes")
    if isinstance(directories, bool) or not isinstance(directories, int) or not 1 <= directories <= MAX_DIRECTORIES:
        raise ValueError(f"directories={directories!r}: allowed is a whole number from 1 to {MAX_DIRECTORIES}")
    both = min(controllers, brokers) if combined else 0
    roles = [("broker", "controller")] * both + [("controller",)] * (controllers - both) + [("broker",)] * (brokers - both)
    turn = cycle(racks or (None,))
    return tuple(
        NodePlan(
            node_id=node_id,
            roles=it,
            rack=next(turn) if "broker" in it else None,
            directories=directories if "broker" in it else 1,
        )
        for node_id, it in enumerate(roles, 1)
    )


def server_config(
    node: NodePlan, nodes: tuple[NodePlan, ...], port: int | None, config: Mapping[str, str], listener: str = "PLAINTEXT"
) -> ServerConfig:
    """Between nodes host `n<id>` stands for node id. `listener`: the one for clients, called by its protocol. Raises ValueError
    that names every bad key of `config`."""
    name = f"n{node.node_id}"
    listeners = [f"{listener}://{HOST}:{port}", f"REPLICATION://{name}:9192"] if node.is_broker else []
    if node.is_controller:
        listeners.append(f"CONTROLLER://{name}:9093")
    replicas = min(3, sum(it.is_broker for it in nodes))
    values = {
        **FAST,
        **_derived(config),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        **config,
        "process.roles": ",".join(node.roles),
        "node.id": str(node.node_id),
        "controller.quorum.bootstrap.servers": ",".join(f"n{it.node_id}:9093" for it in nodes if it.is_controller),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "log.dirs": ",".join(node.log_dirs),
        **({"metadata.log.dir": "/meta"} if node.directories > 1 else {}),
        **({"inter.broker.listener.name": "REPLICATION"} if node.is_broker else {}),
        **({} if node.rack is None else {"broker.rack": node.rack}),
    }
    try:
        found = load(None, {}, values, hostname=lambda: name)
    except ConfigError as error:
        raise ValueError("; ".join(it.replace(" (flag --override)", "") for it in error.problems)) from None
    return found


def _derived(config: Mapping[str, str]) -> dict[str, str]:
    """Raise the lag limit with the session timeout, when only that is raised: whoever wants a broker to be silent for longer
    does not want it out of the ISRs long before."""
    session, least = config.get("broker.session.timeout.ms", "").strip(), FAST["replica.lag.time.max.ms"]
    raised = session.isascii() and session.isdigit() and int(session) > int(least)
    return {"replica.lag.time.max.ms": session} if raised else {}


_OWN: Final = (
    "process.roles", "node.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "controller.listener.names",
    "listeners", "log.dirs", "advertised.listeners", "inter.broker.listener.name", "metadata.log.dir",
)  # fmt: skip


def check_config(config: Mapping[str, object]) -> dict[str, str]:
    """`config` as texts. Raises ValueError for keys that nobody knows, or that the cluster decides itself."""
    from kraftlite.model.broker_configs import broker_key_of

    found = {}
    for key, value in config.items():
        if key in _OWN:
            raise ValueError(f"config: {key} is decided by the cluster itself")
        if broker_key_of(key) is None:
            raise ValueError(f"config: {key!r} is not a configuration key")
        found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def random_cluster_id() -> str:
    rng = random.Random()
    return "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") for _ in range(22))


class HeldPort:
    """An ephemeral port of the loopback interface that stays ours while nobody listens on it, so that a node that comes back
    finds it free; connections to it are refused meanwhile. (Not held outside of Linux, where a port cannot be bound twice.)
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.number: int = self._socket.getsockname()[1]
        if not sys.platform.startswith("linux"):
            self._socket.close()

    def release(self) -> None:
        self._socket.close()
