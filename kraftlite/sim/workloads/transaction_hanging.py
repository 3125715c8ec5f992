"""R23 (KIP-664): transactions that hang behind a broker's mistake, an administrator who ends them, and their producer that wakes.

They have a topic of their own. The administrator finds a transaction that is open in the partition and not at its coordinator,
and writes its abort there; the producer may go on in its epoch, by the same mistake or by the rules, or begin a transaction in
the next epoch, which takes what still hangs over with it, as in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Final

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.log.producers import ActiveProducer
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import REQUEST_TIMEOUT_MS, SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.hanging import HANG, MARK, PRODUCERS, HangAsk, MarkAsk, ProducersAsk
from kraftlite.sim.services.transactions import DESCRIBE, DescribeAsk
from kraftlite.sim.workloads.transaction_client import TransactionClient
from kraftlite.sim.workloads.transaction_instance import Aborting, Ended, Instance
from kraftlite.sim.workloads.transactions_history import HANGING, Outcome, Sent, Tried

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 360
NAME: Final = "hanging"
"""The transactional id of the producer."""
LATEST_US: Final = 5_000_000
PLACE: Final = TopicPartition(HANGING, 0)


def visit(cluster: SimCluster, history: History) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    producer = Producing(cluster, FIRST_NUMBER, NAME, history)
    yield producer, producer.run()
    admin = Administrator(cluster, FIRST_NUMBER + 1, "ends-what-hangs", history)
    yield admin, admin.run()


class Producing(TransactionClient):
    """The client of the producer whose transactions hang. `hung`: what may hang now."""

    hung: list[Tried]

    async def run(self) -> None:
        while HANGING not in self.history.transactions.topics:
            if self.stopping:
                return
            await self.pause(100_000)
        self.hung = []
        number = 0
        while not self.stopping:
            await Sleeper(self, number).run()
            number += 1


class Sleeper(Instance):
    """One instance of it, of transaction.version 0: an epoch for many transactions."""

    def __init__(self, client: Producing, number: int) -> None:
        super().__init__(client, number, 0, (PLACE,), 100_000)
        self._hung = client.hung

    async def run(self) -> None:
        try:
            await self.init(None)
            while not self.client.stopping and not self._unsure:
                await self._hang()
                await self.client.pause(self.rng.choice((1, 5_000, 100_000, 400_000)))
                wakes = self.rng.randrange(3)
                if wakes == 0:
                    await self._send_as_it_should()
                elif wakes == 1 and not self._unsure:
                    await self._begin_anew()
        except (Ended, Aborting):
            return

    async def _hang(self) -> None:
        """A batch of no transaction. One without an answer may still come: nothing more is done in this epoch then."""
        tried, batch = self._attempt_of_its_own()
        self._hung.append(tried)
        leader = await self.client.leader(PLACE)
        if leader is None:
            await self.client.backoff()
            return await self.client.refresh()
        try:
            told = await self.client.call(leader, HANG, HangAsk(PLACE, batch, REQUEST_TIMEOUT_MS // 2))
        except (TransportError, ApiError):
            self._unsure = True
            return
        self._note(tried, told.error, told.result.base_offset)
        await self.client.refresh()

    def _attempt_of_its_own(self) -> tuple[Tried, bytes]:
        """A transaction that is one batch, of which nobody but the log knows."""
        tried, value = self._tried(), self._value()
        tried.sends.append(Sent(tp=PLACE, value=value))
        tried.outcome = Outcome.NOT_COMMITTED
        self.begin(tried)
        return tried, self._build(PLACE, [value], self._sequences.get(PLACE, 0))

    def _note(self, tried: Tried, code: ErrorCode, offset: int) -> None:
        if code is ErrorCode.NONE:
            tried.sends[0].offset = offset
            self._sequences[PLACE] = self._sequences.get(PLACE, 0) + 1
        elif code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_TXN_STATE):
            self._unsure = True  # it may be in the log

    async def _send_as_it_should(self) -> None:
        """It wakes: a batch for which the leader asks, unless a transaction of the producer is open there."""
        tried, batch = self._attempt_of_its_own()
        self._hung.append(tried)
        self._note(tried, *await self._attempt(PLACE, batch))

    async def _begin_anew(self) -> None:
        """It wakes, and begins a transaction in its next epoch: what still hangs is in it as well."""
        for it in self._hung:
            it.outcome = Outcome.UNKNOWN
        self._hung.clear()
        await self.init(None)
        tried = self._tried()
        self._added.clear()
        self.begin(tried)
        await self.add((PLACE,))
        await self.send(tried, PLACE, [self._value()])
        await self.end(tried, self.rng.randrange(4) > 0)
        await self.init(None)  # what hangs next is in an epoch of its own


class Administrator(TransactionClient):
    """Looks for transactions that hang and ends them, also when the run is over, until none has come for as long as a message may
    take."""

    async def run(self) -> None:
        more = random.Random(f"transactions/administrator/{self.cluster.seed}")
        clean_us = self.now_us()
        while not self.stopping or (self.now_us() < clean_us + LATEST_US and not self.gives_up()):
            await self.pause(more.choice((20_000, 150_000, 150_000, 900_000)) if not self.stopping else 100_000)
            hangs = HANGING in self.history.transactions.topics and await self._look(more)
            if hangs or not self.stopping:
                clean_us = self.now_us()

    async def _look(self, rng: random.Random) -> bool:
        """Return whether something may still hang."""
        leader = await self.leader(PLACE)
        if leader is None:
            await self.refresh()
            return True
        try:
            found = await self.call(leader, PRODUCERS, ProducersAsk(PLACE))
            hanging = [it for it in found.result if it.txn_start_offset is not None]
            if found.error is not ErrorCode.NONE or (hanging and not await self._is_unknown()):
                await self.refresh()
                return True
            if rng.randrange(3) == 0:
                await self.pause(rng.choice((1_000, 30_000, 200_000)))  # somebody thinks
            for it in hanging:
                if (await self.call(leader, MARK, _abort_of(it))).error is not ErrorCode.NONE:
                    await self.refresh()
            return bool(hanging)
        except (TransportError, ApiError):
            await self.refresh()
            return True

    async def _is_unknown(self) -> bool:
        """Return whether the coordinator says that nothing is open."""
        told = await self.ask_coordinator(NAME, DESCRIBE, DescribeAsk(NAME))
        idle = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        if told is not None and told.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return True
        return told is not None and told.error is ErrorCode.NONE and told.result.state in idle


def _abort_of(found: ActiveProducer) -> MarkAsk:
    return MarkAsk(PLACE, Producer(found.producer_id, found.producer_epoch), max(0, found.coordinator_epoch))
