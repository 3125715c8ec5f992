"""Invariant 23: blocks of producer ids never overlap; no producer id with its epoch is given to two clients."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar

from kraftlite.metadata import records as r
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.service import PRODUCER_ID, ProducerIdAnswer, ProducerIdAsk


class ProducerIds(MetadataChecker):
    """The blocks in the log, the blocks in the controllers' answers, and the ids in the brokers' answers to clients."""

    numbers: ClassVar[tuple[int, ...]] = (23,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._blocks: list[tuple[int, int, NodeId]] = []
        """(first, end, broker) that were answered, in order of the ids."""
        self._given: dict[tuple[int, int], NodeId] = {}
        self.facts.watch_answer(ALLOCATE_PRODUCER_IDS, self._on_block)
        self.facts.watch_answer(PRODUCER_ID, self._on_given)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if not isinstance(record, r.ProducerIdsRecord):
            return
        if record.next_producer_id <= before.next_producer_id:
            self.fail(f"offset {offset}: {record}, but all ids below {before.next_producer_id} were handed out")
        known = before.brokers.get(record.broker_id)
        if known is None or known.broker_epoch != record.broker_epoch:
            self.fail(f"offset {offset}: {record} is for another incarnation than {known}")

    def _on_block(
        self, source: NodeId, target: NodeId, request: AllocateProducerIdsRequest, response: AllocateProducerIdsResponse
    ) -> None:
        block = (response.first_producer_id, response.first_producer_id + response.count, request.broker_id)
        if response.count <= 0:
            self.fail(f"controller {target} gives broker {source} {response}")
        if block[1] > self.facts.history.latest.next_producer_id:
            self.fail(
                f"controller {target} gives broker {source} the ids [{block[0]},{block[1]}); committed are those below "
                f"{self.facts.history.latest.next_producer_id}"
            )
        at = bisect_left(self._blocks, block)
        for other in self._blocks[max(0, at - 1) : at + 1]:
            if other[0] < block[1] and block[0] < other[1]:
                self.fail(f"controller {target} gives broker {source} the ids {block}, but {other} were given before")
        self._blocks.insert(at, block)

    def _on_given(self, source: NodeId, target: NodeId, request: ProducerIdAsk, response: ProducerIdAnswer) -> None:
        key = (response.producer_id, response.producer_epoch)
        if key in self._given:
            self.fail(
                f"broker {target} gives a client the producer id and epoch {key}, which broker {self._given[key]} gave before"
            )
        self._given[key] = target
        at = bisect_left(self._blocks, (response.producer_id + 1, -1, NodeId(-1)))
        if at == 0 or not self._blocks[at - 1][0] <= response.producer_id < self._blocks[at - 1][1]:
            self.fail(
                f"broker {target} gives a client the producer id {response.producer_id}, which is in no block of any broker"
            )
        elif self._blocks[at - 1][2] != target:
            self.fail(
                f"broker {target} gives a client the producer id {response.producer_id} of broker {self._blocks[at - 1][2]}"
            )
