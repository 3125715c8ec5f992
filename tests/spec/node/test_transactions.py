"""Transactions over whole nodes in one process: coordinators, markers to local and remote partitions, failovers, the gate between
brokers. Source: TX-13 to TX-65; TP-03."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlite.broker.server import BrokerServer
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.log.batch import Record, build_batch, iter_batches
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.validation import marker_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.controller import DeleteTopicsRequest, TopicSelector
from kraftlite.model.messages.methods import DELETE_TOPICS
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.manager import FetchEntry, FetchParams, ProduceEntry
from kraftlite.runtime.ports import Transport, TransportError
from tests.harness.node_cluster import MemCluster, MemNode

S = TransactionState
TOPIC = "orders"
MINUTE_MS = 60_000


class TransactionCluster(MemCluster):
    """Three combined nodes, a topic of three partitions whose leaders differ, and the state topic in one partition."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, combined=3, transaction_abort_timed_out_transaction_cleanup_interval_ms="1000")

    async def begin(self) -> None:
        await self.up()
        await self.create_topic(TOPIC, partitions=3, replicas=3)
        await self.create_topic(TRANSACTION_TOPIC, partitions=1, replicas=3)
        await self.until(self.coordinator, "a coordinator")

    def broker_of(self, node: MemNode) -> BrokerServer:
        assert node.node is not None and node.node.broker is not None
        return node.node.broker

    def coordinator(self) -> BrokerServer | None:
        """The broker that leads the state partition and has loaded it."""
        node = self.leader(TRANSACTION_TOPIC)
        broker = None if node is None or node.node is None else node.node.broker
        loaded = broker is not None and any(driver.loaded for driver in broker.transactions.led.drivers())
        return broker if loaded else None

    async def ask(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask the coordinator of the moment, and again as a client does."""
        again = {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        }
        for _ in range(500):
            broker = await self.until(self.coordinator, "a coordinator")
            try:
                return await self.call(question(broker.transactions), "an answer of the coordinator")
            except ApiError as error:
                if error.code not in again:
                    raise
                await self.clock.run_for(50, settle=30)
        raise AssertionError("no answer but to try again")

    async def init(self, name: str = "copier", **asked: Any) -> Producer:
        asked = {"timeout_ms": MINUTE_MS, "expected": None, **asked}
        found: Producer = await self.ask(lambda it: it.init_producer_id(name, **asked))
        return found

    async def add(self, producer: Producer, *partitions: int, version: int = 0, name: str = "copier") -> None:
        tps = frozenset(TopicPartition(TOPIC, index) for index in partitions)
        await self.ask(lambda it: it.add_partitions(name, producer, tps, version=version))

    async def end(self, producer: Producer, *, commit: bool, version: int = 0, name: str = "copier") -> Producer:
        found: Producer = await self.ask(lambda it: it.end(name, producer, commit=commit, version=version))
        return found

    async def write(self, producer: Producer, index: int, sequence: int = 0) -> ErrorCode:
        node = await self.until(lambda: self.leader(TOPIC, index), "a leader")
        batch = build_batch(
            [Record(key=None, value=b"v")],
            timestamp_ms=self.clock.wall_ms(),
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        results: list[Any] = []
        entry = ProduceEntry(tp=TopicPartition(TOPIC, index), topic_id=None, records=bytearray(batch))
        self.broker_of(node).replicas.append([entry], acks=-1, timeout_ms=5_000, on_done=results.extend)
        await self.until(lambda: results, "the verdict on a batch")
        return ErrorCode(results[0].error)

    def state(self, name: str = "copier") -> TransactionState | None:
        broker = self.coordinator()
        return None if broker is None else broker.transactions.describe(name).state

    def markers(self, index: int) -> list[tuple[int, bool, int]]:
        """Epoch of the producer, outcome and epoch of the coordinator of every marker at the leader, below the HW."""
        node = self.leader(TOPIC, index)
        if node is None:
            return []
        entry = FetchEntry(
            tp=TopicPartition(TOPIC, index),
            topic_id=None,
            fetch_offset=0,
            current_leader_epoch=None,
            last_fetched_epoch=None,
            max_bytes=1 << 20,
        )
        params = FetchParams(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20)
        (result,) = self.broker_of(node).replicas.fetch_now(params, [entry])
        found = []
        for header, batch in iter_batches(bytes(result.records)):
            marker = marker_of(batch) if header.is_control else None
            if isinstance(marker, EndTxnMarker):
                found.append((header.producer_epoch, marker.commit, marker.coordinator_epoch))
        return found


class LosesMarkers:
    """A transport on which calls to one host are lost."""

    def __init__(self, transport: Transport, host: str) -> None:
        self._transport = transport
        self._host = host

    async def call(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        if peer.host == self._host:
            raise TransportError("lost on the way")
        return await self._transport.call(peer, method, request, timeout_ms)


@pytest.fixture
async def cluster(tmp_path: Path) -> TransactionCluster:
    found = TransactionCluster(tmp_path)
    await found.begin()
    return found


@pytest.mark.parametrize("version", [0, 2])
async def test_tx_50_markers_reach_the_leader_of_every_partition(cluster: TransactionCluster, version: int) -> None:
    """TX-40: the answer is there when the outcome is decided; the markers follow, to this broker and to others."""
    producer = await cluster.init()
    for commit in (True, False):
        await cluster.add(producer, 0, 1, 2, version=version)
        for index in range(3):
            assert await cluster.write(producer, index) is ErrorCode.NONE
        after = await cluster.end(producer, commit=commit, version=version)
        assert after == (producer._replace(producer_epoch=producer.producer_epoch + 1) if version == 2 else producer)
        done = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
        await cluster.until(lambda d=done: cluster.state() is d, "the end of the transaction")  # type: ignore[misc]
        for index in range(3):
            epoch, outcome, _ = cluster.markers(index)[-1]
            assert (epoch, outcome) == (after.producer_epoch, commit)
        producer = after if version == 2 else await cluster.init()
    leaders = {cluster.leader(TOPIC, index) for index in range(3)}
    assert len(leaders) == 3, "every broker leads one, or nothing is remote"


@pytest.mark.parametrize("first", ["old", "new"])
async def test_ta_10_clients_of_both_versions_write_to_one_partition_at_once(cluster: TransactionCluster, first: str) -> None:
    """librdkafka's have version 0, Java's 2. Each is ended by its own rules, whichever comes first."""
    versions = {"old": 0, "new": 2}
    producers = {name: await cluster.init(name) for name in versions}
    for sequence in (0, 1):
        for name, version in versions.items():
            await cluster.add(producers[name], 0, version=version, name=name)
            assert await cluster.write(producers[name], 0, sequence) is ErrorCode.NONE
    after = {}
    for name in (first, *({*versions} - {first})):
        after[name] = await cluster.end(producers[name], commit=name == first, version=versions[name], name=name)
    assert after["old"] == producers["old"]
    assert after["new"] == producers["new"]._replace(producer_epoch=producers["new"].producer_epoch + 1)
    await cluster.until(lambda: len(cluster.markers(0)) == 2, "both markers")
    for name in versions:
        done = S.COMPLETE_COMMIT if name == first else S.COMPLETE_ABORT
        await cluster.until(lambda n=name, d=done: cluster.state(n) is d, "the end of both")  # type: ignore[misc]
    outcomes = sorted((epoch, commit) for epoch, commit, _ in cluster.markers(0))
    assert outcomes == sorted((after[name].producer_epoch, name == first) for name in versions)


async def test_tx_60_the_next_coordinator_carries_out_what_was_decided(
    cluster: TransactionCluster,
) -> None:
    """R3 (b): the coordinator dies behind Prepare, and before one of the partitions has its marker."""
    producer = await cluster.init()
    await cluster.add(producer, 0, 1, 2)
    for index in range(3):
        await cluster.write(producer, index)
    state_leader = cluster.leader(TRANSACTION_TOPIC)
    assert state_leader is not None
    other = next(n for n in (cluster.leader(TOPIC, i) for i in range(3)) if n is not None and n is not state_leader)
    index = next(i for i in range(3) if cluster.leader(TOPIC, i) is other)
    writing = cluster.broker_of(state_leader).marker_writing
    writing._transport = LosesMarkers(writing._transport, f"n{other.node_id}")  # type: ignore[assignment]
    await cluster.end(producer, commit=True)
    left = frozenset({TopicPartition(TOPIC, index)})
    coordinator = cluster.broker_of(state_leader).transactions
    await cluster.until(lambda: coordinator.describe("copier").partitions == left, "the other markers (TA-01)")
    assert cluster.state() is S.PREPARE_COMMIT and cluster.markers(index) == []
    await state_leader.crash()
    await cluster.until(lambda: cluster.state() is S.COMPLETE_COMMIT, "the end of the transaction")
    for partition in range(3):
        assert [commit for _, commit, _ in cluster.markers(partition)] in ([True], [True, True])
    assert cluster.markers(index)[-1][2] > 0, "from the coordinator of a later leader epoch"
    assert await cluster.init() == producer._replace(producer_epoch=producer.producer_epoch + 1)


async def test_tx_62_what_takes_too_long_is_aborted(cluster: TransactionCluster) -> None:
    producer = await cluster.init(timeout_ms=2_000)
    await cluster.add(producer, 0)
    await cluster.write(producer, 0)
    await cluster.until(lambda: cluster.state() is S.COMPLETE_ABORT, "the abort")
    assert cluster.markers(0) == [(producer.producer_epoch + 1, False, cluster.markers(0)[0][2])]
    with pytest.raises(ApiError, match="PRODUCER_FENCED"):
        await cluster.end(producer, commit=True)


async def test_tx_13_another_instance_takes_the_id_over(cluster: TransactionCluster) -> None:
    first = await cluster.init()
    await cluster.add(first, 1)
    await cluster.write(first, 1)
    second = await cluster.init()
    assert second == Producer(first.producer_id, first.producer_epoch + 2)
    assert [(epoch, commit) for epoch, commit, _ in cluster.markers(1)] == [(first.producer_epoch + 1, False)]
    with pytest.raises(ApiError, match="PRODUCER_FENCED"):
        await cluster.end(first, commit=True)


async def test_tp_03_every_broker_reaches_the_coordinator(cluster: TransactionCluster) -> None:
    """TX-31, TX-34: the gate, from the coordinator's own broker and from others."""
    producer = await cluster.init()
    for node in cluster.nodes.values():
        gate = cluster.broker_of(node).enrolling
        index = node.node_id - 1
        tp, other = TopicPartition(TOPIC, index), TopicPartition(TOPIC, (index + 1) % 3)
        asked = ("copier", *producer)
        found = await cluster.call(gate.ask(*asked, [tp], add=False), "the gate")
        assert found == {tp: ErrorCode.TRANSACTION_ABORTABLE}
        assert await cluster.call(gate.ask(*asked, [tp], add=True), "the gate") == {tp: ErrorCode.NONE}
        found = await cluster.call(gate.ask(*asked, [tp, TopicPartition("none", 0)], add=False), "the gate")
        assert found == {tp: ErrorCode.NONE, TopicPartition("none", 0): ErrorCode.TRANSACTION_ABORTABLE}
        found = await cluster.call(gate.ask(*asked, [other, TopicPartition("none", 0)], add=True), "the gate")
        assert found == {other: ErrorCode.NONE, TopicPartition("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        with pytest.raises(ApiError, match="PRODUCER_FENCED"):
            await cluster.call(gate.ask("copier", producer.producer_id, 9, [tp], add=True), "the gate")
        await cluster.end(producer, commit=False)
        producer = await cluster.init()


async def test_tp_07_a_coordinator_that_is_cut_off_is_a_network_exception(cluster: TransactionCluster) -> None:
    producer = await cluster.init()
    state_leader = cluster.leader(TRANSACTION_TOPIC)
    assert state_leader is not None
    other = next(node for node in cluster.nodes.values() if node is not state_leader)
    cluster.network.cut(f"n{state_leader.node_id}", f"n{other.node_id}")
    tp = TopicPartition(TOPIC, 0)
    gate = cluster.broker_of(other).enrolling
    found = await cluster.call(gate.ask("copier", *producer, [tp], add=True), "the gate")
    assert found == {tp: ErrorCode.NETWORK_EXCEPTION}


async def test_tx_52_a_deleted_topic_holds_nobody_up(cluster: TransactionCluster) -> None:
    await cluster.create_topic("gone")
    producer = await cluster.init()
    tps = frozenset({TopicPartition("gone", 0), TopicPartition(TOPIC, 0)})
    await cluster.ask(lambda it: it.add_partitions("copier", producer, tps, version=0))
    broker = cluster.a_broker().broker
    assert broker is not None
    request = DeleteTopicsRequest(topics=(TopicSelector(name="gone", topic_id=None),), timeout_ms=5_000)
    await cluster.call(broker.channel.call(DELETE_TOPICS, request, 5_000), "the deletion")
    await cluster.end(producer, commit=True)
    await cluster.until(lambda: cluster.state() is S.COMPLETE_COMMIT, "the end of the transaction")
