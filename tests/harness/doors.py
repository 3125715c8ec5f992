"""Requests to the doors of a simulated cluster that is closed, the entries that decide about them, and their answers.

`tests/unit/sim/test_checkers_security.py` shows checkers what is wrong about them.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata import records as r
from kraftlite.model.acls import Operation, PatternType, Permission, ResourceType
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.principal import USER, Principal
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import encode_produce
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk
from kraftlite.simhost.network import Exchange
from tests.harness.watched_cluster import WatchedCluster

ALICE = Principal(USER, "alice")
TOPIC = "other"


def produce(token: str = "alice-1", principal: Principal = ALICE, size: int = 0) -> DoorAsk:
    batch = bytes(build_batch([Record(None, token.encode().ljust(size, b"."))], timestamp_ms=1))
    body = b"".join(encode_produce({TopicPartition(TOPIC, 0): batch}, acks=1, timeout_ms=1_000))
    return DoorAsk(
        connection=str(principal),
        principal=principal,
        host="10.0.0.1",
        client_id="c-0",
        kind="produce",
        name=TOPIC,
        token=token,
        api_key=0,
        version=9,
        body=body,
    )


def entry(number: int = 1, permission: Permission = Permission.ALLOW, **fields: Any) -> r.AccessControlEntryRecord:
    about: dict[str, Any] = {
        "id": UUID(int=number),
        "resource_type": ResourceType.TOPIC,
        "resource_name": TOPIC,
        "pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.WRITE,
        "permission_type": permission,
    }
    return r.AccessControlEntryRecord(**{**about, **fields})


def knock(cluster: WatchedCluster, ask: DoorAsk) -> DoorAnswer:
    answer = cluster.do(cluster.client.call(Endpoint("n4", 9092), DOOR, ask, 5_000))
    assert isinstance(answer, DoorAnswer)
    return answer


def authorizer(cluster: WatchedCluster) -> Any:
    node = cluster.node(4).node
    assert node is not None and node.gate is not None
    return node.gate.authorizer


def settled(cluster: WatchedCluster, *records: Any) -> int:
    """Commit records, and let broker 4 have them; returns the offset of its image."""
    cluster.write(*records)
    end = cluster.core(cluster.leader_id()).log_end_offset

    def offset() -> int:
        node = cluster.node(4).node
        assert node is not None
        return node.loader.image.offset

    cluster.until(lambda: offset() >= end - 1)
    return offset()


def served(cluster: WatchedCluster, ask: DoorAsk, **fields: Any) -> None:
    """A checker is told that broker 4 has answered this."""
    offset = settled(cluster)
    about: dict[str, Any] = {"response": b"", "closed": "", "first": offset, "last": offset, "taken_ms": 0, "muted_ms": 0}
    exchange: Any = Exchange(NodeId(1_000), NodeId(4), DOOR, ask, cluster.loop.create_future())
    cluster.checkers[0].on_served(exchange, DoorAnswer(**{**about, **fields}))
