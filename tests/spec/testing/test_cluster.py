"""The embedded cluster: what its methods promise, and that it leaves nothing behind. Real sockets, no process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode
from kraftlite.testing import CLIENTS, NOBODY, SOMEBODY, Cluster, ClusterError, SyncCluster, WaitTimeout, other_than
from tests.harness.embedded import consume, produce, producer
from tests.harness.wire_fakes import RawClient


def connect(address: str | None) -> socket.socket:
    assert address is not None
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def produce_request(topic: str, value: bytes) -> dict[str, Any]:
    records = bytes(build_batch([Record(key=None, value=value)], timestamp_ms=0))
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 20_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }


async def raw_client(address: str | None) -> RawClient:
    assert address is not None
    host, _, port = address.rpartition(":")
    return RawClient(*await asyncio.open_connection(host, int(port)))


# --- from start to end


def open_files() -> dict[str, str]:
    found = {}
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of listing them
            found[fd.name] = str(fd.readlink())
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left to the collector is theirs
    unraisable: list[Any] = []
    threads, files = threading.enumerate(), open_files()
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    folder, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    try:
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG, logger="asyncio"):
            warnings.simplefilter("always")
            with SyncCluster(controllers=3, brokers=3) as c:
                c.create_topic("orders", 3)
                clients = [connect(c.nodes[it].kafka) for it in c.brokers]
                c.pause(5)
                c.kill(4)
                c.cut(CLIENTS, 6)
                c.delay(1, 2, 20)
                c.restart(4)
            for client in clients:
                client.close()
            del c
            gc.collect()
    finally:
        sys.unraisablehook = hook
        tempfile.tempdir = folder
    assert threading.enumerate() == threads
    assert [it for fd, it in open_files().items() if fd not in files] == []
    assert list(tmp_path.iterdir()) == []
    assert [str(it.message) for it in warned] == []
    assert unraisable == []
    assert [it.getMessage() for it in caplog.records if it.levelno >= logging.INFO] == []


async def test_the_asyncio_twin_adds_nothing_to_the_callers_loop() -> None:
    tasks, threads = asyncio.all_tasks(), threading.enumerate()
    async with Cluster(controllers=1, brokers=1) as c:
        assert asyncio.all_tasks() == tasks
        assert c.live_brokers() == (2,)
    assert asyncio.all_tasks() == tasks
    assert threading.enumerate() == threads
    await c.close()  # once more does no harm
    await c.start()  # a new cluster of the same shape
    assert c.live_brokers() == (2,)
    await c.close()


async def test_two_clusters_do_not_know_each_other() -> None:
    async with Cluster(controllers=1, brokers=1) as one, Cluster(controllers=1, brokers=1) as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        await one.create_topic("only-here")
        with pytest.raises(ClusterError, match="there is no topic only-here; the topics are: __consumer_offsets"):
            two.leader("only-here")


async def test_closing_ends_what_others_still_wait_for() -> None:
    c = Cluster(controllers=1, brokers=1)
    await c.start()
    waiting = asyncio.ensure_future(c.wait_for(controller=NOBODY, timeout=60))
    await asyncio.sleep(0)
    await c.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_what_nodes_and_addresses_there_are() -> None:
    with SyncCluster(controllers=1, brokers=2) as c:
        assert (c.controllers, c.brokers) == ((1,), (2, 3))
        assert [(it.id, it.roles, it.state) for it in c.nodes.values()] == [
            (1, ("controller",), "running"),
            (2, ("broker",), "running"),
            (3, ("broker",), "running"),
        ]
        assert c.bootstrap_servers == f"{c.nodes[2].kafka},{c.nodes[3].kafka}"
        assert c.nodes[1].kafka is None
        c.kill(1)
        c.pause(2)
        assert [it.state for it in c.nodes.values()] == ["stopped", "paused", "running"]


def test_combined_nodes_and_settings_of_ones_own() -> None:
    with SyncCluster(
        controllers=3, brokers=3, combined=True, config={"num.partitions": 5, "auto.create.topics.enable": True}
    ) as c:
        assert c.controllers == c.brokers == (1, 2, 3)
        produce(c, "made-by-use", ["a"], partition=4)
        assert consume(c, "made-by-use", 1, partition=4) == ["a"]
        victim = c.controller()
        assert victim is not None
        c.kill(victim)
        c.wait_for(controller=other_than(victim), brokers={1, 2, 3} - {victim})


def test_a_node_that_ends_itself_is_not_overlooked() -> None:
    with (
        pytest.raises(ClusterError, match=r"node 2 ended itself: .*registration.timeout"),
        SyncCluster(controllers=1, brokers=1, config={"initial.broker.registration.timeout.ms": 300}) as c,
    ):
        c.kill(1)
        c.kill(2)
        with pytest.raises(ClusterError, match=r"node 2 did not start: .*registration.timeout"):
            c.restart(2)
        assert c.nodes[2].state == "failed"
        with pytest.raises(ClusterError, match=r"node 2 is not running: it ended itself \(.*registration.timeout"):
            c.kill(2)


# --- arguments


@pytest.fixture(scope="module")
def small() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=2) as c:
        c.create_topic("orders", 2)
        yield c


def test_wrong_shapes_and_settings() -> None:
    with pytest.raises(ValueError, match="controllers=0: allowed is a whole number of at least 1"):
        SyncCluster(controllers=0)
    with pytest.raises(ValueError, match="brokers='3': allowed"):
        SyncCluster(brokers="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 100 nodes"):
        SyncCluster(brokers=100)
    with pytest.raises(ValueError, match=r"'brokr.id' is not a configuration key"):
        SyncCluster(config={"brokr.id": 1})
    with pytest.raises(ValueError, match=r"node.id is decided by the cluster itself"):
        SyncCluster(config={"node.id": 1})
    with pytest.raises(ValueError, match=r"replica.fetch.wait.max.ms=9999 must not exceed replica.socket.timeout.ms=500"):
        SyncCluster(config={"replica.fetch.wait.max.ms": 9999}).start()


def test_a_cluster_that_does_not_run_says_so(small: SyncCluster) -> None:
    idle = SyncCluster(controllers=1, brokers=1)
    for use in (lambda: idle.bootstrap_servers, lambda: idle.kill(1), lambda: idle.restart(1), idle.controller, idle.heal):
        with pytest.raises(ClusterError, match="the cluster is not running"):
            use()
    with pytest.raises(ClusterError, match="the cluster runs already"):
        small._begin()


def test_wrong_nodes(small: SyncCluster) -> None:
    known = r"there is no node 9; the nodes are 1 \(controller\), 2 \(broker\), 3 \(broker\)"
    for use in (small.kill, small.restart, small.stop, small.pause, small.resume, small.power_cut):
        with pytest.raises(ValueError, match=known):
            use(9)
        with pytest.raises(ValueError, match="no node was named"):
            use()
    for ends in ((9, 1), (1, 9), (1, [2, 9]), (CLIENTS, 9)):
        with pytest.raises(ValueError, match=known):
            small.cut(*ends)
    with pytest.raises(ValueError, match=known):
        small.wait_for(topic="orders", leader=9)
    with pytest.raises(ValueError, match="there is no node 'orders'"):
        small.kill("orders")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="node 2 is on both sides"):
        small.cut([1, 2], 2)
    with pytest.raises(ValueError, match="node 1 is not a broker"):
        small.cut(CLIENTS, 1)
    with pytest.raises(ValueError, match="clients are on both sides"):
        small.cut(CLIENTS, CLIENTS)
    with pytest.raises(ValueError, match="ms=-1: allowed"):
        small.delay(1, 2, -1)


def test_wrong_states(small: SyncCluster) -> None:
    with pytest.raises(ClusterError, match="node 3 is not paused"):
        small.resume(3)
    small.pause(3)
    with pytest.raises(ClusterError, match="node 3 is paused already"):
        small.pause(3)
    small.resume(3)
    small.kill(3)
    for use in (small.kill, small.pause, small.resume, small.stop, small.power_cut):
        with pytest.raises(ClusterError, match="node 3 is not running"):
            use(3)
    with pytest.raises(ClusterError, match="node 3 is not running"):
        small.kill(2, 3)
    assert small.nodes[2].state == "running", "all or none"
    small.restart(3)
    small.wait_for(topic="orders", isr={2, 3})


def test_wrong_topics(small: SyncCluster) -> None:
    with pytest.raises(ClusterError, match="topic orders was refused: TOPIC_ALREADY_EXISTS"):
        small.create_topic("orders")
    with pytest.raises(ClusterError, match="INVALID_REPLICATION_FACTOR"):
        small.create_topic("many", replication_factor=3)
    with pytest.raises(ClusterError, match="INVALID_CONFIG"):
        small.create_topic("odd", config={"min.insync.replicas": 0})
    with pytest.raises(ValueError, match="leave replication_factor out"):
        small.create_topic("both", replication_factor=1, assignment=[[2]])
    with pytest.raises(ClusterError, match="there is no partition orders-7; orders has partitions 0 to 1"):
        small.isr("orders", 7)
    small.create_topic("placed", assignment=[[3, 2], [2, 3]])
    assert [small.partition("placed", it).replicas for it in (0, 1)] == [(3, 2), (2, 3)]


def test_waiting_says_what_it_saw_instead(small: SyncCluster) -> None:
    leader, epoch = small.leader("orders"), small.partition("orders").leader_epoch
    with pytest.raises(WaitTimeout) as told:
        small.wait_for(topic="orders", leader=other_than(2, 3), hw=10, isr={2}, controller=NOBODY, brokers=[], timeout=0.05)
    assert str(told.value) == (
        f"the condition was not met within 0.05 s: leader of orders-0: wanted other than 2, 3, seen {leader} in epoch {epoch}; "
        "ISR of orders-0: wanted {2}, seen {2, 3}; HW of orders-0: wanted at least 10, seen 0; "
        "active controller: wanted nobody, seen 1; brokers that are not fenced: wanted {}, seen {2, 3}"
    )
    assert isinstance(told.value, TimeoutError)
    small.cut(2, 3, one_way=True)
    small.cut(CLIENTS, 2)
    with pytest.raises(WaitTimeout, match=r"there is no topic ordrs; the topics are: .*; cut: 2 to 3; cut from clients: 2$"):
        small.wait_for(topic="ordrs", leader=SOMEBODY, timeout=0.05)
    small.heal()
    for wrong, why in (({}, "nothing to wait for"), ({"leader": 2}, "name the partition"), ({"topic": "orders"}, "say leader=")):
        with pytest.raises(ValueError, match=why):
            small.wait_for(**wrong)  # type: ignore[arg-type]


# --- faults


async def test_a_killed_node_is_gone_for_clients_at_once_and_comes_back_on_its_port() -> None:
    async with Cluster(controllers=1, brokers=2) as c:
        await c.create_topic("orders")
        address = c.nodes[2].kafka
        with connect(address) as client:
            c.kill(2)
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(address)
        await c.wait_for(topic="orders", leader=3, isr=[3], brokers=[3])
        await c.restart(2)
        assert c.nodes[2].kafka == address
        connect(address).close()
        await c.wait_for(topic="orders", isr=[2, 3])


def test_a_kill_keeps_what_was_written_and_a_power_cut_does_not() -> None:
    with SyncCluster(controllers=1, brokers=1, config={"log.flush.offset.checkpoint.interval.ms": 3_600_000}) as c:
        c.create_topic("orders")
        produce(c, "orders", ["a", "b"])
        c.kill(2)
        c.restart(2)
        c.wait_for(topic="orders", hw=2)
        assert consume(c, "orders", 2) == ["a", "b"]
        produce(c, "orders", ["c"])
        c.power_cut(2)
        c.restart(2)
        c.wait_for(topic="orders", leader=2)
        assert c.hw("orders") == 0, "nothing was synced: data logs are not, per append"
        c.power_cut(1)
        c.restart(1)
        c.wait_for(controller=1, topic="orders", leader=2)


async def test_a_graceful_stop_hands_over_first_and_a_restart_stops_gracefully() -> None:
    async with Cluster(controllers=3, brokers=3) as c:
        await c.create_topic("orders", assignment=[[4, 5, 6]])
        await c.stop(4)
        assert c.nodes[4].state == "stopped"
        view = c.partition("orders")
        assert (view.isr, 4 in c.live_brokers()) == ((5, 6), False), "not noticed, but told"
        await c.restart(4)
        await c.wait_for(topic="orders", isr=[4, 5, 6])
        await c.restart(4)  # while it runs
        await c.wait_for(topic="orders", isr=[4, 5, 6])
        active = c.controller()
        assert active is not None
        c.pause(active)
        await c.stop(active)  # resumes it first
        await c.wait_for(controller=other_than(active))


async def test_a_paused_leader_is_fenced_and_refused_when_it_comes_back() -> None:
    async with Cluster(controllers=3, brokers=3) as c:
        await c.create_topic("orders", assignment=[[4, 5, 6]], config={"min.insync.replicas": 2})
        client = await raw_client(c.nodes[4].kafka)
        before = await client.call(0, 9, produce_request("orders", b"before"))
        assert before.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        c.pause(4)
        sent = client.send(0, 9, produce_request("orders", b"zombie"))
        view = await c.wait_for(topic="orders", leader=other_than(4), isr=[5, 6], brokers=[5, 6])
        assert view is not None and view.leader_epoch == 1
        produce(c, "orders", ["after"])
        c.resume(4)
        answer = await client.receive(0, 9, sent)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await c.wait_for(topic="orders", isr=[4, 5, 6], brokers=[4, 5, 6], leader=view.leader)
        assert consume(c, "orders", 2) == ["before", "after"]
        client.close()


async def test_a_controller_that_is_cut_off_is_replaced_and_joins_again() -> None:
    async with Cluster(controllers=3, brokers=2) as c:
        old = c.controller()
        assert old is not None
        c.cut(old, [it for it in c.nodes if it != old])
        view = await c.wait_for(controller=other_than(old))
        assert view is None
        await c.create_topic("made-without-it")
        c.heal()
        await c.wait_for(controller=SOMEBODY, topic="made-without-it", leader=SOMEBODY)


async def test_without_a_quorum_data_flows_and_decisions_wait() -> None:
    async with Cluster(controllers=3, brokers=2) as c:
        await c.create_topic("orders")
        c.cut(1, [2, 3])
        c.cut(2, 3)
        await c.wait_for(controller=NOBODY)
        produce(c, "orders", ["a"])
        with pytest.raises(WaitTimeout, match=r"topic late: no controller answered within 0.3 s; cut: 1 to 2"):
            await c.create_topic("late", timeout=0.3)
        c.heal()
        await c.create_topic("late")
        assert consume(c, "orders", 1) == ["a"]


async def test_a_one_way_cut_between_brokers_shrinks_the_isr() -> None:
    async with Cluster(controllers=1, brokers=3) as c:
        await c.create_topic("orders", assignment=[[2, 3, 4]])
        c.cut(3, 2, one_way=True)
        produce(c, "orders", ["a"])  # who has everything stays in sync, heard of or not
        await c.wait_for(topic="orders", isr=[2, 4], brokers=[2, 3, 4])
        c.heal()
        await c.wait_for(topic="orders", isr=[2, 3, 4])


def test_delays_are_felt() -> None:
    with SyncCluster(controllers=1, brokers=2) as c:
        c.create_topic("orders", assignment=[[2, 3]])
        produce(c, "orders", ["warm"])
        c.delay(2, 3, 100)
        begun = time.monotonic()
        produce(c, "orders", ["slow"])
        assert time.monotonic() - begun > 0.2, "the follower's next fetch and its answer"
        c.delay(2, 3, 0)
        c.heal()


def test_a_lost_acknowledgement_is_no_duplicate() -> None:
    with SyncCluster(controllers=1, brokers=1) as c:
        c.create_topic("orders")
        verdicts: list[str] = []
        client = producer(c, **{"socket.timeout.ms": 300, "enable.idempotence": True})

        def send(value: bytes) -> None:
            client.produce(
                "orders", value, partition=0, on_delivery=lambda error, _: verdicts.append(error.name() if error else "ok")
            )

        send(b"a")
        assert client.flush(20) == 0
        c.cut(2, CLIENTS, one_way=True)
        send(b"b")
        client.poll(0)
        c.wait_for(topic="orders", hw=2)  # it is there, and the producer does not hear of it
        assert client.flush(1) == 1
        c.heal()
        assert client.flush(20) == 0
        assert verdicts == ["ok", "ok"]
        assert consume(c, "orders", 2) == ["a", "b"]


def test_a_broker_that_is_cut_from_clients_still_leads() -> None:
    with SyncCluster(controllers=1, brokers=1) as c:
        c.create_topic("orders")
        c.cut(CLIENTS, 2)
        with connect(c.nodes[2].kafka) as client:
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))  # ApiVersions
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
            c.wait_for(topic="orders", leader=2, brokers=[2])
            c.heal()
            client.settimeout(10)
            assert client.recv(8)[4:] == bytes.fromhex("00000007"), "it arrives in the end"


def test_a_starved_process_fences_nobody() -> None:
    with SyncCluster(controllers=3, brokers=3) as c:
        c.create_topic("orders", 3)
        before = [(c.partition("orders", it), c.controller()) for it in range(3)]
        assert c._thread is not None
        c._thread.call(lambda: time.sleep(0.7))  # more than twice the session timeout
        produce(c, "orders", ["a"], partition=0)
        c.wait_for(topic="orders", hw=1)
        after = [(c.partition("orders", it), c.controller()) for it in range(3)]
        assert [(it.leader_epoch, it.isr, who) for it, who in after] == [(it.leader_epoch, it.isr, who) for it, who in before]
