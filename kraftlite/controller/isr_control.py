"""AlterPartition: a partition leader's proposal to change its ISR. Source: KIP-497, KIP-841, KIP-903; CM-30 to CM-33."""

from __future__ import annotations

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.partition_change import Election, PartitionTarget
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.topics_state import TopicsState
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import MetadataRecord, PartitionChangeRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import UNCHANGED, NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
)


class IsrControl:
    """Computes records; changes nothing."""

    def __init__(self, state: TopicsState, cluster: ClusterControl, configs: ConfigControl, elections: ElectionControl) -> None:
        self._state = state
        self._cluster = cluster
        self._configs = configs
        self._elections = elections

    def alter(self, request: AlterPartitionRequest) -> Steps[ControllerResult[AlterPartitionResponse]]:
        """Raises ApiError(STALE_BROKER_EPOCH) for the whole request; all else is answered per partition."""
        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        records: list[MetadataRecord] = []
        seen: set[tuple[int, int]] = set()
        results = []
        for item in request.partitions:
            yield
            key = (item.topic_id.int, item.partition)
            if key in seen:
                results.append(_error(item, ErrorCode.INVALID_REQUEST))
                continue
            seen.add(key)
            results.append(self._alter_one(request.broker_id, item, records))
        cause = f"broker={request.broker_id}"
        return ControllerResult(records=records, response=AlterPartitionResponse(partitions=tuple(results)), cause=cause)

    def _alter_one(self, broker_id: NodeId, item: AlterPartitionItem, records: list[MetadataRecord]) -> AlterPartitionResult:
        info = self._state.topics.get(item.topic_id)
        if info is None:
            return _error(item, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = info.partitions.get(item.partition)
        if partition is None:
            return _error(item, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = self._refusal(broker_id, partition, item)
        if refusal is not None:
            return _error(item, refusal)
        election = Election.UNCLEAN if self._configs.unclean_election_enabled(info.name) else Election.ONLINE
        target = PartitionTarget(isr=tuple(member.broker_id for member in item.new_isr), recovering=item.recovering)
        record = self._elections.change(info, item.partition, target, election)
        if record is None:
            # The ISR as it is: a leader takes a proposal back that was refused. What it sent before is void with the new epoch.
            record = PartitionChangeRecord(topic_id=item.topic_id, partition=item.partition, isr=partition.isr)
        records.append(record)
        partition = partition.merge(record)
        if record.leader is not UNCHANGED and record.leader != broker_id:
            # The change completed a reassignment that takes the leadership away (CM-33).
            return _error(item, ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResult(
            topic_id=item.topic_id,
            partition=item.partition,
            error=ErrorCode.NONE,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            recovering=partition.recovering,
            partition_epoch=partition.partition_epoch,
        )

    def _refusal(self, broker_id: NodeId, partition: PartitionRegistration, item: AlterPartitionItem) -> ErrorCode | None:
        """The checks of CM-30, in its order."""
        if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.partition_epoch:
            # It knows more than this node: this is probably no longer the active controller.
            return ErrorCode.NOT_CONTROLLER
        if item.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if item.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [member.broker_id for member in item.new_isr]
        if not isr or len(set(isr)) != len(isr) or any(member not in partition.replicas for member in isr):
            return ErrorCode.INVALID_REQUEST
        if partition.leader not in isr:
            return ErrorCode.INVALID_REQUEST
        if item.recovering and len(isr) > 1:
            return ErrorCode.INVALID_REQUEST
        if item.recovering and not partition.recovering:
            return ErrorCode.INVALID_REQUEST
        if set(isr) == set(partition.isr):
            return None  # nobody joins
        placed = dict(zip(partition.replicas, partition.directories, strict=False))
        for member in item.new_isr:
            # Departs: Kafka lets a replica join whose directory has failed; its leader may propose it until it lags.
            online = member.broker_id in partition.isr or self._cluster.directory_online(
                member.broker_id, placed.get(member.broker_id)
            )
            if not online or self._cluster.ineligible_reason(member.broker_id, member.broker_epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return None


def _error(item: AlterPartitionItem, error: ErrorCode) -> AlterPartitionResult:
    return AlterPartitionResult(topic_id=item.topic_id, partition=item.partition, error=error)
