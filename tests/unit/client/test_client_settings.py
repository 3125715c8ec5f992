"""Kafka's option names to a client's settings, and the SASL exchanges that come out of them. No socket is opened.

Source: Kafka's consumer and producer configuration; RFC 7677 section 3 (the SCRAM-SHA-256 example).
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from kraftlite.client.errors import ClientError, OffsetOutOfRange, UnknownTopic
from kraftlite.client.login import TOKEN_URL, login_of
from kraftlite.client.security import Plain, SaslError, Scram, exchange
from kraftlite.client.settings import ClientSettings, SaslSettings, TlsSettings, split_address
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.security.oauthbearer import OAuthBearerServer, Unsecured, UnsecuredRules
from kraftlite.spark.kafka_options import client_settings

B = {"bootstrap.servers": "one:9092"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL = {**B, "security.protocol": "SASL_PLAINTEXT"}
SSL = {**B, "security.protocol": "SSL"}


def settings(**given: str) -> ClientSettings:
    return client_settings({**B, **{name.replace("_", "."): value for name, value in given.items()}})


def test_defaults_are_kafkas() -> None:
    found = client_settings(B)
    assert found == ClientSettings(bootstrap=("one:9092",), client_id="kraftlite-spark")
    assert (found.request_timeout_ms, found.retry_timeout_ms, found.delivery_timeout_ms) == (30_000, 120_000, 120_000)
    assert (found.acks, found.idempotent, found.compression, found.read_committed) == (-1, True, "none", False)


def test_bootstrap_servers() -> None:
    assert settings(bootstrap_servers=" a:1, [::1]:9092 ,").bootstrap == ("a:1", "[::1]:9092")
    assert split_address("[::1]:9092") == ("::1", 9092)
    with pytest.raises(ValueError, match=r"kafka.bootstrap.servers is missing: allowed is host:port"):
        client_settings({})
    for bad in ("", " , ", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1,b"):
        with pytest.raises(ValueError, match=r"kafka.bootstrap.servers='.*': allowed is host:port"):
            settings(bootstrap_servers=bad)


@pytest.mark.parametrize(
    ("name", "value", "field", "wanted"),
    [
        ("client.id", "me", "client_id", "me"),
        ("request.timeout.ms", "5", "request_timeout_ms", 5),
        ("default.api.timeout.ms", "0", "retry_timeout_ms", 0),
        ("retry.backoff.ms", "7", "retry_backoff_ms", 7),
        ("retry.backoff.max.ms", "8", "retry_backoff_max_ms", 8),
        ("reconnect.backoff.ms", "9", "reconnect_backoff_ms", 9),
        ("socket.connection.setup.timeout.ms", "10", "connect_timeout_ms", 10),
        ("max.partition.fetch.bytes", "11", "fetch_bytes", 11),
        ("fetch.max.bytes", "12", "fetch_bytes", 12),
        ("isolation.level", "read_committed", "read_committed", True),
        ("acks", "all", "acks", -1),
        ("acks", "-1", "acks", -1),
        ("acks", "1", "acks", 1),
        ("enable.idempotence", "false", "idempotent", False),
        ("compression.type", "zstd", "compression", "zstd"),
        ("max.request.size", "2048", "max_request_bytes", 2_048),
        ("delivery.timeout.ms", "13", "delivery_timeout_ms", 13),
    ],
)
def test_what_can_be_honoured(name: str, value: str, field: str, wanted: object) -> None:
    assert getattr(client_settings({**B, name: value}), field) == wanted
    assert getattr(client_settings({**B, name.upper(): value}), field) == wanted


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("request.timeout.ms", "soon", "a whole number from 1 to"),
        ("request.timeout.ms", "0", "a whole number from 1 to"),
        ("fetch.max.bytes", "-1", "a whole number from 1 to"),
        ("isolation.level", "serializable", "read_uncommitted or read_committed"),
        ("acks", "2", "all or -1 or 1 or 0"),
        ("enable.idempotence", "yes", "true or false"),
        ("compression.type", "brotli", "none or gzip or snappy or lz4 or zstd"),
        ("security.protocol", "GSSAPI", "PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
    ],
)
def test_bad_values_name_the_option_the_value_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"kafka.{name}='{value}': allowed is {allowed}"):
        client_settings({**B, name: value})


@pytest.mark.parametrize(
    "name",
    ["max.poll.records", "receive.buffer.bytes", "client.rack", "metadata.max.age.ms", "retries", "linger.ms", "batch.size"],
)
def test_what_tunes_nothing_here_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"kafka.{name}='5' cannot be honoured: ") as caught:
        client_settings({**B, name: "5"})
    assert "allowed are" not in str(caught.value)


def test_unknown_names_are_refused_with_those_that_are_known_and_secrets_are_not_shown() -> None:
    with pytest.raises(
        ValueError, match=r"kafka.requst.timeout.ms='1' cannot be honoured: allowed are .*kafka.request.timeout.ms"
    ):
        settings(requst_timeout_ms="1")
    for name in ("sasl.oauthbearer.client.secret", "ssl.truststore.password", "ssl.keystore.password", "my.password"):
        with pytest.raises(ValueError, match=name) as caught:
            client_settings({**B, name: "hunter2"})
        assert "hunter2" not in str(caught.value)


def test_the_smaller_fetch_size_wins() -> None:
    assert settings(fetch_max_bytes="10", max_partition_fetch_bytes="20").fetch_bytes == 10
    assert settings(fetch_max_bytes="20", max_partition_fetch_bytes="10").fetch_bytes == 10


def test_fewer_acks_turn_idempotence_off_and_exclude_it() -> None:
    assert not settings(acks="1").idempotent
    assert settings(acks="all", enable_idempotence="true").idempotent
    with pytest.raises(ValueError, match=r"kafka.acks='1' and kafka.enable.idempotence=true exclude each other"):
        settings(acks="1", enable_idempotence="true")


# --- TLS


def test_pem_from_files_and_from_text() -> None:
    found = client_settings({**SSL, "ssl.truststore.location": "/ca.pem", "ssl.keystore.location": "/me.pem"})
    assert found.tls == TlsSettings(trust_location="/ca.pem", key_location="/me.pem")
    found = client_settings(
        {
            **SSL,
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
            "ssl.key.password": "hunter2",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    wanted = TlsSettings(trust_certificates="CA", key_chain="CHAIN", key="KEY", key_password="hunter2", check_host=False)
    assert found.tls == wanted
    assert "hunter2" not in repr(found) and "KEY" not in repr(found)
    assert client_settings({**SSL, "ssl.ca.location": "/x", "ssl.truststore.type": "PEM"}).tls is not None
    assert client_settings(SSL).tls == TlsSettings()
    assert client_settings(B).tls is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.truststore.type": "JKS"}, "kafka.ssl.truststore.type='JKS': allowed is PEM"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "kafka.ssl.enabled.protocols='TLSv1.1': allowed is TLSv1.2 and TLSv1.3"),
        ({"ssl.cipher.suites": "RC4"}, "kafka.ssl.cipher.suites='RC4': RC4 is not known here"),
        (
            {"ssl.truststore.location": "/ca.jks"},
            "kafka.ssl.truststore.location='/ca.jks': allowed is a file in PEM or PKCS12 .*keytool",
        ),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.password": "x"}, "kafka.ssl.keystore.password: PEM stores have none"),
        ({"ssl.truststore.location": "/a.pem", "ssl.ca.location": "/b.pem"}, "exclude each other"),
        ({"ssl.keystore.key": "KEY"}, "ssl.keystore.certificate.chain with ssl.keystore.key"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "allowed is https"),
    ],
)
def test_stores_that_cannot_be_read_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        client_settings({**SSL, **given})


def test_security_options_without_the_protocol_for_them_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kafka.ssl.ca.location is given, but kafka.security.protocol=PLAINTEXT"):
        client_settings({**B, "ssl.ca.location": "/x"})
    with pytest.raises(ValueError, match=r"kafka.sasl.username is given, but kafka.security.protocol=SSL"):
        client_settings({**SSL, "sasl.username": "x"})


# --- SASL


def test_jaas_and_librdkafkas_names_mean_the_same() -> None:
    wanted = SaslSettings(mechanism="SCRAM-SHA-512", username="alice", password="secret")
    jaas = f'{SCRAM} required username="alice" password="secret";'
    given = {**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    assert client_settings(given).sasl == wanted
    given = {**SASL, "sasl.mechanisms": "scram-sha-512", "sasl.username": "alice", "sasl.password": "secret"}
    assert client_settings(given).sasl == wanted
    assert "secret" not in repr(client_settings(given))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f'{PLAIN} required username="a" password="b";', ("a", "b")),
        (f"{PLAIN} required\n  password='x; y'\n  username=a ;\n", ("a", "x; y")),
        (f'{PLAIN} REQUIRED username="a=b" password="q\\"u\\\\o";', ("a=b", 'q"u\\o')),
        (f"kafkashaded.{PLAIN} required username=a password=b;", ("a", "b")),
    ],
)
def test_jaas_texts(text: str, wanted: tuple[str, str]) -> None:
    assert login_of(text, "PLAIN") == SaslSettings(mechanism="PLAIN", username=wanted[0], password=wanted[1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with the class of a login module"),
        (f'{PLAIN} required username="a" password="hunter2"', "cannot be read behind option 1"),
        (f'{PLAIN} required username="a" "hunter2";', "cannot be read behind option 1"),
        (f'{SCRAM} required username="a" password="hunter2";', "which is not for sasl.mechanism=PLAIN"),
        (f'{PLAIN} required username="a" serviceName="hunter2";', "has the options username, serviceName"),
    ],
)
def test_jaas_texts_that_cannot_be_honoured(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"sasl.jaas.config.*{said}.*PlainLoginModule required username=") as caught:
        login_of(text, "PLAIN")
    assert "hunter2" not in str(caught.value)


BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "kafka.sasl.mechanism is missing: allowed is PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism='GSSAPI': allowed is PLAIN or"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.mechanism=OAUTHBEARER: allowed is kafka.sasl.jaas.config"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;"}, "allowed is sasl.oauthbearer.token"),
        ({"sasl.mechanism": "PLAIN", TOKEN_URL: "file:///x"}, "is given, but kafka.sasl.mechanism=PLAIN"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;", TOKEN_URL: "https://x"}, "file:///"),
        ({"sasl.mechanism": "PLAIN"}, "allowed is kafka.sasl.jaas.config, or kafka.sasl.username with kafka.sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "kafka.sasl.username with kafka.sasl.password"),
    ],
)
def test_sasl_that_cannot_be_honoured(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        client_settings({**SASL, **given})


def test_tokens_of_oauthbearer_and_delegation_tokens(tmp_path: Path) -> None:
    """KIP-48, KIP-255: whatever a text or file has, the server knows who logs in."""
    given = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
    made = client_settings({**given, "sasl.jaas.config": f'{BEARER} required unsecuredLoginStringClaim_sub="al ice";'}).sasl
    assert made is not None
    now_ms = int(time.time() * 1000)
    server = OAuthBearerServer(Unsecured(UnsecuredRules()))
    outcome = server.evaluate(exchange(made).answer(None) or b"", now_ms).outcome
    assert outcome is not None and outcome.principal.name == "al ice" and (outcome.expires_ms or 0) > now_ms + 3_000_000
    (tmp_path / "token").write_text("aa.bb.cc\n")
    read = client_settings({**given, "sasl.jaas.config": f"{BEARER} required;", TOKEN_URL: f"file://{tmp_path}/token"}).sasl
    assert read is not None and exchange(read).answer(None) == b"n,,\1auth=Bearer aa.bb.cc\1\1"
    assert exchange(read).answer(b'{"status":"invalid_token"}') == b"\1" and exchange(read).answer(b"") is None
    (tmp_path / "token").write_text("hunter2")
    with pytest.raises(SaslError, match="has no token") as caught:
        exchange(read)
    assert "hunter2" not in str(caught.value)
    jaas = f'{SCRAM} required username="id" password="code" tokenauth="true";'
    delegated = client_settings({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}).sasl
    assert delegated is not None and (exchange(delegated).answer(None) or b"").endswith(b",tokenauth=true")


def test_scram_sha_256_as_in_its_rfc() -> None:
    side = Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert side.answer(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert side.answer(first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert side.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"r=somebody,s=W22Z,i=4096", "nonce"),
        (b"r=mine,s=W22Z,i=4096", "nonce"),
        (b"r=mine2,s=W22Z,i=1", "iterations"),
        (b"r=mine2,s=W22Z,i=999999999", "iterations"),
        (b"r=mine2,s=*,i=4096", "base64"),
        (b"\xff", "nonce"),
    ],
)
def test_scram_servers_that_break_the_rules(first: bytes, said: str) -> None:
    side = Scram("SCRAM-SHA-512", "a=b,c", "x", nonce="mine")
    assert side.answer(None) == b"n,,n=a=3Db=2Cc,r=mine"
    with pytest.raises(SaslError, match=said):
        side.answer(first)


@pytest.mark.parametrize(
    ("last", "said"), [(b"v=AAAA", "does not know"), (b"e=other-error", "other-error"), (b"", "does not know")]
)
def test_a_scram_server_that_does_not_know_the_password(last: bytes, said: str) -> None:
    side = Scram("SCRAM-SHA-256", "a", "x", nonce="mine")
    side.answer(None)
    side.answer(b"r=mine2,s=W22Z,i=4096")
    with pytest.raises(SaslError, match=said):
        side.answer(last)


def test_plain_is_one_message() -> None:
    side = exchange(SaslSettings(mechanism="PLAIN", username="a", password="b"))
    assert isinstance(side, Plain)
    assert side.answer(None) == b"\0a\0b"
    assert side.answer(b"") is None


# --- values that travel


def test_settings_and_errors_travel_between_processes() -> None:
    found = client_settings({**SSL, "ssl.truststore.certificates": "CA"})
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(pickle.loads(pickle.dumps(found)))
    out = pickle.loads(pickle.dumps(OffsetOutOfRange("it is gone", TopicPartition("t", 1), 5)))
    assert (str(out), out.tp, out.offset, out.code) == ("it is gone", TopicPartition("t", 1), 5, ErrorCode.OFFSET_OUT_OF_RANGE)
    for error in (ClientError("no", None), UnknownTopic("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.code) == (type(error), "no", error.code)
