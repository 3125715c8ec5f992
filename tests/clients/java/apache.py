"""A real Apache Kafka on loopback, from the same jars as the tools: what kraftlite is compared with.

`apache_kafka(nodes=3)` formats and starts combined controllers and brokers in a temporary directory and kills them at the end,
whatever happened. `scripts/apache-kafka` is the same from a shell.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from kraftlite.local.ports import reserve
from tests.clients.java.tools import Missing, java, kafka_tool, kafka_version

START_TIMEOUT_S: Final = 90.0
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
SMALL: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "num.network.threads": "1",
    "num.io.threads": "2",
}
"""For a machine that runs other things too; nothing of it changes what a client is told."""


PRODUCTION_FLAGS: Final = (
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""Those of kafka-run-class.sh and kafka-server-start.sh."""


@dataclass
class ApacheKafka:
    """A running cluster. Node ids are 1..N, each controller and broker."""

    folder: Path
    bootstrap_servers: str
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    production: bool = False
    """With the heap and the flags of Kafka's own start script, to be measured; else small."""
    listeners: dict[str, str] = field(default_factory=dict)
    """Of each further listener, by its name: the addresses of all nodes."""
    more: tuple[Path, ...] = ()
    """Jars with classes that its configs name."""

    def data_dir(self, node_id: int) -> Path:
        return self.folder / f"data-{node_id}"

    def log(self, node_id: int) -> str:
        """What the node has written to its standard output and error."""
        return (self.folder / f"node-{node_id}.log").read_text()

    def kill(self, node_id: int) -> None:
        """SIGKILL; returns when the process is gone."""
        self.nodes[node_id].send_signal(signal.SIGKILL)
        self.nodes[node_id].wait()

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it keeps its connections, and says nothing."""
        self.nodes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """After a pause; returns at once."""
        self.nodes[node_id].send_signal(signal.SIGCONT)

    def stop(self, node_id: int) -> None:
        """SIGTERM; returns when the process is gone."""
        self.nodes[node_id].terminate()
        self.nodes[node_id].wait()

    def start(self, node_id: int) -> None:
        """Returns at once; `wait` until it serves."""
        config = self.folder / f"node-{node_id}.properties"
        with (self.folder / f"node-{node_id}.log").open("ab") as log:
            if self.production:
                command = java("kafka-server-start", log="info", heap_mb=1024, flags=PRODUCTION_FLAGS, more=self.more)
            else:
                command = java("kafka-server-start", log="info", more=self.more)
            self.nodes[node_id] = _spawn([*command, str(config)], log)

    def wait(self) -> None:
        """Until every node takes connections. RuntimeError, with the end of its log: one has ended, or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for node_id, address in enumerate(self.bootstrap_servers.split(","), start=1):
            host, port = address.rsplit(":", 1)
            while True:
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                    break
                if self.nodes[node_id].poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"node {node_id} of Apache Kafka does not serve:\n{self.log(node_id)[-3000:]}")
                time.sleep(0.1)


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


@contextmanager
def apache_kafka(
    *,
    nodes: int = 1,
    config: Mapping[str, str] | None = None,
    production: bool = False,
    listeners: Sequence[str] = (),
    more: tuple[Path, ...] = (),
    dynamic: bool = False,
    formatted: Sequence[str] = (),
    advertised: bool = False,
) -> Iterator[ApacheKafka]:
    """`nodes` combined nodes, with these configs on top of `SMALL`, or of Kafka's defaults when they run as in `production`.
    `listeners`: those beside the one in plain text, each by its security protocol, or as NAME:PROTOCOL. `more`: jars with
    classes that the configs name. `dynamic`: the voter, of one node only, is in the log and not configured (KIP-853).
    `formatted`: more options of `kafka-storage format`. `advertised`: the file names each listener as such. tools.Missing: no
    Java, or no jars."""
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as folder:
        (Path(folder) / ".starting").touch()  # the mark of a directory whose ports are taken
        ports = reserve(Path(folder), range(19092, 19092 + (2 + len(listeners)) * nodes))
        clients, controllers, others = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]
        cluster = ApacheKafka(Path(folder), ",".join(f"127.0.0.1:{port}" for port in clients), production=production, more=more)
        protocols = {"PLAINTEXT": "PLAINTEXT"}
        for number, listener in enumerate(listeners):
            name, _, protocol = listener.partition(":")
            protocols[name] = protocol or name
            theirs = others[number * nodes : (number + 1) * nodes]
            cluster.listeners[name] = ",".join(f"127.0.0.1:{port}" for port in theirs)
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, start=1))
        quorum = {"controller.quorum.voters": voters}
        if dynamic:
            assert nodes == 1, "one node votes alone"
            quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controllers[0]}"}
        copies = str(min(nodes, 3))
        try:
            for n in range(1, nodes + 1):
                served = {"PLAINTEXT": cluster.bootstrap_servers, **cluster.listeners}
                named = [f"{name}://{addresses.split(',')[n - 1]}" for name, addresses in served.items()]
                properties = {
                    "node.id": str(n),
                    "process.roles": "broker,controller",
                    "listeners": ",".join([*named, f"CONTROLLER://127.0.0.1:{controllers[n - 1]}"]),
                    "listener.security.protocol.map": ",".join(
                        f"{name}:{protocol}" for name, protocol in [*protocols.items(), ("CONTROLLER", "PLAINTEXT")]
                    ),
                    "controller.listener.names": "CONTROLLER",
                    **quorum,
                    **({"advertised.listeners": ",".join(named)} if advertised else {}),
                    "log.dirs": str(cluster.data_dir(n)),
                    "offsets.topic.replication.factor": copies,
                    "transaction.state.log.replication.factor": copies,
                    "transaction.state.log.min.isr": "1",
                    "share.coordinator.state.topic.replication.factor": copies,
                    "share.coordinator.state.topic.min.isr": "1",
                    **({} if production else SMALL),
                    **(config or {}),
                }
                file = cluster.folder / f"node-{n}.properties"
                file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
                options = [*(["--standalone"] if dynamic else []), *formatted]
                done = kafka_tool("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(file), *options)
                if done.code != 0:
                    raise RuntimeError(f"kafka-storage format: {done.out}{done.err}")
                cluster.start(n)
            cluster.wait()
            yield cluster
        finally:
            for process in cluster.nodes.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> int:
    """See scripts/apache-kafka."""
    parser = argparse.ArgumentParser(prog="scripts/apache-kafka", description="A real Apache Kafka on loopback.")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="on every node")
    parser.add_argument("command", nargs="*", help="run while it is up, {} being its address")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with apache_kafka(nodes=told.nodes, config=dict(it.split("=", 1) for it in told.config)) as cluster:
            print(f"Apache Kafka {kafka_version()}: {cluster.bootstrap_servers}", flush=True)
            if told.command:
                return subprocess.run(
                    [it.replace("{}", cluster.bootstrap_servers) for it in told.command], check=False
                ).returncode
            signal.pause()
    except Missing as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
