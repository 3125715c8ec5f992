"""One closed node for clients: kraftlite, or with `--apache-kafka` an Apache Kafka, with the same settings.

Listeners want TLS, a certificate, or a password of each mechanism; one shows a certificate that has expired, one ends sessions
early. The listener in plain text is the tests' own: who comes there may do everything. Source: SE-02, SE-10 to SE-15, SE-31.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.java.apache import apache_kafka
from tests.clients.java.secured import MODULES, give_passwords
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import free_ports
from tests.harness.secured_node import CLUSTER_ID, listening

PASSWORDS: Final = {"alice": "alice-hunter2", "bob": "bob-hunter2"}
LISTENERS: Final = {"TLS": "SSL", "MTLS": "SSL", "EXPIRED": "SSL", "SASL": "SASL_SSL", "SHORT": "SASL_SSL"}
REAUTHENTICATE_MS: Final = 1_500
"""How long a session of a password lasts at the listener SHORT (KIP-368)."""
TOKEN_S: Final = 4.0
"""How long the tokens of tests hold that are about their end."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class Closed:
    """`addresses`: those of the listeners. `folder`: where certificates are, and where tests may write."""

    folder: Path
    open: str
    addresses: Mapping[str, str]
    authority: Authority

    def certificate(self, name: str, *, expired: bool = False, authority: Authority | None = None) -> dict[str, str]:
        """What a client with a certificate of this name has to say."""
        stores = Stores(self.folder / f"{name}-{expired}-{authority is None}")
        issued = (authority or self.authority).issue(name, expired=expired)
        stores.write(issued, self.authority)
        return {"protocol": "SSL", "ca": str(stores.trust), "certificate": str(stores.keys), "key": str(stores.keys)}

    @property
    def trust(self) -> str:
        return str(self.folder / "broker" / "trust.pem")

    def password(self, mechanism: str, user: str = "alice", **other: Any) -> dict[str, Any]:
        return {
            "protocol": "SASL_SSL",
            "ca": self.trust,
            "mechanism": mechanism,
            "username": user,
            "password": PASSWORDS[user],
            **({"token_s": 3600.0} if mechanism == "OAUTHBEARER" else {}),
            **other,
        }

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.open})

    def create_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_S)

    def grant(self, user: str, topic: str = "*") -> None:
        wanted = [_grant(user, topic, ResourceType.TOPIC), _grant(user, "*", ResourceType.GROUP)]
        wanted.append(_grant(user, "kafka-cluster", ResourceType.BROKER, AclOperation.IDEMPOTENT_WRITE))
        admin = self.admin()
        for it in admin.create_acls(wanted).values():
            it.result(LIMIT_S)

    def take_back(self, user: str, topic: str) -> None:
        """The grants for this topic."""
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin()
        (found,) = admin.delete_acls([wanted]).values()
        assert len(found.result(LIMIT_S)) == 1


def _grant(user: str, name: str, kind: ResourceType, operation: AclOperation = AclOperation.ALL) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def settings(folder: Path, authority: Authority) -> dict[str, str]:
    stores = Stores(folder / "broker").write(authority.issue("broker"), authority)
    expired = Stores(folder / "expired").write(authority.issue("broker", expired=True), authority)
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    found = {
        **stores.as_kafka(),
        **expired.as_kafka("listener.name.expired."),
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "OAUTHBEARER"]),
    }
    for listener in ("sasl", "short"):
        prefix = f"listener.name.{listener}"
        found[f"{prefix}.plain.sasl.jaas.config"] = f"{MODULES}.plain.PlainLoginModule required {users};"
        for it in ("scram-sha-256", "scram-sha-512"):
            found[f"{prefix}.{it}.sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule required;"
        found[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    for it in MECHANISMS:
        found[f"listener.name.short.{it.lower()}.connections.max.reauth.ms"] = str(REAUTHENTICATE_MS)
    return found


@contextmanager
def closed(folder: Path, *, apache: bool) -> Iterator[Closed]:
    """`alice` may write and read all topics, by each password and by a certificate; `bob` nothing yet."""
    authority = Authority()
    config = settings(folder, authority)
    start = _kafka if apache else kraftlite_node
    with start(folder, config) as (address, addresses):
        found = Closed(folder, address, addresses, authority)
        give_passwords(address, PASSWORDS)
        found.grant("alice")
        yield found


@contextmanager
def _kafka(_folder: Path, config: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    named = [f"{name}:{protocol}" for name, protocol in LISTENERS.items()]
    with apache_kafka(config=config, listeners=named) as kafka:
        yield kafka.bootstrap_servers, kafka.listeners


@contextmanager
def kraftlite_node(
    folder: Path,
    config: Mapping[str, str],
    listeners: Mapping[str, str] = LISTENERS,
    *,
    advertised: bool = False,
    ports: Sequence[int] = (),
    form: Sequence[str] = (),
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """One node as a process: the address in plain text, and those of all listeners. `advertised`: its file says where those for
    clients are reached. `ports`: of all listeners; none: free ones. `form`: further arguments of `kraftlite format`."""
    names = {"PLAINTEXT": "PLAINTEXT", **listeners, "CONTROLLER": "PLAINTEXT", "REPLICATION": "GRPC"}
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports or free_ports(folder, len(names)), strict=True)}
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{addresses['CONTROLLER']}",
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": "REPLICATION",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **config,
    }
    if advertised:
        values["advertised.listeners"] = ",".join(f"{it}://{addresses[it]}" for it in names if it != "CONTROLLER")
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    command = [sys.executable, "-m", "kraftlite"]
    subprocess.run([*command, "format", "--config", str(path), "--cluster-id", CLUSTER_ID, *form], check=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, "start", "--config", str(path)], stdout=log, stderr=log)
    try:
        for name in names:
            listening(addresses[name], process)
        yield addresses["PLAINTEXT"], addresses
    finally:
        process.terminate()
        process.wait(20)
