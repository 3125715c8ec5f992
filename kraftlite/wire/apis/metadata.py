"""Metadata, DescribeCluster and DescribeTopicPartitions on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.metadata import (
    BROKERS,
    Cursor,
    TopicQuery,
    describe_cluster,
    describe_topic_partitions,
    find_topics,
)
from kraftlite.broker.metadata_cache import TopicMetadata
from kraftlite.metadata.image import MetadataImage, TopicImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.wire.apis.call import Api, Call, cold
from kraftlite.wire.errors import ProtocolViolation
from kraftlite.wire.metadata_codec import (
    METADATA_FLEXIBLE,
    METADATA_MAX,
    METADATA_MIN,
    encode_brokers,
    encode_metadata,
    encode_topic,
    parse_metadata,
)
from kraftlite.wire.operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS


class EncodedTopics:
    """What was encoded from one image for one listener: brokers and topics per version. Thrown away with the image, so it holds
    at most what clients asked for since. Not shared between listeners."""

    def __init__(self) -> None:
        self._image = MetadataImage.EMPTY
        self._topics: dict[tuple[int, str, int], bytes] = {}
        self._brokers: dict[int, bytes] = {}

    def _at(self, image: MetadataImage) -> None:
        if image is self._image:
            return
        if image.cluster is not self._image.cluster or image.topics is not self._image.topics:
            self._topics, self._brokers = {}, {}
        self._image = image

    def brokers(self, call: Call) -> bytes:
        cache = call.ctx.metadata
        self._at(cache.image)
        found = self._brokers.get(call.version)
        if found is None:
            found = self._brokers[call.version] = encode_brokers(cache.alive_brokers(call.listener), call.version)
        return found

    def topic(self, call: Call, topic: TopicImage, operations: int) -> bytes:
        cache, version = call.ctx.metadata, call.version
        self._at(cache.image)
        found = self._topics.get((version, topic.name, operations))
        if found is None:
            view = cache.topic_metadata(topic, call.listener, listener_errors=version >= 6, filter_unavailable=version == 0)
            found = self._topics[version, topic.name, operations] = encode_topic(view, version, operations)
        return found


def metadata_api(encoded: EncodedTopics) -> Api:
    def handle(call: Call) -> None:
        _metadata(call, encoded)

    return Api(
        key=3,
        name="Metadata",
        min_version=METADATA_MIN,
        max_version=METADATA_MAX,
        flexible_from=METADATA_FLEXIBLE,
        handle=handle,
    )


def _metadata(call: Call, encoded: EncodedTopics) -> None:
    version = call.version
    request = parse_metadata(call.frame, call.pos, version)
    queries = None if request.topics is None else [TopicQuery(topic.name, topic.topic_id) for topic in request.topics]
    operations = TOPIC_OPERATIONS if request.topic_operations else OPERATIONS_NOT_ASKED
    error = ErrorCode.NONE
    if queries is not None and version < 12:
        error = _names_only(queries)
    if error is ErrorCode.NONE:
        found = find_topics(call.ctx, queries, allow_auto_creation=request.allow_auto_topic_creation)
        topics = [encode_topic(unknown, version, operations) for unknown in found.unknown]
        topics += [encoded.topic(call, topic, operations) for topic in found.known]
    else:
        topics = [
            encode_topic(TopicMetadata(error=error, name=query.name), version)
            for query in queries or ()
            if query.name is not None
        ]
    controller_id = call.ctx.metadata.random_alive_broker(call.ctx.ports.entropy)
    call.send(
        (
            encode_metadata(
                call.correlation_id,
                version,
                brokers=encoded.brokers(call),
                cluster_id=call.ctx.metadata.cluster_id,
                controller_id=-1 if controller_id is None else controller_id,
                topics=topics,
                operations=CLUSTER_OPERATIONS if request.cluster_operations else OPERATIONS_NOT_ASKED,
            ),
        )
    )


def _names_only(queries: list[TopicQuery]) -> ErrorCode:
    """Before v12 a topic is named; ids are in the message from v10 on but not to be used (KIP-516)."""
    if any(query.name is None for query in queries):
        raise ProtocolViolation("Metadata before v12 must name its topics")
    return ErrorCode.INVALID_REQUEST if any(query.topic_id is not None for query in queries) else ErrorCode.NONE


async def _describe_cluster(call: Call, request: Any) -> Mapping[str, Any]:
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    include_fenced = getattr(request, "include_fenced_brokers", False)
    answer: dict[str, Any] = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": endpoint_type,
        "cluster_id": call.ctx.cluster_id,
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": OPERATIONS_NOT_ASKED,
    }
    if request.include_cluster_authorized_operations:
        answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    try:
        found = describe_cluster(call.ctx, call.listener, endpoint_type=endpoint_type, include_fenced=include_fenced)
    except ApiError as error:
        answer.update(error_code=error.code, error_message=error.message, cluster_id="")
        if call.version == 0:
            answer["endpoint_type"] = BROKERS
        return answer
    answer["controller_id"] = -1 if found.controller_id is None else found.controller_id
    answer["brokers"] = [
        {
            "broker_id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "is_fenced": broker.fenced,
        }
        for broker in found.brokers
    ]
    return answer


async def _describe_topic_partitions(call: Call, request: Any) -> Mapping[str, Any]:
    names = [topic.name for topic in request.topics]
    cursor = request.cursor
    try:
        page = describe_topic_partitions(
            call.ctx,
            call.listener,
            names,
            limit=request.response_partition_limit,
            cursor=None if cursor is None else Cursor(cursor.topic_name, cursor.partition_index),
        )
    except ApiError as error:
        refused = [TopicMetadata(error=error.code, name=name) for name in names]
        return {"throttle_time": 0, "topics": [_described(topic) for topic in refused], "next_cursor": None}
    following = page.next_cursor
    return {
        "throttle_time": 0,
        "topics": [_described(topic) for topic in page.topics],
        "next_cursor": None if following is None else {"topic_name": following.topic, "partition_index": following.partition},
    }


def _described(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": partition.error,
                "partition_index": partition.partition,
                "leader_id": -1 if partition.leader is None else partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replica_nodes": partition.replicas,
                "isr_nodes": partition.isr,
                "eligible_leader_replicas": partition.elr,
                "last_known_elr": partition.last_known_elr,
                "offline_replicas": partition.offline_replicas,
            }
            for partition in topic.partitions
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


DESCRIBE_CLUSTER = cold(60, "DescribeCluster", versions=(0, 2), flexible_from=0, adapt=_describe_cluster)
DESCRIBE_TOPIC_PARTITIONS = cold(
    75, "DescribeTopicPartitions", versions=(0, 0), flexible_from=0, adapt=_describe_topic_partitions
)
