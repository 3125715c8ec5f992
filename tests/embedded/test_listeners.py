"""Listeners that come, move and go while brokers run, as clients meet them (CB-06)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kraftlite.protocol.kio_codec import build_entity
from kraftlite.testing import SyncCluster
from tests.clients.raw import Closed, Connection
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import free_ports

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

BROKER = 2
MAP = "listener.security.protocol.map"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Admin:
    """Changes the configs of the one broker of a cluster, and looks at its listeners."""

    def __init__(self, cluster: SyncCluster, folder: Path) -> None:
        self.cluster = cluster
        self.ports = iter(free_ports(folder, 4))
        self.file = self.described("listeners")

    def ask(self, key: int, version: int, values: dict[str, Any], address: str | None = None) -> Any:
        connection = Connection(address or self.cluster.bootstrap_servers, timeout_s=40)
        try:
            return connection.ask(build_entity(load_request_schema(key, version), values))
        finally:
            connection.close()

    def change(self, configs: dict[str, str | None], name: str = str(BROKER)) -> tuple[int, str | None]:
        """The error and the words of the answer; None takes a value away."""
        pairs = [{"name": key, "config_operation": 1 if value is None else 0, "value": value} for key, value in configs.items()]
        resource = {"resource_type": 4, "resource_name": name, "configs": pairs}
        (found,) = self.ask(44, 1, {"resources": [resource], "validate_only": False}).responses
        return int(found.error_code), found.error_message

    def also(self, *listeners: str, **protocols: str) -> dict[str, str | None]:
        """The listeners of the file and these."""
        return {
            "listeners": ",".join([self.file, *listeners]),
            MAP: ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        }

    def described(self, key: str) -> str:
        query = {"resource_type": 4, "resource_name": str(BROKER), "configuration_keys": (key,)}
        answer = self.ask(32, 4, {"resources": [query], "include_synonyms": False, "include_documentation": False})
        (config,) = answer.results[0].configs
        assert not config.read_only
        return str(config.value)

    def known_at(self, address: str) -> list[tuple[str, int]]:
        """Where a client of this listener is told that brokers are; nothing where nobody answers."""
        query = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        try:
            return [(it.host, it.port) for it in self.ask(3, 12, query, address).brokers]
        except (OSError, Closed):
            return []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refuses(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with SyncCluster(controllers=1, brokers=1) as cluster:
        yield Admin(cluster, tmp_path)


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


def test_cb_06_a_listener_comes_serves_moves_and_goes(admin: Admin) -> None:
    first, second = next(admin.ports), next(admin.ports)
    admin.cluster.create_topic("t")
    assert admin.change(admin.also(f"NEW://{at(first)}", NEW="PLAINTEXT")) == (0, None)
    until(lambda: admin.known_at(at(first)) == [("127.0.0.1", first)])
    producer = Producer({"bootstrap.servers": at(first), "message.timeout.ms": 20_000, "log_level": 0})
    told: list[Any] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    assert told == [None], "a client of the new listener works there"

    here = Connection(at(first), timeout_s=40)
    assert here.offered()
    there = Connection(admin.cluster.bootstrap_servers, timeout_s=40)
    assert admin.change({"listeners": f"{admin.file},NEW://{at(second)}"}) == (0, None)
    until(lambda: admin.known_at(at(second)) == [("127.0.0.1", second)])
    until(lambda: refuses(at(first)))
    with pytest.raises((Closed, OSError)):
        here.offered()
    assert there.offered(), "those of other listeners stay"
    assert admin.described("listeners") == f"{admin.file},NEW://{at(second)}"

    assert admin.change({"listeners": None, MAP: None}) == (0, None)
    until(lambda: refuses(at(second)))
    assert there.offered()
    there.close()


def test_cb_06_another_name_takes_over_an_address_without_a_gap(admin: Admin) -> None:
    port = next(admin.ports)
    assert admin.change(admin.also(f"OLD://{at(port)}", OLD="PLAINTEXT")) == (0, None)
    until(lambda: bool(admin.known_at(at(port))))
    connection = Connection(at(port), timeout_s=40)
    assert connection.offered()
    assert admin.change(admin.also(f"NEW://{at(port)}", NEW="PLAINTEXT")) == (0, None)
    deadline = time.monotonic() + 60
    with contextlib.suppress(Closed, OSError):
        while time.monotonic() < deadline:
            assert not refuses(at(port)), "whoever connects is let in, by the one or by the other"
            connection.offered()
    assert time.monotonic() < deadline, "clients of the old one are closed"
    until(lambda: admin.known_at(at(port)) == [("127.0.0.1", port)])


def test_cb_06_an_address_that_is_taken_leaves_everything_as_it_was(admin: Admin) -> None:
    first, second = next(admin.ports), next(admin.ports)
    assert admin.change(admin.also(f"NEW://{at(first)}", NEW="PLAINTEXT")) == (0, None)
    until(lambda: bool(admin.known_at(at(first))))
    here = Connection(at(first), timeout_s=40)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        before = admin.described("listeners")
        wanted = admin.also(f"NEXT://{at(second)}", f"TAKEN://{at(taken)}", NEXT="PLAINTEXT", TAKEN="PLAINTEXT")
        assert admin.change(wanted) == (42, f"listeners: TAKEN: cannot listen on {at(taken)}: Address already in use")
        assert admin.described("listeners") == before
    assert here.offered() and refuses(at(second))
    here.close()


def test_cb_06_they_are_there_again_after_a_restart(admin: Admin) -> None:
    port = next(admin.ports)
    assert admin.change(admin.also(f"NEW://{at(port)}", NEW="PLAINTEXT")) == (0, None)
    until(lambda: bool(admin.known_at(at(port))))
    admin.cluster.stop(BROKER)
    assert refuses(at(port))
    with socket.socket() as other:  # somebody takes the address meanwhile: what the file says serves all the same
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        admin.cluster.restart(BROKER)
        assert admin.known_at(admin.cluster.bootstrap_servers)
    admin.cluster.restart(BROKER)
    assert admin.known_at(at(port)) == [("127.0.0.1", port)]


def test_cb_06_a_limit_of_connections_holds_at_one_that_was_added(admin: Admin) -> None:
    port = next(admin.ports)
    wanted = admin.also(f"NEW://{at(port)}", NEW="PLAINTEXT") | {"listener.name.new.max.connections": "1"}
    assert admin.change(wanted) == (0, None)
    until(lambda: bool(admin.known_at(at(port))))
    first = Connection(at(port), timeout_s=40)
    assert first.offered()
    second = Connection(at(port), timeout_s=1)
    with pytest.raises((Closed, OSError)):
        second.offered()
    second.close()
    first.close()


def test_cb_06_clients_log_in_over_tls_at_a_listener_that_was_added(tmp_path: Path) -> None:
    with SyncCluster(controllers=1, brokers=1) as cluster:
        admin = Admin(cluster, tmp_path)
        port, authority = next(admin.ports), Authority()
        stores = Stores(tmp_path / "node").write(authority.issue("node"), authority)
        users = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        alice = _scram("alice", "alice-hunter2")
        for future in users.alter_user_scram_credentials([alice]).values():
            future.result(30)
        wanted = admin.also(f"SAFE://{at(port)}", SAFE="SASL_SSL")
        logins = {
            "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.safe.scram-sha-256.sasl.jaas.config": SCRAM,
        }
        error, words = admin.change(wanted | logins)
        assert error == 42 and words is not None and "listener.name.safe.ssl.keystore.location is not set" in words
        certificates = {f"listener.name.safe.{key}": text for key, text in stores.as_kafka().items()}
        assert admin.change(wanted | logins | certificates) == (0, None)

        def client(password: str) -> dict[str, Any]:
            return {
                **stores.as_librdkafka(client_certificate=False),
                "bootstrap.servers": at(port),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": password,
                "log_level": 0,
            }

        until(lambda: not refuses(at(port)))
        assert AdminClient(client("alice-hunter2")).list_topics(timeout=30).brokers[BROKER].port == port
        with pytest.raises(KafkaException):
            AdminClient(client("wrong")).list_topics(timeout=2)
        error, words = admin.change({"listener.name.safe.sasl.enabled.mechanisms": "PLAIN"})
        assert error == 42 and words is not None and "the listener is open and keeps its logins" in words
        cluster.restart(BROKER)
        assert AdminClient(client("alice-hunter2")).list_topics(timeout=30).brokers[BROKER].port == port
        gone: dict[str, str | None] = dict.fromkeys([*wanted, *logins, *certificates])
        assert admin.change(gone) == (0, None)
        until(lambda: refuses(at(port)))


def _scram(user: str, password: str) -> Any:
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    return UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode())
