"""Whole nodes in one process, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest

from kraftlite.broker.lifecycle_core import BrokerState
from kraftlite.config.server import load
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId, uuid_to_str
from kraftlite.model.messages.controller import AllocateProducerIdsRequest, DeleteTopicsRequest, TopicSelector
from kraftlite.model.messages.introspection import NodeStatusRequest, ReplicaStatesRequest
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS, DELETE_TOPICS, NODE_STATUS, REPLICA_STATES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.listeners import NodeListeners
from kraftlite.node.meta_properties import read_meta_properties
from kraftlite.node.metrics import register_gauges
from kraftlite.obs.metrics import Metrics
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import TransportError
from tests.harness.broker_ports import TestBed
from tests.harness.node_cluster import MemCluster, MemNode


async def test_bl_24_combined_nodes_share_one_raft_and_one_loader(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, combined=3)
    await cluster.up()
    await cluster.create_topic("orders", replicas=3)
    assert await cluster.produce("orders", "one") is ErrorCode.NONE
    leader = cluster.leader("orders")
    assert leader is not None and leader.node is not None
    assert leader.node.broker is not None and leader.node.broker.lifecycle.state is BrokerState.RUNNING
    await leader.crash()
    await cluster.until(lambda: cluster.leader("orders"), "another leader")
    assert await cluster.produce("orders", "two") is ErrorCode.NONE
    assert cluster.readable("orders") == 2
    for node in cluster.nodes.values():
        if node.node is not None:
            await node.stop()


async def test_bl_24_stopping_a_combined_node_stops_the_broker_first(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    await cluster.create_topic("orders")
    node = cluster.nodes[1]
    await node.stop()
    names = [event.event for event in node.bed.tracer.events]
    assert names.index("broker.clean_shutdown_marked") < names.index("raft.leader_resigned")
    states = [event.state for event in node.bed.events("broker.state_changed")]
    assert states[-2:] == ["PENDING_CONTROLLED_SHUTDOWN", "SHUTTING_DOWN"]
    assert node.disk.stat("/data/.kafka_cleanshutdown") is not None and not node.bed.faults


async def test_a_node_whose_metadata_disk_fails_as_it_stops_leaves_nothing_running(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1)
    await cluster.up()
    node = cluster.nodes[1]
    assert node.node is not None
    stopping = asyncio.ensure_future(node.node.stop(graceful=False))
    node.disk.inject("sync", path="__cluster_metadata", times=None)
    await cluster.until(stopping.done, "the node to stop")
    with pytest.raises(OSError, match="__cluster_metadata"):
        await stopping
    assert not [task for task in node.bed.tasks.running if not task.done()]
    caller = cluster.network.transport("elsewhere")
    with pytest.raises(TransportError):
        await caller.call(Endpoint("n1", 9093), NODE_STATUS, NodeStatusRequest(), 1_000)


async def test_bl_07_clients_come_last_and_followers_before_unfencing(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    broker = cluster.nodes[2]
    opened: list[tuple[str, str]] = []
    cluster.boot()
    node = broker.node
    assert node is not None and node.broker is not None
    lifecycle = node.broker.lifecycle
    listeners = node.listeners
    plain_replication, plain_prepare, plain_clients = (
        listeners.open_replication,
        listeners.prepare_clients,
        listeners.open_clients,
    )

    async def open_replication(handlers: Any) -> None:
        opened.append(("replication", lifecycle.state.name))
        await plain_replication(handlers)

    async def prepare_clients(context: Any) -> None:
        opened.append(("listening", lifecycle.state.name))
        await plain_prepare(context)

    async def open_clients() -> None:
        opened.append(("clients", lifecycle.state.name))
        await plain_clients()

    listeners.open_replication = open_replication  # type: ignore[method-assign]
    listeners.prepare_clients = prepare_clients  # type: ignore[method-assign]
    listeners.open_clients = open_clients  # type: ignore[method-assign]
    await cluster.until(lambda: broker.up, "the broker to start")
    assert opened == [("replication", "RECOVERY"), ("listening", "RECOVERY"), ("clients", "RUNNING")]


@pytest.mark.parametrize("taken", ["REPLICATION", "PLAINTEXT", "PLAINTEXT while it started"])
async def test_a_broker_whose_address_is_taken_never_leads(tmp_path: Path, taken: str) -> None:
    """BL-30. An address that is taken is found before the broker registers; one taken meanwhile, before it is unfenced."""
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    broker = cluster.nodes[2]
    refused = OSError(98, f"cannot listen on {taken}: address already in use")
    if taken == "REPLICATION":
        endpoint = next(Endpoint(it.host, it.port) for it in broker.config.listeners if it.name == "REPLICATION")
        await cluster.network.transport("stranger").serve(endpoint, {})
    cluster.boot()
    node = broker.node
    assert node is not None and broker.starting is not None

    async def prepare_clients(context: Any) -> None:
        raise refused

    async def reserve() -> None:
        raise refused

    if taken == "PLAINTEXT":
        node.listeners.reserve = reserve  # type: ignore[method-assign]
    elif taken != "REPLICATION":
        node.listeners.prepare_clients = prepare_clients  # type: ignore[method-assign]
    starting = broker.starting
    with pytest.raises(OSError, match="cannot listen on"):
        await cluster.until(starting.done, "the start to fail")
    controller = cluster.nodes[1].node
    assert controller is not None and controller.controller is not None
    brokers = controller.controller.core.state.cluster.brokers
    if taken == "PLAINTEXT while it started":
        assert brokers[NodeId(2)].fenced
    else:
        assert NodeId(2) not in brokers


async def test_all_addresses_of_a_node_are_its_own_before_it_says_anything(tmp_path: Path) -> None:
    """BL-30. On real sockets: a port that is taken is refused by name, whichever listener it is of, and none is kept."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(3)]
    names = ("PLAINTEXT", "REPLICATION", "CONTROLLER")
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners={','.join(f'{name}://127.0.0.1:{port}' for name, port in zip(names, ports, strict=True))}\n"
        "inter.broker.listener.name=REPLICATION\n"
        f"controller.quorum.voters=1@127.0.0.1:{ports[2]}\nlog.dirs=/data\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC\n"
    )
    for port in ports:
        transport = GrpcTransport()
        listeners = NodeListeners(TestBed(seed=1, transport=transport).ports, load(path), {}, serve_clients=True)
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            await listeners.reserve()
        listeners.release()
        await transport.close()
    transport = GrpcTransport()
    listeners = NodeListeners(TestBed(seed=1, transport=transport).ports, load(path), {}, serve_clients=True)
    await listeners.reserve()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    bound = await transport.serve(Endpoint("127.0.0.1", ports[2]), {})
    assert bound.port == ports[2]
    listeners.release()
    await transport.close()


