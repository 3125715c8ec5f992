"""kraftlite's own commands, and kafka-consumer-groups, on a real Apache Kafka that wants TLS and SASL.

Source: KIP-1147 (`--command-config`); TO-27, TO-28.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from tests.clients.java.apache import ApacheKafka
from tests.clients.java.secured import by_name
from tests.harness.local import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]

_NUMBERS = count(1)


class Shell:
    """Runs commands on the listener of one protocol, with these properties in a file."""

    def __init__(self, kafka: ApacheKafka, folder: Path, properties: Mapping[str, str]) -> None:
        path = folder / f"{next(_NUMBERS)}.properties"
        path.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in properties.items()))
        self._options = ["--bootstrap-server", kafka.listeners[properties["security.protocol"]], "--command-config", str(path)]

    def run(self, *arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, [*arguments, *self._options], input=stdin)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.exit_code == 0, f"{arguments}: {done.output}{done.exception}"
        return done.stdout

    def words(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self(*arguments).splitlines() if line.strip()]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


@pytest.fixture
def shell(secured: ApacheKafka, authority: Path, tmp_path: Path) -> Shell:
    trust = {"ssl.truststore.location": str(authority / "authority.pem")}
    return Shell(secured, tmp_path, {**by_name("SCRAM-SHA-512", protocol="SASL_SSL"), **trust})


@pytest.fixture
def topic(shell: Shell) -> str:
    """With two partitions, and three records in the first of them."""
    name = f"commands-{next(_NUMBERS)}"
    assert shell("create-topic", name, "--partitions", "2", "--replication-factor", "1") == f"Created topic {name}.\n"
    wait_for("it has leaders", lambda: "Leader: none" not in shell("describe", name))
    shell("produce", name, "--partition", "0", stdin="a\nb\nc\n")
    return name


def test_topics_and_records(shell: Shell, topic: str, tmp_path: Path) -> None:
    assert topic in shell("topic", "list").splitlines()
    assert shell("consume", topic, "--from-beginning", "--max-messages", "3") == "a\nb\nc\n"
    first, second = json.loads(shell("offsets", topic, "-o", "json"))["partitions"]
    assert (first["earliest"], first["high_watermark"], second["high_watermark"]) == (0, 3, 0)
    assert shell("records", "delete", topic, "--before", "2") == f"partition: {topic}-0\tlow_watermark: 2\n"
    missing = shell.run("records", "delete", "absent", "--before", "2")
    assert (missing.exit_code, missing.stdout) == (
        1,
        "partition: absent-0\terror: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.\n",
    )
    assert shell("topic", "alter", topic, "--partitions", "3") == f"Topic {topic} has 3 partitions.\n"
    again = shell.run("create-topic", topic)
    assert str(again.exception) == f"TOPIC_ALREADY_EXISTS: Topic '{topic}' already exists."
    assert shell("create-topic", topic, "--if-not-exists") == f"Topic {topic} exists.\n"
    shell("config", "alter", "--topic", topic, "--set", "retention.ms=1234567")
    assert "retention.ms=1234567" in shell("config", "describe", "--topic", topic)
    assert "Configs: retention.ms=1234567" in shell("describe", topic)
    assert shell("topic", "delete", topic) == f"Deleted topic {topic}.\n"


def test_the_cluster(shell: Shell, topic: str) -> None:
    described = json.loads(shell("cluster", "describe", "-o", "json"))
    assert described["controller"] == 1 and [broker["id"] for broker in described["brokers"]] == [1]
    assert f"ClusterId:              {described['cluster_id']}" in shell("quorum", "describe", "--status")
    assert "metadata.version" in shell("feature", "describe")
    assert topic in shell("log-dirs", "describe", "--topic", topic)
    assert shell("reassign", "list") == "No partition is being moved.\n"
    assert f"{topic}-0" in shell("elect-leaders", "--topic", topic)
    shell("quota", "alter", "--user", "u", "--set", "producer_byte_rate=1000")
    assert shell("quota", "describe", "--user", "u") == "user u: producer_byte_rate=1000.0\n"
    shell("client-metrics", "alter", "m", "--set", "interval.ms=1000")
    assert shell("client-metrics", "list") == "m\n"
    shell("client-metrics", "delete", "m")


def test_to_27_to_28_groups(shell: Shell, topic: str) -> None:
    group = f"group-of-{topic}"
    assert shell("consume", topic, "--group", group, "--from-beginning", "--max-messages", "2", "--timeout", "20")
    assert [group, "Classic", "Empty"] in shell.words("group", "list", "--state", "--type")
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]

    def described(*command: str) -> list[str]:
        rows = shell.words(*command)
        assert rows[0] == header
        return next(row for row in rows[1:] if row[2] == "0")

    own, kafkas = ("group", "describe", group), ("compat", "kafka-consumer-groups", "--describe", "--group", group)
    assert described(*own)[:6] == described(*kafkas)[:6] == [group, topic, "0", "2", "3", "1"]
    assert shell.words("group", "describe", group, "--state")[1][-2:] == ["Empty", "0"]
    reset = ["--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-offset", "99", "--execute"]
    assert shell.words("compat", "kafka-consumer-groups", *reset)[-1] == [group, topic, "0", "3"]
    assert described(*own)[3] == "3"
    assert shell.words("group", "reset-offsets", group, "--topic", f"{topic}:0", "--by-duration", "P1D")[-1][-1] == "0"
    assert shell.words("group", "delete-offsets", group, "--topic", f"{topic}:0")[-1] == [topic, "0", "Successful"]
    assert shell("group", "delete", group) == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    gone = shell("compat", "kafka-consumer-groups", "--delete", "--group", group)
    reason = "org.apache.kafka.common.errors.GroupIdNotFoundException: The group id does not exist."
    assert gone.endswith(f"* Group '{group}' could not be deleted due to: {reason}\n")


def test_to_27_members_of_both_protocols(shell: Shell, secured: ApacheKafka, topic: str) -> None:
    from confluent_kafka import Consumer

    for protocol, strategy in (("classic", "range"), ("consumer", "uniform")):
        group = f"{protocol}-of-{topic}"
        more = {"partition.assignment.strategy": "range"} if protocol == "classic" else {}
        consumer = Consumer(
            {
                "bootstrap.servers": secured.bootstrap_servers,
                "group.id": group,
                "client.id": "me",
                "group.protocol": protocol,
                **more,
            }
        )
        consumer.subscribe([topic])
        try:
            wait_for("it has its partitions", lambda it=consumer: it.poll(0.05) or len(it.assignment()) == 2)
            wait_for(
                "it is stable", lambda name=group: shell.words("group", "describe", name, "--state")[1][-2:] == ["Stable", "1"]
            )
            assert shell.words("group", "describe", group, "--state")[1][-3] == strategy
            _header, row = shell.words("group", "describe", group, "--members", "--verbose")
            epochs = (row[5] == "-", row[7] == "-", row[8] == "-")
            assert row[2:5] == ["/127.0.0.1", "me", "2"] and row[6] == f"{topic}:0,1"
            assert epochs == ((True,) * 3 if protocol == "classic" else (False,) * 3)
            assert row[8] in ("-", f"{topic}:0,1")
            assert [group, protocol.capitalize(), "Stable"] in shell.words("group", "list", "--state", "--type")
            refused = shell.run("group", "delete", group)
            assert refused.exit_code == 1 and "due to: NON_EMPTY_GROUP: The group is not empty." in refused.output
            busy = shell.run("group", "reset-offsets", group, "--all-topics", "--to-latest")
            assert busy.exit_code == 1 and f"'{group}' is Stable" in busy.output
        finally:
            consumer.close()


def test_certificates_of_both_sides(secured: ApacheKafka, authority: Path, tmp_path: Path) -> None:
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(authority / "authority.pem")}
    mine = {"ssl.keystore.location": str(authority / "client-locked.pem"), "ssl.key.password": "hidden"}
    described = json.loads(Shell(secured, tmp_path, {**trust, **mine})("cluster", "describe", "-o", "json"))
    assert [broker["id"] for broker in described["brokers"]] == [1]
    without = Shell(secured, tmp_path, {**trust, "default.api.timeout.ms": "1000"})
    refused = without.run("group", "list")
    assert refused.exit_code == 1 and "certificate" in str(refused.exception)


def test_whoever_is_not_known_is_told(secured: ApacheKafka, authority: Path, tmp_path: Path) -> None:
    properties = {
        **by_name("PLAIN", protocol="SASL_SSL"),
        "sasl.password": "guess",
        "ssl.truststore.location": str(authority / "authority.pem"),
    }
    stranger = Shell(secured, tmp_path, properties)
    for command in (["topic", "list"], ["group", "list"], ["produce", "t"], ["consume", "t"]):
        refused = stranger.run(*command)
        assert refused.exit_code == 1 and str(refused.exception).startswith("SASL_AUTHENTICATION_FAILED: alice by PLAIN: ")
    said = stranger.run("compat", "kafka-consumer-groups", "--list")
    assert said.exit_code == 1 and "SASL_AUTHENTICATION_FAILED: alice by PLAIN: " in said.output
