"""Batches that cost much to check, sent to a real node: others are served meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kraftlite.local.client import cluster_at
from kraftlite.log import codecs
from kraftlite.model.errors import ErrorCode
from tests.clients.raw import Connection
from tests.harness.local import CALM, running
from tests.harness.poison import batch_of, fields, record, sized

pytestmark = pytest.mark.cluster


def ask(address: str, topic: str, *batches: bytes) -> list[ErrorCode]:
    """The codes of one request with a batch for each partition."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    values: dict[str, Any] = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 60_000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    (found,) = cluster_at(address).call(0, 9, values).responses
    return [ErrorCode(it.error_code.value) for it in found.partition_responses]


def heavy() -> dict[str, list[bytes]]:
    """Requests, each of less than a megabyte."""
    big = record(fields(0, value=sized(bytes(200_000_000))))
    tiny = b"".join(record(fields(at, key=b"\x01", value=b"\x01")) for at in range(90_000))
    members = b"".join(codecs.compress(codecs.GZIP, tiny[at : at + 20]) for at in range(0, len(tiny), 20))[:1_000_000]
    return {
        "gzip": [bytes(batch_of(big, 1, codec=codecs.GZIP))],
        "zstd": [bytes(batch_of(big, 1, codec=codecs.ZSTD))],
        "snappy": [bytes(batch_of(big[:16_000_000] + bytes(9), 1, codec=codecs.SNAPPY))],
        "lz4": [bytes(batch_of(big, 1, codec=codecs.LZ4))],
        "gzip members": [bytes(batch_of(tiny, 90_000, codec=codecs.GZIP, packed=members))],
        "tiny records": [bytes(batch_of(tiny, 90_000))],
        "a hundred at once": [bytes(batch_of(big[:2_000_000], 1, codec=codecs.ZSTD))] * 100,
    }


def test_heavy_batches_hold_nobody_up() -> None:
    with running(controllers=1, brokers=1, combined=True, config=CALM) as cluster:
        cluster.create_topic("orders", partitions=100, replication=1)
        address = cluster.bootstrap
        answers: dict[str, list[ErrorCode]] = {}
        small = bytes(batch_of(record(fields(0)), 1))

        def attack(name: str, batches: list[bytes]) -> None:
            answers[name] = ask(address, "orders", *batches)

        attackers = [threading.Thread(target=attack, args=it) for it in heavy().items()]
        waited: list[float] = []
        victim = Connection(address)
        for it in attackers:
            it.start()
        while any(it.is_alive() for it in attackers):
            begun = time.perf_counter()
            victim.ask(_api_versions())
            waited.append(time.perf_counter() - begun)
            time.sleep(0.001)
        victim.close()
        print({name: sorted({code.name for code in codes}) for name, codes in answers.items()}, len(waited), max(waited))
        assert answers["gzip"] == answers["zstd"] == answers["lz4"] == answers["tiny records"] == [ErrorCode.NONE]
        assert answers["snappy"] == answers["gzip members"] == [ErrorCode.INVALID_RECORD]
        assert set(answers["a hundred at once"]) == {ErrorCode.INVALID_RECORD}
        assert max(waited) < 1.0, "no answer of others waits for a check; the bound is for a machine that is busy"
        assert ask(address, "orders", small) == [ErrorCode.NONE]


def _api_versions() -> Any:
    from kraftlite.protocol.kio_codec import build_entity
    from kio.index import load_request_schema  # isort: skip

    return build_entity(load_request_schema(18, 3), {"client_software_name": "x", "client_software_version": "1"})
