"""TLS and SASL of Kafka's tools, from the properties of `--command-config` and its like.

Source: Kafka's AdminClientConfig (names); KIP-651; KIP-1147.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlite.cli.compat import clients, cluster, consumer_groups
from kraftlite.cli.compat.tool import UsageError, finish
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl_protocol": "TLSv1.3"}, "ssl.protocol='TLSv1.3' cannot be honoured: allowed are "),
        ({"sasl_oauthbearer_token_endpoint_url": "x"}, "sasl.oauthbearer.token.endpoint.url"),
        ({"security_protocol": "SSL", "ssl_truststore_password": "hunter2"}, "ssl.truststore.password: PEM stores have none"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/x.jks"}, "ssl.truststore.location='/x.jks': allowed is a PEM"),
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


@pytest.mark.parametrize("name", ["security_protocol", "sasl_jaas_config", "ssl_truststore_location"])
def test_a_tool_whose_client_has_neither_says_so(name: str, properties: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = properties(**{name: "SSL"})
    arguments = ["--list", "--bootstrap-server", "127.0.0.1:1", "--command-config", path]
    assert finish("kafka-consumer-groups", consumer_groups.run, arguments) == 1
    err = capsys.readouterr().err
    assert f"--command-config {path}: {name.replace('_', '.')}" in err and "is not supported by this tool" in err


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
