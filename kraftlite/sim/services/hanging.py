"""The requests that make transactions hang and that end them: of a broker by mistake, and of an administrator (KIP-664).

A broker that asks nobody for a transaction, as before KIP-890, appends a batch that is late. `HANG` is that append, at the leader
and past the question; everything else is the production handlers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.producers import describe_producers
from kraftlite.broker.handlers.transactions import write_markers
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.replication.api import MarkerEntry, ProduceEntry, ProduceResult
from kraftlite.runtime.ports import Handlers, route
from kraftlite.sim.services.groups import Told


@dataclass(frozen=True, slots=True)
class HangAsk:
    tp: TopicPartition
    batch: bytes
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ProducersAsk:
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class MarkAsk:
    """WriteTxnMarkers of one abort, as the administrator found its producer."""

    tp: TopicPartition
    producer: Producer
    coordinator_epoch: int


HANG: Final = Method("Client", "AppendUnasked", HangAsk, Told)
PRODUCERS: Final = Method("Client", "DescribeProducers", ProducersAsk, Told)
MARK: Final = Method("Client", "WriteTxnMarkers", MarkAsk, Told)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    service = _Hanging(node.broker.context)
    return dict((route(HANG, service.hang), route(PRODUCERS, service.producers), route(MARK, service.mark)))


class _Hanging:
    def __init__(self, context: BrokerContext) -> None:
        self._ctx = context

    async def hang(self, ask: HangAsk) -> Told:
        """The result is a `ProduceResult`."""
        done: asyncio.Future[list[ProduceResult]] = asyncio.get_running_loop().create_future()
        entry = ProduceEntry(tp=ask.tp, topic_id=None, records=bytearray(ask.batch))
        self._ctx.replicas.append(
            [entry],
            acks=-1,
            timeout_ms=ask.timeout_ms,
            on_done=lambda results: None if done.done() else done.set_result(results),
        )
        (result,) = await done
        return Told(ErrorCode(result.error), result)

    async def producers(self, ask: ProducersAsk) -> Told:
        """The result has an `ActiveProducer` for each."""
        found = describe_producers(self._ctx, ask.tp)
        return Told(found.error, found.producers)

    async def mark(self, ask: MarkAsk) -> Told:
        producer_id, epoch = ask.producer
        marker = MarkerEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=ask.coordinator_epoch,
            commit=False,
            version=0,
            tp=ask.tp,
        )
        return Told((await write_markers(self._ctx, [marker]))[0])
