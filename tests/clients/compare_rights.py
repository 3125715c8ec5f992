"""Puts the questions of `tests.clients.rights` to a closed Apache Kafka and to kraftlite, and prints where answers differ.

    python -m tests.clients.compare_rights            exit status 1 when there is a difference
    python -m tests.clients.compare_rights --record   writes Kafka's answers to rights.json, for test_rights.py

Needs Java and Maven (tests/clients/java).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.java.apache import apache_kafka
from tests.clients.java.secured import MODULES
from tests.clients.rights import RECORD, Asked, differences, recorded, states
from tests.harness.authorized import QUIET, STANDARD, LoggedIn
from tests.harness.secured_node import secured_node

USERS = ("admin", "alice")


@contextmanager
def kafka() -> Iterator[Asked]:
    """Apache Kafka: clients log in with PLAIN at the broker's and the controller's port."""
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    module = f'{MODULES}.plain.PlainLoginModule required username="admin" password="admin-secret" {users};'
    protocols = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "CONTROLLER": "SASL_PLAINTEXT"}
    config = {
        **STANDARD,
        **{key: str(value) for key, value in QUIET.items()},
        "super.users": "User:admin;User:ANONYMOUS",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "delegation.token.secret.key": "secret",
        "log.retention.ms": "-1",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
        "listener.name.controller.plain.sasl.jaas.config": module,
    }
    with apache_kafka(config=config, listeners=("SASL_PLAINTEXT",)) as cluster:
        server = cluster.listeners["SASL_PLAINTEXT"]
        text = (cluster.folder / "node-1.properties").read_text()
        controller = text.partition("CONTROLLER://")[2].split("\n")[0].split(",")[0]
        yield _asked(server, controller)


@contextmanager
def kraftlite() -> Iterator[Asked]:
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    module = f"{MODULES}.plain.PlainLoginModule required {users};"
    config = {
        **STANDARD,
        **{key: str(value) for key, value in QUIET.items()},
        "transaction.state.log.replication.factor": "1",
        "log.retention.ms": "-1",
        "listener.name.sasl.plain.sasl.jaas.config": module,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": module,
    }
    with tempfile.TemporaryDirectory(prefix="kraftlite-rights-") as folder, secured_node(Path(folder), config) as node:
        yield _asked(node.sasl, node.controller)


def _asked(server: str, controller: str) -> Asked:
    admin, alice = (LoggedIn(name, server, f"{name}-secret") for name in USERS)
    return Asked(admin, alice, tuple(LoggedIn(name, controller, f"{name}-secret") for name in USERS))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.compare_rights")
    parser.add_argument("--record", action="store_true", help="write Kafka's answers to rights.json")
    parser.add_argument("only", nargs="*", help="states whose names contain one of these")
    told = parser.parse_args()
    differing: dict[str, list[str]] = {}
    same = 0
    said: dict[str, dict[str, dict[str, str]]] = {}
    with kafka() as theirs, kraftlite() as ours:
        theirs.prepare()
        ours.prepare()
        for number, (state, entries) in enumerate(states()):
            if told.only and not any(it in state for it in told.only):
                continue
            found = [side.answers(entries, number) for side in (theirs, ours)]
            said[state] = found[0]
            for name in found[0]:
                for line in differences(found[0][name], found[1][name]):
                    differing.setdefault(f"{name}.{line}", []).append(state)
                same += found[0][name] == found[1][name]
    if told.record:
        RECORD.write_text(recorded(said))
    for line, where in sorted(differing.items()):
        print(f"{line}   ({len(where)}: {'; '.join(where[:3])})")
    print(f"{same} answers are the same, {len(differing)} kinds of difference")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
