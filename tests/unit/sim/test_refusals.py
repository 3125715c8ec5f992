"""Each error that a simulated client may get has its conditions: none is deserved without them, and none is held against a broker
that has its reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import ProduceResult
from kraftlite.runtime.trace.broker import LogDirFailed
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i38_refusals_deserved import DESERVED, Case, RefusalsDeserved, Seen
from kraftlite.sim.checkers.producer_state import ProducerStateKept
from kraftlite.sim.client import FIRST_CLIENT_ID
from kraftlite.sim.service import FETCH, OFFSETS, PRODUCE, FetchAsk, OffsetAsk, ProduceAsk
from kraftlite.sim.workloads.stranger import NUMBER
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange, Exchange
from tests.unit.sim.test_checkers_replication import TP, Orders, make

__all__ = ["make"]

CLIENT_1, STRANGER = NodeId(FIRST_CLIENT_ID + 1), NodeId(FIRST_CLIENT_ID + NUMBER)


def asks(cluster: Orders, method: AnyMethod) -> Any:
    """What the leader has no reason to refuse."""
    if method is PRODUCE:
        return ProduceAsk(TP, -1, 1_000, cluster.batch())
    return FetchAsk(TP, 3, 0, 0, 1_000) if method is FETCH else OffsetAsk(TP, -1)


def refused(cluster: Orders, node: SimHost, method: AnyMethod, ask: Any, code: ErrorCode, source: NodeId = CLIENT_1) -> None:
    exchange: AnyExchange = Exchange(source, node.node_id, method, ask, cluster.loop.create_future())
    cluster._tell(lambda it: it.on_arrival(exchange))
    cluster._tell(lambda it: it.on_served(exchange, ProduceResult(tp=TP, error=code)))
    cluster.go(1)


@pytest.mark.parametrize(
    ("method", "code"),
    [(method, code) for method, table in DESERVED.items() for code in (*table, ErrorCode.UNKNOWN_SERVER_ERROR)],
)  # fmt: skip
def test_no_error_is_deserved_without_a_reason(make: Callable[..., Orders], method: AnyMethod, code: ErrorCode) -> None:
    cluster = make(ProducerStateKept, RefusalsDeserved)
    with pytest.raises(Violation, match=f"refuses {method} of client 1001 with {code.name}, which it may"):
        refused(cluster, cluster.leader, method, asks(cluster, method), code)


def test_a_resend_must_not_be_refused(make: Callable[..., Orders]) -> None:
    cluster = make(ProducerStateKept, RefusalsDeserved)
    resend = ProduceAsk(TP, -1, 1_000, cluster.batch(sequence=1))
    with pytest.raises(Violation, match="with OUT_OF_ORDER_SEQUENCE_NUMBER, which it may not now"):
        refused(cluster, cluster.leader, PRODUCE, resend, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@pytest.mark.parametrize(("came_meanwhile", "deserved"), [((3, 4), True), ((4,), False)])
def test_a_later_batch_that_is_decided_between_two_earlier_ones(
    make: Callable[..., Orders], came_meanwhile: tuple[int, ...], deserved: bool
) -> None:
    """The producer is new to the log when sequence 5 comes: it must not be refused unless sequence 3 was its last for a while."""
    cluster = make(ProducerStateKept, RefusalsDeserved)
    ask = ProduceAsk(TP, -1, 1_000, cluster.batch(sequence=5, producer_id=8))
    exchange: AnyExchange = Exchange(CLIENT_1, cluster.leader.node_id, PRODUCE, ask, cluster.loop.create_future())
    cluster._tell(lambda it: it.on_arrival(exchange))
    for sequence in came_meanwhile:
        cluster.produce(batch=cluster.batch(sequence=sequence, producer_id=8))
    with contextlib.nullcontext() if deserved else pytest.raises(Violation, match="which it may not now"):
        cluster._tell(lambda it: it.on_served(exchange, ProduceResult(tp=TP, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
        cluster.go(1)


def too_few(cluster: Orders) -> None:
    cluster.partition(cluster.leader).min_isr = 4


def unsettled(cluster: Orders) -> None:
    leader = cluster.partition(cluster.leader).leader
    assert leader is not None
    leader.epoch_start_offset = 9


def offline(cluster: Orders) -> None:
    node = cluster.leader
    node.on_event(node, LogDirFailed(log_dir="/data", directory_id="", reason="EIO"))
    cluster.partition(node).log = None


@pytest.mark.parametrize(
    ("method", "code", "reason", "changes"),
    [
        (PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, too_few, {}),
        (PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, too_few, {}),
        (PRODUCE, ErrorCode.REQUEST_TIMED_OUT, None, {"timeout_ms": 0}),
        (PRODUCE, ErrorCode.INVALID_REQUIRED_ACKS, None, {"acks": 7}),
        (PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, offline, {}),
        (PRODUCE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, {"tp": TopicPartition("orders", 7)}),
        (FETCH, ErrorCode.FENCED_LEADER_EPOCH, None, {"leader_epoch": -1}),
        (FETCH, ErrorCode.UNKNOWN_LEADER_EPOCH, None, {"leader_epoch": 1}),
        (FETCH, ErrorCode.OFFSET_OUT_OF_RANGE, None, {"offset": 4}),
        (FETCH, ErrorCode.OFFSET_OUT_OF_RANGE, None, {"offset": -1}),
        (OFFSETS, ErrorCode.OFFSET_NOT_AVAILABLE, unsettled, {}),
    ],
)
def test_an_error_with_its_reason_is_none(
    make: Callable[..., Orders],
    method: AnyMethod,
    code: ErrorCode,
    reason: Callable[[Orders], None] | None,
    changes: dict[str, Any],
) -> None:
    cluster = make(ProducerStateKept, RefusalsDeserved)
    node, ask = cluster.leader, replace(asks(cluster, method), **changes)
    if reason is not None:
        reason(cluster)
    refused(cluster, node, method, ask, code)


def test_a_topic_that_was_deleted_while_a_fetch_waited_is_unknown_though_there_is_another_of_its_name() -> None:
    was: Any = Seen(object(), None, None, 0, 0, 0, 0, settled=True, few=False, listed=True, last=None)  # type: ignore[arg-type]
    case = Case(
        ask=FetchAsk(TP, 0, 0, 0, 1_000), was=was, now=was, view=None, from_stranger=False, waited_us=1, stopping=False, limit=1,
        broken=False, shrank=False,
    )  # fmt: skip
    condition = DESERVED[FETCH][ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert condition is not None and not condition(case)
    assert condition(replace(case, now=replace(was, partition=object())))


def test_refusals_that_depend_on_who_asks_and_where(make: Callable[..., Orders]) -> None:
    cluster = make(ProducerStateKept, RefusalsDeserved)
    refused(cluster, cluster.follower, FETCH, asks(cluster, FETCH), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused(cluster, cluster.leader, PRODUCE, asks(cluster, PRODUCE), ErrorCode.CORRUPT_MESSAGE, STRANGER)
    gap = ProduceAsk(TP, -1, 1_000, cluster.batch(sequence=7))
    refused(cluster, cluster.leader, PRODUCE, gap, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