async def test_bl_07_a_broker_stays_fenced_while_it_recovers(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    await cluster.create_topic("orders")
    await cluster.produce("orders", "one")
    broker = cluster.nodes[2]
    await broker.crash()
    broker.boot()
    recovering = asyncio.Event()
    plain = broker.bed.tasks.run_blocking

    async def slow(function: Any) -> Any:
        await recovering.wait()
        return await plain(function)

    broker.bed.tasks.run_blocking = slow  # type: ignore[method-assign]
    node = broker.node
    assert node is not None and node.broker is not None
    lifecycle = node.broker.lifecycle
    await cluster.until(lambda: lifecycle.state is BrokerState.RECOVERY, "recovery")
    await cluster.clock.run_for(5_000)
    assert lifecycle.state is BrokerState.RECOVERY and not broker.up
    recovering.set()
    await cluster.until(lambda: broker.up, "the broker to start")
    assert lifecycle.state is BrokerState.RUNNING


async def test_bl_27_brokers_may_start_before_controllers(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    for node_id in (3, 2):
        cluster.nodes[node_id].boot()
    await cluster.clock.run_for(10_000)
    cluster.nodes[1].boot()
    await cluster.until(lambda: all(node.up for node in cluster.nodes.values()), "all nodes to be up")


async def test_bl_28_after_all_nodes_lose_power_acknowledged_data_is_there(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=3, brokers=3, log_flush_interval_messages="1", min_insync_replicas="2")
    await cluster.up()
    await cluster.create_topic("orders", replicas=3)
    for number in range(5):
        assert await cluster.produce("orders", f"value-{number}") is ErrorCode.NONE
    for node in cluster.nodes.values():
        await node.crash()
    await cluster.up()
    await cluster.until(lambda: cluster.leader("orders"), "a leader")
    await cluster.until(lambda: cluster.readable("orders") == 5, "all five records")
    assert await cluster.produce("orders", "another") is ErrorCode.NONE


async def test_bl_08_a_fenced_broker_returns_with_its_epoch(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    await cluster.until(lambda: cluster.isr("orders") == (2, 3), "a full ISR")
    leader = cluster.leader("orders")
    assert leader is not None
    follower = cluster.nodes[5 - leader.node_id]
    assert follower.node is not None and follower.node.broker is not None
    epoch = follower.node.broker.lifecycle.broker_epoch
    cluster.network.isolate(f"n{follower.node_id}", ["n1", "n2", "n3"])
    await cluster.until(lambda: cluster.isr("orders") == (leader.node_id,), "the ISR to shrink")
    cluster.network.heal()
    await cluster.until(lambda: cluster.isr("orders") == (2, 3), "the ISR to grow")
    assert follower.node.broker.lifecycle.broker_epoch == epoch
    assert len(follower.bed.events("broker.registered")) == 1


async def test_bl_10_leaderships_are_handed_over_before_a_broker_stops(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    await cluster.until(lambda: cluster.isr("orders") == (2, 3), "a full ISR")
    leader = cluster.leader("orders")
    assert leader is not None
    await leader.stop()
    leader.node = None
    other = cluster.leader("orders")
    assert other is not None and other is not leader, "somebody leads the moment the old leader is gone"


async def test_introspection_is_served_beside_the_other_services(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    await cluster.create_topic("orders")
    probe = cluster.network.transport("probe")

    async def ask(port: int, host: str, method: Any, request: Any) -> Any:
        return await cluster.call(probe.call(Endpoint(host, port), method, request, 1_000), str(method))

    controller = await ask(9093, "n1", NODE_STATUS, NodeStatusRequest())
    broker = await ask(9192, "n2", NODE_STATUS, NodeStatusRequest())
    assert (controller.roles, controller.active_controller, controller.broker_state) == (("controller",), True, None)
    assert (broker.roles, broker.broker_state, broker.raft_state) == (("broker",), "RUNNING", "observer")
    assert broker.leader_id == 1 and broker.broker_epoch is not None and broker.metadata_offset > 0
    states = await ask(9192, "n2", REPLICA_STATES, ReplicaStatesRequest(topics=None))
    assert [(state.topic, state.is_leader) for state in states.replicas] == [("orders", True)]
    assert [(state.leader_id, state.replicas, state.min_isr) for state in states.replicas] == [(2, (2,), 1)]
    assert (await ask(9093, "n1", REPLICA_STATES, ReplicaStatesRequest(topics=None))).replicas == ()


async def with_a_failed_directory(tmp_path: Path) -> tuple[MemCluster, MemNode, str]:
    """Two brokers with two log directories; that of a-0 has just failed on its leader."""
    cluster = MemCluster(tmp_path, controllers=1, brokers=2, log_dirs="/d1,/d2", metadata_log_dir="/meta")
    await cluster.up()
    for name in ("a", "b"):
        await cluster.create_topic(name, replicas=2)
        await cluster.until(lambda name=name: cluster.isr(name) == (2, 3), f"a full ISR of {name}")  # type: ignore[misc]
    leader = cluster.leader("a")
    assert leader is not None and leader.node is not None and leader.node.broker is not None
    home = leader.node.broker.log_dirs.directory_of(TopicPartition("a", 0))
    assert home is not None
    leader.disk.inject("pwritev", path=f"{home}/a-0", times=None)
    assert await cluster.produce("a", "lost") is ErrorCode.KAFKA_STORAGE_ERROR
    return cluster, leader, home


async def test_bl_16_a_failed_directory_leaves_the_rest_alone(tmp_path: Path) -> None:
    cluster, leader, home = await with_a_failed_directory(tmp_path)
    await cluster.clock.run_for(40_000)
    cluster.check()
    assert leader.node is not None and leader.node.broker is not None
    assert leader.node.broker.log_dirs.offline_directories() == (home,)
    assert leader.node.broker.lifecycle.state is BrokerState.RUNNING, "the controller acknowledged the failure (BL-17)"
    assert await cluster.produce("b", "kept") is ErrorCode.NONE
    assert leader.node.broker.replicas.counts.offline() == 1


async def test_bl_16_the_leaderships_in_a_failed_directory_move_away(tmp_path: Path) -> None:
    cluster, leader, _ = await with_a_failed_directory(tmp_path)
    await cluster.until(lambda: cluster.leader("a") not in (None, leader), "another leader of a", 20_000)


async def test_bl_23_an_older_incarnation_is_refused(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    broker = cluster.nodes[2]
    assert broker.node is not None and broker.node.broker is not None
    old = broker.node.broker.lifecycle.broker_epoch
    assert old is not None
    await broker.crash()
    broker.boot()
    await cluster.until(lambda: broker.up, "the broker to be back")
    new = broker.node.broker.lifecycle.broker_epoch
    assert new is not None and new > old
    request = AllocateProducerIdsRequest(broker_id=NodeId(2), broker_epoch=old)
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        await cluster.call(broker.node.broker.channel.call(ALLOCATE_PRODUCER_IDS, request, 5_000), "a refusal")


async def test_ml_23_a_log_whose_topic_went_while_the_broker_was_down_is_set_aside(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    await cluster.until(lambda: cluster.isr("orders") == (2, 3), "a full ISR")
    await cluster.produce("orders", "one")
    away = cluster.nodes[3]
    await away.stop()
    other = cluster.nodes[2].node
    assert other is not None and other.broker is not None
    selector = TopicSelector(name="orders", topic_id=None)
    await cluster.call(
        other.broker.channel.call(DELETE_TOPICS, DeleteTopicsRequest(topics=(selector,), timeout_ms=5_000), 5_000), ""
    )
    await cluster.create_topic("orders")
    away.boot()
    await cluster.until(lambda: away.up, "the broker to be back")
    assert [name for name in away.disk.listdir("/data") if name.startswith("orders-0.") and name.endswith("-stray")]
    assert away.disk.stat("/data/orders-0") is None or cluster.leader("orders") is away


class _Broken:
    """A publisher with a bug, or one that says that the node must stop."""

    name = "broken"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def on_metadata_update(self, delta: Any, image: Any, manifest: Any) -> None:
        raise self.error

    def on_controller_change(self, leader: Any) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("error", [KeyError("a bug"), Fault("this node must stop")], ids=["bug", "fault"])
async def test_ml_07_a_publishers_error_is_reported_and_only_a_fault_stops_the_node(tmp_path: Path, error: Exception) -> None:
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    bed, node = cluster.nodes[1].bed, cluster.nodes[1].node
    assert node is not None
    node.loader.install_publishers([_Broken(error)])
    for _ in range(100):
        if bed.events("metadata.publisher_failed"):
            break
        await cluster.clock.run_for(10)
    failed = bed.events("metadata.publisher_failed")[0]
    assert failed.publisher == "broken" and "on_metadata_update" in failed.trace and node.metadata_apply_errors > 0
    assert [fault for fault, _ in bed.faults] == ([error] * node.metadata_apply_errors if isinstance(error, Fault) else [])
    bed.faults.clear()
    if not isinstance(error, Fault):
        await cluster.create_topic("orders")
        assert await cluster.produce("orders", "one") is ErrorCode.NONE, "later updates reach the others"


async def test_ce_30_the_page_of_a_node(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    await cluster.create_topic("orders", partitions=3)
    node = cluster.nodes[1].node
    assert node is not None
    metrics = Metrics({})
    register_gauges(metrics, node, most_partitions=100)
    page = metrics.render().decode()
    for line in (
        "kafka_controller_kafkacontroller_activecontrollercount 1.0",
        "kafka_controller_kafkacontroller_newactivecontrollerscount 1.0",
        "kafka_controller_kafkacontroller_globaltopiccount 1.0",
        "kafka_controller_kafkacontroller_globalpartitioncount 3.0",
        "kafka_controller_kafkacontroller_activebrokercount 1.0",
        "kafka_controller_kafkacontroller_offlinepartitionscount 0.0",
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count 0.0",
        "kafka_server_replicamanager_leadercount 3.0",
        "kraftlite_transactional_ids 0.0",
        "kraftlite_transactions_open 0.0",
        "kraftlite_transactions_decided 0.0",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize 0.0",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize 0.0",
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total 0.0",
        "kafka_server_addpartitionstotxnmanager_verificationtimems_count 0.0",
        "kafka_server_addpartitionstotxnmanager_verificationtimems_sum 0.0",
    ):
        assert line in page.splitlines(), line
    assert "partition_load_time" not in page, "nothing was loaded in the last minute"


async def test_ce_30_partitions_and_topics_have_series_of_their_own_up_to_a_bound(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    await cluster.create_topic("orders", partitions=3)
    await cluster.create_topic("zebras", partitions=2)
    for _ in range(3):
        assert await cluster.produce("orders", "one") is ErrorCode.NONE
    node = cluster.nodes[1].node
    assert node is not None
    metrics = Metrics({})
    register_gauges(metrics, node, most_partitions=4)
    lines = (await metrics.page()).decode().splitlines()
    size = next(line for line in lines if line.startswith('kafka_log_log_size{partition="0",topic="orders"}'))
    written = float(size.rpartition(" ")[2])
    assert written > 0
    properties = read_meta_properties(cluster.nodes[1].disk, cluster.nodes[1].config.metadata_log_dir)
    assert properties is not None
    own = uuid_to_str(properties.directory_id)
    for line in (
        'kafka_log_log_logstartoffset{partition="0",topic="orders"} 0.0',
        'kafka_log_log_logendoffset{partition="0",topic="orders"} 3.0',
        'kafka_log_log_numlogsegments{partition="0",topic="orders"} 1.0',
        'kafka_log_log_logendoffset{partition="0",topic="zebras"} 0.0',
        'kafka_cluster_partition_underminisr{partition="0",topic="orders"} 0.0',
        'kafka_cluster_partition_atminisr{partition="0",topic="orders"} 1.0',
        'kafka_cluster_partition_insyncreplicascount{partition="0",topic="orders"} 1.0',
        'kafka_cluster_partition_laststableoffsetlag{partition="0",topic="orders"} 0.0',
        'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 3.0',
        "kafka_server_brokertopicmetrics_messagesin_total 3.0",
        f'kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}} {written}',
        'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"} 3.0',
        'kafka_server_brokertopicmetrics_bytesout_total{topic="zebras"} 0.0',
        "kafka_server_replicamanager_atminisrpartitioncount 5.0",
        "kafka_server_replicamanager_failedisrupdates_total 0.0",
        "kraftlite_metrics_partitions_left_out 1.0",
        'kafka_server_raftmetrics_current_state{current_state="leader"} 1.0',
        "kafka_server_raftmetrics_current_vote 1.0",
        f'kafka_server_raftmetrics_current_vote_directory_id{{current_vote_directory_id="{own}"}} 1.0',
        "kafka_coordinator_group_groupmetadatamanager_numgroups 0.0",
    ):
        assert line in lines, line
    assert not any('partition="1",topic="zebras"' in line for line in lines)
    assert node.broker is not None
    node.broker.transactions.load_times.took(7)
    page = metrics.render().decode()
    for kind in ("max", "avg"):
        assert f"kafka_server_transaction_coordinator_metrics_partition_load_time_{kind} 7.0" in page.splitlines()
