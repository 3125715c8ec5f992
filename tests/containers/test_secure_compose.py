"""`KRAFTLITE_SECURE=1 docker compose up` with a real engine, and clients on the host with the files that it gives out."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kraftlite.cli.main import cli
from kraftlite.local.secure import client_dir, command_config
from tests.containers.engine import NODES, cluster, compose, docker, eventually, healthy

pytestmark = pytest.mark.containers

ADMIN_FILE = "/var/lib/kraftlite/cluster/secure/clients/admin/client.properties"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of the host with the client files of a closed cluster."""
    into = tmp_path_factory.mktemp("host")
    with cluster(secure="1"):
        unpack(into)
        yield into


def unpack(into: Path) -> None:
    """As the documented command does; what `compose` runs is read as text, and a tar is none."""
    done = subprocess.run(
        ["docker", "exec", "kafka-1", "kraftlite", "user", "export", "--into", str(into)], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(into, filter="data")


def client(host: Path, user: str, kind: str = "librdkafka") -> dict[str, Any]:
    text = (client_dir(host, user) / f"{kind}.conf").read_text()
    return {**dict(line.split("=", 1) for line in text.splitlines()), "log_level": 0}


def run(host: Path, *args: str) -> Result:
    """One of our commands on the host, as admin."""
    done = CliRunner().invoke(cli, args, env={"KRAFTLITE_COMMAND_CONFIG": str(command_config(host))})
    assert done.exit_code == 0, done.output
    return done


def produced(config: dict[str, Any], value: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 30_000})
    producer.produce("orders", value.encode(), on_delivery=lambda error, _: told.append(error))
    producer.flush(60)
    return told[0]


def consumed(config: dict[str, Any], count: int) -> list[str]:
    """The first records of partition 0."""
    consumer = Consumer({**config, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        found = consumer.consume(count, timeout=60)
        assert [it.error() for it in found if it.error()] == []
        return [it.value().decode() for it in found]
    finally:
        consumer.close()


def refusal(config: dict[str, Any]) -> int:
    """Why a producer of this user may not write."""
    error = produced(config, "not allowed")
    assert error is not None
    return int(error.code())


def granted(config: dict[str, Any], value: str) -> Callable[[], bool]:
    return lambda: produced(config, value) is None


@pytest.fixture(scope="module")
def orders(host: Path) -> Path:
    run(host, "create-topic", "orders", "--partitions", "1", "--replication-factor", "3")
    run(host, "acl", "add", "--principal", "alice", "--topic", "orders", "--operation", "all")
    run(host, "acl", "add", "--principal", "alice", "--group", "readers", "--operation", "read")
    eventually("the grant holds on every broker", granted(client(host, "alice"), "first"))
    return host


def test_alice_may_what_she_was_granted_by_password_and_by_certificate(orders: Path) -> None:
    assert produced(client(orders, "alice"), "by password") is None
    assert produced(client(orders, "alice", "librdkafka-mtls"), "by certificate") is None
    assert consumed(client(orders, "alice"), 3) == ["first", "by password", "by certificate"]
    assert consumed(client(orders, "alice", "librdkafka-mtls"), 3) == ["first", "by password", "by certificate"]


@pytest.mark.parametrize("kind", ["librdkafka", "librdkafka-mtls"])
def test_bob_is_refused(orders: Path, kind: str) -> None:
    assert refusal(client(orders, "bob", kind)) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_nobody_comes_in_by_plain_text_or_without_a_password(orders: Path) -> None:
    for port in ("29092", "29093"):
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": f"localhost:{port}", "log_level": 0}).list_topics(timeout=5)
    known = client(orders, "alice")
    for wrong in ({"sasl.password": "wrong"}, {"bootstrap.servers": "localhost:29093"}):
        with pytest.raises(KafkaException):
            AdminClient({**known, **wrong}).list_topics(timeout=5)
    no_certificate = {key: known[key] for key in ("ssl.ca.location", "log_level")}
    with pytest.raises(KafkaException):
        AdminClient({**no_certificate, "bootstrap.servers": "localhost:29093", "security.protocol": "ssl"}).list_topics(timeout=5)


def test_no_password_is_told_by_the_engine_or_in_a_log(orders: Path) -> None:
    told = "\n".join([compose("logs"), *(docker("inspect", name) for name in NODES)])
    assert "KRAFTLITE_SECURE=1" in told
    for user in ("admin", "alice", "bob"):
        assert json.loads((client_dir(orders, user) / "python.json").read_text())["sasl_plain_password"] not in told
    for line in docker("exec", "kafka-1", "cat", "cluster/secure/first-credentials").splitlines():
        assert line.split('saltedpassword="')[1].split('"')[0] not in told
    assert "PRIVATE KEY" not in told


def test_the_files_are_for_the_owner_alone_and_one_authority_made_them(orders: Path) -> None:
    modes = docker("exec", "kafka-2", "find", "cluster/secure", "-type", "f", "-printf", "%m %u\n").splitlines()
    assert set(modes) == {"600 kraftlite"}
    assert docker("exec", "kafka-3", "stat", "-c", "%a %U", "cluster") == "700 kraftlite"
    shown = json.loads(docker("exec", "kafka-3", "kraftlite", "certs", "show", "-o", "json"))
    assert {it["owner"] for it in shown} >= {"authority", *(f"node {it}" for it in range(1, 7)), "user admin", "user alice"}
    assert {it["state"] for it in shown} == {"good"}


def test_a_user_is_added_within_the_network_and_metrics_pages_answer_there(orders: Path) -> None:
    docker(
        *("exec", "kafka-2", "kraftlite", "user", "add", "carol"),
        *("--bootstrap-server", "kafka-3:19092", "--command-config", ADMIN_FILE),
    )
    unpack(orders)
    eventually("carol logs in", lambda: refusal(client(orders, "carol")) == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    page = "import urllib.request; print(urllib.request.urlopen('http://controller-1:9404/metrics', timeout=10).read().decode())"
    assert "kafka_controller_kafkacontroller_" in docker("exec", "kafka-2", "python", "-c", page)


def test_a_broker_that_was_killed_comes_back(orders: Path) -> None:
    docker("kill", "kafka-2")
    assert produced(client(orders, "alice"), "without kafka-2") is None
    compose("start", "kafka-2", secure="1")

    def whole() -> bool:
        found = AdminClient(client(orders, "alice")).list_topics("orders", timeout=20).topics["orders"]
        return [len(it.isrs) for it in found.partitions.values()] == [3]

    eventually("ISR whole again", whole)


def test_it_stays_closed_without_the_variable_and_refuses_to_be_opened(orders: Path) -> None:
    compose("up", "-d", "--force-recreate", "--no-deps", "kafka-1", secure="0")
    eventually("it says no", lambda: "was made closed, and stays so" in logs("kafka-1"))
    compose("up", "-d")
    healthy()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": "localhost:29092", "log_level": 0}).list_topics(timeout=5)
    assert produced(client(orders, "alice"), "still closed") is None


def logs(name: str) -> str:
    with contextlib.suppress(AssertionError):  # between two containers of this name there is none
        return compose("logs", name)
    return ""
