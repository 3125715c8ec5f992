"""The checkers of clients that push metrics, and of those that come to controllers, fail when they must."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.telemetry import Push
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingReassignment,
)
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.callers import PushesInOrder, ToldByControllers
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.policies import admits, with_policies
from kraftlite.sim.services.at_controller import CONTROLLERS_HERE, ControllersAsk, ControllersTold
from kraftlite.sim.services.telemetry import MAX_BYTES, PUSH, UNREADABLE, PushAsk, PushTold, SubscribeTold
from kraftlite.sim.shape import draw
from kraftlite.sim.workloads.callers import NOBODY, UNKNOWN_KIND, change
from tests.harness.watched_cluster import WatchedCluster

CLIENT = UUID(int=77)
BROKER = NodeId(4)


class Edge:
    """A cluster that is up, and what its nodes are said to have answered."""

    def __init__(self) -> None:
        self.cluster = WatchedCluster(MetadataWatch, PushesInOrder, ToldByControllers).start()
        self._pushes = self._find(PushesInOrder)
        self._told = self._find(ToldByControllers)

    def _find(self, kind: type[Any]) -> Any:
        return next(it for it in self.cluster.checkers if isinstance(it, kind))

    def subscribed(self, interval_ms: int = 300) -> None:
        told = SubscribeTold(ErrorCode.NONE, CLIENT, 5, interval_ms)
        self._pushes.on_served(SimpleNamespace(target=BROKER, request=None), told)

    def push(self, error: ErrorCode = ErrorCode.NONE, *, took_ms: int = 0, **fields: Any) -> None:
        values = {"instance_id": CLIENT, "subscription_id": 5, "terminating": False, "codec": 0, "payload": b"metrics"}
        exchange = SimpleNamespace(target=BROKER, method=PUSH, request=PushAsk(Push(**values | fields), "c"))
        self._pushes.on_arrival(exchange)
        self.cluster.go(took_ms)
        self._pushes.on_served(exchange, PushTold(error))

    def told(self, request: object, response: object) -> None:
        self._told.on_served(SimpleNamespace(target=NodeId(1), request=request), response)


@pytest.fixture
def edge() -> Any:
    made = Edge()
    yield made
    made.cluster.close()


def test_pushes_that_come_as_they_may_are_none(edge: Edge) -> None:
    edge.subscribed()
    edge.push()
    edge.push(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    edge.push(terminating=True)
    edge.cluster.go(300)
    edge.push(took_ms=100)
    edge.push(ErrorCode.INVALID_RECORD, payload=UNREADABLE)
    edge.push(ErrorCode.TELEMETRY_TOO_LARGE, payload=bytes(MAX_BYTES + 1))
    edge.subscribed()
    edge.push()


@pytest.mark.parametrize(
    ("error", "fields", "words"),
    [
        (ErrorCode.NONE, {"instance_id": NOBODY}, "it is not sound"),
        (ErrorCode.NONE, {"codec": 9}, "it is not sound"),
        (ErrorCode.NONE, {"payload": UNREADABLE}, "it is not sound"),
        (ErrorCode.NONE, {"payload": bytes(MAX_BYTES + 1)}, "it is not sound"),
        (ErrorCode.NONE, {"subscription_id": 6}, "nobody has told its client"),
        (ErrorCode.INVALID_RECORD, {}, "it can be read"),
        (ErrorCode.TELEMETRY_TOO_LARGE, {}, "100 bytes are allowed"),
    ],
)
def test_a_push_that_is_taken_or_refused_wrongly(edge: Edge, error: ErrorCode, fields: dict[str, Any], words: str) -> None:
    edge.subscribed()
    with pytest.raises(Violation, match=words):
        edge.push(error, **fields)


def test_a_push_before_the_interval_is_over(edge: Edge) -> None:
    edge.subscribed()
    edge.push()
    edge.cluster.go(298)
    with pytest.raises(Violation, match="298 ms behind the last one; the interval is 300"):
        edge.push()


def _asked(*changes: Any) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=changes, validate_only=True, timeout_ms=1)


def _answered(kind: int, name: str, error: ErrorCode = ErrorCode.NONE) -> AlterConfigsResult:
    return AlterConfigsResult(resource_type=kind, resource_name=name, error=error, message=None)


TOPIC = int(ConfigResourceType.TOPIC)
T1 = change(TOPIC, "t1", "retention.ms", "1")
NOTHING = change(UNKNOWN_KIND, "x", "retention.ms", "1")
T1_MOVES = ListPartitionReassignmentsResponse(
    reassignments=(OngoingReassignment(topic="t1", partition=0, replicas=(4, 5), adding=(), removing=()),)
)


@pytest.mark.parametrize(
    ("request_", "response", "words"),
    [
        (ControllersAsk("CONTROLLER"), ControllersTold(None, (NodeId(9),)), "of which .9. are not registered"),
        (ControllersAsk("CONTROLLER"), ControllersTold(None, (NodeId(1), NodeId(1))), r"tells of the controllers \(1, 1\)"),
        (ControllersAsk("PLAINTEXT"), ControllersTold(None, (NodeId(1),)), "at the listener PLAINTEXT"),
        (ListPartitionReassignmentsRequest(partitions=None, timeout_ms=1), T1_MOVES, "a move that is none"),
        (_asked(T1), AlterConfigsResponse(resources=()), "was asked about"),
        (_asked(NOTHING), AlterConfigsResponse(resources=(_answered(UNKNOWN_KIND, "x"),)), "for a resource of no kind"),
        (_asked(T1, T1), AlterConfigsResponse(resources=(_answered(TOPIC, "t1"),)), "t1, which is named 2 times"),
    ],
)
def test_a_controller_that_tells_what_is_not_so(edge: Edge, request_: object, response: object, words: str) -> None:
    with pytest.raises(Violation, match=words):
        edge.told(request_, response)


def test_a_controller_that_tells_what_is_so(edge: Edge) -> None:
    assert CONTROLLERS_HERE.request is ControllersAsk
    edge.told(ControllersAsk("CONTROLLER"), ControllersTold(NodeId(2), (NodeId(1), NodeId(2), NodeId(3))))
    refused = _answered(TOPIC, "t1", ErrorCode.INVALID_REQUEST)
    edge.told(_asked(T1, T1), AlterConfigsResponse(resources=(refused, refused)))


def test_some_seeds_have_policies_and_others_the_same_shape_without() -> None:
    shapes = [with_policies(draw(random.Random(seed)), seed) for seed in range(16)]
    with_one = [it for it in shapes if "create.topic.policy.class.name" in it.config]
    assert 0 < len(with_one) < len(shapes)
    assert admits(SimpleNamespace()) is None  # type: ignore[arg-type, func-returns-value]
