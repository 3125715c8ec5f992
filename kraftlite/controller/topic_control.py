"""Creating and deleting topics, adding partitions. Source: KIP-599, KIP-516; CM-15 to CM-25, CE-18, CE-19, CE-31."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from kraftlite.controller.cluster_control import ClusterControl, invalid_assignment
from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.mutation_quotas import MutationQuota
from kraftlite.controller.placement import StripedPlacer
from kraftlite.controller.policies import Verdicts, pending
from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.topics_state import (
    TopicsState,
    has_collision_characters,
    unify_collision_characters,
)
from kraftlite.controller.turns import Steps
from kraftlite.metadata import features
from kraftlite.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import METADATA_TOPIC, NodeId, random_uuid, uuid_to_str
from kraftlite.model.limits import MAX_RECORDS_PER_USER_OP
from kraftlite.model.messages.controller import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReplicaAssignment,
    TopicConfigValue,
    TopicSelector,
)
from kraftlite.model.policy import TopicToCreate
from kraftlite.model.topic_name import validate_topic_name


class TopicControl:
    """Computes records; changes nothing."""

    def __init__(
        self,
        config: ControllerConfig,
        state: TopicsState,
        cluster: ClusterControl,
        configs: ConfigControl,
        feature_control: FeatureControl,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._state = state
        self._cluster = cluster
        self._configs = configs
        self._features = feature_control
        self._rng = rng
        self._placer = StripedPlacer(rng)

    # --- create topics

    def create(
        self, request: CreateTopicsRequest, verdicts: Verdicts | None = None, quota: MutationQuota | None = None
    ) -> Steps[ControllerResult[CreateTopicsResponse]]:
        """Each topic by itself. Raises ApiError(POLICY_VIOLATION) when all together are too much (CE-18). `verdicts`: of the
        policies, where there are some. `quota`: of the client that asks; what is only validated costs nothing."""
        records = BoundedRecords()
        results: list[CreatableTopicResult] = []
        count = Counter(topic.name for topic in request.topics)
        unified: dict[str, str] = {}
        defaults = self._configs.topic_defaults()
        for topic in request.topics:
            yield
            try:
                self._check_new_name(topic.name, count, unified)
                found, result = yield from self._create_one(topic, defaults, verdicts)
                if quota is not None and not request.validate_only:
                    quota.charge(result.num_partitions)
            except ApiError as error:
                results.append(CreatableTopicResult(name=topic.name, error=error.code, message=error.message))
                continue
            records.extend(found)
            unified[unify_collision_characters(topic.name)] = topic.name
            results.append(result)
        dry = request.validate_only or pending(verdicts)
        response = CreateTopicsResponse(topics=tuple(results), throttle_ms=0 if dry or quota is None else quota.settle())
        outcome = ControllerResult(records=list(records), response=response, atomic=True)
        return outcome.without_records() if dry else outcome

    def _check_new_name(self, name: str, count: Counter[str], unified: dict[str, str]) -> None:
        if count[name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if name == METADATA_TOPIC:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        validate_topic_name(name)
        if name in self._state.topic_ids:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if has_collision_characters(name):
            key = unify_collision_characters(name)
            existing = self._state.collisions.get(key)
            other = existing[0] if existing else unified.get(key)
            if other is not None:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    def _create_one(
        self, topic: CreatableTopic, defaults: tuple[TopicConfigValue, ...], verdicts: Verdicts | None
    ) -> Steps[tuple[list[MetadataRecord], CreatableTopicResult]]:
        config_records = self._configs.for_new_topic(topic.name, topic.configs, verdicts)
        placed = yield from (self._manual_assignment(topic) if topic.assignments else self._automatic_assignment(topic))
        partitions = []
        for index, replicas in enumerate(placed):
            yield
            isr = self._live(replicas)
            if not isr:
                code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if topic.assignments else ErrorCode.INVALID_REPLICATION_FACTOR
                raise ApiError(code, f"All brokers specified for partition {index} are fenced or in controlled shutdown.")
            partitions.append((replicas, isr))
        if verdicts is not None:
            verdicts.check(_question(topic, placed))
        topic_id = self._new_topic_id()
        records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
        for index, placement in enumerate(partitions):
            yield
            records.append(self._new_partition(topic_id, index, *placement))
        overrides = {pair.name: pair.value for pair in topic.configs if pair.value is not None}
        result = CreatableTopicResult(
            name=topic.name,
            error=ErrorCode.NONE,
            topic_id=topic_id,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0][0]),
            configs=self._configs.effective_for_new_topic(overrides, defaults),
        )
        return records, result

    def _new_topic_id(self) -> UUID:
        while True:
            topic_id = random_uuid(self._rng)
            if topic_id not in self._state.topics:
                return topic_id

    def _automatic_assignment(self, topic: CreatableTopic) -> Steps[list[tuple[NodeId, ...]]]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        count = self._config.default_num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = self._config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        return (yield from self._place(count, factor))

    def _place(self, count: int, replication_factor: int) -> Steps[list[tuple[NodeId, ...]]]:
        usable = self._cluster.usable_brokers()
        # Placement of more than may be written is cut off here; BoundedRecords refuses the operation.
        return (yield from self._placer.placing(min(count, MAX_RECORDS_PER_USER_OP + 1), replication_factor, usable))

    def _manual_assignment(self, topic: CreatableTopic) -> Steps[list[tuple[NodeId, ...]]]:
        if topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        placed: dict[int, tuple[NodeId, ...]] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            yield
            if assignment.partition in placed:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {assignment.partition}",
                )
            self._check_assignment(assignment, factor)
            factor = len(assignment.broker_ids)
            placed[assignment.partition] = assignment.broker_ids
        if sorted(placed) != list(range(len(placed))):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
        return [placed[index] for index in range(len(placed))]

    def _check_assignment(self, assignment: ReplicaAssignment, factor: int | None) -> None:
        brokers = assignment.broker_ids
        self._cluster.check_assignment(brokers)
        if factor is not None and len(brokers) != factor:
            raise invalid_assignment(
                f"a partition with {len(brokers)} replica(s), but this is not consistent with previous partitions, which have "
                f"{factor} replica(s)."
            )

    def _live(self, replicas: Sequence[NodeId]) -> tuple[NodeId, ...]:
        return tuple(broker_id for broker_id in replicas if self._cluster.may_lead(broker_id))

    def _new_partition(
        self, topic_id: UUID, index: int, replicas: tuple[NodeId, ...], isr: tuple[NodeId, ...]
    ) -> PartitionRecord:
        """Make the record of a new partition (CM-19). A broker with several directories assigns one."""
        placed = features.supports_directories(self._features.level_or_minimum())
        return PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(map(self._cluster.first_directory, replicas)) if placed else (),
        )

    # --- add partitions

    def create_partitions(
        self, request: CreatePartitionsRequest, quota: MutationQuota | None = None
    ) -> Steps[ControllerResult[CreatePartitionsResponse]]:
        records = BoundedRecords()
        results = []
        count = Counter(topic.name for topic in request.topics)
        for topic in request.topics:
            yield
            try:
                if count[topic.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                found = yield from self._more_partitions(topic, None if request.validate_only else quota)
            except ApiError as error:
                results.append(CreatePartitionsResult(name=topic.name, error=error.code, message=error.message))
                continue
            records.extend(found)
            results.append(CreatePartitionsResult(name=topic.name, error=ErrorCode.NONE, message=None))
        throttle_ms = 0 if quota is None or request.validate_only else quota.settle()
        response = CreatePartitionsResponse(topics=tuple(results), throttle_ms=throttle_ms)
        outcome = ControllerResult(records=list(records), response=response, atomic=True)
        return outcome.without_records() if request.validate_only else outcome

    def _more_partitions(self, topic: CreatePartitionsTopic, quota: MutationQuota | None) -> Steps[list[MetadataRecord]]:
        """Charge the quota, then, as in Kafka, find where the partitions go."""
        info = self._state.topic(topic.name)
        if info is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist.")
        present = len(info.partitions)
        if topic.count == present:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if topic.count < present:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase.",
            )
        additional = topic.count - present
        factor = len(info.partitions[0].replicas)
        if topic.assignments is not None and len(topic.assignments) != additional:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        if quota is not None:
            quota.charge(additional)
        if topic.assignments is not None:
            for assignment in topic.assignments:
                yield
                self._check_assignment(assignment, factor)
            placed = [assignment.broker_ids for assignment in topic.assignments]
        else:
            placed = yield from self._place(additional, factor)
        records: list[MetadataRecord] = []
        for index, replicas in enumerate(placed, present):
            yield
            isr = self._live(replicas)
            if not isr:
                manual = topic.assignments is not None
                code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if manual else ErrorCode.INVALID_REPLICATION_FACTOR
                raise ApiError(code, f"All brokers for partition {index} are fenced or in controlled shutdown.")
            records.append(self._new_partition(info.topic_id, index, replicas, isr))
        return records

    # --- delete topics

    def delete(
        self, request: DeleteTopicsRequest, quota: MutationQuota | None = None
    ) -> Steps[ControllerResult[DeleteTopicsResponse]]:
        if not self._config.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable=false).")
        records = BoundedRecords()
        results = []
        resolved = []
        for selector in request.topics:
            yield
            resolved.append(self._resolve(selector))
        names, ids = named_once_or_more(request.topics)
        told: set[str | UUID] = set()
        for selector, found in zip(request.topics, resolved, strict=True):
            yield
            name, topic_id = selector.name, selector.topic_id
            error: ApiError | None = None
            if name is not None and topic_id is None and names[name] > 1:
                found = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            elif topic_id is not None and name is None and ids[topic_id] > 1:
                found = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
            elif isinstance(found, ApiError):
                results.append(self._deleted(selector, None, found))
                continue
            if isinstance(found, ApiError):
                said = topic_id or name
                assert said is not None
                if said not in told:
                    told.add(said)
                    results.append(self._deleted(selector, None, found))
                continue
            if topic_id is not None and names[self._state.topics[found].name] == 1:
                continue  # it is answered with its name
            if topic_id is None and ids[found]:
                error = ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
                selector = TopicSelector(name=name, topic_id=found)
            else:
                error = self._charge(quota, found)
                if error is None:
                    records.append(RemoveTopicRecord(topic_id=found))
            results.append(self._deleted(selector, found, error))
        response = DeleteTopicsResponse(topics=tuple(results), throttle_ms=0 if quota is None else quota.settle())
        return ControllerResult(records=list(records), response=response, atomic=True)

    def _charge(self, quota: MutationQuota | None, topic_id: UUID) -> ApiError | None:
        """Charge a topic that is to be deleted; returns why it cannot be."""
        if quota is not None:
            try:
                quota.charge(len(self._state.topics[topic_id].partitions))
            except ApiError as error:
                return error
        return None

    def _resolve(self, selector: TopicSelector) -> UUID | ApiError:
        if selector.name is not None and selector.topic_id is not None:
            return ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if selector.name is not None:
            found = self._state.topic_ids.get(selector.name)
            return found or ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{selector.name}' does not exist.")
        if selector.topic_id is None:
            return ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if selector.topic_id not in self._state.topics:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {uuid_to_str(selector.topic_id)}.")
        return selector.topic_id

    def _deleted(self, selector: TopicSelector, topic_id: UUID | None, error: ApiError | None) -> DeleteTopicResult:
        name = selector.name
        if error is None and topic_id is not None:
            name = self._state.topics[topic_id].name
        return DeleteTopicResult(
            name=name,
            topic_id=topic_id if error is None else selector.topic_id,
            error=ErrorCode.NONE if error is None else error.code,
            message=None if error is None else error.message,
        )


def named_once_or_more(selectors: Sequence[TopicSelector]) -> tuple[Counter[str], Counter[UUID]]:
    """Count how often a DeleteTopics names each name, and each id. What has both, or neither, names nothing."""
    names = Counter(it.name for it in selectors if it.name is not None and it.topic_id is None)
    ids = Counter(it.topic_id for it in selectors if it.topic_id is not None and it.name is None)
    return names, ids


def _question(topic: CreatableTopic, placed: Sequence[tuple[NodeId, ...]]) -> TopicToCreate:
    """The question of a policy: the numbers, or the assignment where the client made one."""
    manual = bool(topic.assignments)
    return TopicToCreate(
        topic=topic.name,
        num_partitions=None if manual else len(placed),
        replication_factor=None if manual else len(placed[0]),
        assignments=dict(enumerate(tuple(int(it) for it in brokers) for brokers in placed)) if manual else None,
        configs={pair.name: pair.value for pair in topic.configs if pair.value is not None},
    )
