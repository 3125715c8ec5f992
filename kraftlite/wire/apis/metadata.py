"""Metadata, DescribeCluster and DescribeTopicPartitions on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.metadata import (
    BROKERS,
    ClusterDescription,
    Cursor,
    TopicQuery,
    auto_create,
    describe_cluster,
    describe_topic_partitions,
    find_topics,
    look_up,
)
from kraftlite.broker.metadata_cache import MetadataCache, TopicMetadata
from kraftlite.metadata.image import MetadataImage, TopicImage
from kraftlite.model.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NO_NODE, ZERO_UUID
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Api, Call, cold
from kraftlite.wire.metadata_codec import (
    METADATA_FLEXIBLE,
    METADATA_MAX,
    METADATA_MIN,
    MetadataRequest,
    encode_brokers,
    encode_metadata,
    encode_topic,
    parse_metadata,
)
from kraftlite.wire.operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS

IDS_FROM: Final = 12
OFF_LOOP_FROM: Final = 500
"""Topics or partitions to look up or to encode; so many take some 5 ms."""


class DescribesCluster(Protocol):
    """A handler that lists what a listener lists: brokers, or controllers. Raises ApiError."""

    def __call__(
        self, ctx: BrokerContext, listener: str, /, *, endpoint_type: int, include_fenced: bool
    ) -> ClusterDescription: ...


class EncodedTopics:
    """The encoded form of one image for one listener: brokers and topics per version. Thrown away with the image, so it holds
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
            found = self._topics[version, topic.name, operations] = _encode(cache, topic, call.listener, version, operations)
        return found

    def known(self, image: MetadataImage) -> Known:
        """All topics that are encoded from `image`."""
        self._at(image)
        return self._topics

    def learn(self, image: MetadataImage, encoded: Mapping[tuple[int, str, int], bytes]) -> None:
        """Take over topics that were encoded elsewhere, from `image`."""
        if image is self._image:
            self._topics.update(encoded)


Known = Mapping[tuple[int, str, int], bytes]
"""Encoded topics by version, name and operations."""


def _encode(cache: MetadataCache, topic: TopicImage, listener: str, version: int, operations: int) -> bytes:
    view = cache.topic_metadata(topic, listener, listener_errors=version >= 6, filter_unavailable=version == 0)
    return encode_topic(view, version, operations)


def metadata_api(encoded: EncodedTopics) -> Api:
    def handle(call: Call) -> None:
        if call.is_large:
            call.connection.lease_frame()
            call.spawn(
                lambda: call.leased(parse_metadata, waits=False, then=lambda it: _metadata_large(call, it, encoded)),
                "kafka-Metadata",
            )
            return
        request = parse_metadata(call.frame, call.pos, call.version)
        call.frame = memoryview(b"")
        refused = _refuse(call.version, request)
        if refused is not ErrorCode.NONE:
            call.note_errors(_refused_errors(call.version, request, refused))
            call.send((_refused(call, request, refused),))
            return
        rights = call.rights
        if rights is not None:
            call.spawn(lambda: _metadata_seen(call, request, encoded, rights), "kafka-Metadata")
            return
        if request.topics is None and len(call.ctx.metadata.image.topics.by_id) > OFF_LOOP_FROM:
            call.spawn(lambda: _metadata_off_loop(call, request, encoded), "kafka-Metadata")
            return
        creator = call.on_behalf if request.allow_auto_topic_creation else None
        found = find_topics(call.ctx, request.topics, creator=creator)
        if len(found.known) + sum(len(topic.partitions) for topic in found.known[:OFF_LOOP_FROM]) > OFF_LOOP_FROM:
            call.spawn(lambda: _metadata_off_loop(call, request, encoded), "kafka-Metadata")
            return
        operations = _topic_operations(request)
        if found.unknown:
            call.note_errors(_errors_of(found.unknown))
        topics = [encode_topic(unknown, call.version, operations) for unknown in found.unknown]
        topics += [encoded.topic(call, topic, operations) for topic in found.known]
        call.send((_response(call, request, encoded.brokers(call), _controller(call), topics),))

    return Api(
        key=3,
        name="Metadata",
        min_version=METADATA_MIN,
        max_version=METADATA_MAX,
        flexible_from=METADATA_FLEXIBLE,
        handle=handle,
    )


