"""The views of an embedded cluster, and topics, which are made by asking its controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from kraftlite.broker.handlers.coordinators import offsets_topic
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import (
    ConfigPair,
    CreatableTopic,
    CreateTopicsRequest,
    ReplicaAssignment,
)
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.runtime.ports import TransportError
from kraftlite.testing.conditions import PartitionView, Wanted
from kraftlite.testing.errors import ClusterError, WaitTimeout
from kraftlite.testing.nodes import POLL_S, Nodes
from kraftlite.testing.transactions import TransactionView, WantedTransaction

ADMIN = NodeId(0)
"""The node that asks the controller: it is none of the cluster's, and is never cut off."""
ATTEMPT_MS = 1_000


class Views:
    """All methods run on the cluster's loop."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._admin = nodes.network.transport(ADMIN, nodes.outside)

    def _live(self) -> dict[int, Node]:
        return {node_id: it.node for node_id, it in self._nodes.hosts.items() if it.started and it.node is not None}

    def image(self) -> MetadataImage:
        """The newest that any running node has: committed, as nodes learn nothing else. Raises ClusterError when none runs."""
        images = [node.loader.image for node in self._live().values()]
        if not images:
            raise ClusterError(f"no node is running{self._nodes.troubles()}")
        return max(images, key=lambda image: image.offset)

    def controller(self) -> int | None:
        """The active controller; of two that think they are, the one of the later epoch."""
        active = [
            (node.raft.raft_epoch, node_id)
            for node_id, node in self._live().items()
            if node.controller is not None and node.controller.active
        ]
        return max(active)[1] if active else None

    def live_brokers(self) -> tuple[int, ...]:
        brokers = self.image().cluster.brokers
        return tuple(int(it) for it in sorted(brokers) if not brokers[it].fenced)

    def find_partition(self, topic: str, index: int) -> PartitionView | None:
        found = self.image().topics.topic(topic)
        registration = None if found is None else found.partitions.get(index)
        if registration is None:
            return None
        leader, hw, leo = registration.leader, None, None
        node = None if leader is None else self._live().get(leader)
        replica = None
        if node is not None and node.broker is not None:
            replica = node.broker.replicas.partition(TopicPartition(topic, index))
        if replica is None or replica.leader is None or replica.leader_epoch != registration.leader_epoch:
            leader = None
        elif replica.log is not None:
            hw, leo = replica.log.hw, replica.log.leo
        return PartitionView(
            leader=leader,
            leader_epoch=registration.leader_epoch,
            replicas=tuple(registration.replicas),
            isr=tuple(registration.isr),
            hw=hw,
            leo=leo,
        )

    def directory(self, broker: int, topic: str, index: int) -> str | None:
        node, tp = self._live().get(broker), TopicPartition(topic, index)
        if node is None or node.broker is None or node.broker.log_dirs.get(tp) is None:
            return None
        return node.broker.log_dirs.directory_of(tp)

    def partition(self, topic: str, index: int) -> PartitionView:
        """Raises ClusterError when there is none."""
        found = self.find_partition(topic, index)
        if found is None:
            raise ClusterError(self._no_partition(topic, index))
        return found

    def _no_partition(self, topic: str, index: int) -> str:
        topics = self.image().topics
        found = topics.topic(topic)
        if found is not None:
            return f"there is no partition {topic}-{index}; {topic} has partitions 0 to {len(found.partitions) - 1}"
        names = ", ".join(sorted(topics.by_name)) or "none"
        return f"there is no topic {topic}; the topics are: {names}"

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Names in order, and their partitions."""
        found = self.image().topics.by_name
        return {name: tuple(sorted(found[name].partitions)) for name in sorted(found)}

    # --- transactions

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """The broker that leads the id's partition of `__transaction_state` and has read it."""
        found = self._coordinating(transactional_id)
        return None if found is None else found[0]

    def find_transaction(self, transactional_id: str) -> TransactionView | None:
        found = self._coordinating(transactional_id)
        shown = None if found is None else found[1].describe(transactional_id)
        if found is None or shown is None:
            return None
        return TransactionView(
            coordinator=found[0],
            state=shown.state.title,
            producer_id=shown.producer_id,
            producer_epoch=shown.producer_epoch,
            partitions=tuple(sorted((tp.topic, tp.partition) for tp in shown.partitions)),
        )

    def transaction(self, transactional_id: str) -> TransactionView:
        """Raises ClusterError when no coordinator knows the id."""
        found = self.find_transaction(transactional_id)
        if found is None:
            raise ClusterError(f"no coordinator knows transactional id {transactional_id}{self._nodes.troubles()}")
        return found

    def _coordinating(self, transactional_id: str) -> tuple[int, TransactionShard] | None:
        topic = self.image().topics.topic(TRANSACTION_TOPIC)
        if topic is None:
            return None
        index = partition_for(transactional_id, len(topic.partitions))
        leader = topic.partitions[index].leader
        node = None if leader is None else self._live().get(leader)
        if leader is None or node is None or node.broker is None:
            return None
        driver = node.broker.transactions.led.get(index)
        return None if driver is None or not driver.loaded else (leader, driver.shard)

    # --- waiting

    async def wait_for_transaction(self, wanted: WantedTransaction, timeout_s: float) -> TransactionView:
        """The id's view at the moment when all held. Raises WaitTimeout."""
        end_s = time.monotonic() + timeout_s
        while True:
            view = self.find_transaction(wanted.transactional_id)
            unmet = wanted.unmet(view)
            if view is not None and not unmet:
                return view
            if time.monotonic() > end_s:
                raise WaitTimeout(f"the condition was not met within {timeout_s:g} s: {'; '.join(unmet)}{self._nodes.troubles()}")
            await asyncio.sleep(POLL_S)

    async def wait_for(self, wanted: Wanted, timeout_s: float) -> PartitionView | None:
        """The partition's view at the moment when all held. Raises WaitTimeout."""
        end_s = time.monotonic() + timeout_s
        while True:
            view = None if wanted.topic is None else self.find_partition(wanted.topic, wanted.partition)
            unmet = wanted.unmet(view, self.controller(), self.live_brokers() if wanted.brokers is not None else ())
            if not unmet:
                return view
            if time.monotonic() > end_s:
                if wanted.topic is not None and view is None:
                    unmet[0] = self._no_partition(wanted.topic, wanted.partition)
                raise WaitTimeout(f"the condition was not met within {timeout_s:g} s: {'; '.join(unmet)}{self._nodes.troubles()}")
            await asyncio.sleep(POLL_S)

    async def settled(self, timeout_s: float) -> None:
        """Until every broker knows that all are there, and there is an active controller. Raises WaitTimeout."""
        end_s = time.monotonic() + timeout_s
        wanted = {it.node_id for it in self._nodes.plans if it.is_broker}

        def known(node: Node) -> bool:
            brokers = node.loader.image.cluster.brokers
            return wanted <= {int(it) for it in brokers if not brokers[it].fenced}

        while self.controller() is None or not all(known(node) for node in self._live().values() if node.broker is not None):
            if time.monotonic() > end_s:
                raise WaitTimeout(f"the brokers have not found each other within {timeout_s:g} s{self._nodes.troubles()}")
            await asyncio.sleep(POLL_S)

    # --- topics

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Sequence[Sequence[int]] | None,
        timeout_s: float,
    ) -> None:
        """Until each partition is led and every broker that is not fenced knows of it."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignment is not None else partitions,
            replication_factor=-1 if assignment is not None else replication_factor,
            assignments=tuple(
                ReplicaAssignment(partition=index, broker_ids=tuple(NodeId(it) for it in replicas))
                for index, replicas in enumerate(assignment or ())
            ),
            configs=tuple(ConfigPair(name=key, value=value) for key, value in config.items()),
        )
        await self._create(topic, timeout_s)

    async def create_offsets_topic(self, timeout_s: float) -> None:
        """Create the topic that the first consumer group would create: a client that finds it missing asks again no sooner
        than in a second."""
        (config, *_others) = [node.broker.groups.config for node in self._live().values() if node.broker is not None]
        await self._create(offsets_topic(config), timeout_s)

    async def _create(self, topic: CreatableTopic, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        await self._ask_controller(topic, end_s, timeout_s)
        while not self._is_everywhere(topic.name):
            if time.monotonic() > end_s:
                raise WaitTimeout(
                    f"topic {topic.name} was created, but has no leader after {timeout_s:g} s{self._nodes.troubles()}"
                )
            await asyncio.sleep(POLL_S)

    async def ask(self, controller: int, method: Method[Req, Res], request: Req, limit_ms: int) -> Res:
        """Ask a controller as its own tools do. Raises TransportError and ApiError."""
        return await self._admin.call(Endpoint(f"n{controller}", 9093), method, request, limit_ms)

    def nodes(self) -> dict[int, Node]:
        """The nodes that have started."""
        return self._live()

    async def _ask_controller(self, topic: CreatableTopic, end_s: float, timeout_s: float) -> None:
        maybe_made = False
        while (left_s := end_s - time.monotonic()) > 0:
            controller = self.controller()
            if controller is None:
                await asyncio.sleep(POLL_S)
                continue
            limit_ms = max(1, min(ATTEMPT_MS, int(left_s * 1000)))
            request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=limit_ms)
            try:
                response = await self.ask(controller, CREATE_TOPICS, request, limit_ms)
            except TransportError:
                maybe_made = True  # it may have been done, and only the answer lost
            except ApiError as error:
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                    raise ClusterError(f"topic {topic.name} was refused: {error}") from None
                maybe_made = maybe_made or error.code is ErrorCode.REQUEST_TIMED_OUT
            else:
                (result,) = response.topics
                if result.error is ErrorCode.NONE or (maybe_made and result.error is ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
                raise ClusterError(f"topic {topic.name} was refused: {ApiError(result.error, result.message)}")
            await asyncio.sleep(POLL_S)
        raise WaitTimeout(f"topic {topic.name}: no controller answered within {timeout_s:g} s{self._nodes.troubles()}")

    def _is_everywhere(self, name: str) -> bool:
        found = self.image().topics.topic(name)
        if found is None:
            return False
        views = [self.find_partition(name, index) for index in found.partitions]
        if not all(view is not None and view.leader is not None for view in views):
            return False
        live = self._live()
        alive = [live[it] for it in self.live_brokers() if it in live and not self._nodes.hosts[it].paused]
        return all(node.broker is not None and node.broker.cache.topic(name) is not None for node in alive)
