"""ElectLeaders, UpdateFeatures, UnregisterBroker and DescribeQuorum on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlite.broker.handlers.admin import elect_leaders, unregister_broker, update_features
from kraftlite.broker.handlers.quorum import describe_quorum
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import METADATA_TOPIC, ZERO_UUID, NodeId
from kraftlite.model.messages.controller import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResult,
    FeatureUpdate,
    FeatureUpgradeType,
    PartitionName,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kraftlite.model.messages.raft import DescribeQuorumResponse, QuorumReplica
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, cold


async def _elect_leaders(call: Call, request: Any) -> Mapping[str, object]:
    partitions: tuple[PartitionName, ...] | None = None
    if request.topic_partitions is not None:
        named: dict[PartitionName, None] = {}  # a partition that is named twice is elected once, as in Kafka
        async for topic in call.ctx.turns.each(request.topic_partitions):
            async for index in call.ctx.turns.each(topic.partitions):
                named[PartitionName(topic=topic.topic, partition=index)] = None
        partitions = tuple(named)
    try:
        response = await elect_leaders(
            call.ctx,
            ElectLeadersRequest(
                election_type=getattr(request, "election_type", ElectionType.PREFERRED),
                partitions=partitions,
                timeout_ms=milliseconds(request.timeout),
                requester=call.on_behalf,
            ),
        )
    except ApiError as error:
        refused = tuple(
            ElectLeadersResult(topic=one.topic, partition=one.partition, error=error.code, message=error.message)
            for one in partitions or ()
        )
        return {"throttle_time": 0, "error_code": error.code, "replica_election_results": _by_topic(refused)}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "replica_election_results": _by_topic(response.results),
    }


def _by_topic(results: Sequence[ElectLeadersResult]) -> list[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(
            {"partition_id": result.partition, "error_code": result.error, "error_message": result.message}
        )
    return [{"topic": topic, "partition_result": found} for topic, found in topics.items()]


MAX_QUORUM_PARTITIONS: Final = 10_000
MAX_FEATURE_UPDATES: Final = 1_000
"""There are not ten features."""
_REFUSED: Final = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST)
"""Errors of one update, as opposed to those of the whole call; one is enough to refuse all."""
_ALL_FAILED: Final = "The update failed for all features since the following feature had an error"


async def _update_features(call: Call, request: Any) -> Mapping[str, object]:
    if len(request.feature_updates) > MAX_FEATURE_UPDATES:
        message = f"{len(request.feature_updates)} features in one request: allowed are {MAX_FEATURE_UPDATES}"
        return {"throttle_time": 0, "error_code": ErrorCode.INVALID_REQUEST, "error_message": message, "results": []}
    updates = tuple(
        FeatureUpdate(name=update.feature, level=update.max_version_level, upgrade_type=_upgrade_type(update))
        for update in request.feature_updates
    )
    try:
        response = await update_features(
            call.ctx,
            UpdateFeaturesRequest(
                updates=updates,
                validate_only=getattr(request, "validate_only", False),
                timeout_ms=call.ctx.settings.request_timeout_ms,  # Kafka does not look at the request's own
                requester=call.on_behalf,
            ),
        )
    except ApiError as error:
        told = f"{_ALL_FAILED}: {error.message}" if error.code in _REFUSED else error.message
        return {"throttle_time": 0, "error_code": error.code, "error_message": told, "results": []}
    failed = next((result for result in response.results if result.error is not ErrorCode.NONE), None)
    top_level = failed if call.version >= 2 else None  # v2 has no results: one refusal speaks for all
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE if top_level is None else top_level.error,
        "error_message": None if top_level is None else f"{_ALL_FAILED}: {top_level.message}",
        "results": [
            {"feature": result.name, "error_code": result.error, "error_message": result.message or result.error.name}
            for result in response.results
        ],
    }


def _upgrade_type(update: Any) -> int:
    if hasattr(update, "allow_downgrade"):
        return FeatureUpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else FeatureUpgradeType.UPGRADE
    return int(update.upgrade_type)


async def _unregister_broker(call: Call, request: Any) -> Mapping[str, object]:
    try:
        await unregister_broker(
            call.ctx,
            UnregisterBrokerRequest(
                broker_id=NodeId(request.broker_id),
                timeout_ms=call.ctx.settings.request_timeout_ms,
                requester=call.on_behalf,
            ),
        )
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "error_message": error.message}
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "error_message": None}


async def _describe_quorum(call: Call, request: Any) -> Mapping[str, object]:
    asked = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        async for topic in call.ctx.turns.each(request.topics)
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        if sum(1 + len(indexes) for _, indexes in asked) > MAX_QUORUM_PARTITIONS:
            return _quorum_refused([], ErrorCode.INVALID_REQUEST, ErrorCode.NONE, "The quorum has one partition.")
        return _quorum_refused(asked, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    try:
        found = await describe_quorum(call.ctx)
    except ApiError as error:
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return _quorum_refused(asked, ErrorCode.NONE, error.code, error.message)
        return _quorum_refused([], error.code, error.code, error.message)
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [_quorum_partition(found)]}],
        "nodes": _quorum_nodes(found),
    }


def _quorum_partition(found: DescribeQuorumResponse) -> dict[str, object]:
    return {
        "partition_index": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "leader_id": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": -1 if found.high_watermark is None else found.high_watermark,
        "current_voters": [_quorum_replica(replica) for replica in found.voters],
        "observers": [_quorum_replica(replica) for replica in found.observers],
    }


def _quorum_refused(asked: Any, error: ErrorCode, partition_error: ErrorCode, message: str | None) -> Mapping[str, object]:
    topics = [
        {
            "topic_name": name,
            "partitions": [
                {
                    "partition_index": index,
                    "error_code": partition_error,
                    "error_message": message,
                    "leader_id": -1,
                    "leader_epoch": -1,
                    "high_watermark": -1,
                    "current_voters": [],
                    "observers": [],
                }
                for index in indexes
            ],
        }
        for name, indexes in asked
    ]
    return {"error_code": error, "error_message": message, "topics": topics, "nodes": []}


def _quorum_replica(replica: QuorumReplica) -> dict[str, object]:
    def known(value: int | None) -> int:
        return -1 if value is None else value

    return {
        "replica_id": replica.replica_id,
        "replica_directory_id": replica.directory_id or ZERO_UUID,
        "log_end_offset": known(replica.log_end_offset),
        "last_fetch_timestamp": known(replica.last_fetch_timestamp_ms),
        "last_caught_up_timestamp": known(replica.last_caught_up_timestamp_ms),
    }


def _quorum_nodes(found: DescribeQuorumResponse) -> list[dict[str, object]]:
    """List where the voters listen, as far as the leader knows (v2+)."""
    return [
        {
            "node_id": voter.replica_id,
            "listeners": [{"name": it.name, "host": it.host, "port": it.port} for it in voter.listeners],
        }
        for voter in found.voters
        if voter.listeners
    ]


ELECT_LEADERS = cold(43, "ElectLeaders", versions=(0, 2), flexible_from=2, adapt=_elect_leaders)
DESCRIBE_QUORUM = cold(55, "DescribeQuorum", versions=(0, 2), flexible_from=0, adapt=_describe_quorum)
UPDATE_FEATURES = cold(57, "UpdateFeatures", versions=(0, 2), flexible_from=0, adapt=_update_features)
UNREGISTER_BROKER = cold(64, "UnregisterBroker", versions=(0, 0), flexible_from=0, adapt=_unregister_broker)