class Seen(NamedTuple):
    """The view of a client that may not do everything: the topics to look up in the image, those that it is refused, and the
    operations that it has on each topic, where it asked for them, and on the cluster."""

    image: MetadataImage
    queries: list[TopicQuery]
    refused: list[TopicMetadata]
    operations: dict[str, int] | None
    on_cluster: int


async def _metadata_large(call: Call, request: MetadataRequest, encoded: EncodedTopics) -> None:
    rights = call.rights
    if rights is None:
        await _metadata_off_loop(call, request, encoded)
    else:
        await _metadata_seen(call, request, encoded, rights)


async def _metadata_seen(call: Call, request: MetadataRequest, encoded: EncodedTopics, rights: Rights) -> None:
    refused = _refuse(call.version, request)
    if refused is ErrorCode.NONE:
        await _metadata_off_loop(call, request, encoded, await _seen(call, request, rights))
    else:
        call.note_errors(_refused_errors(call.version, request, refused))
        call.send((_refused(call, request, refused),))


async def _seen(call: Call, request: MetadataRequest, rights: Rights) -> Seen:
    """A topic that may not be described is left out when all were asked for. When it was named it is refused, whether it exists
    or not; when its id was, its name is not told (SE-36)."""
    image, each = call.ctx.metadata.image, call.ctx.turns.each
    creates = request.allow_auto_topic_creation and call.ctx.settings.auto_create_topics
    queries: list[TopicQuery] = []
    denied: list[TopicMetadata] = []
    operations: dict[str, int] = {}
    asked = request.topics
    by_id = any(query.topic_id is not None for query in asked or ())
    async for query in each((TopicQuery(topic.name, None) for topic in image.topics) if asked is None else asked):
        if by_id:
            topic = None if query.topic_id is None else image.topics.topic_by_id(query.topic_id)
        else:
            topic = image.topics.topic(query.name or "")
        name = topic.name if topic is not None else None if by_id else query.name
        if name is None:
            queries.append(query)
        elif not rights.topic(Operation.DESCRIBE, name, audited=asked is not None):
            if asked is not None:
                denied.append(_denied(None if by_id else name, query.topic_id if by_id else None))
        elif topic is None and creates and not _may_create(rights, name):
            denied.append(_denied(name, None))
        else:
            queries.append(query)
            if request.topic_operations and name not in operations:
                operations[name] = rights.operations(ResourceType.TOPIC, name)
    return Seen(image, queries, denied, operations if request.topic_operations else None, _on_cluster(rights))


def _may_create(rights: Rights, name: str) -> bool:
    return rights.cluster(Operation.CREATE, audited=False) or rights.topic(Operation.CREATE, name)


def _denied(name: str | None, topic_id: UUID | None) -> TopicMetadata:
    return TopicMetadata(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id or ZERO_UUID)


def _on_cluster(rights: Rights | None) -> int:
    """The operations on the cluster, for those who may describe it."""
    if rights is None:
        return CLUSTER_OPERATIONS
    return rights.operations(ResourceType.CLUSTER, CLUSTER_NAME) if rights.cluster(Operation.DESCRIBE, audited=False) else 0


