"""APIs of consumer groups: a group as a whole, then the topics of its offsets. Source: SE-36, SE-37, SE-40."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from kraftlite.model.acls import CLUSTER_NAME, REFUSAL_TEXTS, REFUSALS, Operation, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NO_NODE, ZERO_UUID
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Adapter, Call, Guard, changed
from kraftlite.wire.rights.shares import all_may, can, shares
from kraftlite.wire.rights.topics import CODE as TOPIC_CODE
from kraftlite.wire.rights.topics import may_use

CODE: Final = REFUSALS[ResourceType.GROUP]
TEXT: Final = REFUSAL_TEXTS[ResourceType.GROUP]
COORDINATED: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID, 2: ResourceType.CLUSTER}
"""The resources that the key types of FindCoordinator stand for; a share group's state is for brokers alone."""
UNSEEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def read_group(refused: Callable[[Any], Mapping[str, object]]) -> Guard:
    """The request is about one group. `refused` gives the rest of the answer."""

    async def guard(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
        if rights.group(Operation.READ, request.group_id):
            return await adapt(call, request)
        return {"throttle_time": 0, "error_code": CODE, **refused(request)}

    return guard


def nothing(_request: Any) -> Mapping[str, object]:
    return {}


def no_members(_request: Any) -> Mapping[str, object]:
    return {"members": []}


def not_joined(request: Any) -> Mapping[str, object]:
    # From version 7 on there is a protocol type, and the name of the protocol may be null.
    name = None if type(request).__version__ >= 7 else ""
    return {
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": name,
        "leader": "",
        "skip_assignment": False,
        "member_id": request.member_id,
        "members": [],
    }


def not_synced(_request: Any) -> Mapping[str, object]:
    return {"protocol_type": None, "protocol_name": None, "assignment": b""}


async def find_coordinator(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    kind = COORDINATED.get(getattr(request, "key_type", 0), ResourceType.GROUP)

    def may(key: str) -> bool:
        if kind is ResourceType.CLUSTER:
            return rights.cluster(Operation.CLUSTER_ACTION)
        return rights.may(Operation.DESCRIBE, kind, key)

    def refused(key: str) -> dict[str, object]:
        told = {"error_code": REFUSALS[kind], "error_message": REFUSAL_TEXTS[kind]}
        return {"key": key, "node_id": NO_NODE, "host": "", "port": -1, **told}

    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        return await adapt(call, request) if may(request.key) else {"throttle_time": 0, **refused(request.key)}
    allowed, refusals = await shares(call, keys, may, refused)
    if not refusals:
        return await adapt(call, request)
    values = await adapt(call, changed(request, coordinator_keys=tuple(allowed)))
    return {**values, "coordinators": [*cast(list[object], values["coordinators"]), *refusals]}


async def consumer_heartbeat(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    names: Sequence[str] = request.subscribed_topic_names or ()
    code = ErrorCode.NONE
    if not rights.group(Operation.READ, request.group_id):
        code = CODE
    elif not await all_may(call, names, can(rights, Operation.DESCRIBE, ResourceType.TOPIC)):
        code = TOPIC_CODE
    if code is ErrorCode.NONE:
        return await adapt(call, request)
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": None,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


# --- what there is -------------------------------------------------------------------------------------------------------


async def describe_groups(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    may = can(rights, Operation.DESCRIBE, ResourceType.GROUP)
    allowed, refusals = await shares(call, request.groups, may, _undescribed)
    values = await adapt(call, changed(request, groups=tuple(allowed)))
    return {**values, "groups": [*await _as_allowed(call, rights, values["groups"]), *refusals]}


def _undescribed(group_id: str) -> dict[str, object]:
    return {
        "error_code": CODE,
        "error_message": TEXT,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


async def describe_consumer_groups(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """A group that shows a topic which the client may not describe is not shown at all."""
    may = can(rights, Operation.DESCRIBE, ResourceType.GROUP)
    allowed, refusals = await shares(call, request.group_ids, may, lambda it: _no_consumers(it, CODE, TEXT))
    values = await adapt(call, changed(request, group_ids=tuple(allowed)))
    shown = []
    async for group in call.ctx.turns.each(await _as_allowed(call, rights, values["groups"])):
        seen = all(rights.topic(Operation.DESCRIBE, name, audited=False) for name in _topics_shown(group))
        shown.append(group if seen else _no_consumers(str(group["group_id"]), TOPIC_CODE, UNSEEN_TOPICS))
    return {**values, "groups": [*shown, *refusals]}


def _topics_shown(group: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for member in group["members"]:
        found.update(member["subscribed_topic_names"] or ())
        for place in ("assignment", "target_assignment"):
            found.update(topic["topic_name"] for topic in member[place]["topic_partitions"])
    return found


def _no_consumers(group_id: str, code: ErrorCode, message: str) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


async def _as_allowed(call: Call, rights: Rights, groups: object) -> list[dict[str, object]]:
    """Descriptions that tell the operations which this client has, where it asked for them."""
    found = cast(list[dict[str, object]], groups)
    async for group in call.ctx.turns.each(found):
        if "authorized_operations" in group:
            group["authorized_operations"] = rights.operations(ResourceType.GROUP, str(group["group_id"]))
    return found


async def list_groups(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """Those who may describe the cluster see all groups, others those that they may describe."""
    values = await adapt(call, request)
    if rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False):
        return values
    groups = cast(list[dict[str, str]], values["groups"])
    seen = [one async for one in call.ctx.turns.each(groups) if rights.group(Operation.DESCRIBE, one["group_id"], audited=False)]
    return {**values, "groups": seen}


async def delete_groups(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    names, may = dict.fromkeys(request.groups_names), can(rights, Operation.DELETE, ResourceType.GROUP)
    allowed, refusals = await shares(call, names, may, lambda it: {"group_id": it, "error_code": CODE})
    values = await adapt(call, changed(request, groups_names=tuple(allowed)))
    return {**values, "results": [*cast(list[object], values["results"]), *refusals]}


# --- offsets -------------------------------------------------------------------------------------------------------------


def _named(topic: Any) -> dict[str, object]:
    return {"name": topic.name} if getattr(topic, "name", None) is not None else {"topic_id": topic.topic_id or ZERO_UUID}


def uncommitted(topic: Any, code: ErrorCode) -> dict[str, object]:
    return {
        **_named(topic),
        "partitions": [{"partition_index": it.partition_index, "error_code": code} for it in topic.partitions],
    }


async def all_uncommitted(call: Call, topics: Sequence[Any], code: ErrorCode) -> list[dict[str, object]]:
    return [uncommitted(topic, code) async for topic in call.ctx.turns.each(topics)]


async def offset_commit(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    if not rights.group(Operation.READ, request.group_id):
        return {"throttle_time": 0, "topics": await all_uncommitted(call, request.topics, CODE)}
    return await committed_topics(call, rights, request, adapt)


async def committed_topics(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """Commit the offsets of the topics that may be read."""
    allowed, refusals = await shares(
        call,
        request.topics,
        lambda it: may_use(call.ctx, rights, Operation.READ, it),
        lambda it: uncommitted(it, TOPIC_CODE),
    )
    if not refusals:
        return await adapt(call, request)
    values = await adapt(call, changed(request, topics=tuple(allowed)))
    return {**values, "topics": [*cast(list[object], values["topics"]), *refusals]}


async def offset_delete(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    if not rights.group(Operation.DELETE, request.group_id):
        return {"error_code": CODE, "throttle_time": 0, "topics": []}
    allowed, refusals = await shares(
        call,
        request.topics,
        lambda it: rights.topic(Operation.READ, str(it.name)),
        lambda it: uncommitted(it, TOPIC_CODE),
    )
    values = await adapt(call, changed(request, topics=tuple(allowed)))
    if values["error_code"] is not ErrorCode.NONE:
        return values
    return {**values, "topics": [*cast(list[object], values["topics"]), *refusals]}


async def offset_fetch(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    groups = getattr(request, "groups", None)
    if groups is None:
        if not rights.group(Operation.DESCRIBE, request.group_id):
            # Version 1 has no place for an error but in the partitions.
            topics = request.topics or () if call.version < 2 else ()
            refused = [_unfetched(topic, CODE) async for topic in call.ctx.turns.each(topics)]
            return {"throttle_time": 0, "error_code": CODE, "topics": refused}
        kept, refusals = await _fetchable(call, rights, request.topics)
        values = await adapt(call, changed(request, topics=kept))
        return {**values, "topics": await _fetched(call, rights, values["topics"], kept, refusals)}
    allowed, refused_groups = await shares(
        call,
        groups,
        lambda it: rights.group(Operation.DESCRIBE, it.group_id),
        lambda it: {"group_id": it.group_id, "error_code": CODE, "topics": []},
    )
    parts = [await _fetchable(call, rights, cast(Any, group).topics) for group in allowed]
    asked = [
        changed(group, topics=kept) async for group, (kept, _refusals) in call.ctx.turns.each(zip(allowed, parts, strict=True))
    ]
    values = await adapt(call, changed(request, groups=tuple(asked)))
    found = cast(list[dict[str, object]], values["groups"])
    seen = [
        {**group, "topics": await _fetched(call, rights, group["topics"], *part)}
        async for group, part in call.ctx.turns.each(zip(found, parts, strict=True))
    ]
    return {**values, "groups": [*seen, *refused_groups]}


async def _fetchable(call: Call, rights: Rights, topics: Any) -> tuple[Any, list[object]]:
    """The topics to ask for, None for all of them, and what is answered for those that may not be described."""
    await call.ctx.turns.next()
    if topics is None:
        return None, []
    allowed, refusals = await shares(
        call,
        topics,
        lambda it: may_use(call.ctx, rights, Operation.DESCRIBE, it),
        lambda it: _unfetched(it, TOPIC_CODE),
    )
    return tuple(allowed), refusals


async def _fetched(call: Call, rights: Rights, topics: object, asked: Any, refusals: Sequence[object]) -> list[object]:
    found = cast(list[dict[str, Any]], topics)
    if asked is not None:
        return [*found, *refusals]
    each = call.ctx.turns.each(found)
    return [topic async for topic in each if rights.topic(Operation.DESCRIBE, _name(call, topic), audited=False)]


def _name(call: Call, topic: Mapping[str, Any]) -> str:
    name = topic.get("name")
    found = None if name is not None else call.ctx.metadata.image.topics.topic_by_id(topic["topic_id"])
    return str(name) if name is not None else "" if found is None else found.name


def _unfetched(topic: Any, code: ErrorCode) -> dict[str, object]:
    return {
        **_named(topic),
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": code,
            }
            for index in topic.partition_indexes
        ],
    }
