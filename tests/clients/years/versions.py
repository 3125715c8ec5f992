"""The clients of earlier years that are put through the essentials: the one table of their versions.

Of each client but kafka-go the newest stands in its own folder. A line here is a release that is still in use, one for about
every year.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Past:
    """`client`: a name of `install.CLIENTS`. `quick`: part of `scripts/test`, not of `make clients` alone. `killed`: brokers are
    killed under its transactions, too, in `make clients`. `python`: the release of Python that it needs, None for the one that
    runs the tests. `packages`: further ones that it needs, as its package manager names them. `lacks`: what it has not, by
    capability."""

    client: str
    version: str
    quick: bool = False
    killed: bool = False
    python: str | None = None
    packages: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)


_KADM: Final = "github.com/twmb/franz-go/pkg/kadm"

TRANSACTIONS: Final = ("transactions", "transactions: fenced", "transactions: copy with offsets")
_KAFKA_GO: Final = {
    **dict.fromkeys(TRANSACTIONS, "kafka-go has no producer of transactions"),
    "produce, idempotent": "kafka-go has no idempotent producer",
    "headers, nulls, timestamps": "kafka-go reads what is empty as null",
}

_TAKE_OVER: Final = {
    "transactions: fenced": "it does not wait until the transaction that it takes over is aborted, with Apache Kafka 4.3 neither"
}
LZ4JS: Final = "lz4js makes frames of dependent blocks, which Apache Kafka refuses, too"

PAST: Final = (
    Past(client="kafka-clients (Java)", version="2.8.2", killed=True),
    Past(client="kafka-clients (Java)", version="3.0.2"),
    Past(client="kafka-clients (Java)", version="3.3.2", quick=True),
    Past(client="kafka-clients (Java)", version="3.5.2", killed=True),
    Past(client="kafka-clients (Java)", version="3.7.2", quick=True),
    Past(client="kafka-clients (Java)", version="3.8.1"),
    Past(client="kafka-clients (Java)", version="3.9.1", killed=True),
    Past(client="kafka-clients (Java)", version="4.0.1"),
    Past(client="kafka-clients (Java)", version="4.1.1"),
    Past(client="confluent-kafka", version="1.9.2", killed=True, python="3.10"),
    Past(client="confluent-kafka", version="2.0.2", quick=True),
    Past(client="confluent-kafka", version="2.1.1"),
    Past(client="confluent-kafka", version="2.3.0"),
    Past(client="confluent-kafka", version="2.6.2", killed=True),
    Past(client="confluent-kafka", version="2.8.2"),
    Past(client="confluent-kafka", version="2.10.1"),
    Past(client="confluent-kafka", version="2.12.2"),
    Past(
        client="kafka-python",
        version="2.0.2",
        quick=True,
        packages=("lz4", "zstandard", "python-snappy==0.7.3"),
        lacks=dict.fromkeys(("produce, idempotent", *TRANSACTIONS), "kafka-python 2.0 has no idempotent producer"),
    ),
    Past(client="kafka-python", version="2.2.15", packages=("lz4", "zstandard", "python-snappy==0.7.3")),
    Past(client="aiokafka", version="0.8.1", packages=("kafka-python==2.0.2", "lz4", "zstandard", "python-snappy==0.7.3")),
    Past(client="aiokafka", version="0.9.0", killed=True, packages=("cramjam", "lz4")),
    Past(client="aiokafka", version="0.10.0", packages=("cramjam", "lz4")),
    Past(client="aiokafka", version="0.11.0", packages=("cramjam",)),
    Past(client="aiokafka", version="0.12.0", packages=("cramjam",)),
    Past(client="aiokafka", version="0.13.0", packages=("cramjam",)),
    Past(client="franz-go", version="1.7.0", packages=(f"{_KADM}@v1.0.0",), lacks=_TAKE_OVER),
    Past(client="franz-go", version="1.15.3", killed=True, packages=(f"{_KADM}@v1.10.0",), lacks=_TAKE_OVER),
    Past(client="franz-go", version="1.18.1", packages=(f"{_KADM}@v1.15.0",), lacks=_TAKE_OVER),
    Past(client="franz-go", version="1.20.7", packages=(f"{_KADM}@v1.17.2",), lacks=_TAKE_OVER),
    Past(
        client="Sarama",
        version="1.38.1",
        packages=("was=github.com/Shopify/sarama",),
        lacks={
            **_TAKE_OVER,
            "group: consume, commit, resume": "what Sarama 1.38 commits as a session ends is lost, with Apache Kafka 4.3 too",
        },
    ),
    Past(client="Sarama", version="1.41.3", lacks=_TAKE_OVER),
    Past(client="Sarama", version="1.43.3", killed=True, lacks=_TAKE_OVER),
    Past(client="Sarama", version="1.45.2", lacks=_TAKE_OVER),
    Past(client="Sarama", version="1.50.3", lacks=_TAKE_OVER),
    Past(client="kafka-go", version="0.4.42", lacks=_KAFKA_GO),
    Past(client="kafka-go", version="0.4.44", lacks=_KAFKA_GO),
    Past(client="kafka-go", version="0.4.47", lacks=_KAFKA_GO),
    Past(client="kafka-go", version="0.4.49", lacks=_KAFKA_GO),
    Past(client="kafka-go", version="0.4.51", lacks=_KAFKA_GO),
    Past(
        client="KafkaJS",
        version="1.16.0",
        packages=("kafkajs-snappy@1.1.0", "lz4js@0.2.0", "zstd-codec@0.1.5"),
        lacks={
            "codec lz4": LZ4JS,
            "headers, nulls, timestamps": "KafkaJS before 2.0 cannot write two headers of one name, as this test does",
        },
    ),
    Past(
        client="KafkaJS",
        version="2.0.2",
        packages=("kafkajs-snappy@1.1.0", "lz4js@0.2.0", "zstd-codec@0.1.5"),
        lacks={"codec lz4": LZ4JS},
    ),
)