async def _metadata_off_loop(call: Call, request: MetadataRequest, encoded: EncodedTopics, seen: Seen | None = None) -> None:
    """The same of many topics, or of many partitions: looked up and encoded from one image in another thread. `seen`: for a
    client that may not do everything, of few topics also here and now."""
    ctx, version, listener = call.ctx, call.version, call.listener
    image, everything = ctx.metadata.image if seen is None else seen.image, _topic_operations(request)
    brokers, controller_id, known = encoded.brokers(call), _controller(call), encoded.known(image)
    cost = len(image.topics.by_id) if request.topics is None else len(request.topics)
    queries, denied = (request.topics, []) if seen is None else (seen.queries, seen.refused)
    on_cluster = CLUSTER_OPERATIONS if seen is None else seen.on_cluster

    def on_topic(name: str | None) -> int:
        return everything if seen is None or seen.operations is None else seen.operations.get(name or "", 0)

    def look_up_and_encode() -> tuple[Sequence[str], dict[tuple[int, str, int], bytes], bytes, Counter[str]]:
        refused = _refuse(version, request)
        if refused is not ErrorCode.NONE:
            return (), {}, _refused(call, request, refused), _refused_errors(version, request, refused)
        view = MetadataCache(ctx.cluster_id)
        view.set_image(image)
        found = look_up(image.topics, queries)
        topics = [encode_topic(unknown, version, on_topic(unknown.name)) for unknown in found.unknown]
        topics += [encode_topic(one, version) for one in denied]
        new: dict[tuple[int, str, int], bytes] = {}
        for topic in found.known:
            operations = on_topic(topic.name)
            key = (version, topic.name, operations)
            one = known.get(key)
            if one is None:
                one = new[key] = _encode(view, topic, listener, version, operations)
            topics.append(one)
        response = _response(call, request, brokers, controller_id, topics, on_cluster)
        return found.creatable, new, response, _errors_of((*found.unknown, *denied))

    if seen is None or not _is_small(image, seen.queries):
        creatable, new, response, errors = await ctx.off_loop.run(cost, look_up_and_encode)
    else:
        creatable, new, response, errors = look_up_and_encode()
    call.note_errors(errors)
    encoded.learn(image, new)
    call.send((response,))
    if request.allow_auto_topic_creation and ctx.settings.auto_create_topics:
        auto_create(ctx, creatable, call.on_behalf)


def _is_small(image: MetadataImage, queries: Sequence[TopicQuery]) -> bool:
    if len(queries) > OFF_LOOP_FROM:
        return False
    topics = [image.topics.topic(query.name) for query in queries if query.name is not None]
    return len(queries) + sum(len(topic.partitions) for topic in topics if topic is not None) <= OFF_LOOP_FROM


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.topic_operations else OPERATIONS_NOT_ASKED


def _controller(call: Call) -> int:
    found = call.ctx.metadata.random_alive_broker(call.ctx.ports.entropy)
    return NO_NODE if found is None else found


def _response(
    call: Call,
    request: MetadataRequest,
    brokers: bytes,
    controller_id: int,
    topics: Sequence[bytes],
    on_cluster: int = CLUSTER_OPERATIONS,
) -> bytes:
    return encode_metadata(
        call.correlation_id,
        call.version,
        brokers=brokers,
        cluster_id=call.ctx.metadata.cluster_id,
        controller_id=controller_id,
        topics=topics,
        operations=on_cluster if request.cluster_operations else OPERATIONS_NOT_ASKED,
    )


def _refuse(version: int, request: MetadataRequest) -> ErrorCode:
    """Refuse a malformed topic. Before v12 a topic is named, and ids are in the message from v10 on but not to be used
    (KIP-516). From v12 on null is no name where nothing has an id, which Kafka's broker does not expect."""
    topics = request.topics or ()
    nameless = any(topic.name is None for topic in topics)
    by_id = any(topic.topic_id is not None for topic in topics)
    if version < IDS_FROM:
        return ErrorCode.INVALID_REQUEST if nameless or by_id else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if nameless and not by_id else ErrorCode.NONE


def _errors_of(topics: Iterable[TopicMetadata]) -> Counter[str]:
    return Counter(topic.error.name for topic in topics if topic.error is not ErrorCode.NONE)


def _refused_errors(version: int, request: MetadataRequest, error: ErrorCode) -> Counter[str]:
    """Count the errors of `_refused`."""
    return Counter({error.name: len(request.topics or ()) + (version >= IDS_FROM)})


def _refused(call: Call, request: MetadataRequest, error: ErrorCode) -> bytes:
    """Every topic that was asked for with `error`, and nothing about the cluster."""
    version = call.version
    topics = [
        encode_topic(TopicMetadata(error=error, name=topic.name or "", topic_id=topic.topic_id or ZERO_UUID), version)
        for topic in request.topics or ()
    ]
    return encode_metadata(
        call.correlation_id,
        version,
        brokers=encode_brokers((), version),
        cluster_id=None,
        controller_id=NO_NODE,
        topics=topics,
        error=ErrorCode.NONE if version < IDS_FROM else error,
    )


