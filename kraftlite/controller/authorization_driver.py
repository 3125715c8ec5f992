"""The rights of clients at a controller: calls that brokers hand on, and those of clients that come to it, are decided for the
client itself, before anything reaches the state machine. Source: SE-39, SE-40; Kafka's ControllerApis.

A call without a requester is a node's own. Who may be a node is decided where nodes connect, see `is_node_call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from kraftlite.controller.topic_control import named_once_or_more
from kraftlite.model.acls import REFUSAL_TEXTS, REFUSALS, Operation, ResourceType
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.ports import Handlers
from kraftlite.security.configs import denied_config
from kraftlite.security.gate import Gate, Rights

Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


class KnownTopics(Protocol):
    """The topics that there are."""

    def name_of(self, topic_id: UUID) -> str | None: ...

    def exists(self, name: str) -> bool: ...


CLUSTER_OPERATIONS: Final[Mapping[AnyMethod, Operation]] = {
    methods.UNREGISTER_BROKER: Operation.ALTER,
    methods.ELECT_LEADERS: Operation.ALTER,
    methods.UPDATE_FEATURES: Operation.ALTER,
    methods.ALTER_PARTITION_REASSIGNMENTS: Operation.ALTER,
    methods.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    methods.ALTER_CLIENT_QUOTAS: Operation.ALTER_CONFIGS,
    methods.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
    methods.CREATE_ACLS: Operation.ALTER,
    methods.DELETE_ACLS: Operation.ALTER,
}
"""The operation on the cluster that allows a call as a whole."""

_DENIED_TOPIC: Final = REFUSALS[ResourceType.TOPIC]
_DENIED_TEXT: Final = REFUSAL_TEXTS[ResourceType.TOPIC]


def is_node_call(request: object) -> bool:
    """Return whether a node asks for itself. The listener for nodes lets nodes in alone, so that nobody else can leave the
    requester out, or name one: what authenticates nodes belongs there."""
    return getattr(request, "requester", None) is None


def guarded(handlers: Handlers, gate: Gate | None, topics: KnownTopics) -> Handlers:
    """The same handlers, behind the gate. A refusal of the whole call is ApiError(CLUSTER_AUTHORIZATION_FAILED)."""
    if gate is None:
        return handlers
    return {
        method: handler if method in NODES_ALONE else _guarded(method, handler, gate, topics)
        for method, handler in handlers.items()
    }


def _guarded(method: AnyMethod, handler: Handler, gate: Gate, topics: KnownTopics) -> Handler:
    async def handle(asked: Any) -> Any:
        if is_node_call(asked):
            return await handler(asked)
        requester = asked.requester.requester()
        if not gate.is_open_for(requester.principal):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The access control entries are not loaded yet.")
        rights = gate.rights(requester, method.name)
        operation = CLUSTER_OPERATIONS.get(method)
        if operation is not None:
            rights.need_cluster(operation)
            return await handler(asked)
        return await _BY_ELEMENT[method](handler, asked, rights, topics)

    return handle


async def _create_topics(
    handler: Handler, request: m.CreateTopicsRequest, rights: Rights, _: KnownTopics
) -> m.CreateTopicsResponse:
    topics = request.topics
    if rights.cluster(Operation.CREATE, audited=False):
        allowed, refused = list(topics), list[m.CreatableTopic]()
    else:
        allowed, refused = rights.divided(Operation.CREATE, ResourceType.TOPIC, topics, lambda it: it.name)
    answer: m.CreateTopicsResponse = await handler(replace(request, topics=tuple(allowed)))
    found = [_as_seen(result, rights) for result in answer.topics]
    found += [m.CreatableTopicResult(name=one.name, error=_DENIED_TOPIC, message=_DENIED_TEXT) for one in refused]
    return replace(answer, topics=tuple(found))


def _as_seen(result: m.CreatableTopicResult, rights: Rights) -> m.CreatableTopicResult:
    """Without the settings of a topic whose configs the client may not see."""
    if result.error is not ErrorCode.NONE or rights.topic(Operation.DESCRIBE_CONFIGS, result.name, audited=False):
        return result
    return replace(result, num_partitions=-1, replication_factor=-1, configs=(), configs_error=_DENIED_TOPIC)


async def _delete_topics(
    handler: Handler, request: m.DeleteTopicsRequest, rights: Rights, topics: KnownTopics
) -> m.DeleteTopicsResponse:
    """An unknown name is told to those who may describe it; a topic that was named by its id has its name told to them alone."""
    if rights.cluster(Operation.DELETE, audited=False):
        answer: m.DeleteTopicsResponse = await handler(request)
        return answer
    allowed: list[m.TopicSelector] = []
    refused: list[m.DeleteTopicResult] = []
    names, ids = named_once_or_more(request.topics)
    for one in request.topics:
        if one.name is None:
            refused_anyway = one.topic_id is None or ids[one.topic_id] > 1
        else:
            refused_anyway = one.topic_id is not None or names[one.name] > 1
        if refused_anyway:
            allowed.append(one)  # for what it is, whoever asks
            continue
        name = one.name if one.topic_id is None else topics.name_of(one.topic_id)
        if name is None:
            allowed.append(one)  # there is no such id, which is no secret
            continue
        described = rights.topic(Operation.DESCRIBE, name, audited=False)
        if one.topic_id is not None:
            if rights.topic(Operation.DELETE, name):
                allowed.append(one)
            else:
                refused.append(_undeleted(name if described else None, one.topic_id))
        elif described and (not topics.exists(name) or rights.topic(Operation.DELETE, name)):
            allowed.append(one)
        else:
            rights.topic(Operation.DELETE, name)  # for the audit
            refused.append(_undeleted(name, None))
    answer = await handler(replace(request, topics=tuple(allowed)))
    return replace(answer, topics=(*answer.topics, *refused))


def _undeleted(name: str | None, topic_id: UUID | None) -> m.DeleteTopicResult:
    return m.DeleteTopicResult(name=name, topic_id=topic_id, error=_DENIED_TOPIC, message=_DENIED_TEXT)


async def _create_partitions(
    handler: Handler, request: m.CreatePartitionsRequest, rights: Rights, _: KnownTopics
) -> m.CreatePartitionsResponse:
    allowed, refused = rights.divided(Operation.ALTER, ResourceType.TOPIC, request.topics, lambda it: it.name)
    answer: m.CreatePartitionsResponse = await handler(replace(request, topics=tuple(allowed)))
    denied = [m.CreatePartitionsResult(name=one.name, error=_DENIED_TOPIC, message=_DENIED_TEXT) for one in refused]
    return replace(answer, topics=(*answer.topics, *denied))


async def _alter_configs(
    handler: Handler, request: m.AlterConfigsRequest | m.IncrementalAlterConfigsRequest, rights: Rights, _: KnownTopics
) -> m.AlterConfigsResponse:
    """The results are in the order of the request."""
    results: list[m.AlterConfigsResult | None] = []
    kept: list[Any] = []
    for one in request.resources:
        refused = denied_config(rights, Operation.ALTER_CONFIGS, one.resource_type, one.resource_name)
        if refused is None:
            results.append(None)
            kept.append(one)
        else:
            code, text = REFUSALS[refused], REFUSAL_TEXTS[refused]
            kind, name = one.resource_type, one.resource_name
            results.append(m.AlterConfigsResult(resource_type=kind, resource_name=name, error=code, message=text))
    left: Any = tuple(kept)
    answer: m.AlterConfigsResponse = await handler(replace(request, resources=left))
    decided = iter(answer.resources)
    return m.AlterConfigsResponse(resources=tuple(next(decided) if one is None else one for one in results))


_BY_ELEMENT: Final[Mapping[AnyMethod, Callable[..., Awaitable[Any]]]] = {
    methods.CREATE_TOPICS: _create_topics,
    methods.DELETE_TOPICS: _delete_topics,
    methods.CREATE_PARTITIONS: _create_partitions,
    methods.ALTER_CONFIGS: _alter_configs,
    methods.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
}
"""The calls of which each topic, or resource, is decided by itself."""

NODES_ALONE: Final = (
    methods.REGISTER_BROKER,
    methods.BROKER_HEARTBEAT,
    methods.REGISTER_CONTROLLER,
    methods.ALTER_PARTITION,
    methods.ALLOCATE_PRODUCER_IDS,
    methods.ASSIGN_REPLICAS_TO_DIRS,
    methods.CREATE_DELEGATION_TOKEN,
    methods.RENEW_DELEGATION_TOKEN,
    methods.EXPIRE_DELEGATION_TOKEN,
)
"""The calls that only nodes make, for themselves; and those about delegation tokens, which a broker hands on when it has decided
whether its client may (`broker/handlers/tokens`)."""
