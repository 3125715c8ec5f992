"""APIs that one operation on the cluster allows or refuses as a whole. Source: SE-40."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlite.model.acls import REFUSAL_TEXTS, REFUSALS, Operation, ResourceType
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Adapter, Call, Guard

CODE: Final = REFUSALS[ResourceType.CLUSTER]
TEXT: Final = REFUSAL_TEXTS[ResourceType.CLUSTER]


def on_cluster(*operations: Operation, refused: Callable[[Any], Mapping[str, object]]) -> Guard:
    """Any of the operations allows it. `refused` makes the answer of a request that is not allowed."""
    first, *others = operations

    async def guard(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
        if rights.cluster(first) or any(rights.cluster(one, audited=False) for one in others):
            return await adapt(call, request)
        return {"throttle_time": 0, **refused(request)}

    return guard


def of_nothing(named: str, answers: str) -> Guard:
    """A request whose list `named` is empty is answered without the controller (CE-31), but not to those who may not ask: they
    get an empty list `answers`, as in Kafka. The controller decides about all others."""

    async def guard(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
        asked = getattr(request, named)
        if asked is None or asked or rights.cluster(Operation.ALTER):
            return await adapt(call, request)
        told = {"throttle_time": 0, "error_code": CODE, "error_message": TEXT, answers: []}
        return {**told, "allow_replication_factor_change": True}  # which only AlterPartitionReassignments has

    return guard


def empty(name: str, entries: object = ()) -> Callable[[Any], Mapping[str, object]]:
    """An answer with a code, a text and an empty list of this name."""
    return lambda _request: {"error_code": CODE, "error_message": TEXT, name: entries}


def plain(_request: Any) -> Mapping[str, object]:
    return {"error_code": CODE, "error_message": TEXT}


def quorum(_request: Any) -> Mapping[str, object]:
    return {"error_code": CODE, "error_message": TEXT, "topics": [], "nodes": []}


def updated_voter(_request: Any) -> Mapping[str, object]:
    return {"error_code": CODE, "current_leader": {"leader_id": -1, "leader_epoch": -1, "host": "", "port": 0}}


def credentials(request: Any) -> Mapping[str, object]:
    """One entry for each user that was asked for, without the name, as in Kafka."""
    one = {"user": "", "error_code": CODE, "error_message": TEXT, "credential_infos": []}
    return {"error_code": CODE, "error_message": TEXT, "results": [one] * len(request.users or ())}


def markers(request: Any) -> Mapping[str, object]:
    """Every partition of every producer."""
    found: dict[int, dict[str, dict[int, object]]] = {}
    for one in request.markers:
        for topic in one.topics:
            told = found.setdefault(int(one.producer_id), {}).setdefault(topic.name, {})
            told.update((index, {"partition_index": index, "error_code": CODE}) for index in topic.partition_indexes)
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [{"name": name, "partitions": list(indexes.values())} for name, indexes in topics.items()],
            }
            for producer_id, topics in found.items()
        ]
    }


def moved_replicas(request: Any) -> Mapping[str, object]:
    """Every partition that was to move."""
    topics: dict[str, list[object]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            told = ({"partition_index": index, "error_code": CODE} for index in topic.partitions)
            topics.setdefault(topic.name, []).extend(told)
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]}


def controllers(_request: Any) -> Mapping[str, object]:
    return {
        "error_code": CODE,
        "error_message": TEXT,
        "endpoint_type": 1,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": -(2**31),
    }
