"""What administrators ask about transactions, over the wire, and the markers that they write."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.kio_codec import decode_response
from tests.harness.transaction_fakes import description
from tests.harness.wire_fakes import RawClient
from tests.spec.wire.test_transactions import DESCRIBE, LIST, MARKERS, code, transactions

E = ErrorCode

# --- WriteTxnMarkers -----------------------------------------------------------------------------------------------------


def marker(producer_id: int, topics: dict[str, list[int]], *, commit: bool = False, version: int = 0) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 3,
        "transaction_result": commit,
        "coordinator_epoch": 9,
        "transaction_version": version,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_tp_26_markers_of_administrators(version: int) -> None:
    async with transactions() as h:
        h.markers.errors = {TopicPartition("t", 1): E.NOT_LEADER_OR_FOLLOWER}
        wanted = [
            marker(7, {"t": [0, 1], OFFSETS_TOPIC: [2]}),
            marker(8, {"t": [0]}, commit=True, version=2),
            marker(7, {"t": [2]}),
            marker(9, {}),
        ]
        answer = await (await h.client()).call(MARKERS, version, {"markers": wanted})
        found = {
            one.producer_id: {(t.name, p.partition_index): code(p) for t in one.topics for p in t.partitions}
            for one in answer.markers
        }
        assert found == {
            7: {("t", 0): E.NONE, ("t", 1): E.NOT_LEADER_OR_FOLLOWER, (OFFSETS_TOPIC, 2): E.NONE, ("t", 2): E.NONE},
            8: {("t", 0): E.NONE},
            9: {},
        }
        assert len(answer.markers) == 3, "one result for each producer"
        written = [
            (it.producer_id, it.producer_epoch, it.coordinator_epoch, it.commit, it.version, it.tp) for it in h.markers.written
        ]
        assert written == [
            (7, 3, 9, False, 0, TopicPartition("t", 0)),
            (7, 3, 9, False, 0, TopicPartition("t", 1)),
            (7, 3, 9, False, 0, TopicPartition(OFFSETS_TOPIC, 2)),
            (8, 3, 9, True, 2 if version >= 2 else 0, TopicPartition("t", 0)),
            (7, 3, 9, False, 0, TopicPartition("t", 2)),
        ]


async def test_tp_26_a_marker_that_no_log_can_hold_is_not_written() -> None:
    async with transactions() as h:
        odd = ({"producer_id": -1}, {"producer_epoch": -1}, {"transaction_version": -1}, {"transaction_version": -128})
        for fields in odd:
            wanted = [marker(8, {"t": [0]}), {**marker(7, {"t": [0, 1, 99]}), **fields}]
            answer = await (await h.client()).call(MARKERS, 2, {"markers": wanted})
            found = [[code(p) for t in one.topics for p in t.partitions] for one in answer.markers]
            assert found == [[E.NONE], [E.UNKNOWN_SERVER_ERROR] * 2 + [E.UNKNOWN_TOPIC_OR_PARTITION]]
        assert {it.producer_id for it in h.markers.written} == {8}


# --- DescribeTransactions, ListTransactions ------------------------------------------------------------------------------


async def describe(client: RawClient, *names: str) -> tuple[Any, ...]:
    """Read by our own reader: kio's has no times before 1970, with which Kafka says that there is none."""
    client.send(DESCRIBE, 0, {"transactional_ids": list(names)})
    found: tuple[Any, ...] = decode_response(DESCRIBE, 0, memoryview(await client.read_frame())).transaction_states
    return found


async def test_ta_01_transactions_are_described() -> None:
    async with transactions() as h:
        client = await h.client()
        tps = [TopicPartition("u", 3), TopicPartition("t", 2), TopicPartition("t", 0)]
        h.transactions.described = {
            "x": description("x", TransactionState.PREPARE_COMMIT, *tps, start_ms=1_700_000_000_123),
            "idle": description("idle", TransactionState.EMPTY),
        }
        found = {one.transactional_id: one for one in await describe(client, "x", "idle", "nobody", "")}
        assert {name: code(one) for name, one in found.items()} == {
            "x": E.NONE,
            "idle": E.NONE,
            "nobody": E.TRANSACTIONAL_ID_NOT_FOUND,
            "": E.INVALID_REQUEST,
        }
        one = found["x"]
        assert (one.transaction_state, one.producer_id, one.producer_epoch) == ("PrepareCommit", 7, 3)
        assert one.transaction_timeout.total_seconds() == 60
        assert one.transaction_start_time == 1_700_000_000_123
        assert [(topic.topic, topic.partitions) for topic in one.topics] == [("t", (0, 2)), ("u", (3,))]
        assert found["idle"].transaction_state == "Empty" and found["idle"].transaction_start_time == -1
        assert len(await describe(client, *["x"] * 1_000, "idle")) == 2, "an id that is named again is told once"
        h.transactions.error = E.COORDINATOR_LOAD_IN_PROGRESS
        (loading,) = await describe(client, "x")
        assert code(loading) is E.COORDINATOR_LOAD_IN_PROGRESS
        await h.apply({})
        (nowhere,) = await describe(client, "x")
        assert code(nowhere) is E.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(3))
async def test_ta_02_transactions_are_listed(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        h.transactions.described = {"x": description("x", TransactionState.ONGOING)}
        h.transactions.unknown_states = ("Nonsense",)
        wanted = {"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": [7, 8]}
        answer = await client.call(LIST, version, wanted | {"duration_filter": 5000, "transactional_id_pattern": "x.*"})
        assert code(answer) is E.NONE and list(answer.unknown_state_filters) == ["Nonsense"]
        assert [(it.transactional_id, it.producer_id, it.transaction_state) for it in answer.transaction_states] == [
            ("x", 7, "Ongoing")
        ]
        assert h.transactions.asked == [
            (
                "list",
                {
                    "states": ["Ongoing", "Nonsense"],
                    "producer_ids": [7, 8],
                    "min_duration_ms": 5000 if version >= 1 else -1,
                    "pattern": "x.*" if version >= 2 else None,
                },
            )
        ]
        h.transactions.error = E.COORDINATOR_LOAD_IN_PROGRESS
        answer = await client.call(LIST, version, wanted)
        assert code(answer) is E.COORDINATOR_LOAD_IN_PROGRESS and answer.transaction_states == ()
