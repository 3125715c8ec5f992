"""LG-10, LG-14, CP-16: poisoned batches by their bytes on the wire, and what a heavy one does to others."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kraftlite.cli.admin_calls import list_offsets
from kraftlite.cli.wire import ClusterClient, call
from kraftlite.log import codecs
from kraftlite.log.batch import parse_header
from kraftlite.model.errors import ErrorCode
from tests.harness.local import Cluster
from tests.harness.poison import CODECS, Poison, batch_of, compacted_poisons, fields, poisons, record, sized

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


def ask(address: str, topic: str, records: bytes | None, *, acks: int = -1) -> Any:
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    return call(address, 0, 9, values).responses[0].partition_responses[0]


def leader_of(cluster: Cluster, topic: str) -> str:
    cluster.wait_leader(topic)
    return ClusterClient(cluster.bootstrap).broker(cluster.leader(topic)).address


def end_of(cluster: Cluster, topic: str) -> int:
    client = ClusterClient(cluster.bootstrap)
    return list_offsets(client, {(topic, 0): -1}, client.leaders([topic]))[topic, 0][1]


def wrong(cluster: Cluster, address: str, topic: str, found: Poison) -> str | None:
    before = end_of(cluster, topic)
    answer = ask(address, topic, found.batch)
    code = ErrorCode(answer.error_code.value).name.lower()
    named = tuple(error.batch_index for error in answer.record_errors)
    grown = end_of(cluster, topic) - before
    expected = (found.ours, found.we_name, parse_header(found.batch).count if found.ours == "none" else 0)
    if found.ours != "none" and not answer.error_message:
        return f"{found.name}: no words"
    return (
        None
        if (code, named, grown) == expected
        else f"{found.name}: {code} {named}, the end moved by {grown}; expected {expected}"
    )


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_poisoned_batches_are_refused_and_move_nothing(cluster: Cluster, topic: str, cleanup: str) -> None:
    cluster.create_topic(topic, config={"cleanup.policy": cleanup})
    address = leader_of(cluster, topic)
    families = poisons() if cleanup == "delete" else compacted_poisons()
    assert [it for found in families if (it := wrong(cluster, address, topic, found))] == []


def test_no_batch_at_all(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    address = leader_of(cluster, topic)
    for records in (None, b"", b"short", bytes(60), bytes(61)):
        answer = ask(address, topic, records)
        assert ErrorCode(answer.error_code.value) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE), records
    assert end_of(cluster, topic) == 0


def test_retention_and_offsets_of_times_do_not_follow_the_header(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    address = leader_of(cluster, topic)
    for codec in CODECS:
        assert ask(address, topic, bytes(batch_of(record(fields(0)), 1, codec=codec, max_timestamp=2**62))).error_code.value == 0
    client = ClusterClient(cluster.bootstrap)
    found = list_offsets(client, {(topic, 0): 2**61}, client.leaders([topic]))[topic, 0]
    assert found[1] == -1, "there is no record of that time"


def bombs() -> dict[str, bytes]:
    """Small batches that cost much to check."""
    big = record(fields(0, value=sized(bytes(200_000_000))))
    tiny = b"".join(record(fields(at, key=b"\x01", value=b"\x01")) for at in range(90_000))
    members = b"".join(codecs.compress(codecs.GZIP, tiny[at : at + 20]) for at in range(0, 400_000, 20))
    return {
        "gzip": bytes(batch_of(big, 1, codec=codecs.GZIP)),
        "zstd": bytes(batch_of(big, 1, codec=codecs.ZSTD)),
        "gzip members": bytes(batch_of(tiny, 90_000, codec=codecs.GZIP, packed=members)),
        "tiny records": bytes(batch_of(tiny, 90_000)),
    }


def test_heavy_batches_hold_nobody_up(cluster: Cluster, topic: str) -> None:
    """While another connection keeps sending bombs, produces of a few bytes are answered at once, as far as the machine can."""
    cluster.create_topic(topic, config={"max.message.bytes": "10000000"})
    address = leader_of(cluster, topic)
    sent = bombs()
    answers: dict[str, Any] = {}

    def attack() -> None:
        for name, batch in sent.items():
            answers[name] = ErrorCode(ask(address, topic, batch).error_code.value)

    small, slowest = bytes(batch_of(record(fields(0)), 1)), 0.0
    attackers = [threading.Thread(target=attack) for _ in range(3)]
    for it in attackers:
        it.start()
    asked = 0
    while any(it.is_alive() for it in attackers):
        begun = time.perf_counter()
        assert ask(address, topic, small).error_code.value == 0
        slowest, asked = max(slowest, time.perf_counter() - begun), asked + 1
    assert set(answers) == set(sent) and answers["gzip"] is answers["zstd"] is answers["tiny records"] is ErrorCode.NONE
    assert answers["gzip members"] is ErrorCode.INVALID_RECORD, "the bytes end in the middle of a record"
    assert asked > 10, "others are served meanwhile"
