"""Produce and consume with librdkafka: MB a second, broker CPU, latency, beside librdkafka's own mock cluster in the same run.

A page that the kernel has not handed out before costs about 2 ms per MB on a virtual machine, whoever writes it: more than all
the rest. So every rate is given twice: *warm*, where the segment files take pages that a topic deleted just before gave back, and
*sustained*, where most pages are fresh. CPU per MB is the figure to compare between runs; rates depend on what else runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.bench import rdkafka
from tests.bench.cluster import BenchCluster, until
from tests.bench.failover import create, delete, whole

KIB = 1024
REPETITIONS = 5
WARM_RECORDS = 200_000
"""Of 1 KiB: the volume of one warm repetition."""
SUSTAINED_RECORDS = 1_000_000
PRODUCER = {
    "linger.ms": "5",
    "batch.size": "1000000",
    "message.max.bytes": "1000000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
    "compression.codec": "none",
    "log_level": "0",
}
CONSUMER = {
    "group.id": "bench",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "1048576",
    "fetch.max.bytes": "67108864",
    "max.partition.fetch.bytes": "4194304",
    "check.crcs": "false",
    "log_level": "0",
}
CLUSTER: Final = {"log.segment.delete.delay.ms": "10", "auto.create.topics.enable": "false"}
"""The next cluster may listen where the last one did, and a client of the last one may still ask there for its topics."""


@dataclass(frozen=True)
class Sample:
    """One repetition. CPU of all brokers together, in microseconds per MB of the client's payload."""

    load: rdkafka.Throughput
    cpu_us_per_mb: float


class Bench:
    """Repetitions against one cluster, each with a topic of its own."""

    def __init__(self, cluster: BenchCluster, *, replication: int) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._brokers = [node for node in cluster.nodes() if "broker" in node.roles]
        self._replication = replication
        self._topics = 0

    def sample(self, run: Callable[[], rdkafka.Throughput]) -> Sample:
        before = sum(broker.cpu_s for broker in self._brokers)
        load = run()
        cpu = sum(broker.cpu_s for broker in self._brokers) - before
        if load.errors:
            raise RuntimeError(f"records failed: {load}")
        return Sample(load, cpu / (load.bytes / 1e6) * 1e6)

    def topic(self, partitions: int = 1) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        create(self.bootstrap, name, partitions, self._replication, min_insync_replicas=str(min(2, self._replication)))
        until("led and whole", lambda: whole(self.bootstrap, name))
        return name

    def drop(self, name: str) -> None:
        """Give the topic's pages back."""
        delete(self.bootstrap, name)
        until("files are gone", lambda: not any(self.cluster.data_dir.glob(f"node-*/**/{name}-*")))

    def produce(self, topic: str, records: int, acks: str, **extra: str) -> Sample:
        config = {**PRODUCER, "bootstrap.servers": self.bootstrap, "acks": acks, **extra}
        return self.sample(lambda: rdkafka.produce(config, topic, records=records, size=KIB))

    def consume(self, topic: str, partitions: int, records: int) -> Sample:
        config = {**CONSUMER, "bootstrap.servers": self.bootstrap}
        return self.sample(lambda: rdkafka.consume(config, topic, partitions=partitions, records=records, size=KIB))

    def warm_and_sustained(self, acks: str, *, partitions: int = 1) -> tuple[list[Sample], list[Sample], Sample]:
        """(warm produces, consumes of the long one, one long produce). The first repetition only warms up."""
        produced: list[Sample] = []
        for repetition in range(REPETITIONS + 1):
            name = self.topic(partitions)
            wrote = self.produce(name, WARM_RECORDS, acks)
            if repetition:
                produced.append(wrote)
            self.drop(name)
        name = self.topic(partitions)
        sustained = self.produce(name, SUSTAINED_RECORDS, acks)
        consumed = [self.consume(name, partitions, SUSTAINED_RECORDS) for _ in range(REPETITIONS)] if partitions == 1 else []
        self.drop(name)
        return produced, consumed, sustained


