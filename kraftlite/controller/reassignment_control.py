"""Moving partitions to other brokers. Source: KIP-455, KIP-860; CM-41 to CM-46."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.partition_change import Election, PartitionTarget
from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.topics_state import TopicInfo, TopicsState
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import PartitionChangeRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingReassignment,
    ReassignablePartition,
    ReassignmentResult,
)

Nodes = tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    replicas: Nodes
    adding: Nodes
    removing: Nodes
    isr: Nodes


class ReassignmentControl:
    """Computes records; changes nothing."""

    def __init__(self, state: TopicsState, cluster: ClusterControl, configs: ConfigControl, elections: ElectionControl) -> None:
        self._state = state
        self._cluster = cluster
        self._configs = configs
        self._elections = elections

    # --- start and cancel

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
        """Each partition by itself: a refusal of one leaves the others. One that is named twice is refused, and answered once.

        Departs: Kafka decides each time from what was there before the request and writes both, which may be neither of the two
        moves, and may leave a leader that is no replica.
        """
        records = BoundedRecords()
        results = []
        count = Counter((wanted.topic, wanted.partition) for wanted in request.partitions)
        for wanted in {(wanted.topic, wanted.partition): wanted for wanted in request.partitions}.values():
            yield
            error: ApiError | None = None
            try:
                if count[wanted.topic, wanted.partition] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"Partition {wanted.topic}-{wanted.partition} is named twice.")
                record = self._alter_one(wanted, allow_factor_change=request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except ApiError as refused:
                error = refused
            results.append(
                ReassignmentResult(
                    topic=wanted.topic,
                    partition=wanted.partition,
                    error=ErrorCode.NONE if error is None else error.code,
                    message=None if error is None else error.message,
                )
            )
        response = AlterPartitionReassignmentsResponse(results=tuple(results))
        return ControllerResult(records=list(records), response=response)

    def _alter_one(self, wanted: ReassignablePartition, *, allow_factor_change: bool) -> PartitionChangeRecord | None:
        info = self._state.topic(wanted.topic)
        if info is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
        partition = info.partitions.get(wanted.partition)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.partition}.")
        if wanted.replicas is None:
            return self._cancel(info, wanted.partition, partition)
        self._cluster.check_assignment(wanted.replicas)
        if not allow_factor_change:
            self._check_factor(partition, wanted.replicas)
        plan = _plan(partition, wanted.replicas)
        target = PartitionTarget(
            replicas=plan.replicas,
            adding=plan.adding,
            removing=plan.removing,
            isr=plan.isr,
            directories=self._directories(partition, plan.replicas),
        )
        return self._elections.change(info, wanted.partition, target, Election.ONLINE)

    def _cancel(self, info: TopicInfo, index: int, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        """Go back to the replicas before the first move (CM-44)."""
        if not partition.adding_replicas and not partition.removing_replicas:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        replicas = _without(partition.replicas, partition.adding_replicas)
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
            )
        isr = _without(partition.isr, partition.adding_replicas)
        unclean = self._configs.unclean_election_enabled(info.name)
        recovering: bool | None = None
        if not isr and not _without(partition.elr, partition.adding_replicas):
            if not unclean:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {info.name}:{index} because it would require an unclean leader "
                    "election.",
                )
            isr, recovering = replicas[:1], True
        target = PartitionTarget(
            replicas=replicas,
            adding=(),
            removing=(),
            isr=isr,
            directories=self._directories(partition, replicas),
            recovering=recovering,
        )
        return self._elections.change(info, index, target, Election.UNCLEAN if unclean else Election.ONLINE)

    def _directories(self, partition: PartitionRegistration, replicas: Nodes) -> tuple[UUID, ...] | None:
        """Return the directory of each replica; a new one's is for its broker to choose among several. None where the metadata
        version knows no directories."""
        if not partition.directories:
            return None
        placed = dict(zip(partition.replicas, partition.directories, strict=True))
        return tuple(placed[it] if it in placed else self._cluster.first_directory(it) for it in replicas)

    @staticmethod
    def _check_factor(partition: PartitionRegistration, wanted: Nodes) -> None:
        """Check the replication factor: it must be the one that the partition has, or will have by a move under way (KIP-860)."""
        factor = len(_without(partition.replicas, partition.removing_replicas))
        if factor != len(wanted):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {factor} to {len(wanted)}"
            )

    # --- list

    def list(self, request: ListPartitionReassignmentsRequest) -> Steps[ControllerResult[ListPartitionReassignmentsResponse]]:
        """List the reassignments under way, in the order of topic names; unknown partitions are left out (CM-46)."""
        if request.partitions is None:
            wanted = [(name, index) for name in sorted(self._state.topic_ids) for index in sorted(self._topic(name).partitions)]
        else:
            wanted = [(one.topic, one.partition) for one in request.partitions]
        found = []
        for name, index in dict.fromkeys(wanted):
            yield
            info = self._state.topic(name)
            partition = None if info is None else info.partitions.get(index)
            if partition is None or not (partition.adding_replicas or partition.removing_replicas):
                continue
            found.append(
                OngoingReassignment(
                    topic=name,
                    partition=index,
                    replicas=partition.replicas,
                    adding=partition.adding_replicas,
                    removing=partition.removing_replicas,
                )
            )
        return ControllerResult(records=[], response=ListPartitionReassignmentsResponse(reassignments=tuple(found)))

    def _topic(self, name: str) -> TopicInfo:
        info = self._state.topic(name)
        assert info is not None
        return info


def _without(nodes: Nodes, gone: Nodes) -> Nodes:
    return tuple(node for node in nodes if node not in gone)


def _plan(partition: PartitionRegistration, wanted: Nodes) -> _Plan:
    """The target, then what is to go (CM-41). What an abandoned move was adding is dropped at once (CM-45), unless the ISR
    would be empty without it: then it goes when the new replicas have come. So does the last one that is eligible to lead."""
    abandoned = _without(partition.adding_replicas, wanted)
    isr = _without(partition.isr, abandoned)
    if not isr and (partition.isr or not _without(partition.elr, abandoned)):
        abandoned, isr = (), partition.isr
    base = _without(partition.replicas, tuple(node for node in partition.adding_replicas if node in wanted) + abandoned)
    removing = tuple(sorted(_without(base, wanted)))
    return _Plan(replicas=wanted + removing, adding=tuple(sorted(_without(wanted, base))), removing=removing, isr=isr)
