"""The processor time that the failure of a broker costs each node, by partition: what they decide, write, replay and carry out.

One of three brokers fails, which is in every ISR and leads a third. Raft, fetches and the files of logs are left out. The broker
writes a trace file, as every node of `kraftlite up` does.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlite.host.memory import tune_gc
from kraftlite.metadata.batch_loader import BatchLoader
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.ids import NodeId
from kraftlite.obs.tracer import open_tracer
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch
from tests.harness.controller_world import World
from tests.harness.replication_cluster import Node, StepCluster

TOPICS: Final = 20
PER_TOPIC: Final = 1_000
FAILS: Final = 3
LEADER: Final = LeaderAndEpoch(leader_id=NodeId(100), epoch=1)

Delta = tuple[MetadataDelta, MetadataImage]


def _committed(batches: Sequence[Sequence[MetadataRecord]], offset: int) -> list[CommittedBatch]:
    found = []
    for records in batches:
        last = offset + len(records) - 1
        found.append(
            CommittedBatch(
                base_offset=offset, last_offset=last, epoch=1, append_timestamp_ms=0, size_bytes=0, records=tuple(records)
            )
        )
        offset = last + 1
    return found


class _Loaded:
    """An image, and the deltas that have led to it."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._loader = BatchLoader(lambda delta, image, _manifest: self.deltas.append((delta, image)))

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    def load(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            for _ in self._loader.load_in_steps(batch, LEADER, PER_TOPIC):
                pass
            self._loader.flush(LEADER)


def _broker(image: MetadataImage, trace: str) -> Node:
    """Broker 1, with its replicas, whose followers have everything."""
    cluster = StepCluster()
    cluster.trace_hot = False
    node = cluster[1]
    node.tracer = open_tracer(node.id, cluster.clock, stream=io.StringIO(), timeline_path=trace)  # type: ignore[assignment]
    node.boot()
    brokers = image.cluster.brokers
    node.broker_epoch = brokers[node.id].broker_epoch
    delta = MetadataDelta(MetadataImage.EMPTY)
    for record in image.write():
        delta.replay(record)
    delta.finish_snapshot()
    _apply(node, [(delta, image)])
    now_ms = cluster.clock.now_ms()
    for partition in node.manager.partitions():
        for follower in () if partition.leader is None else tuple(partition.leader.followers):
            partition.follower_fetched(follower, brokers[follower].broker_epoch, 0, 0, now_ms)
    return node


def _apply(node: Node, deltas: Sequence[Delta]) -> None:
    for delta, image in deltas:
        if delta.topics is not None:
            node.manager.apply_delta(delta.topics, image)
        node.manager.handle_image(image)


def broker_failure() -> dict[str, Any]:
    tune_gc()
    figures: dict[str, Any] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        per_partition = (time.process_time() - began) / (TOPICS * PER_TOPIC)
        figures[f"broker fails, of one partition: {what}, us"] = round(per_partition * 1e6, 1)
        return found

    world = World()
    world.start_brokers(1, 2, FAILS)
    for number in range(TOPICS):
        world.create(f"many-{number}", PER_TOPIC, 3)
    created = [tuple(batch.records) for batch in world.quorum.batches]
    timed("active controller", lambda: world.fence(FAILS))
    failed = [tuple(batch.records) for batch in world.quorum.batches[len(created) :]]
    serde = MetadataSerde()
    written = [[serde.encode(record) for record in records] for records in failed]
    timed("decoded by a node", lambda: [[serde.decode(value) for value in values] for values in written])
    before = _committed(created, 0)
    after = _committed(failed, before[-1].last_offset + 1)
    standby = World(elect=False).nodes[100]
    standby.handle_commit(before)
    standby.run()

    def replay() -> None:
        standby.handle_commit(after)
        standby.run()

    timed("standby controller", replay)
    loaded = _Loaded()
    loaded.load(before)
    image = loaded.image
    loaded.deltas.clear()
    timed("delta and image of a node", lambda: loaded.load(after))
    with tempfile.TemporaryDirectory(prefix="kraftlite-bench-") as folder:
        node = _broker(image, f"{folder}/trace.jsonl")
        timed("broker", lambda: _apply(node, loaded.deltas))
    partitions = node.manager.partitions()
    assert len(partitions) == TOPICS * PER_TOPIC and all(it.leader_id != FAILS for it in partitions)
    assert not any(it.pending_isr for it in partitions), "nobody is proposed for an ISR"
    return figures
