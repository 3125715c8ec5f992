"""How long things take when nodes die: starts, failovers, controlled shutdowns, metadata writes."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Collection
from typing import Any

from tests.bench.cluster import BenchCluster, Node, until


@functools.lru_cache(maxsize=4)
def admin(bootstrap: str) -> Any:
    """Kept, because a client that is collected while a call is under way fails that call."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": "60000", "retry.backoff.ms": 20,
                        "retry.backoff.max.ms": 100, "reconnect.backoff.max.ms": 200, "log_level": 2})  # fmt: skip


def create(bootstrap: str, name: str, partitions: int, replication: int, **config: str) -> float:
    """Seconds until the controller has committed the topic."""
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(name, partitions, replication, config={key.replace("_", "."): value for key, value in config.items()})
    begin = time.perf_counter()
    admin(bootstrap).create_topics([topic], operation_timeout=30, request_timeout=60)[name].result(60)
    return time.perf_counter() - begin


def delete(bootstrap: str, name: str) -> None:
    admin(bootstrap).delete_topics([name], operation_timeout=30, request_timeout=60)[name].result(60)


def produce_one(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2})
    producer.produce(topic, b"first", on_delivery=lambda error, _message: failed.append(error) if error else None)
    if producer.flush(30) or failed:
        raise RuntimeError(f"first record was not acknowledged: {failed}")


class Prober:
    """One record at a time, acks=all, to one partition; remembers when each was acknowledged and what failed."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0,
             "message.timeout.ms": 60000,
             # The default pauses of librdkafka between attempts grow to a second: it is the cluster that is measured.
             "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
             "topic.metadata.refresh.interval.ms": 200, "topic.metadata.refresh.fast.interval.ms": 50, "log_level": 2}
        )  # fmt: skip
        self._topic, self._partition = topic, partition
        self.acks: list[float] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        done = threading.Event()

        def report(error: object, _message: object) -> None:
            if error:
                self.errors.append(str(error))
            else:
                self.acks.append(time.perf_counter())
            done.set()

        while not self._stop.is_set():
            done.clear()
            self._producer.produce(self._topic, b"x" * 100, partition=self._partition, on_delivery=report)
            while not done.is_set():
                self._producer.poll(0.05)

    def __enter__(self) -> Prober:
        self._thread.start()
        until("first probe", lambda: len(self.acks) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(70)

    def gap_after(self, moment: float) -> float:
        """Longest time without an acknowledgement that touches or follows `moment`."""
        times = [t for t in self.acks if t >= moment - 1]
        return max((b - a for a, b in itertools.pairwise(times) if b >= moment), default=float("inf"))


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    return leaders_in(described(bootstrap, topic))[partition]


def described(bootstrap: str, topic: str, *, timeout_s: float = 10.0) -> Any:
    """The description of a topic; None: there is none. `list_topics` of one topic is no way to ask: librdkafka goes on asking for
    it behind the call, in the cluster that has these addresses later too, and a broker that creates topics when they are asked
    for then creates it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    (answer,) = admin(bootstrap).describe_topics(TopicCollection([topic]), request_timeout=timeout_s).values()
    try:
        return answer.result(2 * timeout_s)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def leaders_in(description: Any) -> dict[int, int]:
    """The leader of each partition of a description; -1: none."""
    return {it.id: -1 if it.leader is None else it.leader.id for it in description.partitions}


def active_controller(cluster: BenchCluster) -> int:
    status = cluster.kraftlite("quorum", "describe", "--status")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("LeaderId:"))


def cold_start() -> dict[str, Any]:
    begin = time.perf_counter()
    with BenchCluster() as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, "first", 1, 3)
        produce_one(bootstrap, "first")
        first_ack = time.perf_counter() - begin
        time.sleep(5)
        rss = [node.rss_mib for node in cluster.nodes()]
        before = sum(node.cpu_s for node in cluster.nodes())
        time.sleep(5)
        idle = (sum(node.cpu_s for node in cluster.nodes()) - before) / 5
    return {
        "cold start 3+3: up returns, s": round(cluster.started_s, 2),
        "cold start 3+3: first acknowledged record, s": round(first_ack, 2),
        "idle node resident, MiB (max)": round(max(rss), 1),
        "idle node resident, MiB (median)": round(statistics.median(rss), 1),
        "idle 3+3 cluster, cores": round(idle, 3),
    }


