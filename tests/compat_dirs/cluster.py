"""A controller (node 1) and a broker (node 2) as processes whose directories may be those of another version.

Everything goes through the command line and clients, which both versions have; only their ports are new each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraftlite.local.ports import reserve

HOST = "127.0.0.1"
CLUSTER_ID = "b2xkLWRpcmVjdG9yaWVzLQ"
FIRST_PORT = 9700
START_LIMIT_S = 90.0
STOP_LIMIT_S = 60.0
COMMON = {
    "controller.quorum.voters": "1@127.0.0.1:{controller}",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
NODES = {
    1: {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:{controller}"},
    2: {
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:{kafka},REPLICATION://127.0.0.1:{replication}",
        "inter.broker.listener.name": "REPLICATION",
    },
}


class Nodes:
    """Their files are below `folder`: `data/1`, `data/2`, and what they say in `1.out`, `2.out`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / ".starting").touch()  # what the register of ports looks for
        controller, kafka, replication = reserve(folder, [FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2])
        self.bootstrap = f"{HOST}:{kafka}"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id, own in NODES.items():
            values = {"node.id": str(node_id), "log.dirs": f"data/{node_id}", **own, **COMMON}
            texts = {key: it.format(controller=controller, kafka=kafka, replication=replication) for key, it in values.items()}
            self._config(node_id).write_text("".join(f"{key}={value}\n" for key, value in texts.items()))

    def _config(self, node_id: int) -> Path:
        return self._folder / f"{node_id}.properties"

    def format(self) -> None:
        for node_id in NODES:
            self.run("format", "--config", self._config(node_id).name, "--cluster-id", CLUSTER_ID)

    def start(self, node_id: int) -> None:
        """Returns when the node says that it is started. AssertionError with its last words when it ends."""
        path = self._folder / f"{node_id}.out"
        with path.open("wb") as out:
            self._processes[node_id] = process = subprocess.Popen(
                [sys.executable, "-m", "kraftlite", "start", "--config", self._config(node_id).name],
                cwd=self._folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end_s = time.monotonic() + START_LIMIT_S
        while "Kafka Server started" not in (said := path.read_text(errors="replace")):
            assert process.poll() is None, f"node {node_id} ended with {process.returncode}: {said[-3000:]}"
            assert time.monotonic() < end_s, f"node {node_id} did not start within {START_LIMIT_S:g} s: {said[-3000:]}"
            time.sleep(0.05)

    def stop(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_LIMIT_S) == 0

    def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.kill()
        process.wait(STOP_LIMIT_S)

    def said(self, node_id: int) -> str:
        return (self._folder / f"{node_id}.out").read_text(errors="replace")

    def close(self) -> None:
        for node_id in list(self._processes):
            self.kill(node_id)
        (self._folder / ".starting").unlink(missing_ok=True)

    def run(self, *arguments: str) -> str:
        """Standard output of `kraftlite …`."""
        done = subprocess.run(
            [sys.executable, "-m", "kraftlite", *arguments],
            cwd=self._folder,
            env={**_environment(), "KRAFTLITE_BOOTSTRAP_SERVER": self.bootstrap},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"kraftlite {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def answers(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What these commands print as JSON; of those that print an object a line, the list of them."""
        return {name: _parse(self.run(*arguments, "--json")) for name, arguments in commands.items()}


COMMANDS = {
    "describe": ("describe", "orders", "trimmed"),
    "topic list": ("topic", "list"),
    "offsets": ("offsets", "orders"),
    "group list": ("group", "list"),
    "group describe": ("group", "describe", "billing"),
    "group describe --state": ("group", "describe", "billing", "--state"),
    "config describe": ("config", "describe", "--topic", "orders"),
    "quorum describe --status": ("quorum", "describe", "--status"),
    "quorum describe --replication": ("quorum", "describe", "--replication"),
    "cluster describe": ("cluster", "describe"),
    "feature describe": ("feature", "describe"),
    "log-dirs describe": ("log-dirs", "describe"),
    "consume": ("consume", "trimmed", "--from-beginning", "--max-messages", "1"),
    "storage info": ("storage", "info", "--config", "2.properties"),
}
"""Asked while the nodes run."""
OF_FILES = {
    "log dump": ("log", "dump", "data/2/orders-0"),
    "explain": ("explain", "partition", "orders-0", "--trace", "data/2/kraftlite-trace.jsonl"),
}
"""Asked of the directories of nodes that have stopped."""


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def _environment() -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "KRAFTLITE_", "CLUSTER_ID"))}
    return {**own, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(it for it in sys.path if it)}


@contextmanager
def running(folder: Path) -> Iterator[Nodes]:
    """The nodes of directories that are there already."""
    with contextlib.closing(Nodes(folder)) as nodes:
        nodes.start(1)
        nodes.start(2)
        yield nodes
