"""What Apache Kafka and kraftlite say of eligible leader replicas: who may lead when a node is down, and what is refused."""

from __future__ import annotations

import time
from typing import Any, Final

from tests.clients.compare_sides import Side

MIN_ISR: Final = "min.insync.replicas"
BROKER, TOPIC = 4, 2
SET, DELETE = 0, 1
PATIENCE_S: Final = 60


def eligible_leaders(side: Side) -> Any:
    """Node 2 is the only replica of one partition, and one of two of the other."""
    side.create("alone", [[2]])
    side.create("pair", [[1, 2]], min_insync_replicas="2")
    before = {topic: sets(side, topic) for topic in ("alone", "pair")}
    refused = {
        "broker": alter(side, BROKER, "1", SET, "2"),
        "default deleted": alter(side, BROKER, "", DELETE, None),
        "default": alter(side, BROKER, "", SET, "1"),
    }
    side.stop(2)
    try:
        wait(side, "pair", isr=[1])
        wait(side, "alone", isr=[])
        down = {topic: sets(side, topic) for topic in ("alone", "pair")}
        lowered = alter(side, TOPIC, "pair", SET, "1")
        wait(side, "pair", elr=[])
        cleared = sets(side, "pair")
    finally:
        side.start(2)
    wait(side, "alone", isr=[2])
    wait(side, "pair", isr=[1, 2])
    after = {topic: sets(side, topic) for topic in ("alone", "pair")}
    return {"before": before, "altered": refused, "down": down, "lowered": lowered, "cleared": cleared, "after": after}


def sets(side: Side, topic: str) -> dict[str, Any]:
    answer = side.call(75, 0, {"topics": [{"name": topic}], "response_partition_limit": 10, "cursor": None})
    (found,) = answer["topics"][0]["partitions"]
    return {
        "leader": found["leader_id"],
        "isr": sorted(found["isr_nodes"]),
        "elr": sorted(found["eligible_leader_replicas"] or ()),
        "last known": sorted(found["last_known_elr"] or ()),
    }


def wait(side: Side, topic: str, **wanted: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any((found := sets(side, topic))[name] != value for name, value in wanted.items()):
        assert time.monotonic() < deadline, f"{side.name}: {topic} is {found}, wanted is {wanted}"
        time.sleep(0.1)


def alter(side: Side, kind: int, name: str, operation: int, value: str | None) -> Any:
    config = {"name": MIN_ISR, "config_operation": operation, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
    answer = side.call(44, 1, {"resources": [resource], "validate_only": False})
    if "closed" in answer:
        return answer
    (found,) = answer["responses"]
    return [found["error_code"], found["error_message"]]
