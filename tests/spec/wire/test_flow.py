"""Greedy and slow connections: what they may hold of the node's memory, and of its time. CP-68, CP-69."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from kraftlite.log.stored import SegmentFile, StoredRecords
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult, ProduceEntry
from kraftlite.replication.consume import FetchRoom
from kraftlite.runtime.trace.wire import ConnectionClosed
from kraftlite.simhost.disk import MemDisk
from kraftlite.wire.outbound import SLICE_BYTES
from kraftlite.wire.share import NodeShare
from tests.harness.wire_fakes import Harness, batch, partition, request_bytes, topic_uuid, until
from tests.spec.wire.test_connections import METADATA_ALL, MINIMAL, produce_values

MIB = 1 << 20
BIG = TopicPartition("big", 0)
TOPICS = {"events": [partition([1])], "big": [partition([1])]}


def big_file(h: Harness, size: int) -> SegmentFile:
    """What fetches of the topic `big` get: `size` bytes that are in a file."""
    disk = MemDisk()
    disk.makedirs("/data")
    file = disk.open("/data/big.log", create=True)
    file.pwritev([b"".join(at.to_bytes(4, "big") for at in range(size // 4))], 0)
    segment = SegmentFile(file)

    def read(entry: FetchEntry, params: FetchParams) -> FetchResult:
        size_asked = min(size, entry.max_bytes)
        return FetchResult(
            tp=entry.tp, error=ErrorCode.NONE, hw=1, last_stable_offset=1, log_start_offset=0,
            records=StoredRecords(segment, 0, size_asked),
        )  # fmt: skip

    h.replicas._read = read  # type: ignore[method-assign]
    return segment


def fetch(most: int, *, wait_ms: int = 0) -> dict[str, Any]:
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": most}
    topics = [{"topic": "big", "partitions": [place]}]
    return MINIMAL[1] | {"max_bytes": most, "max_wait": wait_ms, "min_bytes": 1, "topics": topics, "rack_id": ""}


async def settled(h: Harness) -> None:
    """Until nothing moves any more."""
    for _ in range(1_000):
        before = h.listener.share.responses.held_bytes
        await asyncio.sleep(0.02)
        if before and before == h.listener.share.responses.held_bytes:
            return


async def test_an_answer_that_nobody_reads_costs_a_slice() -> None:
    """CP-69."""
    async with Harness(TOPICS) as h:
        big_file(h, 36 * MIB)
        clients = [await h.client() for _ in range(50)]
        for client in clients:
            client._reader._transport.pause_reading()
            client.send(1, 11, fetch(36 * MIB))
        await until(lambda: len(h.replicas.fetches) == 50)
        await settled(h)
        held = h.listener.share.responses.held_bytes
        assert 0 < held <= 50 * (SLICE_BYTES + 1_000), "it was 36 MiB for each"
        good = await h.client()
        await good.call(3, 9, METADATA_ALL)
        for client in clients:
            client._writer.transport.abort()
        await until(lambda: h.listener.share.responses.held_bytes == 0)


async def test_an_answer_from_a_file_arrives_whole_and_in_order() -> None:
    async with Harness(TOPICS) as h:
        segment = big_file(h, 5 * MIB)
        client = await h.client()
        sent = [client.send(1, 11, fetch(most)) for most in (5 * MIB, 100, 3 * MIB)]
        for correlation_id, most in zip(sent, (5 * MIB, 100, 3 * MIB), strict=True):
            answer = await client.receive(1, 11, correlation_id)
            assert answer.responses[0].partitions[0].records == segment.file.pread(most, 0)


@pytest.mark.parametrize("what", ["an I/O error", "truncated"])
async def test_records_that_cannot_be_read_any_more_cost_the_connection(what: str) -> None:
    async with Harness(TOPICS) as h:
        segment = big_file(h, 36 * MIB)
        client = await h.client()
        client._reader._transport.pause_reading()
        client.send(1, 11, fetch(36 * MIB))
        await until(lambda: len(h.replicas.fetches) == 1)
        await settled(h)

        def broken(length: int, offset: int) -> bytes:
            raise OSError(5, "I/O error")

        if what == "truncated":
            segment.cuts.append(10 * MIB)
        else:
            segment.file.pread = broken  # type: ignore[method-assign]
        client._reader._transport.resume_reading()
        await until(lambda: h.listener.connection_count == 0)
        (closed,) = [event for event in h.tracer.events if isinstance(event, ConnectionClosed)]
        assert "cannot be read" in closed.reason
        assert h.listener.share.responses.held_bytes == 0


async def test_an_idle_reader_is_closed_and_its_memory_freed_at_once() -> None:
    """CP-69."""
    async with Harness(TOPICS, listener={"max_idle_ms": 60_000}) as h:
        big_file(h, 36 * MIB)
        client = await h.client()
        client._reader._transport.pause_reading()
        client.send(1, 11, fetch(36 * MIB))
        await until(lambda: len(h.replicas.fetches) == 1)
        await settled(h)
        assert h.listener.share.responses.held_bytes > 0
        h.clock.advance(70_000)
        assert h.listener.share.responses.held_bytes == 0
        await until(lambda: h.listener.connection_count == 0)


async def test_announced_frames_cost_what_has_come_and_small_requests_go_on() -> None:
    async with Harness(TOPICS) as h:
        share = h.listener._share = NodeShare(h.clock.now_ms, queued_max_request_bytes=4 * MIB)
        clients = [await h.client() for _ in range(100)]
        for client in clients:
            client.send_bytes(struct.pack(">i", 900_000) + bytes(200_000))
        await until(lambda: share.receive.waiting > 0)
        await asyncio.sleep(0.05)
        buffers = sum(connection._in.capacity for connection in h.listener._connections)
        assert share.receive.held_bytes <= 4 * MIB + MIB
        assert buffers <= 4 * MIB + MIB + 100 * 64 * 1024
        good = await h.client()
        await good.call(3, 9, METADATA_ALL)
        await good.call(0, 9, produce_values(b"x" * 10_000))
        for _ in range(4):
            h.clock.advance(6_000)
            await asyncio.sleep(0.01)
        reasons = [event.reason for event in h.tracer.events if isinstance(event, ConnectionClosed)]
        assert reasons and all("others wait" in reason for reason in reasons)


async def test_large_frames_that_wait_for_memory_all_get_through() -> None:
    """CP-69. All are half here when the memory is used up: without an order they would wait for each other."""
    async with Harness(TOPICS) as h:
        share = h.listener._share = NodeShare(h.clock.now_ms, queued_max_request_bytes=MIB)
        clients = [await h.client() for _ in range(20)]
        frames = [request_bytes(0, 9, produce_values(bytes([at]) * 800_000, topic="big"), at) for at in range(20)]
        for client, frame in zip(clients, frames, strict=True):
            client.send_bytes(struct.pack(">i", len(frame)) + frame[:300_000])
        await until(lambda: share.receive.waiting > 0)
        for client, frame in zip(clients, frames, strict=True):
            client.send_bytes(frame[300_000:])
        for at, client in enumerate(clients):
            await client.receive(0, 9, at)
        assert share.receive.waiting == 0 and len(h.replicas.appended) == 20
        assert share.receive.held_bytes <= MIB


async def test_a_good_client_is_answered_beside_a_storm_of_pipelines() -> None:
    """CP-68. In order, not in time: of 100 x 100 requests only some are taken before the good client's, which comes last."""
    async with Harness(TOPICS) as h:
        big_file(h, MIB)
        greedy = [await h.client() for _ in range(100)]
        good = await h.client()
        correlation = good.send(3, 9, METADATA_ALL)
        await good.receive(3, 9, correlation)

        async def drain(reader: asyncio.StreamReader) -> None:
            while await reader.read(1 << 20):
                pass

        sinks = [asyncio.get_running_loop().create_task(drain(client._reader)) for client in greedy]
        storm = b"".join(struct.pack(">i", len(one)) + one for one in [request_bytes(1, 11, fetch(20_000), 1)] * 100)
        taken: list[int] = []
        for client in greedy:
            client.send_bytes(storm)
        await until(lambda: h.apis.requests["Fetch"] > 0)
        for _ in range(5):
            before = h.apis.requests["Fetch"]
            await good.call(3, 9, METADATA_ALL)
            taken.append(h.apis.requests["Fetch"] - before)
        assert max(taken) < 5_000, "the loop was somebody's for half of the storm"
        await until(lambda: h.apis.requests["Fetch"] == 10_000, turns=20_000)
        for sink in sinks:
            sink.cancel()


