"""kcat: the capabilities that every client is put through, as far as a command line has them."""

from __future__ import annotations

import pytest

from tests.clients.capabilities import FOR_EVER, Capabilities, capability
from tests.clients.kcat.where import ENVIRONMENT, KCAT, version
from tests.clients.programs import Client, Missing, Ready, python_program
from tests.harness.local import PATIENCE_S, Cluster

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

NO_ADMIN = "kcat administers nothing"
NO_TRANSACTIONS = "kcat has no transactions"
OLD_SCRAM = "the librdkafka in kcat repeats its nonce in SCRAM, which Apache Kafka 4 refuses, too (CVE-2024-56128)"


def prepare() -> list[str]:
    if KCAT is None:
        raise Missing("kcat is not installed")
    return python_program("kcat")


class TestKcat(Capabilities):
    client = Client(
        name="kcat",
        version=version,
        prepare=prepare,
        env={**ENVIRONMENT, "KCAT": str(KCAT)},
        lacks={
            "login: SCRAM-SHA-256": OLD_SCRAM,
            "login: SCRAM-SHA-512": OLD_SCRAM,
            "refused: token that has expired": "kcat makes its tokens itself, and none that are over",
            "token that ends": "kcat crashes when it renews a token, with Apache Kafka, too",
            "group: KIP-848": "the librdkafka in kcat has no consumer protocol",
            "transactions": NO_TRANSACTIONS,
            "transactions: fenced": NO_TRANSACTIONS,
            "transactions: timed out": NO_TRANSACTIONS,
            "transactions: copy with offsets": NO_TRANSACTIONS,
            "transactions: brokers are killed": NO_TRANSACTIONS,
            "a broker is down: overview": NO_ADMIN,
            "admin: topics": NO_ADMIN,
            "admin: describe cluster": NO_ADMIN,
            "admin: partitions": NO_ADMIN,
            "admin: configs": NO_ADMIN,
            "admin: delete records": NO_ADMIN,
            "admin: groups": NO_ADMIN,
            "admin: delete groups": NO_ADMIN,
        },
    )

    @capability("headers, nulls, timestamps")
    def test_records(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        """kcat takes headers for all records of a run, writes nulls for what is empty, and the time of day."""
        cluster.create_topic(topic, config=FOR_EVER)
        producer = cluster.producer()
        producer.produce(topic, None, b"k", headers=[("a", b"1"), ("a", b"2")], timestamp=1_000_000)
        assert producer.flush(PATIENCE_S) == 0
        written = {"partition": 0, "headers": [["b", "1"], ["empty", ""]]}
        ready.produce(topic, [{**written, "key": "k", "value": None}, {**written, "key": None, "value": "ü"}])
        first, *rest = ready.read(topic, 3)
        assert (first["key"], first["value"], first["timestamp"]) == ("k", None, 1_000_000)
        assert first["headers"] == [["a", "1"], ["a", "2"]]
        assert [(it["key"], it["value"]) for it in rest] == [("k", None), (None, "ü")]
        assert rest[0]["headers"] == rest[1]["headers"] == written["headers"]
