"""Controller numbers: how fast metadata is written, and how fast a controller that starts takes up a long log."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.driver import ControllerDriver
from kraftlite.host.clock import HostClock
from kraftlite.host.disk import HostDisk
from kraftlite.host.loop import new_event_loop
from kraftlite.host.memory import tune_gc
from kraftlite.host.tasks import HostTasks
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import MetadataRecord, PartitionChangeRecord
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.raft.config import QuorumConfig, Voter
from kraftlite.raft.driver import RaftDriver
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import NullTracer
from tests.harness.controller_world import BOOTSTRAP, CLUSTER_ID, World
from tests.harness.transport import MemNetwork

TOPICS: Final = 8
PARTITIONS: Final = 9_000
CHANGES: Final = 50_000
NODE: Final = NodeId(1)


def controller() -> dict[str, Any]:
    world = World(2)
    world.start_brokers(1, 2, 3)
    began = time.perf_counter()
    world.create("big", 2_000, 3)
    create_s = time.perf_counter() - began
    for number in range(TOPICS):
        world.create(f"more-{number}", PARTITIONS, 3)
    info = world.state.replication.topic("more-0")
    batches: list[Sequence[MetadataRecord]] = [batch.records for batch in world.quorum.batches if batch.records]
    for start in range(0, CHANGES, 1_000):
        changed = [index % PARTITIONS for index in range(start, start + 1_000)]
        batches.append([PartitionChangeRecord(topic_id=info.topic_id, partition=i, isr=info.partitions[i].isr) for i in changed])
    records = sum(map(len, batches))
    cpu_s, wall_s = replay(batches)
    return {
        "create 2,000 partitions x 3: in the controller alone, ms": round(create_s * 1e3, 1),
        f"controller replays {records:,} records: records per s": round(records / wall_s),
        "  records per CPU second": round(records / cpu_s),
    }


def replay(batches: Sequence[Sequence[MetadataRecord]]) -> tuple[float, float]:
    """CPU and wall seconds from opening a metadata log of these batches to an active controller.

    All of it is real: segments on disk checked batch by batch as after a crash, an election, protobuf records, raft's delivery
    in slices, the controller's queue and its timeline state. One voter, so that no network and no timeout is part of it.
    """
    with tempfile.TemporaryDirectory(prefix="kraftlite-bench-") as folder:
        run(_write(folder, batches))
        return run(_start(folder))


def run(work: Any) -> Any:
    loop = new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def _ports() -> Ports:
    def fault(error: BaseException, where: str) -> None:
        raise RuntimeError(where) from error

    clock = HostClock()
    return Ports(
        node_id=NODE,
        clock=clock,
        disk=HostDisk(),
        transport=MemNetwork(clock).transport("controller"),
        tracer=NullTracer(),
        tasks=HostTasks(fault),
        entropy=random.Random(7),
        fault=fault,
    )


def _raft(ports: Ports, folder: str) -> RaftDriver:
    voter = Voter(id=NODE, endpoint=Endpoint("controller", 9093))
    config = QuorumConfig(node_id=NODE, cluster_id=CLUSTER_ID, voters=(voter,), metadata_dir=f"{folder}/__cluster_metadata-0")
    return RaftDriver(ports, config, MetadataSerde())


async def _write(folder: str, batches: Sequence[Sequence[MetadataRecord]]) -> None:
    ports = _ports()
    raft = _raft(ports, folder)
    await raft.start()
    await _until(lambda: raft.high_watermark() is not None)
    for batch in batches:
        raft.prepare_append(raft.raft_epoch, batch)
        raft.schedule_prepared_append()
    await _until(lambda: raft.high_watermark() == raft.log_end_offset())
    await raft.stop(graceful=False)


async def _start(folder: str) -> tuple[float, float]:
    tune_gc()  # as a node's process does
    ports = _ports()
    raft = _raft(ports, folder)
    driver = ControllerDriver(ports, ControllerConfig(node_id=NODE, cluster_id=CLUSTER_ID), raft, BOOTSTRAP)
    cpu, wall = time.process_time(), time.perf_counter()
    await driver.start()
    await raft.start()
    await _until(lambda: driver.active)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await driver.stop()
    await raft.stop(graceful=False)
    return cpu, wall


async def _until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.perf_counter() + timeout_s
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not within {timeout_s} s")
        await asyncio.sleep(0.005)
