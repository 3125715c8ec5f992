"""Requests to the controller that give it no time, less than none, or more than a clock can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.clients.compare_sides import Side

TIMES_MS: Final = (0, -1, -(2**31), 2**31 - 1)


def hurried(side: Side) -> Any:
    """The answer to each kind of request by its `timeout`, and what has become of what it asked for."""
    side.create("hurry", [[1, 2], [2, 3]])

    def create(timeout_ms: int) -> Any:
        topic = {"name": "hurried", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        body = {"topics": (topic,), "timeout": timeout_ms, "validate_only": True}
        return [it["error_code"] for it in side.call(19, 7, body)["topics"]]

    def grow(timeout_ms: int) -> Any:
        topic = {"name": "hurry", "count": 3, "assignments": None}
        body = {"topics": (topic,), "timeout": timeout_ms, "validate_only": True}
        return [it["error_code"] for it in side.call(37, 3, body)["results"]]

    def delete(timeout_ms: int) -> Any:
        body = {"topics": ({"name": "nope", "topic_id": None},), "timeout": timeout_ms}
        return [it["error_code"] for it in side.call(20, 6, body)["responses"]]

    def elect(*chosen: int) -> Callable[[int], Any]:
        def ask(timeout_ms: int) -> Any:
            topics = ({"topic": "hurry", "partitions": chosen},) if chosen else ()
            answer = side.call(43, 2, {"election_type": 0, "topic_partitions": topics, "timeout": timeout_ms})
            found = [it["error_code"] for one in answer["replica_election_results"] for it in one["partition_result"]]
            return [answer["error_code"], sorted(found)]

        return ask

    def reassign(timeout_ms: int) -> Any:
        topic = {"name": "hurry", "partitions": ({"partition_index": 0, "replicas": None},)}
        answer = side.call(45, 0, {"topics": (topic,), "timeout": timeout_ms})
        return [answer["error_code"], [it["error_code"] for one in answer["responses"] for it in one["partitions"]]]

    def reassignments(timeout_ms: int) -> Any:
        topic = {"name": "hurry", "partition_indexes": (0,)}
        answer = side.call(46, 0, {"topics": (topic,), "timeout": timeout_ms})
        return [answer["error_code"], len(answer["topics"])]

    def feature(timeout_ms: int) -> Any:
        update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}
        answer = side.call(57, 1, {"timeout": timeout_ms, "feature_updates": (update,), "validate_only": True})
        return answer["error_code"]

    asked: Mapping[str, Callable[[int], Any]] = {
        "create": create,
        "grow": grow,
        "delete": delete,
        "elect": elect(0, 1),
        "elect unknown": elect(7),
        "elect none": elect(),
        "reassign": reassign,
        "reassignments": reassignments,
        "feature": feature,
    }
    return {name: {str(ms): ask(ms) for ms in TIMES_MS} for name, ask in asked.items()}


STORIES: Final = {"patience": hurried}
