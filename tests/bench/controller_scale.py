"""A controller with 200,000 partitions, alone in this process: its log, a snapshot, a start from it, a broker's failure."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.driver import ControllerDriver
from kraftlite.host.memory import tune_gc
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.metadata.records import MetadataRecord
from kraftlite.metadata.snapshotter import SnapshotGenerator
from tests.bench.bench_controller import NODE, _ports, _raft, _until, _write, run
from tests.harness.controller_world import BOOTSTRAP, CLUSTER_ID, World

TOPICS: Final = 200
PARTITIONS: Final = 1_000


class Stopwatch:
    """CPU and wall time of each step, by its name."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    def tell(self, what: str, cpu: float, wall: float) -> None:
        self.figures[f"controller with 200,000 partitions: {what}, CPU s"] = round(cpu, 1)
        self.figures[f"controller with 200,000 partitions: {what}, s"] = round(wall, 1)

    def time(self, what: str, work: Callable[[], Any]) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        self.tell(what, time.process_time() - cpu, time.perf_counter() - wall)


async def _restart(folder: str, watch: Stopwatch, what: str, *, snapshot: bool) -> None:
    ports = _ports()
    raft = _raft(ports, folder)
    driver = ControllerDriver(ports, ControllerConfig(node_id=NODE, cluster_id=CLUSTER_ID), raft, BOOTSTRAP)
    loader = MetadataLoader(ports, raft)
    cpu, wall = time.process_time(), time.perf_counter()
    await driver.start()
    loader.start()
    await raft.start()
    await _until(lambda: driver.active and driver.core.activated and loader.image.offset >= (raft.high_watermark() or 0) - 1)
    watch.tell(what, time.process_time() - cpu, time.perf_counter() - wall)
    assert len(loader.image.topics) == TOPICS and driver.core.state.replication.partition_count.get() == TOPICS * PARTITIONS
    if snapshot:
        cpu, wall = time.process_time(), time.perf_counter()
        image = loader.image
        await SnapshotGenerator(ports, raft)._write(image)
        watch.tell("a snapshot", time.process_time() - cpu, time.perf_counter() - wall)
        assert raft.latest_snapshot_id() == image.provenance.snapshot_id
    await loader.stop()
    await driver.stop()
    await raft.stop(graceful=False)


def controller_scale() -> dict[str, Any]:
    """A failure is that of one of three brokers, which is in every ISR and leads a third; the figure has the active controller
    and one standby in it, without raft."""
    tune_gc()
    watch = Stopwatch()
    world = World(2)
    world.start_brokers(1, 2, 3)
    for number in range(TOPICS):
        world.create(f"many-{number}", PARTITIONS, 3)
    batches: list[Sequence[MetadataRecord]] = [batch.records for batch in world.quorum.batches if batch.records]
    with tempfile.TemporaryDirectory(prefix="kraftlite-bench-") as folder:
        run(_write(folder, batches))
        run(_restart(folder, watch, "start, log replayed", snapshot=True))
        run(_restart(folder, watch, "start from the snapshot", snapshot=False))
    watch.time("a broker fenced", lambda: world.fence(3))
    led = world.state.replication._led_by
    assert not led[3] and sum(map(len, led.values())) == TOPICS * PARTITIONS
    return watch.figures
