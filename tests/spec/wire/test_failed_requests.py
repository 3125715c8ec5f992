"""Which exceptions cost a request, and which end the node (docs/adr/0005)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode, Fault, HalfChanged, changing
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.node.faults import FaultSink
from kraftlite.runtime.trace import ListTracer
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import Harness, batch, partition, until

ALLOCATE_ID, PRODUCE, METADATA, LIST_GROUPS = 22, 0, 3, 16
CREATABLE = {
    "name": "made", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [],
}  # fmt: skip


def broken(*_args: Any, **_more: Any) -> Any:
    raise AssertionError("a bug")


def produce_values() -> dict[str, Any]:
    records = bytes(batch(b"x"))
    data = [{"name": "events", "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": 1, "timeout": 1000, "topic_data": data}


async def test_a_bug_costs_the_request_and_is_told_with_its_stack() -> None:
    """CP-66."""
    async with Harness() as h:
        client = await h.client()
        h.context.producer_ids.next_id = broken  # type: ignore[method-assign]
        wanted = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        answer = await client.call(ALLOCATE_ID, 4, wanted)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        (event,) = h.bugs
        assert event.api == "InitProducerId"
        assert event.error == "AssertionError: a bug"
        assert "in broken" in event.trace
        h.tracer.events.clear()
        assert (await client.call(METADATA, 7, {"topics": None, "allow_auto_topic_creation": False})).topics, (
            "the connection goes on"
        )


async def test_without_a_place_for_the_error_the_connection_is_closed_and_no_other() -> None:
    """CP-66."""
    async with Harness() as h:
        client, other, third = await h.client(), await h.client(), await h.client()
        h.replicas.append = broken  # type: ignore[method-assign]
        client.send(PRODUCE, 9, produce_values())
        assert await client.closed()
        h.controller.answers[CREATE_TOPICS] = broken
        other.send(19, 7, {"topics": [CREATABLE], "timeout": 1000, "validate_only": False})
        assert await other.closed()
        assert [event.api for event in h.bugs] == ["Produce", "CreateTopics"]
        h.tracer.events.clear()
        assert (await third.call(METADATA, 7, {"topics": None, "allow_auto_topic_creation": False})).topics


async def test_a_fault_in_a_request_stops_the_node() -> None:
    """CP-66."""
    async with Harness() as h:
        client, other = await h.client(), await h.client()

        def faulty(*_args: Any, **_more: Any) -> Any:
            raise Fault("half an append")

        h.replicas.append = faulty  # type: ignore[method-assign]
        client.send(PRODUCE, 9, produce_values())
        assert await client.closed()
        h.controller.answers[CREATE_TOPICS] = faulty
        other.send(19, 7, {"topics": [CREATABLE], "timeout": 1000, "validate_only": False})
        assert await other.closed()
        assert [(str(error), where) for error, where in h.faults] == [
            ("half an append", "wire.Produce"),
            ("half an append", "wire.CreateTopics"),
        ]
        h.faults.clear()


async def test_a_bug_while_a_parked_produce_is_answered_does_not_reach_who_moved_the_high_watermark() -> None:
    async with Harness({"events": [partition([1, 2])]}) as h:
        client = await h.client()
        client.send(PRODUCE, 9, produce_values() | {"acks": -1})
        await until(lambda: bool(h.replicas.parked))
        (parked,) = h.replicas.parked
        h.replicas.parked = []
        results = next(cell.cell_contents for cell in parked.__closure__ or () if isinstance(cell.cell_contents, list))
        results[0] = replace(results[0], base_offset=2**70)  # which no answer can be made of
        parked()
        assert await client.closed()
        assert [event.api for event in h.bugs] == ["Produce"]
        h.tracer.events.clear()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KeyError("x"), HalfChanged), (AssertionError(), HalfChanged), (Fault("x"), Fault), (OSError(5, "io"), OSError)],
)
def test_what_breaks_off_a_change_of_state_is_a_fault(error: Exception, kind: type[Exception]) -> None:
    """CP-66."""
    with pytest.raises(kind) as found, changing("append to events-0"):
        raise error
    assert type(found.value) is kind


def test_a_half_changed_state_is_reported_with_the_stack_of_the_bug() -> None:
    sink, tracer = FaultSink(), ListTracer()
    sink.attach(tracer)
    try:
        with changing("append to events-0"):
            broken()
    except HalfChanged as error:
        sink(error, "wire.Produce")
    (event,) = tracer.events
    assert event.facts()["reason"] == "append to events-0: AssertionError: a bug"
    assert "in broken" in event.facts()["trace"]


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1, -1, 0])
@pytest.mark.parametrize("key", [39, 40])
async def test_no_time_of_a_token_is_too_far_away_to_be_read(key: int, time: int) -> None:
    """27 bytes of it used to end the broker."""
    async with Harness() as h:
        client = await h.client()
        body = struct.pack(">hhih", key, 1, 5, -1) + struct.pack(">i", 0) + struct.pack(">q", time)
        client.send_frame(body)
        answer = await client.read_frame()
        assert struct.unpack_from(">ih", answer) == (5, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def test_a_bug_while_a_fetch_waits_costs_the_fetch() -> None:
    """CP-66."""
    async with Harness() as h:
        client = await h.client()
        read = h.replicas.fetch_now
        wait = {
            "replica_id": -1,
            "max_wait": 10_000,
            "min_bytes": 1,
            "max_bytes": 1000,
            "isolation_level": 0,
            "topics": [{"topic": "events", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
        }
        looked: list[bool] = []

        def breaks_later(*arguments: Any) -> Any:
            looked.append(True)
            return read(*arguments) if len(looked) == 1 else broken()

        h.replicas.fetch_now = breaks_later  # type: ignore[method-assign]
        client.send(1, 4, wait)
        await until(lambda: len(looked) == 1)
        await (await h.client()).call(PRODUCE, 3, {"transactional_id": None} | produce_values())
        await until(lambda: len(h.bugs) == 1)
        assert [event.api for event in h.bugs] == ["Fetch"]
        assert await client.closed()
        h.tracer.events.clear()


@pytest.mark.parametrize("field", ["client id", "instance id"])
async def test_a_name_that_no_record_could_hold_is_refused_before_a_group_changes(field: str) -> None:
    """A client id of bytes that are no UTF-8 is three times as long as a string; writing it broke off a step of the shard."""
    async with GroupHarness() as h:
        client = await h.client()
        client_id = b"\xff" * 32_000 if field == "client id" else b"c"
        instance = b"i" * 32_750 if field == "instance id" else None
        body = b"\x00\x01g" + struct.pack(">ii", 10_000, 10_000) + b"\x00\x00"
        body += struct.pack(">h", -1) if instance is None else struct.pack(">h", len(instance)) + instance
        body += b"\x00\x08consumer" + struct.pack(">i", 1) + b"\x00\x01r" + struct.pack(">i", 0)
        client.send_frame(struct.pack(">hhih", 11, 5, 5, len(client_id)) + client_id + body)
        answer = await client.read_frame()
        assert struct.unpack_from(">iih", answer) == (5, 0, ErrorCode.INVALID_REQUEST)
        assert h.groups.list_groups() == ()
