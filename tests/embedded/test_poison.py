"""LG-10, LG-14, CP-16: poisoned batches by their bytes on the wire. Heavy ones: tests/cluster/test_heavy_batches.py."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.client.admin import list_offsets
from kraftlite.local.client import cluster_at
from kraftlite.log.batch import parse_header
from kraftlite.model.errors import ErrorCode
from tests.harness.local import Cluster
from tests.harness.poison import CODECS, Poison, batch_of, compacted_poisons, fields, poisons, record

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


def ask(address: str, topic: str, records: bytes | None, *, acks: int = -1) -> Any:
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    return cluster_at(address).call(0, 9, values).responses[0].partition_responses[0]


def leader_of(cluster: Cluster, topic: str) -> str:
    cluster.wait_leader(topic)
    return cluster_at(cluster.bootstrap).broker(cluster.leader(topic)).address


def end_of(cluster: Cluster, topic: str) -> int:
    client = cluster_at(cluster.bootstrap)
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
    client = cluster_at(cluster.bootstrap)
    found = list_offsets(client, {(topic, 0): 2**61}, client.leaders([topic]))[topic, 0]
    assert found[1] == -1, "there is no record of that time"