def failovers() -> dict[str, Any]:
    session_ms = 3000
    config = {"broker.session.timeout.ms": str(session_ms), "broker.heartbeat.interval.ms": "500"}
    with BenchCluster(config=config) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, "probe", 1, 3, min_insync_replicas="2")
        nodes = {node.node_id: node for node in cluster.nodes()}

        with Prober(bootstrap, "probe", 0) as prober:
            leader: Node = nodes[leader_of(bootstrap, "probe", 0)]
            killed = time.perf_counter()
            os.kill(leader.pid, signal.SIGKILL)
            until("writes again", lambda: prober.acks and prober.acks[-1] > killed + session_ms / 1000 / 2, timeout_s=60)
            unavailable = prober.gap_after(killed)
            errors = len(prober.errors)
        cluster.kraftlite("restart", str(leader.node_id))

        old = active_controller(cluster)
        os.kill(nodes[old].pid, signal.SIGKILL)
        killed = time.perf_counter()
        create(bootstrap, "after-controller-failover", 1, 3)
        metadata_gap = time.perf_counter() - killed
        cluster.kraftlite("restart", str(old))

        create(bootstrap, "many", 60, 3)
        until("whole", lambda: whole(bootstrap, "probe") and whole(bootstrap, "many"), every_s=0.2)
        with Prober(bootstrap, "probe", 0) as prober:
            leader_id = leader_of(bootstrap, "probe", 0)
            moves = list(leaders_in(described(bootstrap, "many")).values()).count(leader_id) + 1
            begin = time.perf_counter()
            cluster.kraftlite("kill", str(leader_id), "--signal", "TERM")
            until("moved", lambda: leader_of(bootstrap, "probe", 0) not in (leader_id, -1), every_s=0.02)
            until("left", lambda: next(n for n in cluster.nodes() if n.node_id == leader_id).pid == 0, every_s=0.1)
            stopped = time.perf_counter() - begin
            gap = prober.gap_after(begin)
            shutdown_errors = len(prober.errors)
    return {
        "leader SIGKILL: unavailable, s": round(unavailable, 2),
        "leader SIGKILL: beyond the session timeout, s": round(unavailable - session_ms / 1000, 2),
        "leader SIGKILL: errors seen by the producer": errors,
        "active controller SIGKILL: next metadata write, s": round(metadata_gap, 2),
        "controlled shutdown: whole, s": round(stopped, 2),
        "controlled shutdown: per partition move, s": round(stopped / moves, 3),
        "controlled shutdown: longest gap of a producer, s": round(gap, 3),
        "controlled shutdown: errors seen by the producer": shutdown_errors,
    }


def whole(bootstrap: str, topic: str) -> bool:
    """Whether a broker's metadata shows the topic, every partition led and its ISR complete. True of a new topic before any
    replica exists: see `serves`."""
    found = described(bootstrap, topic)
    partitions = () if found is None else found.partitions
    return bool(partitions) and all(len(p.isr) == len(p.replicas) and p.leader is not None for p in partitions)


def serves(bootstrap: str, topic: str, partitions: Collection[int]) -> bool:
    """Whether the leader of each of these partitions answers for it."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in partitions}
    answers = admin(bootstrap).list_offsets(asked, request_timeout=30)
    try:
        return len([answer.result(60) for answer in answers.values()]) == len(partitions)
    except KafkaException:
        return False


def big_topic() -> dict[str, Any]:
    """The answer to the creation races with the broker that passes it on, which is about to start its replicas: the time until
    all leaders serve is the figure to compare."""
    partitions = 2000
    with BenchCluster() as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, "warm", 1, 3)
        before = {node.node_id: node.cpu_s for node in cluster.nodes() if "broker" in node.roles}
        begin = time.perf_counter()
        answered = create(bootstrap, "big", partitions, 3)
        until("all serve", lambda: serves(bootstrap, "big", range(partitions)), every_s=0.1)
        served = time.perf_counter() - begin
        cpu = [node.cpu_s - before[node.node_id] for node in cluster.nodes() if node.node_id in before]
    return {
        "create 2,000 partitions x 3: answered, s": round(answered, 2),
        "create 2,000 partitions x 3: every leader serves, s": round(served, 2),
        "create 2,000 partitions x 3: CPU of a broker, s (max)": round(max(cpu), 2),
    }
