"""Produces single batches and looks what came of it: of this cluster, or of an Apache Kafka.

`scripts/apache-kafka -- python -m tests.fuzz.asking {}` prints what Kafka says to each kind of batch in `tests.fuzz.batches`.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from tests.fuzz import batches
from tests.fuzz.client import CREATE_TOPICS, METADATA, PATIENCE_S, PRODUCE, Client, fetch
from tests.fuzz.sound import flaw


def create(client: Client, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    client.call(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 20_000, "validate_only": False})
    flags = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = client.call(METADATA, 8, {"topics": [{"name": name}], "allow_auto_topic_creation": False, **flags})
        (found,) = answer.topics
        if found.partitions and all(it.leader_id >= 0 for it in found.partitions):
            return
        assert time.monotonic() < end, f"{name} is not led"
        time.sleep(0.05)


def produce(client: Client, topic: str, data: bytes, *, version: int = 8) -> Any:
    """The partition's answer."""
    part = {"name": topic, "partition_data": [{"index": 0, "records": data}]}
    body = {"transactional_id": None, "acks": -1, "timeout": 20_000, "topic_data": [part]}
    return client.call(PRODUCE, version, body).responses[0].partition_responses[0]


def outcome(client: Client, topic: str, make: batches.Make, seed: int) -> tuple[int, int, str | None]:
    """(error code, by how much the high watermark has moved, what is wrong with what is served). The topic is sound before."""
    end = time.monotonic() + PATIENCE_S
    while (before := fetch(client, topic, 0, 0)[2]) < 0:  # it is led, and the leader does not know it yet
        assert time.monotonic() < end, f"nothing is known of {topic}"
        time.sleep(0.02)
    told = produce(client, topic, make(random.Random(seed)).encode())
    _error, data, after = fetch(client, topic, 0, before)
    wrong = flaw(data, before, dense=True)[1] if after > before else None
    return int(told.error_code), after - before, wrong


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    client = Client((host, int(port)))
    for kind, table in (("broken", batches.BROKEN), ("odd", batches.ODD)):
        for name, make in table.items():
            topic = f"{kind}-{name}"
            create(client, topic)
            for seed in range(4):
                try:
                    print(kind, name, seed, *outcome(client, topic, make, seed), flush=True)
                except Exception as error:  # noqa: BLE001 - told, and the next is asked
                    print(kind, name, seed, type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main()
