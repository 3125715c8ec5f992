"""Invariant 18: what a controller acknowledges is committed; a controller that steps down keeps nothing that is not."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlite.metadata import records as r
from kraftlite.metadata.features import KRAFT_VERSION
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.runtime.trace.controller import ControllerRenounced
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.compare import controller_difference
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView, is_ahead
from kraftlite.timeline.registry import LATEST


class AckCommitted(MetadataChecker):
    """A positive answer reaches its caller only when its effect is among the effects of the records committed so far. The
    active controller reads at the stable offset what was committed by then, and goes on from it."""

    numbers: ClassVar[tuple[int, ...]] = (18,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._effects: set[tuple[Any, ...]] = set()
        """Everything that was ever committed, in the words in which answers are checked. Only asked, never iterated."""
        self._partition_counts: dict[str, int] = {}
        self._compared: dict[tuple[NodeId, int], tuple[MetadataState, MetadataState | None]] = {}
        self._renounced: set[NodeId] = set()
        facts = self.facts
        facts.watch(ControllerRenounced, lambda view, event: self._renounced.add(view.node_id))
        facts.watch_answer(methods.REGISTER_BROKER, self._on_broker_registered)
        facts.watch_answer(methods.BROKER_HEARTBEAT, self._on_heartbeat)
        facts.watch_answer(methods.UNREGISTER_BROKER, self._on_unregistered)
        facts.watch_answer(methods.REGISTER_CONTROLLER, self._on_controller_registered)
        facts.watch_answer(methods.ALTER_PARTITION, self._on_alter_partition)
        facts.watch_answer(methods.ALLOCATE_PRODUCER_IDS, self._on_producer_ids)
        facts.watch_answer(methods.CREATE_TOPICS, self._on_created)
        facts.watch_answer(methods.DELETE_TOPICS, self._on_deleted)
        facts.watch_answer(methods.CREATE_PARTITIONS, self._on_partitions_created)
        facts.watch_answer(methods.INCREMENTAL_ALTER_CONFIGS, self._on_configs_altered)
        facts.watch_answer(methods.ALTER_CONFIGS, self._on_configs_replaced)
        facts.watch_answer(methods.UPDATE_FEATURES, self._on_features)

    # --- what is committed

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        if entry.kraft_version is not None:
            self._effects.add(("feature", KRAFT_VERSION, entry.kraft_version))

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        effects = self._effects
        if isinstance(record, r.RegisterBrokerRecord):
            effects.add(("broker", record.broker_id, record.incarnation_id, record.broker_epoch))
        elif isinstance(record, r.BrokerRegistrationChangeRecord):
            if record.fenced is False:
                effects.add(("unfenced", record.broker_id, record.broker_epoch))
        elif isinstance(record, r.UnregisterBrokerRecord):
            effects.add(("unregistered", record.broker_id))
        elif isinstance(record, r.RegisterControllerRecord):
            effects.add(("controller", record.controller_id, record.incarnation_id))
        elif isinstance(record, r.TopicRecord):
            effects.add(("topic", record.name, record.topic_id))
        elif isinstance(record, r.RemoveTopicRecord):
            effects.add(("removed", record.topic_id))
        elif isinstance(record, r.PartitionRecord):
            topic = after.topics[record.topic_id]
            self._partition_counts[topic.name] = max(self._partition_counts.get(topic.name, 0), len(topic.partitions))
        elif isinstance(record, r.ConfigRecord):
            effects.add(("config", record.resource_type, record.resource_name, record.name, record.value))
        elif isinstance(record, r.ProducerIdsRecord):
            first = before.next_producer_id
            effects.add(("producer ids", record.broker_id, record.broker_epoch, first, record.next_producer_id - first))
        elif isinstance(record, r.FeatureLevelRecord):
            effects.add(("feature", record.name, record.level))

    def _need(self, target: NodeId, request: object, *effect: Any) -> None:
        if effect not in self._effects:
            self.fail(
                f"controller {target} has acknowledged {request}, but of [0,{self.facts.committed_end}), which is committed, "
                f"no record has this effect: {effect}"
            )

    # --- answers

    def _on_broker_registered(
        self, source: NodeId, target: NodeId, request: m.BrokerRegistrationRequest, response: m.BrokerRegistrationResponse
    ) -> None:
        self._need(target, request, "broker", request.broker_id, request.incarnation_id, response.broker_epoch)

    def _on_heartbeat(
        self, source: NodeId, target: NodeId, request: m.BrokerHeartbeatRequest, response: m.BrokerHeartbeatResponse
    ) -> None:
        if not response.is_fenced:
            self._need(target, request, "unfenced", request.broker_id, request.broker_epoch)

    def _on_unregistered(self, source: NodeId, target: NodeId, request: m.UnregisterBrokerRequest, response: m.Empty) -> None:
        self._need(target, request, "unregistered", request.broker_id)

    def _on_controller_registered(
        self, source: NodeId, target: NodeId, request: m.ControllerRegistrationRequest, response: m.Empty
    ) -> None:
        self._need(target, request, "controller", request.controller_id, request.incarnation_id)

    def _on_alter_partition(
        self, source: NodeId, target: NodeId, request: m.AlterPartitionRequest, response: m.AlterPartitionResponse
    ) -> None:
        for result in response.partitions:
            if result.error is not ErrorCode.NONE:
                continue
            known = self.facts.changes.get(TopicIdPartition(result.topic_id, result.partition), {}).get(result.partition_epoch)
            told = (result.leader_id, result.leader_epoch, result.isr, result.recovering)
            if known is None:
                self.fail(f"controller {target} answers {source} with {result}; no such partition epoch is committed")
                return
            was = known.registration
            if told != (was.leader, was.leader_epoch, was.isr, was.recovering):
                self.fail(f"controller {target} answers {source} with {result}; committed in that partition epoch is {was}")

    def _on_producer_ids(
        self, source: NodeId, target: NodeId, request: m.AllocateProducerIdsRequest, response: m.AllocateProducerIdsResponse
    ) -> None:
        block = (response.first_producer_id, response.count)
        self._need(target, request, "producer ids", request.broker_id, request.broker_epoch, *block)

    def _on_created(
        self, source: NodeId, target: NodeId, request: m.CreateTopicsRequest, response: m.CreateTopicsResponse
    ) -> None:
        for topic in response.topics:
            if topic.error is ErrorCode.NONE and not request.validate_only:
                self._need(target, request, "topic", topic.name, topic.topic_id)
                self._need_partitions(target, topic.name, topic.num_partitions)

    def _need_partitions(self, target: NodeId, name: str, count: int) -> None:
        found = self._partition_counts.get(name, 0)
        if found < count:
            self.fail(f"controller {target} says that topic {name} has {count} partitions; committed are {found}")

    def _on_deleted(
        self, source: NodeId, target: NodeId, request: m.DeleteTopicsRequest, response: m.DeleteTopicsResponse
    ) -> None:
        for topic in response.topics:
            if topic.error is ErrorCode.NONE:
                self._need(target, request, "removed", topic.topic_id)

    def _on_partitions_created(
        self, source: NodeId, target: NodeId, request: m.CreatePartitionsRequest, response: m.CreatePartitionsResponse
    ) -> None:
        wanted = {topic.name: topic.count for topic in request.topics}
        for topic in response.topics:
            if topic.error is ErrorCode.NONE and not request.validate_only:
                self._need_partitions(target, topic.name, wanted[topic.name])

    def _on_configs_altered(
        self, source: NodeId, target: NodeId, request: m.IncrementalAlterConfigsRequest, response: m.AlterConfigsResponse
    ) -> None:
        if request.validate_only:
            return
        done = {(it.resource_type, it.resource_name) for it in response.resources if it.error is ErrorCode.NONE}
        for resource in request.resources:
            if (resource.resource_type, resource.resource_name) in done:
                for change in resource.changes:
                    if change.op == m.AlterConfigOp.SET:
                        self._need_config(
                            target, request, resource.resource_type, resource.resource_name, change.name, change.value
                        )

    def _on_configs_replaced(
        self, source: NodeId, target: NodeId, request: m.AlterConfigsRequest, response: m.AlterConfigsResponse
    ) -> None:
        if request.validate_only:
            return
        done = {(it.resource_type, it.resource_name) for it in response.resources if it.error is ErrorCode.NONE}
        for resource in request.resources:
            if (resource.resource_type, resource.resource_name) in done:
                for pair in resource.configs:
                    self._need_config(target, request, resource.resource_type, resource.resource_name, pair.name, pair.value)

    def _need_config(self, target: NodeId, request: object, kind: int, resource: str, name: str, value: str | None) -> None:
        if value is not None:
            self._need(target, request, "config", kind, resource, name, value)

    def _on_features(
        self, source: NodeId, target: NodeId, request: m.UpdateFeaturesRequest, response: m.UpdateFeaturesResponse
    ) -> None:
        done = {result.name for result in response.results if result.error is ErrorCode.NONE}
        for update in request.updates:
            if update.name in done and not request.validate_only and update.level:
                self._need(target, request, "feature", update.name, update.level)

    # --- what a controller goes on from

    def on_controller(self, view: NodeView) -> None:
        controller, history = view.active_controller, self.facts.history
        offsets = controller.offsets
        if view.node_id in self._renounced:
            self._renounced.discard(view.node_id)
            if not controller.active:
                difference = controller_difference(controller, history.applied(offsets.committed_offset))
                if difference is not None:
                    self.fail(
                        f"controller {view.node_id} stepped down at committed offset {offsets.committed_offset} and kept what "
                        f"was not committed: {difference}"
                    )
        if not controller.active:
            self._compared.pop(view.author, None)
            return
        self._check_stable(view)

    def _check_stable(self, view: NodeView) -> None:
        controller, history = view.active_controller, self.facts.history
        offsets = controller.offsets
        stable, read_epoch = offsets.stable_offset, offsets.read_epoch
        if read_epoch == LATEST or read_epoch > stable:
            self.fail(f"the active controller {view.node_id} lets reads see epoch {read_epoch}, stable is {stable}")
        expected = history.visible(stable)
        latest = None if is_ahead(controller) else history.applied(offsets.committed_offset)
        before, before_latest = self._compared.get(view.author, (None, None))
        self._compared[view.author] = (expected, latest)
        if before is not expected:
            difference = controller_difference(controller, expected, read_epoch)
            if difference is not None:
                self.fail(
                    f"the active controller {view.node_id} reads at stable offset {stable} what is not committed: {difference}"
                )
        if latest is not None and before_latest is not latest:
            difference = controller_difference(controller, latest)
            if difference is not None:
                self.fail(
                    f"the active controller {view.node_id} has nothing outstanding at offset {offsets.committed_offset}, "
                    f"and its state is not what was committed: {difference}"
                )
