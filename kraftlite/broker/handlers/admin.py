"""Admin operations that any broker takes and the active controller decides (CP-56, CP-57).

A refusal of the whole request becomes one error per entry where the API has entries. An empty request is answered at once
(CE-31).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from kraftlite.broker.handlers.broker_changes import change_problems
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import forward, forward_entries
from kraftlite.broker.handlers.loggers import alter_logger
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.limits import MAX_RECORDS_PER_USER_OP
from kraftlite.model.messages.controller import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigResourceChange,
    ConfigResourceType,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    LegacyConfigResource,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlite.model.messages.methods import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
)
from kraftlite.model.shown import shown

_LOGGER: Final = int(ConfigResourceType.BROKER_LOGGER)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
AnsweredHere: TypeAlias = Callable[
    [BrokerContext, ConfigResourceChange | LegacyConfigResource, bool], Awaitable[AlterConfigsResult | None]
]
"""The result of a change of configs that this node decides itself, None for one that is handed on."""


class _Throttled(Protocol[T_co]):
    @property
    def topics(self) -> tuple[T_co, ...]: ...

    @property
    def throttle_ms(self) -> int: ...


class _Longest(Generic[T]):
    """The longest wait that the parts of a request are answered with (KIP-599)."""

    def __init__(self) -> None:
        self.throttle_ms = 0

    def of(self, answer: _Throttled[T]) -> tuple[T, ...]:
        self.throttle_ms = max(self.throttle_ms, answer.throttle_ms)
        return answer.topics


async def create_distinct_topics(ctx: BrokerContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """A name that is given twice and the name of the metadata log are refused by any node, once each, whoever asks."""
    times = Counter([topic.name async for topic in ctx.turns.each(request.topics)])
    refused = [
        CreatableTopicResult(name=name, error=ErrorCode.INVALID_REQUEST, message=message)
        async for name in ctx.turns.each(times)
        if (message := _refused_name(name, times[name])) is not None
    ]
    if not refused:
        return await create_topics(ctx, request)
    names = {result.name for result in refused}
    left = tuple([topic async for topic in ctx.turns.each(request.topics) if topic.name not in names])
    answer = await create_topics(ctx, replace(request, topics=left))
    return replace(answer, topics=(*answer.topics, *refused))


def _refused_name(name: str, times: int) -> str | None:
    if times > 1:
        return "Duplicate topic name."
    return f"Creation of internal topic {METADATA_TOPIC} is prohibited." if name == METADATA_TOPIC else None


async def create_distinct_partitions(ctx: BrokerContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """A name that is given twice is refused by any node, once, whoever asks."""
    times = Counter([topic.name async for topic in ctx.turns.each(request.topics)])
    refused = [
        CreatePartitionsResult(name=name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    if not refused:
        return await create_partitions(ctx, request)
    left = tuple([topic async for topic in ctx.turns.each(request.topics) if times[topic.name] == 1])
    answer = await create_partitions(ctx, replace(request, topics=left))
    return replace(answer, topics=(*answer.topics, *refused))


async def create_topics(ctx: BrokerContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if not request.topics:
        return CreateTopicsResponse(topics=())
    longest = _Longest[CreatableTopicResult]()
    try:
        _check_partition_count(ctx, request)
        topics = await forward_entries(
            ctx,
            CREATE_TOPICS,
            request,
            request.topics,
            lambda some: replace(request, topics=some),
            longest.of,
        )
        return CreateTopicsResponse(topics=topics, throttle_ms=longest.throttle_ms)
    except ApiError as error:
        return CreateTopicsResponse(
            topics=tuple(
                [
                    CreatableTopicResult(name=topic.name, error=error.code, message=error.message)
                    async for topic in ctx.turns.each(request.topics)
                ]
            )
        )


def _check_partition_count(ctx: BrokerContext, request: CreateTopicsRequest) -> None:
    """Raise ApiError(POLICY_VIOLATION), before anybody works on what could not be written at once (CE-18)."""
    default = ctx.settings.num_partitions
    asked = (
        len(topic.assignments) or (default if topic.num_partitions < 0 else topic.num_partitions) for topic in request.topics
    )
    if sum(asked) > MAX_RECORDS_PER_USER_OP:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


async def delete_topics(ctx: BrokerContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not request.topics:
        return DeleteTopicsResponse(topics=())
    longest = _Longest[DeleteTopicResult]()
    try:
        topics = await forward_entries(
            ctx,
            DELETE_TOPICS,
            request,
            request.topics,
            lambda some: replace(request, topics=some),
            longest.of,
        )
        return DeleteTopicsResponse(topics=topics, throttle_ms=longest.throttle_ms)
    except ApiError as error:
        return DeleteTopicsResponse(
            topics=tuple(
                [
                    DeleteTopicResult(name=topic.name, topic_id=topic.topic_id, error=error.code, message=error.message)
                    async for topic in ctx.turns.each(request.topics)
                ]
            )
        )


async def create_partitions(ctx: BrokerContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    if not request.topics:
        return CreatePartitionsResponse(topics=())
    longest = _Longest[CreatePartitionsResult]()
    try:
        topics = await forward_entries(
            ctx,
            CREATE_PARTITIONS,
            request,
            request.topics,
            lambda some: replace(request, topics=some),
            longest.of,
        )
        return CreatePartitionsResponse(topics=topics, throttle_ms=longest.throttle_ms)
    except ApiError as error:
        return CreatePartitionsResponse(
            topics=tuple(
                [
                    CreatePartitionsResult(name=topic.name, error=error.code, message=error.message)
                    async for topic in ctx.turns.each(request.topics)
                ]
            )
        )


async def alter_configs(
    ctx: BrokerContext,
    request: IncrementalAlterConfigsRequest | AlterConfigsRequest,
    answered_here: AnsweredHere | None = None,
) -> AlterConfigsResponse:
    """Both the incremental and the legacy call; they differ in what the controller does. Loggers are this broker's matter, and
    a broker's configs are taken by that broker alone. `answered_here`: says instead which resources are this node's matter."""
    resources: tuple[ConfigResourceChange | LegacyConfigResource, ...] = request.resources
    own: dict[int, AlterConfigsResult] = {}
    answered = _answered_here if answered_here is None else answered_here
    async for index, one in ctx.turns.each(enumerate(resources)):
        answer = await answered(ctx, one, request.validate_only)
        if answer is not None:
            own[index] = answer
    if own:
        kept: Any = tuple(one for index, one in enumerate(resources) if index not in own)
        rest = await alter_configs(ctx, replace(request, resources=kept), answered)
        others = iter(rest.resources)
        return AlterConfigsResponse(
            resources=tuple(own[index] if index in own else next(others) for index in range(len(resources)))
        )
    if not request.resources:
        return AlterConfigsResponse(resources=())
    try:
        if isinstance(request, IncrementalAlterConfigsRequest):
            results = await forward_entries(
                ctx,
                INCREMENTAL_ALTER_CONFIGS,
                request,
                request.resources,
                lambda some: replace(request, resources=some),
                lambda answer: answer.resources,
            )
        else:
            results = await forward_entries(
                ctx,
                ALTER_CONFIGS,
                request,
                request.resources,
                lambda some: replace(request, resources=some),
                lambda answer: answer.resources,
            )
        return AlterConfigsResponse(resources=results)
    except ApiError as error:
        return AlterConfigsResponse(
            resources=tuple(
                [
                    AlterConfigsResult(
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                        error=error.code,
                        message=error.message,
                    )
                    async for resource in ctx.turns.each(resources)
                ]
            )
        )


async def _answered_here(
    ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource, validate_only: bool
) -> AlterConfigsResult | None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == _LOGGER:
        return alter_logger(ctx, resource, validate_only=validate_only)
    if kind != ConfigResourceType.BROKER:
        return None
    if name in ("", str(ctx.node_id)):
        problems = await change_problems(ctx, resource)
        if not problems:
            return None
        return AlterConfigsResult(
            resource_type=kind, resource_name=name, error=ErrorCode.INVALID_REQUEST, message="; ".join(problems)
        )
    message = f"Unexpected broker id, expected {ctx.node_id}, but received {shown(name)}"
    if not (name.isascii() and name.isdigit()):
        message = f"Node id must be an integer, but it is: {shown(name)}"
    return AlterConfigsResult(resource_type=kind, resource_name=name, error=ErrorCode.INVALID_REQUEST, message=message)


async def elect_leaders(ctx: BrokerContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Raises ApiError when the request as a whole is refused. No partitions named (as opposed to None): nothing to do."""
    if request.partitions is not None and not request.partitions:
        return ElectLeadersResponse(results=())
    if request.partitions is None:
        return await forward(ctx, ELECT_LEADERS, request, request.timeout_ms)
    results = await forward_entries(
        ctx,
        ELECT_LEADERS,
        request,
        request.partitions,
        lambda some: replace(request, partitions=some),
        lambda answer: answer.results,
    )
    return ElectLeadersResponse(results=results)


async def update_features(ctx: BrokerContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Raises ApiError when the request as a whole is refused."""
    if not request.updates:
        return UpdateFeaturesResponse(results=())
    return await forward(ctx, UPDATE_FEATURES, request, request.timeout_ms)


async def unregister_broker(ctx: BrokerContext, request: UnregisterBrokerRequest) -> None:
    """Raises ApiError."""
    await forward(ctx, UNREGISTER_BROKER, request, request.timeout_ms)
