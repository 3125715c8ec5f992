"""Metadata, DescribeTopicPartitions and DescribeCluster, with the automatic creation of topics.

Source: CP-08 to CP-12; KIP-204, KIP-516, KIP-700, KIP-919, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import INTERNAL_TOPICS, BrokerEndpoint, PartitionMetadata, TopicMetadata
from kraftlite.metadata.image import TopicImage, TopicsImage
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_TOPIC_NAME
from kraftlite.model.messages.controller import CreatableTopic, CreateTopicsRequest
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.messages.requester import RequesterInfo
from kraftlite.runtime.trace.wire import AutoTopicCreationFailed, AutoTopicCreationRequested

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Endpoint types of DescribeCluster."""
_ENDPOINT_TYPES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}

MAX_AUTO_CREATIONS: Final = 1_000
"""Topics that one broker creates by itself at a time; the client of any further one asks again."""

_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def valid_topic_name(name: str) -> bool:
    return 0 < len(name) <= MAX_TOPIC_NAME and name not in (".", "..") and _NAME_CHARACTERS.issuperset(name)


class TopicQuery(NamedTuple):
    """A topic, named by id when that is not None (v10+), else by name."""

    name: str | None
    topic_id: UUID | None


class TopicLookup(NamedTuple):
    """Known topics as images, so that the wire can reuse what it encoded; the others as errors."""

    known: list[TopicImage]
    unknown: list[TopicMetadata]
    creatable: list[str]
    """The unknown ones that may be created, by name."""


def find_topics(ctx: BrokerContext, queries: Sequence[TopicQuery] | None, *, creator: RequesterInfo | None) -> TopicLookup:
    """All topics for None, which never creates any (CP-09). Named topics in the order asked, each once. `creator`: the client
    that lets unknown ones be created; None: it does not."""
    found = look_up(ctx.metadata.image.topics, queries)
    if creator is not None and ctx.settings.auto_create_topics:
        auto_create(ctx, found.creatable, creator)
    return found


def look_up(topics: TopicsImage, queries: Sequence[TopicQuery] | None) -> TopicLookup:
    """`find_topics` without its effects, of one image: for any thread."""
    if queries is None:
        return TopicLookup(list(topics), [], [])
    known: dict[str, TopicImage] = {}
    unknown: list[TopicMetadata] = []
    missing: dict[str, None] = {}
    by_id = any(query.topic_id is not None for query in queries)
    for query in queries:
        if query.topic_id is not None:
            topic = topics.topic_by_id(query.topic_id)
            if topic is None:
                unknown.append(TopicMetadata(error=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=query.topic_id))
            else:
                known[topic.name] = topic
        elif query.name is not None and not by_id:  # a request that names ids is answered by ids alone
            topic = topics.topic(query.name)
            if topic is None:
                missing[query.name] = None
            else:
                known[query.name] = topic
    creatable: list[str] = []
    for name in missing:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            creatable.append(name)
        unknown.append(TopicMetadata(error=error, name=name))
    return TopicLookup(list(known.values()), unknown, creatable)


def auto_create(ctx: BrokerContext, names: Sequence[str], creator: RequesterInfo) -> None:
    """Ask the controller in the background; the client learns of the topic when it asks again."""
    new = (name for name in names if name not in ctx.topics_being_created)
    wanted = list(islice(new, max(0, MAX_AUTO_CREATIONS - len(ctx.topics_being_created))))
    if not wanted:
        return
    ctx.topics_being_created.update(wanted)
    ctx.ports.tracer.emit(AutoTopicCreationRequested(topics=tuple(wanted)))
    ctx.ports.tasks.spawn(_create(ctx, tuple(wanted), creator), name="auto-create-topics")


