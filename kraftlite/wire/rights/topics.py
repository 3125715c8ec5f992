"""APIs that are decided topic by topic. A topic that may not be used has its own answer, and never says whether it exists.

Source: SE-36, SE-40.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraftlite.broker.handlers.context import NodeContext
from kraftlite.model.acls import REFUSAL_TEXTS, REFUSALS, Operation, ResourceType
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Adapter, Call, Guard, changed
from kraftlite.wire.rights.shares import shares

CODE: Final = REFUSALS[ResourceType.TOPIC]
TEXT: Final = REFUSAL_TEXTS[ResourceType.TOPIC]
NOWHERE: Final = -1


def name_of(ctx: NodeContext, topic: Any) -> str:
    """The name of a topic in a request, also where an id says it; "" for an id that there is not, which is nobody's secret."""
    name = getattr(topic, "name", None)
    if name is not None:
        return str(name)
    found = ctx.metadata.image.topics.topic_by_id(topic.topic_id) if topic.topic_id is not None else None
    return "" if found is None else found.name


def may_use(ctx: NodeContext, rights: Rights, operation: Operation, topic: Any) -> bool:
    """Return whether a topic of a request may be used. An id that there is not is not refused here: that it is unknown is what
    the client is told."""
    name = name_of(ctx, topic)
    return (not name and getattr(topic, "name", None) is None) or rights.topic(operation, name)


def by_topic(
    operation: Operation, name: Callable[[Any], str], refused: Callable[[Any], Mapping[str, object]], answers: str = "topics"
) -> Guard:
    """For a request with a list `topics`, and an answer with a list `answers`, to which what `refused` makes is added."""

    async def guard(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
        allowed, refusals = await shares(call, request.topics, lambda it: rights.topic(operation, name(it)), refused)
        if not refusals:
            return await adapt(call, request)
        values = await adapt(call, changed(request, topics=tuple(allowed)))
        return {**values, answers: [*_list(values[answers]), *refusals]}

    return guard


def _list(values: object) -> Sequence[object]:
    assert isinstance(values, list | tuple)
    return values


def epochs(topic: Any) -> Mapping[str, object]:
    partitions = [
        {"error_code": CODE, "partition": one.partition, "leader_epoch": NOWHERE, "end_offset": NOWHERE}
        for one in topic.partitions
    ]
    return {"topic": topic.topic, "partitions": partitions}


_of_clients: Final = by_topic(Operation.DESCRIBE, lambda it: str(it.topic), epochs)


async def offsets_for_epochs(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    """Followers ask, too: who may act on the cluster as a node may ask about all topics."""
    if rights.cluster(Operation.CLUSTER_ACTION, audited=False):
        return await adapt(call, request)
    return await _of_clients(call, rights, request, adapt)


def producers(topic: Any) -> Mapping[str, object]:
    partitions = [
        {"partition_index": index, "error_code": CODE, "error_message": TEXT, "active_producers": []}
        for index in dict.fromkeys(topic.partition_indexes)
    ]
    return {"name": topic.name, "partitions": partitions}


def deleted_records(topic: Any) -> Mapping[str, object]:
    partitions = [
        {"partition_index": one.partition_index, "low_watermark": NOWHERE, "error_code": CODE} for one in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}
