"""Requests of administrators beyond those that every seed makes: more changes, every description, and fetches by topic id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final
from uuid import UUID

from kraftlite.broker.handlers import (
    admin,
    config_resources,
    configs,
    log_dirs,
    metadata,
    producers,
    quorum,
    quotas,
    reassignments,
    scram,
)
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.fetch import CONSUMER, FetchCall, answer, plan
from kraftlite.broker.handlers.fetch_sessions import FINAL_EPOCH, NO_SESSION, SessionKey, SessionPartition
from kraftlite.broker.handlers.produce import ProduceCall, ProduceItem, produce
from kraftlite.model.messages.requester import RequesterInfo
from kraftlite.model.method import Method
from kraftlite.model.principal import ANONYMOUS, Requester
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.replication.api import FetchResult, ProduceResult
from kraftlite.runtime.ports import Handlers, route

LISTENER: Final = "PLAINTEXT"

CHANGES: Final[Mapping[str, Callable[[BrokerContext, Any], Any]]] = {
    "create_topics": admin.create_topics,
    "delete_topics": admin.delete_topics,
    "create_partitions": admin.create_partitions,
    "alter_configs": admin.alter_configs,
    "elect_leaders": admin.elect_leaders,
    "update_features": admin.update_features,
    "unregister_broker": admin.unregister_broker,
    "alter_reassignments": reassignments.alter_reassignments,
    "list_reassignments": reassignments.list_reassignments,
    "alter_quotas": quotas.alter_quotas,
    "alter_scram": scram.alter_scram,
}
"""The requests that the active controller answers, with their handlers at a broker."""


@dataclass(frozen=True, slots=True)
class ChangeAsk:
    """`kind` is a key of `CHANGES`, `request` the domain type of its handler."""

    kind: str
    request: Any


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    response: Any


@dataclass(frozen=True, slots=True)
class DescribeAsk:
    """`kind` is a key of `DESCRIPTIONS`."""

    kind: str
    request: Any = None


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """`offset`: that of the metadata image from which the broker answered."""

    offset: int
    found: Any


@dataclass(frozen=True, slots=True)
class TenantAsk:
    """Produce of `batch`, or without one a fetch at `offset`; by `topic_id`, or without one by the topic's name."""

    tp: TopicPartition
    topic_id: UUID | None
    batch: bytes | None = None
    offset: int = 0


TENANT_TIMEOUT_MS: Final = 1_500
CHANGE: Final = Method("Client", "AdminChange", ChangeAsk, ChangeAnswer)
DESCRIBE: Final = Method("Client", "AdminDescribe", DescribeAsk, DescribeAnswer)
TENANT_PRODUCE: Final = Method("Client", "TenantProduce", TenantAsk, ProduceResult)
TENANT_FETCH: Final = Method("Client", "TenantFetch", TenantAsk, FetchResult)


def _configs(ctx: BrokerContext, query: configs.ConfigQuery) -> configs.ConfigDescription:
    return configs.describe_configs(ctx, query, synonyms=True, documentation=False)


def _cluster(ctx: BrokerContext, include_fenced: bool) -> metadata.ClusterDescription:
    return metadata.describe_cluster(ctx, LISTENER, endpoint_type=metadata.BROKERS, include_fenced=include_fenced)


def _topics(ctx: BrokerContext, names: tuple[str, ...]) -> list[Any]:
    """Every page of DescribeTopicPartitions, two partitions a page."""
    found: list[Any] = []
    cursor = None
    while True:
        page = metadata.describe_topic_partitions(ctx, LISTENER, names, limit=2, cursor=cursor)
        found += page.topics
        cursor = page.next_cursor
        if cursor is None:
            return found


def _features(ctx: BrokerContext, _nothing: None) -> dict[str, int]:
    """The finalized features, as ApiVersions shows them (CM-54)."""
    return dict(ctx.metadata.image.features.finalized)


def _metadata(ctx: BrokerContext, oldest: bool) -> list[Any]:
    """Every topic as a Metadata request shows it; `oldest`: of version 0, which says of replicas that are down that they are."""
    cache = ctx.metadata
    return [
        cache.topic_metadata(topic, LISTENER, listener_errors=not oldest, filter_unavailable=oldest)
        for topic in cache.image.topics
    ]


CREATOR: Final = RequesterInfo.of(Requester(ANONYMOUS, "127.0.0.1", None))
DESCRIPTIONS: Final[Mapping[str, Callable[[BrokerContext, Any], Any]]] = {
    "configs": _configs,
    "cluster": _cluster,
    "topics": _topics,
    "features": _features,
    "metadata": _metadata,
    "resources": lambda ctx, types: config_resources.list_config_resources(ctx, LISTENER, types),
    "lookup": lambda ctx, queries: metadata.find_topics(ctx, queries, creator=CREATOR),
    "quotas": lambda ctx, filters: quotas.describe_quotas(ctx, filters, strict=False),
    "strict quotas": lambda ctx, filters: quotas.describe_quotas(ctx, filters, strict=True),
    "scram": lambda ctx, users: list(scram.describe_scram(ctx, users)),
    "log dirs": log_dirs.describe_log_dirs,
    "producers": producers.describe_producers,
}
"""The requests that a broker answers from what it knows."""


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx = node.broker.context

    async def change(ask: ChangeAsk) -> ChangeAnswer:
        return ChangeAnswer(await CHANGES[ask.kind](ctx, ask.request))

    async def describe(ask: DescribeAsk) -> DescribeAnswer:
        if ask.kind == "quorum":
            return DescribeAnswer(-1, await quorum.describe_quorum(ctx))
        offset, found = ctx.metadata.image.offset, DESCRIPTIONS[ask.kind](ctx, ask.request)
        return DescribeAnswer(offset, await found if isawaitable(found) else found)

    async def tenant_produce(ask: TenantAsk) -> ProduceResult:
        done: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()
        assert ask.batch is not None
        name = ask.tp.topic if ask.topic_id is None else None
        item = ProduceItem(name, ask.topic_id, ask.tp.partition, memoryview(bytearray(ask.batch)))
        call = ProduceCall(
            acks=-1, timeout_ms=TENANT_TIMEOUT_MS, transactional_id=None, client_id=None, zstd_allowed=True, items=[item]
        )
        produce(ctx, call, lambda results: None if done.done() else done.set_result(results[0]))
        return await done

    async def tenant_fetch(ask: TenantAsk) -> FetchResult:
        key = SessionKey(ask.tp.topic if ask.topic_id is None else None, ask.topic_id, ask.tp.partition)
        call = FetchCall(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            read_committed=False,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            uses_topic_ids=ask.topic_id is not None,
            partitions=[SessionPartition(key, -1, ask.offset, -1, 1 << 20)],
            forgotten=[],
            rack_id=None,
        )
        found = plan(ctx, call)
        ((_, result),) = answer(ctx, found, ctx.replicas.fetch_now(found.params, found.entries)).items
        result.records = bytes(result.records)
        return result

    return dict(
        (
            route(CHANGE, change),
            route(DESCRIBE, describe),
            route(TENANT_PRODUCE, tenant_produce),
            route(TENANT_FETCH, tenant_fetch),
        )
    )
