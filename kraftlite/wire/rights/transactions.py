"""APIs of producers and transactions. Source: SE-40; KIP-98, KIP-679, KIP-890."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from kraftlite.model.acls import REFUSALS, Operation, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Adapter, Call
from kraftlite.wire.apis.transaction_admin import undescribed
from kraftlite.wire.rights.groups import CODE as GROUP_CODE
from kraftlite.wire.rights.groups import all_uncommitted, committed_topics
from kraftlite.wire.rights.shares import can, shares
from kraftlite.wire.rights.topics import CODE as TOPIC_CODE

CODE: Final = REFUSALS[ResourceType.TRANSACTIONAL_ID]
CLUSTER_CODE: Final = REFUSALS[ResourceType.CLUSTER]
BATCHED_FROM: Final = 4
"""AddPartitionsToTxn comes from brokers from this version on."""


async def init_producer_id(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """An idempotent producer needs IDEMPOTENT_WRITE on the cluster, or WRITE on some topic, whichever (KIP-679)."""
    code = ErrorCode.NONE
    if request.transactional_id is not None:
        if not rights.transaction(Operation.WRITE, request.transactional_id):
            code = CODE
    elif not rights.some_topic(Operation.WRITE) and not rights.cluster(Operation.IDEMPOTENT_WRITE):
        code = CLUSTER_CODE
    if code is ErrorCode.NONE:
        return await adapt(call, request)
    return {"throttle_time": 0, "error_code": code, "producer_id": -1, "producer_epoch": -1}


async def add_partitions(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """All partitions of a client's request are added or none: one that may not be used keeps the others out."""
    if call.version >= BATCHED_FROM:
        if rights.cluster(Operation.CLUSTER_ACTION):
            return await adapt(call, request)
        return {"throttle_time": 0, "error_code": CLUSTER_CODE, "results_by_transaction": []}
    topics = request.v3_and_below_topics
    if not rights.transaction(Operation.WRITE, request.v3_and_below_transactional_id):
        return await _not_added(call, topics, lambda _: CODE)
    denied = {topic.name async for topic in call.ctx.turns.each(topics) if not rights.topic(Operation.WRITE, topic.name)}
    if not denied:
        return await adapt(call, request)
    return await _not_added(call, topics, lambda name: TOPIC_CODE if name in denied else ErrorCode.OPERATION_NOT_ATTEMPTED)


async def _not_added(call: Call, topics: Sequence[Any], code_of: Callable[[str], ErrorCode]) -> Mapping[str, object]:
    results = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code_of(topic.name)} for index in topic.partitions
            ],
        }
        async for topic in call.ctx.turns.each(topics)
    ]
    return {"throttle_time": 0, "results_by_topic_v3_and_below": results}


async def add_offsets(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    if not rights.transaction(Operation.WRITE, request.transactional_id):
        return {"throttle_time": 0, "error_code": CODE}
    if not rights.group(Operation.READ, request.group_id):
        return {"throttle_time": 0, "error_code": GROUP_CODE}
    return await adapt(call, request)


async def end_txn(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    if rights.transaction(Operation.WRITE, request.transactional_id):
        return await adapt(call, request)
    return {"throttle_time": 0, "error_code": CODE, "producer_id": -1, "producer_epoch": -1}


async def txn_offset_commit(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    code = ErrorCode.NONE
    if not rights.transaction(Operation.WRITE, request.transactional_id):
        code = CODE
    elif not rights.group(Operation.READ, request.group_id):
        code = GROUP_CODE
    if code is ErrorCode.NONE:
        return await committed_topics(call, rights, request, adapt)
    return {"throttle_time": 0, "topics": await all_uncommitted(call, request.topics, code)}


async def describe_transactions(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """A topic that the client may not describe is left out of the transaction that is in it."""
    may = can(rights, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    allowed, refusals = await shares(call, dict.fromkeys(request.transactional_ids), may, lambda it: undescribed(it, CODE))
    values = await adapt(call, type(request)(transactional_ids=tuple(allowed)))
    states = cast(list[dict[str, Any]], values["transaction_states"])
    async for state in call.ctx.turns.each(states):
        topics = state["topics"]
        state["topics"] = [it for it in topics if rights.topic(Operation.DESCRIBE, it["topic"], audited=False)]
    return {**values, "transaction_states": [*states, *refusals]}


async def list_transactions(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    values = await adapt(call, request)
    states = cast(list[dict[str, str]], values["transaction_states"])
    each = call.ctx.turns.each(states)
    seen = [one async for one in each if rights.transaction(Operation.DESCRIBE, one["transactional_id"], audited=False)]
    return {**values, "transaction_states": seen}
