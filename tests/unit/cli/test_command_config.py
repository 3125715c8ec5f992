"""TLS and SASL of the commands and of Kafka's tools, from the properties of `--command-config` and its like.

Source: Kafka's AdminClientConfig (names); KIP-651; KIP-1147.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from kraftlite.cli.compat import clients, cluster, topics
from kraftlite.cli.compat.tool import UsageError, finish
from kraftlite.cli.main import cli, main
from kraftlite.cli.pipeline import _source
from kraftlite.cli.target import Target
from tests.harness.secure_broker import broker, certificate

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
Write = Callable[..., str]


@pytest.fixture
def properties(tmp_path: Path) -> Write:
    def write(**values: str) -> str:
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in values.items()))
        return str(path)

    return write


def cluster_id(address: str, config: str) -> int:
    return finish("kafka-cluster", cluster.run, ["cluster-id", "--bootstrap-server", address, "--config", config])


def jaas(password: str) -> str:
    return f'{SCRAM} required username="alice" password="{password}";'


def test_tls_and_scram(tmp_path: Path, properties: Write, capsys: pytest.CaptureFixture[str]) -> None:
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "both.pem")
    given = {"security_protocol": "SASL_SSL", "ssl_truststore_location": f"{pem}/cert.pem", "sasl_mechanism": "SCRAM-SHA-512"}
    with broker("SCRAM-SHA-512", context=context) as there:
        assert cluster_id(f"localhost:{there.port}", properties(**given, sasl_jaas_config=jaas("secret"))) == 0
        assert capsys.readouterr().out == "Cluster ID: the-cluster\n"
        assert cluster_id(f"localhost:{there.port}", properties(**given, sasl_jaas_config=jaas("wrong"))) == 1
        assert capsys.readouterr().err.startswith("Error: SASL_AUTHENTICATION_FAILED: alice by SCRAM-SHA-512: ")


@pytest.mark.parametrize("option", ["--command-config", "-c", "--config"])
def test_kafka_cluster_takes_the_option_by_every_name(option: str, properties: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """KIP-1147 gave it the name that it has at the other tools, and `-c` with it."""
    path = properties(client_id="me")
    with broker() as there:
        asked = ["cluster-id", "--bootstrap-server", f"127.0.0.1:{there.port}", option, path]
        assert finish("kafka-cluster", cluster.run, asked) == 0
        assert capsys.readouterr().out == "Cluster ID: the-cluster\n"


def test_kafka_cluster_takes_the_option_once(properties: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = properties(client_id="me")
    asked = ["cluster-id", "--bootstrap-server", "127.0.0.1:1", "--config", path, "--command-config", path]
    assert finish("kafka-cluster", cluster.run, asked) == 1
    assert capsys.readouterr().err.startswith("--config and --command-config cannot be specified together.")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl_protocol": "TLSv1.3"}, "ssl.protocol='TLSv1.3' cannot be honoured: allowed are "),
        ({"sasl_oauthbearer_token_endpoint_url": "x"}, "sasl.oauthbearer.token.endpoint.url"),
        (
            {"security_protocol": "SSL", "ssl_truststore_type": "PEM", "ssl_truststore_password": "hunter2"},
            "ssl.truststore.password: PEM stores have none",
        ),
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "/x.jks"},
            "ssl.truststore.location='/x.jks': allowed is a file in PEM",
        ),
        ({"sasl_mechanism": "PLAIN"}, "sasl.mechanism is given, but security.protocol=PLAINTEXT"),
        ({"request_timeout_ms": "soon"}, "request.timeout.ms='soon': allowed is a whole number from 1"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    given: dict[str, str], said: str, properties: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = properties(**given)
    assert cluster_id("127.0.0.1:1", path) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"--config {path}: {said}") and "hunter2" not in err


def test_what_has_no_effect_is_told(properties: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = properties(metric_reporters="x", client_id="me")
    with broker() as there:
        assert cluster_id(f"127.0.0.1:{there.port}", path) == 0
    found = capsys.readouterr()
    assert (found.out, found.err) == ("Cluster ID: the-cluster\n", f"WARN --config {path}: metric.reporters has no effect here\n")


# --- kraftlite's own commands

COMMANDS: Final = {
    "create-topic": ["t"],
    "describe": [],
    "topic list": [],
    "topic describe": [],
    "topic create": ["t"],
    "topic alter": ["t", "--partitions", "2"],
    "topic delete": ["t"],
    "produce": ["t"],
    "consume": ["t"],
    "offsets": ["t"],
    "records delete": ["t", "--before", "1"],
    "group list": [],
    "group describe": ["g"],
    "group delete": ["g"],
    "group reset-offsets": ["g", "--all-topics", "--to-latest"],
    "group delete-offsets": ["g", "--topic", "t"],
    "transactions list": [],
    "transactions describe": ["x"],
    "transactions describe-producers": ["t", "0"],
    "transactions find-hanging": ["--topic", "t"],
    "transactions abort": ["t", "0", "5"],
    "transactions fence": ["x"],
    "sink list": [],
    "sink describe": ["q"],
    "sink finish": ["q"],
    "sink abort": ["q"],
    "sink audit": [],
    "config describe": ["--topic", "t"],
    "config alter": ["--topic", "t", "--delete", "retention.ms"],
    "elect-leaders": ["--topic", "t"],
    "quorum describe": ["--status"],
    "quorum add": ["--config", "server.properties"],
    "quorum remove": ["-i", "3", "-d", "3Db5QLSqSZieL3rJBUUegA"],
    "cluster describe": [],
    "log-dirs describe": [],
    "log-dirs move": ["--broker", "1", "--topic", "t", "--to", "/d2"],
    "feature describe": [],
    "feature upgrade": ["--feature", "group.version=1"],
    "feature downgrade": ["--feature", "group.version=0"],
    "feature disable": ["--feature", "group.version"],
    "client-metrics list": [],
    "client-metrics describe": ["m"],
    "client-metrics alter": ["m", "--delete", "match"],
    "client-metrics delete": ["m"],
    "reassign list": [],
    "reassign start": ["t-0=1"],
    "reassign cancel": ["--all"],
    "acl add": ["--principal", "a", "--topic", "t", "--operation", "read"],
    "acl list": [],
    "acl delete": ["--all"],
    "acl test": ["--principal", "a", "--topic", "t", "--operation", "read"],
    "user list": [],
    "user add": ["u"],
    "user rotate": ["u"],
    "user delete": ["u"],
    "quota describe": [],
    "quota alter": ["--user", "u", "--delete", "producer_byte_rate"],
}
"""Each own command that asks a cluster, with as few arguments as it takes."""


def commands(group: Any = cli, path: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Every command with its options."""
    context = click.Context(group)
    found: dict[str, list[str]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= commands(command, (*path, name))
        else:
            found[" ".join((*path, name))] = [option for parameter in command.params for option in parameter.opts]
    return found


def test_every_command_that_asks_a_cluster_takes_properties() -> None:
    known = {name: options for name, options in commands().items() if not name.startswith("pipeline ")}
    assert {name for name, options in known.items() if "--bootstrap-server" in options} == {*COMMANDS}
    assert {name for name, options in known.items() if "--command-config" in options} == {*COMMANDS, "ui"}  # for its --nodes
    jobs = {name: options for name, options in commands().items() if name.startswith("pipeline ")}
    assert {name for name, options in jobs.items() if "--bootstrap-server" in options} == {*JOBS}
    assert {name for name, options in jobs.items() if "--command-config" in options} == {*JOBS}


JOBS: Final = {
    "pipeline ingest": ("--checkpoint", "c", "--out", "o"),
    "pipeline aggregate": ("--checkpoint", "c", "--group-by", "g", "--value", "v"),
    "pipeline backfill": ("--out", "o"),
}
"""The jobs on Spark that read topics."""


@pytest.mark.parametrize("command", JOBS)
def test_a_job_on_spark_refuses_what_cannot_be_honoured_before_spark_starts(command: str, properties: Write) -> None:
    path = properties(ssl_protocol="TLSv1.3")
    arguments = [*command.split(), *JOBS[command], "--topics", "t", "--bootstrap-server", "127.0.0.1:1", "--command-config", path]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert f"--command-config {path}: ssl.protocol='TLSv1.3' cannot be honoured" in result.output


def test_the_source_and_the_sink_of_a_job_get_the_properties(properties: Write) -> None:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": jaas("secret")}
    target = Target(None, properties(bootstrap_servers="b:1", **given))
    options = ("kafka.request.timeout.ms=5000", "KAFKA.group.id=g", "failOnDataLoss=false")
    asked = {"target": target, "topics": "t", "topic_pattern": None, "options": options}
    source = _source(asked, "earliest")
    found = source.all_options()
    assert found["kafka.sasl.jaas.config"] == jaas("secret") and found["kafka.bootstrap.servers"] == "b:1"
    assert found["failOnDataLoss"] == "false" and found["subscribe"] == "t"
    assert source.client_options() == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas("secret"),
        "kafka.request.timeout.ms": "5000",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_what_cannot_be_honoured(command: str, properties: Write) -> None:
    path = properties(ssl_protocol="TLSv1.3")
    arguments = [*command.split(), *COMMANDS[command], "--bootstrap-server", "127.0.0.1:1", "--command-config", path]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert f"--command-config {path}: ssl.protocol='TLSv1.3' cannot be honoured" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_logs_in(command: str, properties: Write) -> None:
    """Whom the broker does not know gets no further; without the properties it would not be asked for a password at all."""
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": jaas("wrong")}
    with broker("SCRAM-SHA-512") as there:
        arguments = [*command.split(), *COMMANDS[command], "--bootstrap-server", f"127.0.0.1:{there.port}"]
        result = CliRunner().invoke(cli, [*arguments, "--command-config", properties(**given)])
    assert result.exit_code == (2 if command == "sink audit" else 1), "1 is the audit's verdict"
    assert "SASL_AUTHENTICATION_FAILED: alice by SCRAM-SHA-512" in (result.stderr or str(result.exception))


def test_an_own_command_by_tls_and_scram(
    tmp_path: Path, properties: Write, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The file may be named by the environment, too, and may name the brokers."""
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "both.pem")
    given = {"security_protocol": "SASL_SSL", "ssl_truststore_location": f"{pem}/cert.pem", "sasl_mechanism": "SCRAM-SHA-512"}
    monkeypatch.delenv("KRAFTLITE_BOOTSTRAP_SERVER", raising=False)

    def listed(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["topic", "list", "--output", "json", *arguments])
        found = capfd.readouterr()
        return int(ended.value.code or 0), found.out + found.err

    with broker("SCRAM-SHA-512", context=context) as there:
        path = properties(
            **given,
            sasl_jaas_config=jaas("secret"),
            bootstrap_servers=f"localhost:{there.port}",
            metric_reporters="x",
            client_id="me",
        )
        warned = f"WARN --command-config {path}: metric.reporters has no effect here\n"
        assert listed("--command-config", path) == (0, f'{{\n  "topics": []\n}}\n{warned}')
        monkeypatch.setenv("KRAFTLITE_COMMAND_CONFIG", path)
        assert listed() == (0, f'{{\n  "topics": []\n}}\n{warned.replace("--command-config", "KRAFTLITE_COMMAND_CONFIG")}')
        code, said = listed("--bootstrap-server", "127.0.0.1:1")
        assert code == 1 and "no broker answered (127.0.0.1:1: Connection refused)" in said, "the option goes first"
        assert finish("kafka-topics", topics.run, ["--list"]) == 0, "Kafka's tools read the same"
        assert capfd.readouterr() == ("\n", warned)
        wrong = properties(**given, sasl_jaas_config=jaas("wrong"), bootstrap_servers=f"localhost:{there.port}")
        code, said = listed("--command-config", wrong)
        assert code == 1 and said.startswith("error: SASL_AUTHENTICATION_FAILED: alice by SCRAM-SHA-512: ")
        nowhere = properties(**given, sasl_jaas_config=jaas("secret"), bootstrap_servers="nowhere")
        code, said = listed("--command-config", nowhere)
        assert code == 2 and f"bootstrap.servers in {nowhere} 'nowhere': allowed is host:port" in said


@pytest.mark.parametrize("path", ["/absent", "/"])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    result = CliRunner().invoke(cli, ["topic", "list", "--command-config", path])
    assert result.exit_code == 2 and f"--command-config {path}: " in result.output


def test_librdkafka_gets_the_same_properties(properties: Write) -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": jaas("secret")}
    path = properties(security_protocol="SASL_PLAINTEXT", **login, client_id="me", default_api_timeout_ms="5")
    found = Target("127.0.0.1:1", path).librdkafka()
    expected = {"bootstrap.servers": "127.0.0.1:1", "client.id": "me", "sasl.username": "alice", "sasl.password": "secret"}
    assert expected.items() <= found.items() and found["security.protocol"] == "SASL_PLAINTEXT"
    assert "default.api.timeout.ms" not in found and "sasl.jaas.config" not in found


# --- librdkafka


def test_librdkafka_is_told_in_its_own_words(tmp_path: Path) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas("secret")}
    found = clients.translated({**given, "ssl.truststore.location": "/ca.pem", "client.id": "me"})
    sasl = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "secret"}
    assert found == {
        **sasl,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
        "client.id": "me",
    }
    pem = certificate(tmp_path)
    cert, key = ((pem / name).read_text().replace("\n", " ") for name in ("cert.pem", "key.pem"))
    texts = {"ssl.truststore.certificates": cert, "ssl.keystore.certificate.chain": cert, "ssl.keystore.key": key}
    made: Any = clients.producer("127.0.0.1:1", clients.translated({"security.protocol": "SSL", **texts}))
    assert made.flush(0) == 0
    own = {"security.protocol": "SSL", "ssl.ca.location": "/x", "ssl.key.location": "/y"}
    assert clients.translated(own) == own
    with pytest.raises(UsageError, match=r"ssl.truststore.type='JKS': allowed is PEM"):
        clients.translated({"security.protocol": "SSL", "ssl.truststore.type": "JKS"})


@pytest.mark.parametrize("make", [clients.producer, clients.consumer])
def test_a_property_that_there_is_not_is_told_once_and_left_out(
    make: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Java's clients go on without it: a file that is written for one of their plug-ins is no reason to end."""
    given: dict[str, object] = {"group.id": "g", "compression.type": "gzip", "metrics.nosuch": "1", "no\nsuch": "2"}
    closing = make("localhost:1", {**given, "batch.size": "1000"})
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("WARN") and "connection" not in line] == [
        "WARN metrics.nosuch has no effect here",
        "WARN 'no\\nsuch' has no effect here",
    ]
    assert "nosuch" in str(given), "and the caller's own stay as they are"
    del closing


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ssl.nosuch", "1", 'No such configuration property: "ssl.nosuch"'),
        ("security.providers", "x", 'No such configuration property: "security.providers"'),
        ("linger.ms", "x", "Invalid value for configuration property"),
    ],
)
def test_a_property_that_protects_or_has_a_wrong_value_is_no_warning(name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        clients.producer("localhost:1", {name: value})
