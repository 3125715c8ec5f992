"""One node as a process, with a listener for each way to log in, and the clients' properties for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.cluster import free_ports

MODULES: Final = "org.apache.kafka.common.security"
ALICE, BOB, TOKENS = "alice-hunter2", "bob-hunter2", "token-hunter2"
"""The passwords of alice, whom PLAIN and SCRAM know, and of bob, whom only PLAIN knows; and the secret of delegation tokens."""
SECRETS: Final = (ALICE, BOB, TOKENS)
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
REAUTH_MS: Final = 2_000
"""How long a session lasts on the listener SHORT."""
START_LIMIT_S: Final = 300.0
"""For a node on a machine with a load of many times its cores."""


@dataclass
class SecuredNode:
    """`sasl`: the address at which sessions last; `short`: that where they end soon; `plain`: that without authentication."""

    folder: Path
    plain: str
    sasl: str
    short: str
    controller: str
    secure: str = ""
    """The address with TLS and SASL; empty: there is none."""
    metrics: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when all listeners take connections."""
        command = [sys.executable, "-m", "kraftlite", "start", "--config", str(self.folder / "server.properties")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        for address in (self.plain, self.sasl, self.short, self.controller, self.secure):
            if address:
                listening(address, self.process)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(20)

    def properties(self, name: str, values: Mapping[str, str]) -> Path:
        """A file for --command-config."""
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path

    def client(self, mechanism: str, name: str = "alice", password: str = ALICE) -> Path:
        return self.properties(f"{mechanism}-{name}", login(mechanism, name, password))

    def nobody(self) -> Path:
        """The configuration of a client that proves nothing, and soon gives up asking again."""
        path = self.folder / "nobody.properties"
        path.write_text("default.api.timeout.ms=3000\n")
        return path

    def tool(self, *arguments: str, server: str | None = None, config: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One of Kafka's tools, as kraftlite has them."""
        where = ["--bootstrap-server", server or self.sasl] if server != "" else []
        given = ["--command-config", str(config)] if config is not None else []
        command = [sys.executable, "-m", "kraftlite", "compat", *arguments, *where, *given]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def tool_of(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One of our own commands."""
        return subprocess.run([sys.executable, "-m", "kraftlite", *arguments], capture_output=True, text=True, timeout=60)

    def written(self) -> Iterator[tuple[Path, bytes]]:
        """Whatever the node has written: its log, its trace, its data."""
        for path in [self.folder / "log", *(self.folder / "data").rglob("*")]:
            if path.is_file():
                yield path, path.read_bytes()


def login(mechanism: str, name: str, password: str, extra: str = "") -> dict[str, str]:
    """The properties of a Java client, and of our own."""
    module = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}.get(mechanism)
    options = f'username="{name}" password="{password}"{extra}'
    if mechanism == "OAUTHBEARER":
        options = f'unsecuredLoginStringClaim_sub="{name}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{MODULES}.{module or 'scram.ScramLoginModule'} required {options};",
    }


@contextmanager
def secured_node(
    folder: Path, extra: Mapping[str, str] | None = None, stores: Mapping[str, str] | None = None
) -> Iterator[SecuredNode]:
    """`extra`: further properties of the node, or others than it has. `stores`: those of its certificate, with which it has a
    listener with TLS as well."""
    plain, sasl, short, controller, replication, secure = (f"localhost:{port}" for port in free_ports(folder, 6))
    users = f'user_alice="{ALICE}" user_bob="{BOB}"'
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"OPEN://{plain},SASL://{sasl},SHORT://{short},CONTROLLER://{controller},REPLICATION://{replication}",
        "listener.security.protocol.map": (
            "OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,REPLICATION:GRPC"
        ),
        "inter.broker.listener.name": "REPLICATION",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": str(REAUTH_MS),
        "delegation.token.secret.key": TOKENS,
        **{
            f"listener.name.{it}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};"
            for it in ("sasl", "short")
        },
        **{
            f"listener.name.{it}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            for it in ("sasl", "short")
        },
    }
    if stores is not None:
        values["listeners"] += f",SECURE://{secure}"
        values["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
        values |= {f"listener.name.secure.{name}": text for name, text in stores.items()}
        for it in ("plain", "oauthbearer"):
            values[f"listener.name.secure.{it}.sasl.jaas.config"] = values[f"listener.name.sasl.{it}.sasl.jaas.config"]
    values |= extra or {}
    node = SecuredNode(folder, plain, sasl, short, controller, "" if stores is None else secure)
    path = node.properties("server", values)
    scram = [f"SCRAM-SHA-{bits}=[name=alice,password={ALICE}]" for bits in (256, 512)]
    command = [sys.executable, "-m", "kraftlite"]
    added = [part for item in scram for part in ("--add-scram", item)]
    subprocess.run([*command, "format", "--config", str(path), "--cluster-id", CLUSTER_ID, *added], check=True)
    try:
        node.start()
        yield node
    finally:
        node.stop()


def listening(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process takes connections there."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the node has stopped; see its log"
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens at {address}")
