"""A stranger's project that uses every public name of kraftlite.testing: mypy --strict must know the type of each expression."""

from collections.abc import Callable, Mapping
from typing import assert_type

from kraftlite import __version__
from kraftlite.testing import (
    CLIENTS,
    NOBODY,
    SOMEBODY,
    Chaos,
    Cluster,
    ClusterError,
    ClusterFactory,
    Ends,
    Injected,
    NodeInfo,
    PartitionView,
    ProcessFaults,
    SyncCluster,
    TransactionView,
    WaitTimeout,
    Who,
    other_than,
)

assert_type(__version__, str)
assert_type(NOBODY, Who)
assert_type(SOMEBODY, Who)
assert_type(other_than(4, 5), Who)
assert_type(SOMEBODY.matches(None), bool)


def what_can_be_seen(c: Cluster | SyncCluster) -> None:
    assert_type(c.bootstrap_servers, str)
    assert_type(c.cluster_id, str)
    assert_type(c.brokers, tuple[int, ...])
    assert_type(c.controllers, tuple[int, ...])
    assert_type(c.leader("t"), int | None)
    assert_type(c.isr("t", 0), tuple[int, ...])
    assert_type(c.hw("t"), int | None)
    assert_type(c.controller(), int | None)
    assert_type(c.live_brokers(), tuple[int, ...])
    assert_type(c.topics(), Mapping[str, tuple[int, ...]])
    assert_type(c.metadata_records(5), tuple[str, ...])
    assert_type(c.troubles(), tuple[str, ...])
    assert_type(c.nodes, Mapping[int, NodeInfo])
    node = c.nodes[1]
    assert_type(node.id, int)
    assert_type(node.roles, tuple[str, ...])
    assert_type(node.state, str)
    assert_type(node.kafka, str | None)
    assert_type(node.failure, str | None)
    view = c.partition("t", 0)
    assert_type(view, PartitionView)
    assert_type(view.leader, int | None)
    assert_type(view.leader_epoch, int)
    assert_type(view.replicas, tuple[int, ...])
    assert_type(view.isr, tuple[int, ...])
    assert_type(view.hw, int | None)
    assert_type(view.leo, int | None)
    assert_type(c.transaction_coordinator("x"), int | None)
    transaction = c.transaction("x")
    assert_type(transaction, TransactionView)
    assert_type(transaction.coordinator, int)
    assert_type(transaction.state, str)
    assert_type(transaction.producer_id, int)
    assert_type(transaction.producer_epoch, int)
    assert_type(transaction.partitions, tuple[tuple[str, int], ...])


def what_acts_at_once(c: Cluster | SyncCluster, side: Ends) -> None:
    c.kill(4, 5)
    c.power_cut(4)
    c.pause(4)
    c.resume(4)
    c.cut(CLIENTS, 4)
    c.cut(4, CLIENTS, one_way=True)
    c.cut(1, [2, 3])
    c.cut(1, side)
    c.delay(1, 2, 30)
    assert_type(c.cut(1, 2, for_s=5), Injected)
    with c.fail_api("Produce", error="NOT_LEADER_OR_FOLLOWER", count=3, delay_ms=5, nodes=[4]) as fault:
        assert_type(fault, Injected)
        fault.end()
    c.refuse(4, CLIENTS)
    c.lose(4, 5, 0.5, for_s=1.5)
    c.slow_disk(4, 20)
    c.stall_disk(4)
    c.fill_disk(4)
    c.jump_clock(4, -3600)
    c.slow_api(100, api="Fetch")
    c.hold_markers()
    c.release_markers()
    c.heal()


def of_processes() -> None:
    faults = ProcessFaults("/tmp/kraftlite")
    assert_type(faults.cut(4, 1, for_s=5), Injected)
    assert_type(faults.brokers, tuple[int, ...])
    faults.heal()


async def what_waits() -> None:
    async with Cluster(controllers=1, brokers=2, config={"min.insync.replicas": 2}, racks=("a", "b")) as c:
        assert_type(c, Cluster)
        await c.create_topic("t", partitions=2, replication_factor=2, config={"retention.ms": 1000, "preallocate": False})
        await c.create_topic("u", assignment=[[2, 3], [3, 2]], timeout=5.0)
        assert_type(await c.wait_for(topic="t", leader=other_than(2), isr={2, 3}, hw=1), PartitionView)
        await c.wait_for(controller=SOMEBODY, brokers=c.brokers)
        assert_type(await c.wait_for_transaction("x", state="Ongoing", coordinator=other_than(2)), TransactionView)
        assert_type(await c.fence("x", timeout=5.0), tuple[int, int])
        await c.stop(2)
        await c.restart(2)
        assert_type(await c.add_broker(rack="a"), int)
        assert_type(await c.add_controller(), int)
        await c.remove_broker(2, fewer_replicas=True)
        await c.remove_controller(1)
    other = Cluster(combined=True)
    await other.start()
    await other.close()


def what_blocks() -> None:
    with SyncCluster(controllers=1, brokers=2) as c:
        assert_type(c, SyncCluster)
        c.create_topic("t")
        assert_type(c.wait_for(topic="t", leader=2, timeout=3), PartitionView)
        c.wait_for(controller=NOBODY)
        assert_type(c.wait_for_transaction("x", state={"CompleteCommit", "CompleteAbort"}, timeout=3), TransactionView)
        assert_type(c.fence("x"), tuple[int, int])
        c.stop(2)
        c.restart(2)
        assert_type(c.add_broker(), int)
        assert_type(c.add_controller(), int)
        c.remove_broker(2)
        c.remove_controller(1)
    other = SyncCluster()
    other.start()
    other.close()


def test_of_the_fixtures(kafka_chaos: Chaos, kafka_cluster_factory: ClusterFactory) -> None:
    with (
        kafka_chaos.killed(4),
        kafka_chaos.stopped(5),
        kafka_chaos.paused(6),
        kafka_chaos.partitioned(1, CLIENTS),
        kafka_chaos.markers_held(),
    ):
        kafka_chaos.kill(4)
        kafka_chaos.cut(1, 2, one_way=True)
        kafka_chaos.delay(1, 2, 10)
        kafka_chaos.heal()
    with kafka_chaos.markers_held():
        pass
    assert_type(kafka_cluster_factory(brokers=2, config={"min.insync.replicas": 2}), SyncCluster)


def what_goes_wrong(act: Callable[[], object]) -> str:
    try:
        act()
    except WaitTimeout as error:
        assert_type(error, WaitTimeout)
        return str(error)
    except ClusterError as error:
        return str(error)
    return ""
