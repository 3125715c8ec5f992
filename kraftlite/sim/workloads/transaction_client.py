"""A client that knows the coordinators of transactions, and reads what is committed as Kafka's consumers do."""

from __future__ import annotations

from typing import Any, Final

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import EndTxnMarker, decode_control
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchResult
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import FIND, FindAsk

ASK_MS: Final = 1_500
PATIENCE_US: Final = 25_000_000
FIRST_PAUSE_US: Final = 50_000
LONGEST_PAUSE_US: Final = 500_000
ANOTHER_US: Final = 50_000
"""A failure so soon behind a pause is that of the same attempt once more."""


class TransactionClient(SimClient):
    """The part that producers, copiers and readers share."""

    timeout_ms = 3_000
    """The time after which the coordinator aborts a transaction of this client."""
    _coordinator: NodeId | None = None
    _until_us = 0
    _pause_us = FIRST_PAUSE_US
    _tried_again_us = -ANOTHER_US

    async def backoff(self) -> None:
        """A pause that grows while one failure follows another, as Kafka's clients make it (KIP-580)."""
        follows = self.now_us() - self._tried_again_us < ANOTHER_US
        self._pause_us = min(2 * self._pause_us, LONGEST_PAUSE_US) if follows else FIRST_PAUSE_US
        await self.pause(self.rng.randint(self._pause_us // 2, self._pause_us * 3 // 2))
        self._tried_again_us = self.now_us()

    def gives_up(self) -> bool:
        """Return whether the run is over for so long that nothing will come of what still waits. Where the log of transactions
        has lost something that it was allowed to lose, one may stay open for ever; the checkers say whether it may."""
        if self.stopping and not self._until_us:
            self._until_us = self.now_us() + PATIENCE_US
        return self.stopping and self.now_us() >= self._until_us

    def be_patient_again(self) -> None:
        """Give what comes now its own time."""
        self._until_us = 0

    async def coordinator(self, transactional_id: str) -> NodeId | None:
        """The coordinator, as some broker told it last; None when none is known."""
        if self._coordinator is None:
            brokers = [node.node_id for node in self.cluster.brokers]
            try:
                found = await self.call(brokers[self.rng.randrange(len(brokers))], FIND, FindAsk(transactional_id), ASK_MS)
            except (TransportError, ApiError):
                return None
            if found.error is ErrorCode.NONE:
                self._coordinator = found.result.broker_id
        return self._coordinator

    async def ask_coordinator(self, transactional_id: str, method: Method[Any, Told], ask: Any) -> Told | None:
        """One attempt. None: it may or may not have had its effect, or was never sent when no coordinator is known."""
        broker = await self.coordinator(transactional_id)
        if broker is None:
            return Told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            told = await self.call(broker, method, ask, ASK_MS)
        except (TransportError, ApiError):
            self._coordinator = None
            return None
        if told.error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        return told

    async def fetch_committed(self, tp: TopicPartition, position: int) -> tuple[int, list[tuple[int, str]]] | None:
        """The records that count from `position` on, and the position behind them; None when there was no answer."""
        leader = await self.leader(tp)
        if leader is None:
            await self.backoff()
            await self.refresh()
            return None
        size = self.rng.choice((200, 1 << 20))
        ask = FetchAsk(tp, position, self.leader_epoch(tp), self.rng.choice((0, 200)), size, read_committed=True)
        try:
            result = await self.call(leader, FETCH, ask)
        except (TransportError, ApiError):
            result = None
        if result is None or result.error is not ErrorCode.NONE:
            await self.backoff()
            await self.refresh()
            return None
        return committed_of(result, position)


def committed_of(result: FetchResult, position: int) -> tuple[int, list[tuple[int, str]]]:
    """Leave out what the answer says is aborted, as Kafka's consumer does: from the first offset of an aborted transaction on
    to its producer's next abort marker."""
    aborted = sorted(result.aborted or (), key=lambda it: it[1])
    gone: dict[int, None] = {}
    records: list[tuple[int, str]] = []
    at = 0
    for header, raw in iter_batches(bytes(result.records)):
        while at < len(aborted) and aborted[at][1] < header.next_offset:
            gone[aborted[at][0]] = None
            at += 1
        if header.is_control:
            marker = decode_control(next(iter(iter_records(raw))))
            if isinstance(marker, EndTxnMarker) and not marker.commit:
                gone.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in gone):
            for record in iter_records(raw):
                offset = header.base_offset + record.offset_delta
                if offset >= position:
                    records.append((offset, (record.value or b"").decode()))
        position = max(position, header.next_offset)
    return position, records