async def _create(ctx: BrokerContext, names: tuple[str, ...], creator: RequesterInfo) -> None:
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=name,
                num_partitions=ctx.settings.num_partitions,
                replication_factor=ctx.settings.default_replication_factor,
                assignments=(),
                configs=(),
            )
            for name in names
        ),
        validate_only=False,
        timeout_ms=ctx.settings.request_timeout_ms,
        requester=creator,
    )
    try:
        response = await ctx.controller.call(CREATE_TOPICS, request, ctx.settings.request_timeout_ms)
        for result in response.topics:
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                ctx.ports.tracer.emit(
                    AutoTopicCreationFailed(topics=(result.name,), error=result.error.name, reason=result.message)
                )
    except ApiError as error:
        ctx.ports.tracer.emit(AutoTopicCreationFailed(topics=names, error=error.code.name, reason=error.message))
    except Fault:
        raise
    except Exception as error:  # noqa: BLE001 - a client asked for it: it costs the topics, see docs/adr/0005
        reason = f"{type(error).__name__}: {error}"
        ctx.ports.tracer.emit(AutoTopicCreationFailed(topics=names, error="UNKNOWN_SERVER_ERROR", reason=reason))
    finally:
        ctx.topics_being_created.difference_update(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    controller_id: NodeId | None
    brokers: tuple[BrokerEndpoint, ...]


def describe_cluster(ctx: BrokerContext, listener: str, *, endpoint_type: int, include_fenced: bool) -> ClusterDescription:
    """Raises ApiError when controllers are asked for, which only a controller's own listener lists (CP-12)."""
    check_endpoint_type(endpoint_type, BROKERS)
    brokers = ctx.metadata.all_brokers(listener) if include_fenced else ctx.metadata.alive_brokers(listener)
    return ClusterDescription(controller_id=ctx.metadata.random_alive_broker(ctx.ports.entropy), brokers=brokers)


def check_endpoint_type(asked: int, here: int) -> None:
    """Raise ApiError unless what the client wants listed is what this listener lists."""
    if asked not in _ENDPOINT_TYPES:
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}")
    if asked != here:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[here]}, "
            f"but we wanted an endpoint of type {_ENDPOINT_TYPES[asked]}",
        )


class Cursor(NamedTuple):
    """The first partition of the next page."""

    topic: str
    partition: int


class TopicPage(NamedTuple):
    """`next_cursor` None: this page is the last."""

    topics: list[TopicMetadata]
    next_cursor: Cursor | None


def describe_topic_partitions(
    ctx: BrokerContext,
    listener: str,
    names: Sequence[str],
    *,
    limit: int,
    cursor: Cursor | None,
    visible: frozenset[str] | None = None,
) -> TopicPage:
    """A page of partitions in topic name order, from the cursor on. No names: all topics. `visible`: the topics of which the
    client may know, None: all. ApiError(INVALID_REQUEST)."""
    limit = min(limit, ctx.settings.max_partitions_per_describe)
    if limit <= 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"ResponsePartitionLimit {limit} must be positive")
    if cursor is not None and cursor.partition < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The cursor's partition index {cursor.partition} is negative")
    wanted = sorted(set(names)) if names else list(ctx.metadata.topic_names())
    if cursor is not None:
        if names and cursor.topic not in wanted:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic}",
            )
        wanted = [name for name in wanted if name >= cursor.topic]
    if visible is not None:
        wanted = [name for name in wanted if name in visible]
    page: list[TopicMetadata] = []
    for name in wanted:
        topic = ctx.metadata.topic(name)
        if topic is None:
            valid = valid_topic_name(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            page.append(TopicMetadata(error=error, name=name))
            continue
        first = cursor.partition if cursor is not None and cursor.topic == name else 0
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        if limit == 0:
            return TopicPage(page, Cursor(name, first))
        shown: list[PartitionMetadata] = [
            ctx.metadata.partition_metadata(index, topic.partitions[index], listener, listener_errors=True)
            for index in indexes[:limit]
        ]
        page.append(
            TopicMetadata(
                error=ErrorCode.NONE,
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=tuple(shown),
            )
        )
        if len(indexes) > limit:
            return TopicPage(page, Cursor(name, indexes[limit]))
        limit -= len(shown)
    return TopicPage(page, None)
