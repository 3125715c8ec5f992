"""The composition root: one node out of a configuration and ports, whatever the ports are made of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import kraftlite
from kraftlite.broker.introspection import Introspection
from kraftlite.config.server import ServerConfig
from kraftlite.controller.driver import ControllerDriver
from kraftlite.faults.service import FaultsService
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.metadata.publisher import MetadataPublisher
from kraftlite.metadata.snapshotter import SnapshotGenerator
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.messages.introspection import NodeStatusResponse, ReplicaState
from kraftlite.model.method import AnyMethod
from kraftlite.node.authorization import AclPublisher, load_gate
from kraftlite.node.configs import broker_config, controller_config, quorum_config, replication_config
from kraftlite.node.controller_clients import ControllerClients
from kraftlite.node.controller_configs import ControllerConfigs
from kraftlite.node.injection import load_injector
from kraftlite.node.listeners import NodeListeners
from kraftlite.node.locking import Locks, verify_and_lock
from kraftlite.node.policies import load_policies
from kraftlite.node.storage import Layout
from kraftlite.raft.driver import RaftDriver
from kraftlite.runtime.ports import AnyHandler, Ports
from kraftlite.runtime.trace.node import NodeStarted, NodeStarting, NodeStopped, NodeStopping

if TYPE_CHECKING:
    from kraftlite.broker.server import BrokerServer
    from kraftlite.replication.states import Looks


def build_node(config: ServerConfig, ports: Ports, *, serve_clients: bool = True) -> Node:
    """A node that is not started yet, with its directories locked. Knows nothing of processes and signals.

    Everything goes through the ports but the sockets of Kafka clients; without `serve_clients` there are none, and
    `node.broker.context` is the way to a broker's data.
    Raises StorageError when the directories are not this node's (BL-14) or are in use (BL-15), ValueError for a bad value.
    """
    layout, locks = verify_and_lock(ports.disk, config)
    try:
        return Node(config, ports, layout, locks, serve_clients=serve_clients)
    except BaseException:
        locks.release()
        raise


class Node:
    """One node: its share of the metadata quorum, and the controller and broker roles it has.

    `start` returns when the node serves what its roles promise; it may be cancelled. `stop` ends whatever was started, also when
    `start` did not return, broker role first (BL-24), and releases the directories. Both roles share one raft and one loader.
    Errors that the node cannot go on with reach `Ports.fault`; whoever made the ports stops the node then.
    """

    def __init__(self, config: ServerConfig, ports: Ports, layout: Layout, locks: Locks, *, serve_clients: bool) -> None:
        self._ports = ports
        self._config = config
        self._locks = locks
        self.cluster_id = layout.cluster_id
        self.raft = RaftDriver(ports, quorum_config(config, layout, ports.tuning), MetadataSerde())
        self.metadata_apply_errors = 0
        self.loader = MetadataLoader(ports, self.raft, publisher_fault=self._on_publisher_fault)
        self.snapshotter = SnapshotGenerator(
            ports,
            self.raft,
            max_bytes_between=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        )
        introspection = Introspection(self.status, self._replica_states, self._looks, ports.clock)
        self.gate = load_gate(config, ports)
        about: dict[AnyMethod, AnyHandler] = dict(introspection.handlers())
        self.listeners = NodeListeners(ports, config, about, serve_clients=serve_clients, gate=self.gate)
        self.injector = load_injector(config, ports, self.listeners, self.loader)
        """The faults that it was told to cause to itself; None: it does not allow any."""
        about.update(FaultsService(config.node_id, self.injector).handlers())
        self.controller: ControllerDriver | None = None
        if config.is_controller:
            self.controller = ControllerDriver(
                ports,
                controller_config(config, layout, ports.tuning),
                self.raft,
                layout.bootstrap,
                load_policies(config, ports),
                self.gate,
            )
            self.controller.core.state.features.voters = self.raft.voter_ids
        self.broker: BrokerServer | None = None
        if config.is_broker:
            from kraftlite.broker.server import BrokerServer  # a mere controller does without the data plane

            self.broker = BrokerServer(
                ports,
                broker_config(config, layout),
                replication_config(config, layout),
                self.raft,
                self.loader,
                self.listeners,
                config.sources,
            )
            self.broker.context.gate = self.gate
        self._stopped = asyncio.Event()
        self._stopping = False
        self._begun = False

    # --- running ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises Fault when a part cannot start, OSError when a listener's address cannot be had."""
        roles = ",".join(self._config.roles)
        emit = self._ports.tracer.emit
        emit(NodeStarting(roles=roles, cluster_id=self.cluster_id, version=kraftlite.__version__))
        limit_ms = self._config.get_int("server.max.startup.time.ms")
        timer = None
        if limit_ms < MAX_INT64:
            late = Fault(f"the node did not start within {limit_ms} ms (server.max.startup.time.ms)")
            timer = self._ports.clock.call_later(limit_ms, lambda: self._ports.fault(late, "node start"))
        try:
            self._begun = True
            if self.listeners.tls is not None:
                self.listeners.tls.start()
            await self.listeners.reserve()
            if self.broker is not None:
                self.listeners.warm_up()
            await self.raft.start()
            publishers: list[MetadataPublisher] = [self.snapshotter]
            if self.gate is not None:
                publishers.append(AclPublisher(self.gate.authorizer))
            if self.controller is not None:
                await self.controller.start()
                handlers = {**self.raft.handlers(), **self.controller.handlers()}
                clients = ControllerClients(self._ports, self._config, self.cluster_id, self.raft, handlers, self.gate)
                await self.listeners.open_controller(handlers, clients)
                if self.broker is None:
                    publishers.append(ControllerConfigs(self._ports, self._config, self.listeners))
                publishers += [clients, self.controller.registrar]
            self.loader.start()
            self.loader.install_publishers(publishers)
            if self.broker is not None:
                await self.broker.start()
        finally:
            if timer is not None:
                timer.cancel()
        emit(NodeStarted(roles=roles))

    async def stop(self, *, graceful: bool, reason: str = "asked to") -> None:
        """Idempotent. Graceful: leaderships of partitions and of the quorum are handed over, logs closed, markers written."""
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        self._ports.tracer.emit(NodeStopping(reason=reason, graceful=graceful))
        if self.injector is not None:
            self.injector.close()
        try:
            try:
                if self._begun:
                    await self._stop_parts(graceful=graceful)
            finally:  # nobody is answered any more, also when a disk has failed on the way
                await self._ports.transport.close(0)
                await self._ports.tasks.cancel_all()
        finally:
            self.listeners.release()
            self._locks.release()
            self._ports.tracer.emit(NodeStopped())
            self._stopped.set()

    async def _stop_parts(self, *, graceful: bool) -> None:
        if self.broker is not None:
            await self.broker.stop(graceful=graceful)
        if self.controller is not None:
            await self.controller.stop()
        if self.listeners.tls is not None:
            self.listeners.tls.stop()
        await self.loader.stop()
        await self.raft.stop(graceful=graceful)
        await self.listeners.close_controller(0)

    async def wait(self) -> None:
        """Wait until `stop` is done."""
        await self._stopped.wait()

    def _on_publisher_fault(self, error: BaseException, where: str) -> None:
        """ML-07, as Kafka's "metadata publishing" fault handler: traced and counted. The same record reaches every node, and what
        one part cannot apply must not stop them all; a Fault still does, and so does an error in the first publication."""
        self.metadata_apply_errors += 1
        if isinstance(error, Fault):
            self._ports.fault(error, where)

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def ports(self) -> Ports:
        return self._ports

    def status(self) -> NodeStatusResponse:
        leader = self.raft.leader_and_epoch()
        lifecycle = None if self.broker is None else self.broker.lifecycle
        return NodeStatusResponse(
            node_id=self._config.node_id,
            cluster_id=self.cluster_id,
            roles=self._config.roles,
            broker_state=None if lifecycle is None else lifecycle.state.name,
            broker_epoch=None if lifecycle is None else lifecycle.broker_epoch,
            raft_state=self.raft.state_name,
            raft_epoch=self.raft.raft_epoch,
            leader_id=leader.leader_id,
            raft_high_watermark=self.raft.high_watermark(),
            raft_leo=self.raft.log_end_offset(),
            metadata_offset=self.loader.last_applied_offset(),
            active_controller=self.controller is not None and self.controller.active,
        )

    def _replica_states(self, topics: tuple[str, ...] | None) -> tuple[ReplicaState, ...]:
        return () if self.broker is None else self.broker.replica_states(topics)

    def _looks(self) -> Looks | None:
        return None if self.broker is None else self.broker.replicas.looks()
