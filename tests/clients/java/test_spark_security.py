"""The Kafka client (`kraftlite.client`) reads from and writes to a real Apache Kafka that wants TLS and SASL.

Source: KIP-43, KIP-84, KIP-651; `docs/SPARK.md`, The connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from kraftlite.spark.kafka_options import client_settings

pytest.importorskip("pyarrow")

import pyarrow as pa

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.columns.encode import encode_records
from kraftlite.columns.records import parse_records
from kraftlite.model.topic_partition import TopicPartition
from tests.clients.java.apache import ApacheKafka
from tests.clients.java.secured import MODULES, PASSWORDS, REAUTHENTICATE_MS, by_name, quoted

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]

_NUMBERS = count(1)


@pytest.fixture
def pem(authority: Path) -> Path:
    return authority


@pytest.fixture
def kafka(secured: ApacheKafka) -> ApacheKafka:
    return secured


def round_trip(kafka: ApacheKafka, options: Mapping[str, str], host: str = "127.0.0.1") -> list[str]:
    """Values that were written and read again through the listener of `security.protocol`."""
    address = kafka.listeners[options["security.protocol"]].replace("127.0.0.1", host)
    given = {"bootstrap.servers": address, "default.api.timeout.ms": "20000", **options}
    client = KafkaClient(client_settings(given))
    tp = TopicPartition(f"secure-{next(_NUMBERS)}", 0)
    try:
        client.partitions_for(tp.topic, create=True)
        values = [f"v{it}" for it in range(5)]
        (batch,) = encode_records(pa.table({"value": values}), timestamp_ms=1, max_batch_bytes=1 << 20)
        assert client.produce([(tp, batch.data)])[tp].error_code == 0
        end = client.list_offsets({tp: -1})[tp].offset
        fetched = client.fetch(tp, 0)
        parsed = parse_records(
            fetched.records,
            tp=tp,
            start=0,
            end=end,
            columns=("value",),
            aborted=fetched.aborted,
            read_committed=False,
            parser="numpy",
            max_rows=100,
        )
        found = [bytes(it.as_py()).decode() for rows in parsed.batches for it in rows.column("value")]
        assert found == values
        return found
    finally:
        client.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl(kafka: ApacheKafka, mechanism: str) -> None:
    assert round_trip(kafka, by_name(mechanism))
    assert round_trip(kafka, by_name(mechanism, "bob"))
    module = f"{MODULES}.plain.PlainLoginModule" if mechanism == "PLAIN" else f"{MODULES}.scram.ScramLoginModule"
    jaas = f'{module} required username="alice" password="{quoted(PASSWORDS["alice"])}";'
    assert round_trip(kafka, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl.password": "guess"}, {"sasl.username": "nobody"}])
def test_sasl_refuses_others(kafka: ApacheKafka, mechanism: str, wrong: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="SASL_AUTHENTICATION_FAILED"):
        round_trip(kafka, {**by_name(mechanism), **wrong})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls(kafka: ApacheKafka, pem: Path, mechanism: str) -> None:
    trust = {"ssl.truststore.location": str(pem / "authority.pem")}
    assert round_trip(kafka, {**by_name(mechanism, protocol="SASL_SSL"), **trust})
    with pytest.raises(ClientError, match="SASL_AUTHENTICATION_FAILED"):
        round_trip(kafka, {**by_name(mechanism, protocol="SASL_SSL"), **trust, "sasl.password": "guess"})


def test_a_connection_whose_time_is_over(kafka: ApacheKafka, pem: Path) -> None:
    """The broker closes it when the next request comes; every record is written once all the same."""
    options = {**by_name("SCRAM-SHA-256", protocol="SASL_SSL"), "ssl.truststore.location": str(pem / "authority.pem")}
    client = KafkaClient(client_settings({"bootstrap.servers": kafka.listeners["SASL_SSL"], **options}))
    tp = TopicPartition(f"secure-{next(_NUMBERS)}", 0)
    try:
        client.partitions_for(tp.topic, create=True)
        producer_id, epoch = client.init_producer_id()
        written, began = 0, time.monotonic()
        while time.monotonic() < began + 3.5 * REAUTHENTICATE_MS / 1000:
            (batch,) = encode_records(
                pa.table({"value": [f"v{written}"]}),
                timestamp_ms=1,
                max_batch_bytes=1 << 20,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=written,
            )
            assert client.produce([(tp, batch.data)])[tp].error_code == 0
            written += 1
        assert client.list_offsets({tp: -1})[tp].offset == written
    finally:
        client.close()


def texts(pem: Path) -> dict[str, str]:
    return {
        "ssl.truststore.certificates": (pem / "authority.pem").read_text(),
        "ssl.keystore.certificate.chain": (pem / "client.crt").read_text(),
        "ssl.keystore.key": (pem / "client.key").read_text(),
    }


def test_tls_with_the_certificates_of_both(kafka: ApacheKafka, pem: Path) -> None:
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(pem / "authority.pem"), "ssl.truststore.type": "PEM"}
    assert round_trip(kafka, {**trust, "ssl.keystore.location": str(pem / "client.pem"), "ssl.keystore.type": "PEM"})
    locked = {"ssl.keystore.location": str(pem / "client-locked.pem"), "ssl.key.password": "hidden"}
    assert round_trip(kafka, {**trust, **locked})
    assert round_trip(kafka, {"security.protocol": "SSL", **texts(pem)})
    assert round_trip(kafka, {"security.protocol": "SSL", **texts(pem)}, host="localhost")


def test_tls_texts_in_one_line(kafka: ApacheKafka, pem: Path) -> None:
    """As they come out of a secret store or a properties file: Kafka takes them with blanks in the place of line breaks."""
    flat = {name: value.replace("\n", " ").strip() for name, value in texts(pem).items()}
    assert round_trip(kafka, {"security.protocol": "SSL", **flat})


def test_tls_without_the_clients_certificate(kafka: ApacheKafka, pem: Path) -> None:
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(pem / "authority.pem"), "default.api.timeout.ms": "2000"}
    with pytest.raises(ClientError, match="certificate"):
        round_trip(kafka, trust)


def test_tls_with_an_authority_that_did_not_sign_it(kafka: ApacheKafka, pem: Path) -> None:
    other = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(pem / "client.crt")}
    with pytest.raises(ClientError, match="is not trusted"):
        round_trip(kafka, {**by_name("PLAIN", protocol="SASL_SSL"), **other})


def test_plain_text_to_a_listener_with_tls(kafka: ApacheKafka) -> None:
    """And the other way round: an error in time, whatever it says."""
    address = kafka.listeners["SSL"]
    client = KafkaClient(client_settings({"bootstrap.servers": address, "default.api.timeout.ms": "1000"}))
    with pytest.raises(ClientError, match="no broker answered"):
        client.topics()
    tls = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL", "default.api.timeout.ms": "1000"}
    with pytest.raises(ClientError):
        KafkaClient(client_settings(tls)).topics()