async def _describe_cluster(call: Call, request: Any) -> Mapping[str, object]:
    return describe_cluster_as(call, request, describe_cluster)


def describe_cluster_as(call: Call, request: Any, describe: DescribesCluster) -> Mapping[str, object]:
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    include_fenced = getattr(request, "include_fenced_brokers", False)
    answer: dict[str, object] = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": endpoint_type,
        "cluster_id": call.ctx.cluster_id,
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": OPERATIONS_NOT_ASKED,
    }
    try:
        found = describe(call.ctx, call.listener, endpoint_type=endpoint_type, include_fenced=include_fenced)
    except ApiError as error:
        answer.update(error_code=error.code, error_message=error.message, cluster_id="", endpoint_type=BROKERS)
        return answer
    if request.include_cluster_authorized_operations:
        answer["cluster_authorized_operations"] = _on_cluster(call.rights)
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


async def _describe_topic_partitions(call: Call, request: Any) -> Mapping[str, object]:
    """Any number of topics may be sorted and looked at for a page: off the loop, in one image."""
    ctx = copy(call.ctx)
    ctx.metadata = MetadataCache(ctx.cluster_id)
    ctx.metadata.set_image(call.ctx.metadata.image)
    cost = len(request.topics) or len(ctx.metadata.image.topics.by_id)
    rights, denied = call.rights, []
    names = [topic.name for topic in request.topics]
    visible = None
    if rights is not None:
        visible = frozenset(await _describable(call, rights, names or list(ctx.metadata.topic_names()), audited=bool(names)))
        denied = [_denied(name, None) for name in sorted(set(names) - visible)]
    if cost <= OFF_LOOP_FROM:
        page = _topic_partitions(ctx, call.listener, request, visible)
    else:
        page = await ctx.off_loop.run(cost, lambda: _topic_partitions(ctx, call.listener, request, visible))
    if rights is not None:
        for topic in page.topics:
            topic["topic_authorized_operations"] = rights.operations(ResourceType.TOPIC, str(topic["name"]))
    return {"throttle_time": 0, "topics": [*page.topics, *map(_undescribed, denied)], "next_cursor": page.next_cursor}


async def _describable(call: Call, rights: Rights, names: Sequence[str], *, audited: bool) -> list[str]:
    return [name async for name in call.ctx.turns.each(names) if rights.topic(Operation.DESCRIBE, name, audited=audited)]


class _Page(NamedTuple):
    topics: list[dict[str, object]]
    next_cursor: dict[str, object] | None


def _topic_partitions(ctx: BrokerContext, listener: str, request: Any, visible: frozenset[str] | None) -> _Page:
    """`visible`: the topics that the client may describe; None: all."""
    names = [topic.name for topic in request.topics]
    cursor = request.cursor
    try:
        page = describe_topic_partitions(
            ctx,
            listener,
            names,
            limit=request.response_partition_limit,
            cursor=None if cursor is None else Cursor(cursor.topic_name, cursor.partition_index),
            visible=visible,
        )
    except ApiError as error:
        refused = [TopicMetadata(error=error.code, name=name) for name in names if visible is None or name in visible]
        return _Page([_described(topic) for topic in refused], None)
    after = page.next_cursor
    cursor_after = None if after is None else {"topic_name": after.topic, "partition_index": after.partition}
    return _Page([_described(topic) for topic in page.topics], cursor_after)


def _described(topic: TopicMetadata) -> dict[str, object]:
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


def _undescribed(topic: TopicMetadata) -> dict[str, object]:
    """Describe a topic that the client may not describe: it is not told what it may do with it either."""
    return {**_described(topic), "topic_authorized_operations": OPERATIONS_NOT_ASKED}


DESCRIBE_CLUSTER = cold(60, "DescribeCluster", versions=(0, 2), flexible_from=0, adapt=_describe_cluster)
DESCRIBE_TOPIC_PARTITIONS = cold(
    75, "DescribeTopicPartitions", versions=(0, 0), flexible_from=0, adapt=_describe_topic_partitions
)
