"""A real Apache Kafka whose listeners want TLS, SASL or both, and whom it knows.

Source: KIP-43, KIP-84, KIP-651.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.clients.java.apache import ApacheKafka, apache_kafka

PASSWORDS: Final = {"alice": 'se"cret, with=signs\\', "bob": "plain"}
MODULES: Final = "org.apache.kafka.common.security"
MECHANISMS: Final = ("plain", "scram-sha-256", "scram-sha-512")
REAUTHENTICATE_MS: Final = 1_000
"""After so long the listener with TLS and SASL closes a connection that has not said again who it is (KIP-368)."""


def certify(folder: Path) -> None:
    """Make an authority, and what it vouches for: a broker on loopback and a client, whose key is also there with a password."""

    def openssl(command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)

    curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(f"req -x509 {curve} -days 2 -subj /CN=authority -keyout authority.key -out authority.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for who in ("broker", "client"):
        openssl(f"req {curve} -subj /CN={who} -keyout {who}.key -out {who}.csr")
        openssl(f"x509 -req -in {who}.csr -CA authority.pem -CAkey authority.key -days 2 -extfile names -out {who}.crt")
        (folder / f"{who}.pem").write_text((folder / f"{who}.key").read_text() + (folder / f"{who}.crt").read_text())
    openssl("pkcs8 -topk8 -v2 aes-256-cbc -passout pass:hidden -in client.key -out client-locked.key")
    (folder / "client-locked.pem").write_text((folder / "client-locked.key").read_text() + (folder / "client.crt").read_text())


@contextmanager
def secured_kafka(pem: Path) -> Iterator[ApacheKafka]:
    """SSL asks for the client's certificate, SASL_SSL does not. `pem`: what `certify` made."""
    users = " ".join(f'user_{name}="{quoted(password)}"' for name, password in PASSWORDS.items())
    config = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem / "authority.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        **{f"listener.name.sasl_ssl.{name}.connections.max.reauth.ms": str(REAUTHENTICATE_MS) for name in MECHANISMS},
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        plain = f"{MODULES}.plain.PlainLoginModule required {users};"
        config[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain.replace("\\", "\\\\")  # as a properties file has it
        for mechanism in MECHANISMS[1:]:
            config[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule required;"
    with apache_kafka(config=config, listeners=("SASL_PLAINTEXT", "SSL", "SASL_SSL")) as found:
        give_passwords(found.bootstrap_servers)
        yield found


def quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def give_passwords(bootstrap: str, passwords: Mapping[str, str] = PASSWORDS) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        for name, password in passwords.items():
            wanted = [UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 8192), password.encode())]
            for it in admin.alter_user_scram_credentials(wanted).values():
                it.result(30)


def by_name(mechanism: str, user: str = "alice", protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    login = {"sasl.username": user, "sasl.password": PASSWORDS[user]}
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, **login}
