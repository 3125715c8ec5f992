"""AssignReplicasToDirs: a broker says in which of its log directories its replicas are. Source: KIP-858; JB-05, JB-06, BL-20."""

from __future__ import annotations

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.partition_change import Election, PartitionTarget
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.topics_state import TopicsState
from kraftlite.controller.turns import Steps
from kraftlite.metadata import features
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import MIGRATING_DIR, NodeId, is_reserved_uuid
from kraftlite.model.messages.controller import (
    AssignReplicaResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ReplicaDirectory,
)


class DirectoryControl:
    """Computes records; changes nothing."""

    def __init__(
        self,
        state: TopicsState,
        cluster: ClusterControl,
        configs: ConfigControl,
        feature_control: FeatureControl,
        elections: ElectionControl,
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._configs = configs
        self._features = feature_control
        self._elections = elections

    def assign(self, request: AssignReplicasToDirsRequest) -> Steps[ControllerResult[AssignReplicasToDirsResponse]]:
        """Raises ApiError(UNSUPPORTED_VERSION, STALE_BROKER_EPOCH) for the whole request; all else is answered per replica."""
        if not features.supports_directories(self._features.level_or_minimum()):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The metadata version does not know log directories yet.")
        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        records: list[MetadataRecord] = []
        results: list[AssignReplicaResult] = []
        seen: set[tuple[int, int]] = set()
        for item in request.replicas:
            yield
            key = (item.topic_id.int, item.partition)
            error = ErrorCode.INVALID_REQUEST if key in seen else self._assign_one(request.broker_id, item, records)
            seen.add(key)
            results.append(AssignReplicaResult(topic_id=item.topic_id, partition=item.partition, error=error))
        response = AssignReplicasToDirsResponse(replicas=tuple(results))
        return ControllerResult(records=records, response=response, cause=f"broker={request.broker_id}")

    def _assign_one(self, broker_id: NodeId, item: ReplicaDirectory, records: list[MetadataRecord]) -> ErrorCode:
        """A replica in a directory that is not online leaves the ISR and its leadership in the same record.

        Departs: where the directory that the replica had is gone, it began anew in another one. Then it vouches for nothing that
        was in the old one: it leaves the ISR, and the eligible leader replicas too. Kafka lets it lead as one of these. Not so
        where a move into the directory that is gone is taken back: the replica is still where it was.
        """
        info = self._state.topics.get(item.topic_id)
        if info is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = info.partitions.get(item.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        position = partition.replicas.index(broker_id)
        directories = list(partition.directories or (MIGRATING_DIR,) * len(partition.replicas))
        before, directories[position] = directories[position], item.directory_id
        offline = not self._cluster.directory_online(broker_id, item.directory_id)
        gone = not is_reserved_uuid(before) and not self._cluster.directory_online(broker_id, before)
        anew = gone and before not in (item.directory_id, item.instead_of)
        left = tuple(member for member in partition.isr if member != broker_id)
        isr = left if offline or (anew and (left or self._features.elr_enabled)) else None
        election = Election.UNCLEAN if self._configs.unclean_election_enabled(info.name) else Election.ONLINE
        record = self._elections.change(
            info,
            item.partition,
            PartitionTarget(directories=tuple(directories), isr=isr),
            election,
            removed=broker_id if offline else None,
            elr=self._elections.elr_rules(info.name, broker_id if anew else None),
        )
        if record is not None:
            records.append(record)
        return ErrorCode.NONE
