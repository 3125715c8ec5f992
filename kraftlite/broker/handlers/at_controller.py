"""The answers of a controller to clients that come to it directly, where they differ from those of a broker.

Source: KIP-919; Kafka's ControllerApis and ControllerRegistrationsPublisher; CB-01 to CB-03.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.broker.handlers.broker_changes import cordons_more, login_changes, moves_controller
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.loggers import alter_logger
from kraftlite.broker.handlers.metadata import CONTROLLERS, ClusterDescription, check_endpoint_type
from kraftlite.broker.handlers.reassignments import list_reassignments
from kraftlite.broker.metadata_cache import BrokerEndpoint
from kraftlite.metadata.features import supports_controller_registration
from kraftlite.model.config_effects import logins_kept
from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.bounds import checker
from kraftlite.model.messages.controller import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    LegacyConfigResource,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingReassignment,
)
from kraftlite.model.method import Method, Req, Res
from kraftlite.runtime.ports import Handlers

_CONFIGURABLE: Final = frozenset(int(kind) for kind in ConfigResourceType)


class OwnController:
    """A `ControllerChannel` that ends at this node's own controller, active or not: the client looks for the active one.

    A request is checked as one that comes over the network between nodes. Raises ApiError: NOT_CONTROLLER on a standby,
    NOT_LEADER_OR_FOLLOWER for the quorum's state.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def call(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        check = checker(method.request)
        if check is not None:
            check(request)
        mine: Any = request
        if hasattr(request, "timeout_ms"):
            mine = replace(mine, timeout_ms=timeout_ms)
        answer: Res = await self._handlers[method](mine)
        return answer


def describe_controllers(ctx: BrokerContext, listener: str, *, endpoint_type: int, include_fenced: bool) -> ClusterDescription:
    """The registered controllers that have this listener, and the one that leads the quorum (CB-02). Raises ApiError.

    A controller is never fenced, so `include_fenced` changes nothing.
    """
    image = ctx.metadata.image
    level = image.features.metadata_version
    if level is None or not supports_controller_registration(level):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"metadata.version {level} has no registered controllers: clients must ask brokers"
        )
    check_endpoint_type(endpoint_type, CONTROLLERS)
    controllers = image.cluster.controllers
    found = tuple(
        BrokerEndpoint(broker_id=controller_id, host=one.host, port=one.port, rack=None, fenced=False)
        for controller_id in sorted(controllers)
        for one in controllers[controller_id].listeners
        if one.name == listener
    )
    return ClusterDescription(controller_id=ctx.raft.leader_and_epoch().leader_id, brokers=found)


async def list_reassignments_here(
    ctx: BrokerContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Every controller knows the moves under way: the active one tells what is committed, a standby what it has loaded."""
    try:
        return await list_reassignments(ctx, request)
    except ApiError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    topics = ctx.metadata.image.topics
    if request.partitions is None:
        wanted = [(topic.name, index) async for topic in ctx.turns.each(list(topics)) for index in sorted(topic.partitions)]
    else:
        wanted = [(one.topic, one.partition) for one in request.partitions]
    found = []
    async for name, index in ctx.turns.each(list(dict.fromkeys(wanted))):
        topic = topics.topic(name)
        one = None if topic is None else topic.partitions.get(index)
        if one is not None and (one.adding_replicas or one.removing_replicas):
            adding, removing = one.adding_replicas, one.removing_replicas
            move = OngoingReassignment(topic=name, partition=index, replicas=one.replicas, adding=adding, removing=removing)
            found.append(move)
    return ListPartitionReassignmentsResponse(reassignments=tuple(found))


async def alter_configs_here(
    ctx: BrokerContext, request: IncrementalAlterConfigsRequest | AlterConfigsRequest
) -> AlterConfigsResponse:
    """Both calls at a controller: the configs of any broker, of the default of all, and this node's loggers."""
    resources: tuple[ConfigResourceChange | LegacyConfigResource, ...] = request.resources
    count = Counter(
        [
            (one.resource_type, one.resource_name)
            async for one in ctx.turns.each(resources)
            if one.resource_type in _CONFIGURABLE - {ConfigResourceType.BROKER_LOGGER}
        ]
    )
    twice = [
        AlterConfigsResult(resource_type=kind, resource_name=name, error=ErrorCode.INVALID_REQUEST, message="Duplicate resource.")
        for (kind, name), times in count.items()
        if times > 1
    ]
    once: Any = tuple([one async for one in ctx.turns.each(resources) if count[one.resource_type, one.resource_name] <= 1])
    answer = await alter_configs(ctx, replace(request, resources=once), _answered_here)
    return AlterConfigsResponse(resources=(*answer.resources, *twice))


async def _answered_here(
    ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource, validate_only: bool
) -> AlterConfigsResult | None:
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        return alter_logger(ctx, resource, validate_only=validate_only)
    code, message = ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource.resource_type}."
    if resource.resource_type in _CONFIGURABLE:
        if resource.resource_type != ConfigResourceType.BROKER:
            return None
        code = ErrorCode.INVALID_REQUEST
        if cordons_more(ctx, resource):
            code = ErrorCode.INVALID_CONFIG
            message = f"{CORDONED_DIRS}: a controller does not know the directories of brokers; ask the broker for more of them"
        elif moves_controller(ctx, resource):
            message = f"node {resource.resource_name} is only a controller, whose listeners only its file can change"
        elif fixed := login_changes(ctx, resource):
            message = logins_kept(fixed)
        else:
            return None
    return AlterConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error=code, message=message
    )
