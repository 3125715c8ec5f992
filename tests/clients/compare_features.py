"""The same changes of feature levels to an Apache Kafka and to kraftlite: `python -m tests.clients.compare_features [RELEASE …]`.

Each release is a cluster of one node on both sides, formatted for it. Every update goes to both, first only checked, then
done: upgrades, safe and unsafe downgrades, to each level, and of several features. Errors with their texts, and the levels
afterwards, must be the same. Ends with 1 when something differs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kraftlite.local.ports import reserve
from kraftlite.metadata.features import METADATA_VERSIONS, SUPPORTED_FEATURES
from kraftlite.protocol.kio_codec import build_entity
from tests.clients.compare_sides import SHARED, plain
from tests.clients.java.apache import CLUSTER_ID, apache_kafka
from tests.clients.raw import Closed, Connection
from tests.harness.local import wait_for

# isort: split
from kio.index import load_request_schema

RELEASES: Final = ("3.3", "3.6", "3.9", "4.0", "4.1", "4.2", "4.3")
UPGRADE, SAFE, UNSAFE = 1, 2, 3
KINDS: Final = {UPGRADE: "upgrade", SAFE: "safe downgrade", UNSAFE: "unsafe downgrade", 0: "unknown kind"}
MV, ELR, GROUP, TXN, KRAFT = (
    "metadata.version",
    "eligible.leader.replicas.version",
    "group.version",
    "transaction.version",
    "kraft.version",
)
OURS: Final = frozenset(it.name for it in SUPPORTED_FEATURES)

Update = tuple[str, int, int]
"""Feature, level, kind."""

SETTLED_S: Final = 10.0


def updates() -> Iterator[list[Update]]:
    """Those of one feature, then those of several."""
    for level in (-1, 0, 6, *METADATA_VERSIONS, 31, 99):
        for kind in (UPGRADE, SAFE, UNSAFE):
            yield [(MV, level, kind)]
    for name, levels in (
        (ELR, range(-1, 3)),
        (GROUP, range(-1, 3)),
        (TXN, range(-1, 4)),
        (KRAFT, range(-1, 3)),
        ("nope", (0, 1)),
    ):
        for level in levels:
            for kind in (UPGRADE, SAFE, UNSAFE):
                yield [(name, level, kind)]
    yield [(GROUP, 1, 0)]
    yield [(GROUP, 1, 9)]
    yield [(MV, 29, UPGRADE), (ELR, 1, UPGRADE)]
    yield [(ELR, 1, UPGRADE), (MV, 29, UPGRADE)]
    yield [(MV, 22, SAFE), (ELR, 0, SAFE)]
    yield [(ELR, 1, UPGRADE), (GROUP, 9, UPGRADE)]
    yield [(GROUP, 0, SAFE), (TXN, 0, SAFE)]
    yield [(GROUP, 1, UPGRADE), (TXN, 2, UPGRADE)]


def done() -> Iterator[list[Update]]:
    """Changes that are made, each on what the ones before have left."""
    yield [(GROUP, 0, SAFE)]
    yield [(GROUP, 1, UPGRADE)]
    yield [(TXN, 0, UNSAFE)]
    yield [(TXN, 1, UPGRADE)]
    yield [(TXN, 2, UPGRADE)]
    yield [(TXN, 1, SAFE)]
    yield [(ELR, 0, SAFE)]
    yield [(ELR, 1, UPGRADE)]
    yield [(MV, 28, SAFE)]
    yield [(MV, 27, UNSAFE)]
    yield [(MV, 23, SAFE)]
    yield [(MV, 29, UPGRADE)]
    yield [(MV, 29, UPGRADE)]
    yield [(MV, 29, SAFE)]
    yield [(MV, 30, UPGRADE), (ELR, 1, UPGRADE), (GROUP, 1, UPGRADE)]
    yield [(MV, 29, SAFE)]
    yield [(MV, 29, UNSAFE)]
    yield [(ELR, 0, UNSAFE), (GROUP, 0, UNSAFE), (TXN, 0, UNSAFE)]


class Side:
    def __init__(self, address: str) -> None:
        self._address = address

    def _ask(self, key: int, version: int, values: Mapping[str, Any]) -> Any:
        connection = Connection(self._address, timeout_s=60)
        try:
            connection.send_request(build_entity(load_request_schema(key, version), values))
            return plain(connection.answer(key, version))
        except Closed:
            return {"closed": True}
        finally:
            connection.close()

    def update(self, wanted: list[Update], version: int, *, validate_only: bool) -> str:
        changes: list[dict[str, Any]] = [{"feature": name, "max_version_level": level} for name, level, _ in wanted]
        for change, (_, _, kind) in zip(changes, wanted, strict=True):
            change |= {"upgrade_type": kind} if version > 0 else {"allow_downgrade": kind != UPGRADE}
        values = {"timeout": 20_000, "feature_updates": changes} | ({"validate_only": validate_only} if version > 0 else {})
        answer = self._ask(57, version, values)
        if "closed" in answer:
            return "closed"
        results = {it["feature"]: (it["error_code"], it["error_message"]) for it in answer.get("results", ())}
        return f"{answer['error_code']}: {answer['error_message']}" + (f" {results}" if results else "")

    def levels(self) -> dict[str, int]:
        values = {"client_software_name": "compare", "client_software_version": "1"}
        answer = self._ask(18, 4, values)
        found = {it["name"]: int(it["max_version_level"]) for it in answer["finalized_features"]}
        return {name: level for name, level in sorted(found.items()) if name in OURS}


def _serves(address: str) -> bool:
    try:
        return MV in Side(address).levels()
    except (OSError, KeyError):
        return False


@contextmanager
def ours(release: str) -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="compare-features-") as name:
        folder = Path(name)
        (folder / ".starting").touch()  # the mark of a directory whose ports are taken
        client, controller = reserve(folder, range(19092, 19094))
        file = folder / "server.properties"
        properties = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},GRPC://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GRPC:GRPC,CONTROLLER:GRPC",
            "inter.broker.listener.name": "GRPC",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
            **SHARED,
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [sys.executable, "-m", "kraftlite"]
        subprocess.run([*command, "format", "-c", str(file), "-t", CLUSTER_ID, "-r", release], check=True, capture_output=True)
        with (folder / "log").open("wb") as log:
            node = subprocess.Popen([*command, "start", "-c", str(file)], stdout=log, stderr=log)
        try:
            address = f"127.0.0.1:{client}"
            wait_for("the node serves", lambda: node.poll() is not None or _serves(address))
            if node.poll() is not None:
                raise RuntimeError((folder / "log").read_text()[-3000:])
            yield Side(address)
        finally:
            node.kill()
            node.wait()


def questions(theirs: Side, mine: Side) -> Iterator[tuple[str, str, str]]:
    """What was asked, and both answers."""
    both = theirs, mine

    def ask(wanted: list[Update], version: int, *, validate_only: bool) -> tuple[str, str, str]:
        words = ", ".join(f"{KINDS.get(kind, 'odd kind')} of {name} to {level}" for name, level, kind in wanted)
        what = f"{'checked' if validate_only else 'done'}, version {version}: {words}"
        answers = [side.update(wanted, version, validate_only=validate_only) for side in both]
        return what, answers[0], answers[1]

    def levels(what: str) -> Iterator[tuple[str, str, str]]:
        """A broker says what has come to it, which is a little later than the answer of the controller."""
        deadline = time.monotonic() + SETTLED_S
        while (found := [str(side.levels()) for side in both])[0] != found[1] and time.monotonic() < deadline:
            time.sleep(0.1)
        yield what, found[0], found[1]

    yield from levels("levels at the start")
    for wanted in updates():
        yield ask(wanted, 2, validate_only=True)
    for wanted in list(updates())[::7]:
        yield ask(wanted, 1, validate_only=True)
    yield from levels("levels after the checks")
    for wanted in done():
        yield ask(wanted, 2, validate_only=False)
        yield from levels("levels")


def main() -> int:
    differing = same = 0
    for release in sys.argv[1:] or RELEASES:
        with apache_kafka(config=SHARED, formatted=("--release-version", release)) as kafka, ours(release) as mine:
            wait_for("Apache Kafka serves", lambda kafka=kafka: _serves(kafka.bootstrap_servers))  # type: ignore[misc]
            for what, kafkas, answer in questions(Side(kafka.bootstrap_servers), mine):
                if kafkas == answer:
                    same += 1
                else:
                    differing += 1
                    print(f"{release}, {what}: Kafka {kafkas} | kraftlite {answer}", flush=True)
    print(f"{same} answers are the same, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
