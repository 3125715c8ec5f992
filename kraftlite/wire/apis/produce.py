"""Produce on the wire. The hot path: no task, no copy of records. Source: CP-16, RP-01, RP-10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.produce import ProduceCall, ProduceItem, produce
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NO_NODE
from kraftlite.protocol.primitives import string
from kraftlite.replication.api import LeaderHint, ProduceResult
from kraftlite.wire.apis.call import Api, Call
from kraftlite.wire.hot_codec import (
    PRODUCE_FLEXIBLE,
    PRODUCE_LEADER_HINTS,
    PRODUCE_MAX,
    PRODUCE_MIN,
    Node,
    ProducedPartition,
    ProducedTopic,
    encode_produce,
    encode_produced,
    parse_produce,
)

ZSTD_FROM = 7
ABORTABLE_FROM = 11
"""The client knows TRANSACTION_ABORTABLE (TP-07)."""
ADDS_PARTITIONS_FROM = 12
"""The client leaves it to the broker to add partitions to its transaction: transaction.version 2 (KIP-890)."""


def _handle(call: Call) -> None:
    version = call.version
    if call.meter is not None:
        call.meter.produced(len(call.frame))
    request = parse_produce(call.frame, call.pos, version)
    items = [
        ProduceItem(topic.name, topic.topic_id, partition.partition, partition.records)
        for topic in request.topics
        for partition in topic.partitions
    ]

    # What outlives this call must not hold views of the frame: only who was asked for, and how many.
    shape = [(topic.name, topic.topic_id, len(topic.partitions)) for topic in request.topics]
    acks = request.acks

    def done(results: list[ProduceResult]) -> None:
        try:
            if acks == 0:
                _finish_unanswered(call, results)
            else:
                throttle_ms = 0 if call.meter is None else call.meter.settle()
                short = None if throttle_ms else _encode_one(call, shape, results)
                call.send((short or _encode(call, shape, results, throttle_ms),))
        except Exception as error:  # noqa: BLE001 - this may run where a high watermark moves, see docs/adr/0005
            call.failed(error)

    produce(
        call.ctx,
        ProduceCall(
            acks=acks,
            timeout_ms=request.timeout_ms,
            transactional_id=request.transactional_id,
            client_id=call.client_id,
            zstd_allowed=version >= ZSTD_FROM,
            items=items,
            lease=_FrameLease(call),
            transaction_version=2 if version >= ADDS_PARTITIONS_FROM else 0,
            knows_abortable=version >= ABORTABLE_FROM,
            rights=call.rights,
        ),
        done,
    )
    call.frame = memoryview(b"")


class _FrameLease:
    """The records lie in the connection's buffer: until they are appended nothing else of this connection is taken, so that no
    later request of it overtakes this one. They are appended also when the connection is lost meanwhile, as any request that was
    received."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def hold(self) -> None:
        self._call.connection.lease_frame()

    def failed(self, error: Exception) -> None:
        self._call.failed(error)

    def release(self) -> None:
        self._call.connection.return_frame()


def _encode_one(call: Call, shape: Sequence[tuple[str | None, Any, int]], results: Sequence[ProduceResult]) -> bytes | None:
    """The short way, where it can be gone."""
    if len(results) != 1 or len(shape) != 1 or call.version < PRODUCE_FLEXIBLE:
        return None
    result = results[0]
    if result.error is not ErrorCode.NONE:
        return None
    name, topic_id, _count = shape[0]
    return encode_produced(
        call.correlation_id,
        topic_id.bytes if name is None else string(name, True),
        result.tp.partition,
        result.base_offset,
        result.append_time_ms,
        result.log_start_offset,
    )


def _finish_unanswered(call: Call, results: Sequence[ProduceResult]) -> None:
    """acks=0: the client learns of a failure only by losing its connection (RP-01)."""
    if call.meter is not None:
        call.meter.skip()
    failed = [result for result in results if result.error is not ErrorCode.NONE]
    if not failed:
        call.slot.skip()
        return
    for result in failed:
        call.note_error(result.error)
    call.slot.fail(f"produce with acks=0 to {failed[0].tp} failed with {failed[0].error.name}")


def _encode(
    call: Call, shape: Sequence[tuple[str | None, Any, int]], results: Sequence[ProduceResult], throttle_ms: int
) -> bytes:
    hints = call.version >= PRODUCE_LEADER_HINTS
    topics: list[ProducedTopic] = []
    nodes: dict[int, Node] = {}
    found = iter(results)
    for name, topic_id, count in shape:
        partitions: list[ProducedPartition] = []
        for _ in range(count):
            result = next(found)
            leader, error = None, result.error
            if error is not ErrorCode.NONE:
                call.note_error(error)
                if hints and result.leader is not None and error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = hint(call.ctx, call.listener, result.leader, nodes)
            partitions.append(
                ProducedPartition(
                    result.tp.partition,
                    error,
                    result.base_offset,
                    result.append_time_ms,
                    result.log_start_offset,
                    result.message if error is not ErrorCode.NONE else None,
                    leader,
                    result.record_errors,
                )
            )
        topics.append(ProducedTopic(name, topic_id, partitions))
    return encode_produce(call.correlation_id, call.version, topics, nodes.values(), throttle_ms=throttle_ms)


def hint(ctx: BrokerContext, listener: str, leader: LeaderHint, nodes: dict[int, Node]) -> tuple[int, int]:
    """(leader id, epoch) as the wire wants them; adds the leader's address on this listener to `nodes` when it has one."""
    leader_id = NO_NODE if leader.leader_id is None else leader.leader_id
    broker = ctx.metadata.alive_broker(leader_id, listener)
    if broker is not None:
        nodes[leader_id] = Node(leader_id, broker.host, broker.port, broker.rack)
    return leader_id, leader.leader_epoch


PRODUCE = Api(
    key=0, name="Produce", min_version=PRODUCE_MIN, max_version=PRODUCE_MAX, flexible_from=PRODUCE_FLEXIBLE, handle=_handle
)

__all__ = ["PRODUCE", "hint"]
