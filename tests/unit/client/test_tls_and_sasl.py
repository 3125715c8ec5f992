"""TLS and SASL of the client, against a small broker of this test that knows the handshake and nothing else.

Source: KIP-43, KIP-84, KIP-152; RFC 5802.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.properties import settings_from
from kraftlite.client.security import SaslError, Scram
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.harness.certificates import Authority, Stores
from tests.harness.secure_broker import Broker, broker, certificate


def connect(there: Broker, host: str = "127.0.0.1", **options: str) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"bootstrap.servers": f"{host}:{there.port}", "default.api.timeout.ms": "500", **named}
    client = KafkaClient(settings_from(given))
    try:
        return client.topics()
    finally:
        client.close()


def sasl(mechanism: str, password: str = "secret") -> dict[str, str]:
    return {
        "security__protocol": "SASL_PLAINTEXT",
        "sasl__mechanism": mechanism,
        "sasl__username": "alice",
        "sasl__password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_knows_the_password_gets_in(mechanism: str) -> None:
    with broker(mechanism) as there:
        assert connect(there, **sasl(mechanism)) == {}
        steps = 1 if mechanism == "PLAIN" else 2
        assert there.seen == [str(API_VERSIONS), str(SASL_HANDSHAKE), *[str(SASL_AUTHENTICATE)] * steps, str(METADATA)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_an_error_at_once(mechanism: str) -> None:
    with broker(mechanism) as there:
        with pytest.raises(ClientError, match=f"SASL_AUTHENTICATION_FAILED: alice by {mechanism}: .*nvalid") as caught:
            connect(there, **sasl(mechanism, "wrong"))
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert there.seen.count(str(SASL_HANDSHAKE)) == 1, "it was tried again"


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    with (
        broker("SCRAM-SHA-256", honest=False) as there,
        pytest.raises(ClientError, match="the server does not know the password"),
    ):
        connect(there, **sasl("SCRAM-SHA-256"))


def test_a_mechanism_that_the_broker_does_not_offer() -> None:
    told = "UNSUPPORTED_SASL_MECHANISM: sasl.mechanism=PLAIN, the broker offers SCRAM-SHA-256"
    with broker("SCRAM-SHA-256") as there, pytest.raises(ClientError, match=told):
        connect(there, **sasl("PLAIN"))


@pytest.mark.parametrize(
    "count", ["9" * 5_000, "²²²²", "٤٠٩٦", "４０９６", "04096", "+4096", "4_096", "4095", "1000001", "9999999", ""]
)
def test_a_server_whose_count_of_iterations_is_none_is_refused(count: str) -> None:
    client = Scram("SCRAM-SHA-256", "alice", "secret", nonce="mine")
    client.answer(None)
    with pytest.raises(SaslError, match=r"the server asks for '.{0,21}' iterations: allowed is 4096 to 1000000"):
        client.answer(f"r=mineandyours,s=c2FsdA==,i={count}".encode())


def test_the_counts_of_iterations_that_are_allowed() -> None:
    for count in ("4096", "99999", "1000000"):
        client = Scram("SCRAM-SHA-256", "alice", "secret", nonce="mine")
        client.answer(None)
        assert client.answer(f"r=mineandyours,s=c2FsdA==,i={count}".encode()) is not None


# --- TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "both.pem")
    return context


def test_tls_with_files_and_with_texts(pem: Path, tls: ssl.SSLContext) -> None:
    cert, key = (pem / "cert.pem").read_text(), (pem / "key.pem").read_text()
    with broker(context=tls) as there:
        assert connect(there, "localhost", security__protocol="SSL", ssl__truststore__location=str(pem / "cert.pem")) == {}
        assert connect(there, "localhost", security__protocol="SSL", ssl__truststore__certificates=cert) == {}
    tls.load_verify_locations(pem / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    trust = {"security__protocol": "SSL", "ssl__truststore__certificates": cert}
    with broker(context=tls) as there:
        assert connect(there, "localhost", **trust, ssl__keystore__location=str(pem / "both.pem")) == {}
        mine = {"ssl__keystore__certificate__chain": cert, "ssl__keystore__key": key}
        assert connect(there, "localhost", **trust, **mine) == {}
        with pytest.raises(ClientError, match="no broker answered"):
            connect(there, "localhost", **trust)


def test_tls_texts_in_one_line(pem: Path, tls: ssl.SSLContext) -> None:
    """As Kafka takes them, and as they come out of a properties file or a secret store."""
    cert, key = ((pem / name).read_text().replace("\n", " ").strip() for name in ("cert.pem", "key.pem"))
    tls.load_verify_locations(pem / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    both = {
        "ssl__truststore__certificates": f"{cert} {cert}",
        "ssl__keystore__certificate__chain": cert,
        "ssl__keystore__key": key,
    }
    with broker(context=tls) as there:
        assert connect(there, "localhost", security__protocol="SSL", **both) == {}


def test_a_certificate_that_nobody_vouches_for_is_an_error_at_once(tls: ssl.SSLContext) -> None:
    with broker(context=tls) as there, pytest.raises(ClientError, match=r"TLS: localhost:\d+ is not trusted: self"):
        connect(there, "localhost", security__protocol="SSL")


def test_the_hosts_name_is_checked_unless_told(pem: Path, tls: ssl.SSLContext) -> None:
    trust = {"security__protocol": "SSL", "ssl__truststore__location": str(pem / "cert.pem")}
    with broker(context=tls) as there:
        with pytest.raises(ClientError, match=r"TLS: 127.0.0.1:\d+ is not trusted: .*IP address mismatch"):
            connect(there, **trust)
        assert connect(there, **trust, ssl__endpoint__identification__algorithm="") == {}


def test_a_file_that_is_not_there_is_an_error_at_once(tls: ssl.SSLContext) -> None:
    with (
        broker(context=tls) as there,
        pytest.raises(ClientError, match=r"TLS: ssl.truststore.location=/nowhere.pem: there is no such file"),
    ):
        connect(there, "localhost", security__protocol="SSL", ssl__truststore__location="/nowhere.pem")


@pytest.mark.parametrize("kind", [{}, {"ssl__truststore__type": "PKCS12", "ssl__keystore__type": "PKCS12"}])
def test_se_02_stores_in_pkcs12(tmp_path: Path, kind: dict[str, str]) -> None:
    """As keytool makes them; the broker wants the client's certificate, in TLS 1.2 with one cipher suite."""
    authority = Authority()
    Stores(tmp_path).write(authority.issue("broker"), authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "keys.pem")
    context.load_verify_locations(tmp_path / "trust.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "me.p12").write_bytes(authority.issue("me").pkcs12("geheim"))
    (tmp_path / "trust.p12").write_bytes(authority.trust_pkcs12("geheim"))
    options = {
        "security__protocol": "SSL",
        "ssl__truststore__location": f"{tmp_path}/trust.p12",
        "ssl__truststore__password": "geheim",
        "ssl__keystore__location": f"{tmp_path}/me.p12",
        "ssl__keystore__password": "geheim",
        "ssl__enabled__protocols": "TLSv1.2",
        "ssl__cipher__suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        **kind,
    }
    with broker(context=context) as there:
        assert connect(there, **options) == {}
        with pytest.raises(ClientError, match=r"ssl.keystore.password is wrong") as caught:
            connect(there, **{**options, "ssl__keystore__password": "falsch"})
        assert "falsch" not in str(caught.value)