async def test_a_client_that_sends_and_goes_has_its_requests_worked_on() -> None:
    async with Harness(TOPICS) as h:
        client = await h.client()
        for _ in range(200):
            client.send(0, 9, produce_values(b"x", acks=0))
        client.close()
        await until(lambda: len(h.replicas.appended) == 200)
        await until(lambda: h.listener.connection_count == 0)


async def test_kernel_buffers_are_bounded_as_kafka_bounds_them() -> None:
    async with Harness(TOPICS) as h:
        await h.client()
        await until(lambda: h.listener.connection_count == 1)
        (connection,) = h.listener._connections
        sock = connection._transport.get_extra_info("socket")
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            assert sock.getsockopt(socket.SOL_SOCKET, option) <= 2 * 102_400


async def test_a_fetch_of_very_many_partitions_is_worked_on_in_steps() -> None:
    async with Harness({"events": [partition([1])] * 5_000}) as h:
        client, other = await h.client(), await h.client()
        places = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 100} for at in range(5_000)]
        values = MINIMAL[1] | {"max_wait": 0, "topics": [{"topic": "events", "partitions": places}], "rack_id": ""}
        first = client.send(1, 11, values)
        await until(lambda: len(h.replicas.fetches) > 0)
        assert len(h.replicas.fetches[0][1]) <= 250
        await other.call(3, 9, METADATA_ALL | {"topics": []})
        assert len(h.replicas.fetches) < 20, "others have their turn before it is done"
        answer = await client.receive(1, 11, first)
        assert [it.partition_index for it in answer.responses[0].partitions] == list(range(5_000))


async def test_a_fetch_of_very_many_partitions_hears_of_what_comes_while_it_reads() -> None:
    """A partition that was read, and found empty, may get records while the others are read: nobody else would wake the fetch."""
    async with Harness({"events": [partition([1])] * 2_000}) as h:
        read = h.replicas.fetch_some

        def fetch_some(room: FetchRoom, entries: Sequence[FetchEntry]) -> list[FetchResult]:
            results = read(room, entries)
            if len(h.replicas.fetches) == 3:
                entry = ProduceEntry(tp=TopicPartition("events", 0), topic_id=topic_uuid(0), records=memoryview(batch(b"v")))
                h.replicas.append([entry], acks=1, timeout_ms=0, on_done=lambda results: None)
            return results

        h.replicas.fetch_some = fetch_some  # type: ignore[method-assign]
        client = await h.client()
        places = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 100} for at in range(2_000)]
        values = MINIMAL[1] | {
            "max_wait": 60_000,
            "min_bytes": 1,
            "topics": [{"topic": "events", "partitions": places}],
            "rack_id": "",
        }
        asked = client.send(1, 11, values)
        await until(lambda: len(h.replicas.fetches) >= 8)
        async with asyncio.timeout(5):
            answer = await client.receive(1, 11, asked)
        assert answer.responses[0].partitions[0].records
