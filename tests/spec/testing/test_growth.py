"""An embedded cluster that grows and shrinks: DQ-30, DQ-33, DQ-35, DQ-44, and what its methods promise."""

from __future__ import annotations

import threading

import pytest

from kraftlite.testing import CLIENTS, Cluster, ClusterError, SyncCluster
from tests.harness.embedded import consume, produce, producer
from tests.harness.local import wait_for


def voters(cluster: SyncCluster | Cluster) -> set[int]:
    """As every node that runs has them in its log, as soon as all agree."""
    nodes = cluster._running()

    def look() -> set[frozenset[int]]:
        return {frozenset(map(int, host.node.raft.voter_ids())) for host in nodes.hosts.values() if host.node is not None}

    (found,) = wait_for("one set of voters", lambda: found if len(found := cluster._do(look)) == 1 else None)
    return set(found)


def test_dq_20_the_voters_are_in_the_log_from_the_beginning() -> None:
    with SyncCluster(controllers=3, brokers=1) as c:
        nodes = c._running()
        versions = c._do(lambda: {host.node.raft.kraft_version() for host in nodes.hosts.values() if host.node is not None})
        assert versions == {1} and voters(c) == {1, 2, 3}


def test_dq_30_dq_33_every_first_node_is_replaced_while_records_are_written() -> None:
    with SyncCluster(controllers=1, brokers=1) as c:
        c.create_topic("orders", partitions=2, replication_factor=1)
        wrong: list[object] = []
        sent: list[str] = []
        stop = threading.Event()

        def write() -> None:
            # It learns of the new broker before the one that it began with is gone.
            known = {"topic.metadata.refresh.interval.ms": 50, "enable.idempotence": True}
            client = producer(c, **known)
            while not stop.is_set():
                sent.append(str(len(sent)))
                client.produce("orders", sent[-1].encode(), partition=0, on_delivery=lambda e, _: wrong.append(e) if e else None)
                client.poll(0.002)
            wrong.extend([] if client.flush(30) == 0 else ["records without a verdict"])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert (c.add_broker(), c.add_controller(), c.add_controller()) == (3, 4, 5)
            assert (c.brokers, c.controllers, voters(c)) == ((2, 3), (1, 4, 5), {1, 4, 5})
            c.remove_controller(1)
            already = len(sent)
            while len(sent) < already + 200 and writer.is_alive():
                stop.wait(0.01)
            c.remove_broker(2)
        finally:
            stop.set()
            writer.join()
        assert wrong == []
        assert (c.brokers, c.controllers, set(c.nodes)) == ((3,), (4, 5), {3, 4, 5})
        assert c.live_brokers() == (3,)
        assert c.partition("orders", 1).replicas == (3,)
        assert consume(c, "orders", len(sent)) == sent
        c.restart(3, 4, 5)
        produce(c, "orders", ["after"], partition=1)


def test_dq_33_the_active_controller_leaves_and_another_one_takes_over() -> None:
    with SyncCluster(controllers=3, brokers=1) as c:
        active = c.controller()
        assert active is not None
        c.remove_controller(active)
        assert c.controller() not in (None, active)
        assert voters(c) == {1, 2, 3} - {active}
        c.create_topic("after")


def test_dq_44_a_controller_that_is_gone_for_good_is_replaced_by_another_one() -> None:
    with SyncCluster(controllers=3, brokers=1) as c:
        c.power_cut(2)
        c.remove_controller(2)
        assert c.add_controller() == 5
        assert voters(c) == {1, 3, 5}
        c.kill(3)
        c.create_topic("with-two-of-the-three")


def test_a_controller_that_the_others_need_does_not_leave() -> None:
    with SyncCluster(controllers=3, brokers=1) as c:
        down = next(it for it in c.controllers if it != c.controller())
        c.kill(down)
        other = next(it for it in c.controllers if it != down)
        with pytest.raises(ClusterError, match=rf"controller {other} cannot leave: of the voters .* only 1 run"):
            c.remove_controller(other)
        assert set(c.nodes) == {1, 2, 3, 4}
    with SyncCluster(controllers=1, brokers=1) as c, pytest.raises(ClusterError, match="controller 1 cannot leave"):
        c.remove_controller(1)


def test_replicas_without_a_place_keep_their_broker() -> None:
    with SyncCluster(controllers=1, brokers=2) as c:
        c.create_topic("orders", replication_factor=2)
        with pytest.raises(ClusterError, match=r"broker 2 cannot leave: .*orders-0 would have more replicas"):
            c.remove_broker(2)
        assert set(c.isr("orders")) == {2, 3}
        c.remove_broker(2, fewer_replicas=True)
        assert c.partition("orders").replicas == (3,)
        with pytest.raises(ClusterError, match="node 3 is the only broker"):
            c.remove_broker(3)


def test_roles_are_respected() -> None:
    with SyncCluster(controllers=2, brokers=1, combined=True) as c:
        with pytest.raises(ClusterError, match="node 2 is no broker"):
            c.remove_broker(2)
        with pytest.raises(ClusterError, match=r"remove_broker\(1\) removes it with both roles"):
            c.remove_controller(1)
        with pytest.raises(ValueError, match="there is no node 9"):
            c.remove_controller(9)
        assert c.add_broker() == 3
        c.create_topic("orders", replication_factor=1)
        c.remove_broker(1)
        assert (c.brokers, c.controllers, voters(c)) == ((3,), (2,), {2})


def test_the_faults_of_a_node_go_with_it() -> None:
    with SyncCluster(controllers=1, brokers=2) as c:
        assert c.add_broker() == 4
        c.cut(3, CLIENTS)
        c.delay(2, 3, 5)
        c.remove_broker(3)
        c.wait_for(brokers=[2, 4])
        c.heal()


async def test_with_asyncio_and_a_secure_cluster() -> None:
    async with Cluster(controllers=1, brokers=1, secure=True) as c:
        assert await c.add_broker(rack="b") == 3
        assert await c.add_controller() == 4
        await c.remove_controller(1)
        await c.remove_broker(2)
        assert c.client_config("alice")["bootstrap.servers"] == c.nodes[3].kafka
        await c.wait_for(brokers=[3])


def test_two_changes_at_once_are_carried_out_one_after_the_other() -> None:
    with SyncCluster(controllers=1, brokers=1) as c:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(c.add_controller())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [3, 4] and voters(c) == {1, 3, 4}
