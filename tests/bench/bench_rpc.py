"""What calls between nodes and metadata records cost: `python -m tests.bench.bench_rpc [--json FILE]`.

Two transports in one process over the loopback, so CPU figures are both ends together. CPU time is the stable figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from kraftlite.host.clock import HostClock
from kraftlite.host.disk import HostDisk
from kraftlite.host.loop import new_event_loop
from kraftlite.host.tasks import HostTasks
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import PartitionChangeRecord, TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages import replica as p
from kraftlite.model.messages.controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REPLICA_FETCH
from kraftlite.rpc.codec import MessageCodec
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import Handlers, Ports
from kraftlite.runtime.trace import NullTracer
from kraftlite.wire.apis import KafkaApis
from kraftlite.wire.listener import ListenerConfig
from kraftlite.wire.share import NodeShare
from kraftlite.wire.shared_port import SharedPortListener
from kraftlite.wire.sockets import bound_socket
from tests.harness.metadata_support import partition, provenance

Figures = dict[str, float]


def fetch_request(count: int, max_bytes: int = 0) -> p.ReplicaFetchRequest:
    return p.ReplicaFetchRequest(
        replica_id=NodeId(2),
        replica_epoch=7,
        cluster_id="c",
        session_id=0,
        session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        partition_max_bytes=1,
        partitions=tuple(
            p.ReplicaFetchPartition(
                topic_id=UUID(int=1000 + index // 10),
                partition=index % 10,
                current_leader_epoch=3,
                fetch_offset=1_000_000 + index,
                last_fetched_epoch=3,
                log_start_offset=0,
            )
            for index in range(count)
        ),
        forgotten=(),
    )


def timed(action: Callable[[], object], times: int) -> float:
    """CPU microseconds per call, best of three."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(times):
            action()
        best = min(best, (time.process_time() - started) / times * 1e6)
    return best


def records() -> Figures:
    serde = MetadataSerde()
    record = partition(UUID(int=5), 7)
    data = serde.encode(record)
    codec = MessageCodec(REPLICA_FETCH, p.ReplicaFetchRequest)
    request = fetch_request(1000)
    head, payload = codec.split(request)
    return {
        "partition_record_decodes_per_s": 1e6 / timed(lambda: serde.decode(data), 30_000),
        "partition_record_encodes_per_s": 1e6 / timed(lambda: serde.encode(record), 30_000),
        "replica_fetch_1000_partitions_encode_us": timed(lambda: codec.split(request), 30),
        "replica_fetch_1000_partitions_decode_us": timed(lambda: codec.join(head, payload), 30),
    }


def images() -> Figures:
    topic_id = UUID(int=1)
    delta = MetadataDelta(MetadataImage.EMPTY)
    started = time.process_time()
    for topic in range(10_000):
        other = UUID(int=10 + topic)
        delta.replay(TopicRecord(name=f"t{topic}", topic_id=other))
        for index in range(10):
            delta.replay(partition(other, index))
    delta.replay(TopicRecord(name="big", topic_id=topic_id))
    for index in range(2_000):
        delta.replay(partition(topic_id, index))
    image = delta.apply(provenance())
    built = time.process_time() - started

    def one_change() -> None:
        step = MetadataDelta(image)
        step.replay(PartitionChangeRecord(topic_id=topic_id, partition=77, leader=NodeId(2)))
        step.apply(provenance())

    return {
        "image_of_102000_partitions_cpu_s": built,
        "one_partition_change_of_a_2000_partition_topic_us": timed(one_change, 1_000),
    }


async def shared_port(transport: GrpcTransport, handlers: Handlers) -> Endpoint:
    """The handlers behind a port that Kafka's clients use, too, as a controller's are."""
    errors: list[object] = []
    ports = Ports(
        node_id=NodeId(1),
        clock=HostClock(),
        disk=HostDisk(),
        transport=transport,
        tracer=NullTracer(),
        tasks=HostTasks(lambda error, where: errors.append(error)),
        entropy=random.Random(1),
        fault=lambda error, where: errors.append(error),
    )

    async def no_clients() -> KafkaApis:
        raise AssertionError("nobody speaks Kafka here")

    relay = await transport.serve_behind(Endpoint("127.0.0.1", 0), handlers)
    config = ListenerConfig(name="CONTROLLER", host="127.0.0.1", port=0)
    share = NodeShare(ports.clock.now_ms)
    listener = SharedPortListener(ports, config, no_clients, relay.carry, share, bound_socket("127.0.0.1", 0))
    return await listener.start()


async def calls(*, shared: bool) -> Figures:
    async def heartbeat(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=False)

    async def fetch(request: p.ReplicaFetchRequest) -> p.ReplicaFetchResponse:
        return p.ReplicaFetchResponse(error=ErrorCode.NONE, session_id=0, partitions=(), payload=b"x" * request.max_bytes)

    server, client = GrpcTransport(), GrpcTransport()
    handlers: Handlers = {BROKER_HEARTBEAT: heartbeat, REPLICA_FETCH: fetch}
    endpoint = await (shared_port(server, handlers) if shared else server.serve(Endpoint("127.0.0.1", 0), handlers))
    beat = BrokerHeartbeatRequest(
        broker_id=NodeId(1),
        broker_epoch=5,
        current_metadata_offset=9,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
    )

    async def measure(name: str, call: Callable[[], Awaitable[object]], times: int, in_flight: int) -> Figures:
        await asyncio.gather(*[call() for _ in range(in_flight)])

        async def lane() -> None:
            for _ in range(times // in_flight):
                await call()

        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*[lane() for _ in range(in_flight)])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        name = f"shared_port_{name}" if shared else name
        return {f"{name}_cpu_us": cpu / times * 1e6, f"{name}_wall_us": wall / times * 1e6}

    small, large = fetch_request(1, 100), fetch_request(1, 1 << 20)
    figures: Figures = {}
    figures |= await measure("heartbeat_unary_1_in_flight", lambda: client.call(endpoint, BROKER_HEARTBEAT, beat, 5000), 1000, 1)
    figures |= await measure("fetch_100b_stream_1_in_flight", lambda: client.call(endpoint, REPLICA_FETCH, small, 5000), 1000, 1)
    figures |= await measure(
        "fetch_100b_stream_16_in_flight", lambda: client.call(endpoint, REPLICA_FETCH, small, 5000), 1600, 16
    )
    figures |= await measure("fetch_1mib_stream_1_in_flight", lambda: client.call(endpoint, REPLICA_FETCH, large, 5000), 200, 1)
    await client.close()
    await server.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    loop = new_event_loop()  # one for both: gRPC keeps the first
    figures = {**records(), **images()}
    for shared in (False, True):
        figures |= loop.run_until_complete(calls(shared=shared))
    for name, value in figures.items():
        print(f"{name:<60} {value:>14.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