def rate(samples: list[Sample]) -> float:
    return statistics.median(sample.load.mb_per_s for sample in samples)


def cpu(samples: list[Sample]) -> float:
    return statistics.median(sample.cpu_us_per_mb for sample in samples)


def mock(acks: str) -> float:
    """librdkafka against its own mock, in the same process: no disk, no CRC, no replication. A generous peer."""
    config = {**PRODUCER, "test.mock.num.brokers": "1", "acks": acks}
    return statistics.median(
        rdkafka.produce(config, "mock", records=WARM_RECORDS, size=KIB, partition=0).mb_per_s for _ in range(REPETITIONS)
    )


def single_broker() -> dict[str, Any]:
    with BenchCluster(controllers=1, brokers=1, combined=True, config=CLUSTER) as cluster:
        bench = Bench(cluster, replication=1)
        produced, consumed, sustained = bench.warm_and_sustained("1")
    reference = mock("1")
    return {
        f"produce 1 KiB, one broker, acks=1, warm {megabytes(WARM_RECORDS)}, MB/s": round(rate(produced)),
        "  broker CPU, us per MB": round(cpu(produced)),
        "  librdkafka's mock in the same run, MB/s": round(reference),
        "  ratio to the mock": round(rate(produced) / reference, 2),
        f"  sustained {megabytes(SUSTAINED_RECORDS)}, MB/s": round(sustained.load.mb_per_s),
        "  sustained broker CPU, us per MB": round(sustained.cpu_us_per_mb),
        f"consume 1 KiB, one broker, {megabytes(SUSTAINED_RECORDS)}, MB/s": round(rate(consumed)),
        "  ratio to the mock (produce)": round(rate(consumed) / reference, 2),
        "  consume broker CPU, us per MB": round(cpu(consumed)),
    }


def replicated() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with BenchCluster(config=CLUSTER) as cluster:
        bench = Bench(cluster, replication=3)
        reference = mock("all")
        for partitions in (1, 6):
            produced, consumed, sustained = bench.warm_and_sustained("all", partitions=partitions)
            prefix = f"RF 3, acks=all, {partitions} partition{'s' if partitions > 1 else ''}"
            figures |= {
                f"produce 1 KiB, {prefix}, warm {megabytes(WARM_RECORDS)}, MB/s": round(rate(produced)),
                f"  {prefix}: CPU of 3 brokers, us per MB": round(cpu(produced)),
                f"  {prefix}: ratio to the mock (unreplicated)": round(rate(produced) / reference, 2),
                f"  {prefix}: sustained {megabytes(SUSTAINED_RECORDS)}, MB/s": round(sustained.load.mb_per_s),
                f"  {prefix}: sustained CPU, us per MB": round(sustained.cpu_us_per_mb),
            }
            if consumed:
                figures["consume 1 KiB, RF 3, from the leader, MB/s"] = round(rate(consumed))
        p50, p99 = single_record_latency(bench.bootstrap, bench.topic())
        idle = bench.sample(idle_second)
    return figures | {
        "single acks=all produce, p50 ms": round(p50, 2),
        "single acks=all produce, p99 ms": round(p99, 2),
        "idle: CPU of 3 brokers, ms per s": round(idle.cpu_us_per_mb / 1000, 1),
    }


def idle_second() -> rdkafka.Throughput:
    """A second in which nothing is sent; says one MB so that its CPU reads as microseconds per second."""
    time.sleep(1)
    return rdkafka.Throughput(records=0, errors=0, bytes=1_000_000, seconds=1)


def megabytes(records: int) -> str:
    return f"{round(records * KIB / 1e6)} MB"


def single_record_latency(bootstrap: str, topic: str, count: int = 1000) -> tuple[float, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    took: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=lambda *_: None)
        producer.flush(30)
        took.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.002)
    cuts = statistics.quantiles(took[50:], n=100)
    return cuts[49], cuts[98]
