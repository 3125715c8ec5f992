"""FindCoordinator: which broker leads the partition that a group or a transactional id belongs to; creates `__consumer_offsets`
and `__transaction_state` on first use.

Source: CP-25, TX-01, TX-02; KIP-98, KIP-699 (batches), KIP-890.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import BrokerEndpoint
from kraftlite.coordinator.api import ConsumerHeartbeatRequest, ConsumerHeartbeatResult
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import CONSUMER
from kraftlite.coordinator.coordinator import GroupCoordinator
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.modern.validate import check_heartbeat
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.metadata.features import GROUP_VERSION
from kraftlite.metadata.image import TopicImage
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.messages.controller import ConfigPair, CreatableTopic, CreateTopicsRequest
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.wire import AutoTopicCreationFailed, AutoTopicCreationRequested

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""


class CoordinatorFound(NamedTuple):
    """`broker` None unless `error` is NONE."""

    key: str
    error: ErrorCode
    message: str | None
    broker: BrokerEndpoint | None


def group_coordinator(ctx: BrokerContext) -> GroupCoordinator:
    """Return this broker's group coordinator; its APIs are offered only where there is one."""
    assert ctx.groups is not None, "an API of groups without a group coordinator"
    return ctx.groups


async def consumer_heartbeat(ctx: BrokerContext, request: ConsumerHeartbeatRequest, version: int) -> ConsumerHeartbeatResult:
    """Raises ApiError(UNSUPPORTED_VERSION) where groups of the new protocol are not enabled (KIP-848)."""
    coordinator = consumer_groups(ctx)
    check_heartbeat(request, version, coordinator.config)
    return await coordinator.consumer_heartbeat(request)


def consumer_groups(ctx: BrokerContext) -> GroupCoordinator:
    """Raises ApiError(UNSUPPORTED_VERSION) where groups of the new protocol are not enabled: by `group.version`, or in this
    broker's `group.coordinator.rebalance.protocols`."""
    coordinator = group_coordinator(ctx)
    if ctx.metadata.image.features.level(GROUP_VERSION) < 1 or CONSUMER not in coordinator.config.protocols:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled.")
    return coordinator


def find_coordinator(ctx: BrokerContext, listener: str, key_type: int, key: str) -> CoordinatorFound:
    """Name the coordinator of a key by the address at which this listener's clients reach it."""
    try:
        return CoordinatorFound(key, ErrorCode.NONE, None, _find(ctx, listener, key_type, key))
    except ApiError as error:
        return CoordinatorFound(key, error.code, error.message, None)


def _find(ctx: BrokerContext, listener: str, key_type: int, key: str) -> BrokerEndpoint:
    if key_type == TRANSACTION:
        if ctx.transactions is None:
            return _here(ctx, listener)
        name = TRANSACTION_TOPIC
    elif key_type == GROUP:
        name = OFFSETS_TOPIC
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}: allowed are 0 (group) and 1 (transaction)")
    topic = _existing(ctx, name)
    index = _partition_of(ctx, key_type, key, topic)
    registration = topic.partitions.get(index)
    leader = None if registration is None or registration.leader is None else registration.leader
    broker = None if leader is None else ctx.metadata.alive_broker(leader, listener)
    if broker is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}-{index} has no leader that {listener} reaches")
    return broker


def _existing(ctx: BrokerContext, name: str) -> TopicImage:
    topic = ctx.metadata.topic(name)
    if topic is None:
        if name not in ctx.topics_being_created:
            made = transaction_topic(ctx) if name == TRANSACTION_TOPIC else offsets_topic(group_coordinator(ctx).config)
            _begin_to_create(ctx, made)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is being created")
    return topic


def offsets_partition(ctx: BrokerContext, group_id: str) -> TopicPartition:
    """Return where the offsets of a group go. Raises ApiError(COORDINATOR_NOT_AVAILABLE) while this broker does not know
    it; the topic is created then, if it is not there."""
    _existing(ctx, OFFSETS_TOPIC)
    return group_coordinator(ctx).partition_of(group_id)


def _partition_of(ctx: BrokerContext, key_type: int, key: str, topic: TopicImage) -> int:
    """Transactional ids stay where they are when the topic grows (TX-64); the empty one, which nobody uses, is anywhere."""
    if key_type == TRANSACTION and key and ctx.transactions is not None:
        return ctx.transactions.partition_of(key)
    return partition_for(key, len(topic.partitions))


def _here(ctx: BrokerContext, listener: str) -> BrokerEndpoint:
    """This broker offers no transactions, and no code of this answer says so to every client: some would ask for ever. Any broker
    will do to say it with InitProducerId, where all clients end at once."""
    here = ctx.metadata.alive_broker(ctx.node_id, listener)
    if here is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker is not known on {listener} yet")
    return here


def _begin_to_create(ctx: BrokerContext, topic: CreatableTopic) -> None:
    """Create the topic in the background, once at a time; whoever asks comes again."""
    ctx.topics_being_created.add(topic.name)
    ctx.ports.tracer.emit(AutoTopicCreationRequested(topics=(topic.name,)))
    ctx.ports.tasks.spawn(_create(ctx, topic), name=f"create-{topic.name}")


def transaction_topic(ctx: BrokerContext) -> CreatableTopic:
    """`__transaction_state` as this broker creates it (TX-02)."""
    config = TransactionConfig.from_values(ctx.config.values)
    return CreatableTopic(
        name=TRANSACTION_TOPIC,
        num_partitions=config.topic_partitions,
        replication_factor=config.topic_replication_factor,
        assignments=(),
        configs=(
            ConfigPair(name="cleanup.policy", value="compact"),
            ConfigPair(name="compression.type", value="uncompressed"),
            ConfigPair(name="unclean.leader.election.enable", value="false"),
            ConfigPair(name="min.insync.replicas", value=str(config.topic_min_isr)),
            ConfigPair(name="segment.bytes", value=str(config.topic_segment_bytes)),
        ),
    )


def offsets_topic(config: GroupConfig) -> CreatableTopic:
    """`__consumer_offsets` as a broker of this configuration creates it."""
    return CreatableTopic(
        name=OFFSETS_TOPIC,
        num_partitions=config.topic_partitions,
        replication_factor=config.topic_replication_factor,
        assignments=(),
        configs=(
            ConfigPair(name="cleanup.policy", value="compact"),
            ConfigPair(name="compression.type", value="producer"),
            ConfigPair(name="segment.bytes", value=str(config.topic_segment_bytes)),
        ),
    )


async def _create(ctx: BrokerContext, topic: CreatableTopic) -> None:
    timeout_ms = ctx.settings.request_timeout_ms
    request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=timeout_ms)
    try:
        response = await ctx.controller.call(CREATE_TOPICS, request, timeout_ms)
        failed = [(result.error, result.message) for result in response.topics]
    except ApiError as error:
        failed = [(error.code, error.message)]
    except Fault:
        raise
    except Exception as error:  # noqa: BLE001 - a client asked for it: it costs the topic, see docs/adr/0005
        failed = [(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")]
    finally:
        ctx.topics_being_created.discard(topic.name)
    for code, message in failed:
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            ctx.ports.tracer.emit(AutoTopicCreationFailed(topics=(topic.name,), error=code.name, reason=message))
