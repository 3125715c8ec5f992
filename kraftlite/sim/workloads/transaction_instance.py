"""One instance of a transactional id: begins, sends, commits or aborts, and goes on until it is told that it was replaced.

It retries what Kafka's clients retry, aborts after what they abort after, and ends at what is fatal to them (KIP-98, KIP-360,
KIP-890, KIP-1050).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import REQUEST_TIMEOUT_MS
from kraftlite.sim.services.transactions import (
    ADD,
    END,
    INIT,
    PRODUCE,
    AddAsk,
    EndAsk,
    InitAsk,
    TransactionalBatch,
    TransactionalProduceAsk,
)
from kraftlite.sim.workloads.transaction_client import TransactionClient
from kraftlite.sim.workloads.transactions_history import COMPACTED, Given, Outcome, Sent, Tried

DELIVERY_US: Final = 8_000_000
"""The time after which a client gives a batch up, and its transaction with it."""
FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""The words of a coordinator after which an instance ends."""
ABORTABLE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""The words of a partition after which a transaction is aborted."""
WITHOUT_EFFECT: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Refusals of an EndTxn behind which nothing can have been written; the others may have failed behind the append."""


ADDS_ALL_ONE_IN: Final = 4
"""The part of the instances that add partitions again which they have added."""
PASSING: Final = TopicPartition("tx-passing", 0)
"""The partition of a topic that comes and goes, to which some transactions write, too."""
KEYS: Final = 5
"""Few, so that what is compacted has much that is superseded."""


class Ended(Exception):
    """The instance may not go on."""


class Aborting(Exception):
    """The transaction cannot be committed any more."""


class Instance:
    """One producer: `run` begins one transaction after another until the run ends or the instance is fenced. `version`: 0 for one
    that adds partitions itself, 2 for one that leaves it to the leaders."""

    def __init__(
        self, client: TransactionClient, number: int, version: int, targets: Sequence[TopicPartition], gap_us: int
    ) -> None:
        self.client = client
        self.rng = client.rng
        self.number = number
        self.version = version
        self.targets = targets
        self.producer = Producer(-1, -1)
        self._gap_us = gap_us
        self._sequences: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition, None] = {}
        self._made = 0
        self._left: list[asyncio.Task[None]] = []
        self.ending = asyncio.Event()
        """Set for the time in which an end of it is under way."""
        self._unsure = False
        """A batch of this epoch has no verdict: the next transaction needs another epoch."""
        self._more = random.Random(f"transactions/ends/{client.cluster.seed}/{client.name}/{number}")
        self._late = random.Random(f"transactions/late/{client.cluster.seed}/{client.name}/{number}")
        self._ends_as = version
        """The version of its next EndTxn."""
        self._recovering = random.Random(f"transactions/recovering/{client.cluster.seed}/{client.name}/{number}")
        self._recovers = self._recovering.randrange(3) == 0
        """Behind what spoils a transaction it asks for its next epoch instead of an end, as librdkafka does (KIP-360, TX-15)."""
        self._mistaking = random.Random(f"transactions/mistakes/{client.cluster.seed}/{client.name}/{number}")
        self._errs = random.Random(f"transactions/mistakes/{client.cluster.seed}").randrange(3) == 0
        """It sends what a producer must not: a batch outside of its transaction, and the other end behind the one it was told."""
        adding = random.Random(f"transactions/adding/{client.cluster.seed}/{client.name}/{number}")
        self._adds_all = adding.randrange(ADDS_ALL_ONE_IN) == 0
        """It adds all partitions of its transaction with each new one, as clients do that do not remember an answer."""
        self._keeping = random.Random(f"transactions/compacted/{client.cluster.seed}/{client.name}/{number}")

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def copier(self) -> str | None:
        """The name of the copies that it makes; None: it makes none."""
        return None

    async def run(self) -> None:
        try:
            await self.init(None)
            while not self.client.stopping:
                await self.client.pause(self.rng.randint(1, 2 * self._gap_us))
                await self.transact()
        except Ended:
            return

    # --- the coordinator

    async def init(self, expected: Producer | None) -> None:
        ask = InitAsk(transactional_id=self.name, timeout_ms=self.client.timeout_ms, expected=expected)
        while True:
            told = await self.client.ask_coordinator(self.name, INIT, ask)
            if told is not None and told.error is ErrorCode.NONE:
                self._go_on_with(told.result, "InitProducerId")
                return
            if (told is not None and told.error in FATAL) or self.client.gives_up():
                raise Ended
            await self.client.backoff()

    def _go_on_with(self, producer: Producer, by: str) -> None:
        if producer != self.producer:
            self.client.history.transactions.given.append(
                Given(
                    transactional_id=self.name,
                    instance=self.number,
                    producer=producer,
                    by=by,
                    at_us=self.client.now_us(),
                )
            )
            self._sequences.clear()
            self._unsure = False
        self.producer = producer

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn, which instances of transaction.version 2 leave to the leaders."""
        new = tuple(it for it in partitions if it not in self._added)
        if self.version >= 2 or not new:
            return
        asked = (*(it for it in self._added if it != PASSING), *new) if self._adds_all else new
        self._added |= dict.fromkeys(new)
        end_us = self.client.now_us() + DELIVERY_US
        while True:
            told = await self.client.ask_coordinator(self.name, ADD, AddAsk(self.name, self.producer, asked))
            codes = [] if told is None or told.error is not ErrorCode.NONE else [code for _, code in told.result]
            if codes and all(code is ErrorCode.NONE for code in codes):
                return
            if any(code in FATAL for code in codes):
                raise Ended
            if self.client.now_us() >= end_us:
                raise Aborting
            await self.client.backoff()

    async def end(self, tried: Tried, commit: bool) -> None:
        """EndTxn, until it has an answer. A question that had none may still be on its way, and without an epoch of its own would
        end the next transaction: who asks by an older version begins anew then, as behind a batch without a verdict."""
        tried.commit = commit
        self.ending.set()
        try:
            await self._end(tried, commit)
        finally:
            self.ending.clear()

    async def _end(self, tried: Tried, commit: bool) -> None:
        unsure = False
        while True:
            if commit:
                tried.outcome = Outcome.UNKNOWN
            told = await self.client.ask_coordinator(self.name, END, EndAsk(self.name, self.producer, commit, self._ends_as))
            if told is not None:
                tried.error = told.error.name
                if told.error is ErrorCode.NONE:
                    tried.outcome = Outcome.COMMITTED if commit else Outcome.NOT_COMMITTED
                    tried.ended_us = self.client.now_us()
                    self._go_on_with(told.result, "EndTxn")
                    return
                if told.error in FATAL:
                    tried.outcome = Outcome.UNKNOWN if commit and unsure else Outcome.NOT_COMMITTED
                    tried.ended_us = self.client.now_us()
                    raise Ended
            self._unsure = self._unsure or told is None
            unsure = unsure or told is None or told.error not in WITHOUT_EFFECT
            if self.client.gives_up():
                raise Ended
            await self.client.backoff()

    # --- a transaction

    async def last_word(self) -> bool:
        """Begin anew and commit one transaction, with nothing odd about it; return whether that was possible."""
        try:
            await self.init(None)
            tried = self._tried()
            self.begin(tried)
            self._added.clear()
            await self.add(self.targets[:1])
            await self.send(tried, self.targets[0], [self._value()])
            self._ends_as = self.version
            await self.end(tried, True)
        except (Ended, Aborting):
            return False
        return True

    def _tried(self) -> Tried:
        return Tried(
            transactional_id=self.name,
            instance=self.number,
            producer=self.producer,
            version=self.version,
            began_us=self.client.now_us(),
            copier=self.copier,
        )

    async def transact(self) -> None:
        """One transaction. Raises Ended when the instance may not go on."""
        tried = self._tried()
        self._added.clear()
        commit, left = self.rng.randrange(4) > 0, False
        try:
            if not await self.fill(tried):
                return
            if self._errs and self.version >= 2 and self._mistaking.randrange(4) == 0:
                await self._send_outside(tried)
            odd = self.rng.randrange(12)
            if odd == 0:
                await self._dawdle(tried)
                if self._recovers and tried.sends and self._recovering.randrange(4):
                    await self.send(tried, tried.sends[-1].tp, [self._value()])
            elif odd <= 2 and tried.sends:
                commit, left = False, True
                self._leave_behind(tried, await self._somewhere(tried))
        except Aborting:
            commit = False
            if self._recovers:
                tried.ended_us = self.client.now_us()
                return await self.init(self.producer)
        if self.version < 2 and not self._added:
            return
        if any(sent.tp == PASSING for sent in tried.sends) and self._more.randrange(3) == 0:
            await self.client.pause(self._more.randint(50_000, 400_000))  # the topic may be gone by then
        self._ends_as = self.version
        if any(sent.offset >= 0 for sent in tried.sends) and self._more.randrange(20) == 0 and not left:
            # The cluster's transaction.version, as it was told last, has gone down meanwhile. The epoch is then that of the next
            # transaction, too, which what was left behind would begin.
            self._ends_as = 0
        ended = self.producer
        await self.end(tried, commit)
        if self._errs and self._mistaking.randrange(4) == 0:
            await self._end_otherwise(ended, not commit)
        self.version = self._ends_as  # the next batch in this epoch, if not asked for, would be part of what is being ended
        if self._unsure and self._ends_as < 2:
            await self.init(self.producer)

    async def _send_outside(self, tried: Tried) -> None:
        """A batch that is no part of the transaction, into a partition in which it is open: it must be refused (LG-24). One that
        comes late is, by version 2, in an epoch that is over."""
        sent = next((it for it in tried.sends if it.offset >= 0), None)
        if sent is None:
            return
        value = f"{self._value()}/outside"
        self.client.history.transactions.outside[value] = None
        batch = self._build(sent.tp, [value], self._sequences[sent.tp], transactional=False)
        await self._attempt(sent.tp, batch)

    async def _end_otherwise(self, ended: Producer, commit: bool) -> None:
        """Ask for the other end of the transaction that has just ended: it must be refused (TX-43). A question that has no answer
        could end the next transaction of the same epoch."""
        told = await self.client.ask_coordinator(self.name, END, EndAsk(self.name, ended, commit, self._ends_as))
        self._unsure = self._unsure or told is None

    def begin(self, tried: Tried) -> None:
        """It is about to send."""
        self.client.history.transactions.tried.append(tried)

    async def fill(self, tried: Tried) -> bool:
        """Send what the transaction consists of; False when there is nothing to do."""
        self.begin(tried)
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            chosen = self.rng.sample(list(self.targets), self.rng.randint(1, len(self.targets)))
            if self.client.history.transactions.passing and self.rng.randrange(4) == 0:
                chosen.append(PASSING)
            compacted = self.client.history.transactions.compacted
            if compacted and self._keeping.randrange(2):
                chosen.append(self._keeping.choice(compacted))
            await self.add(chosen)
            for tp in chosen:
                if self.rng.randrange(4) == 0:
                    await self._send_several(tried, tp)
                else:
                    await self.send(tried, tp, [self._value() for _ in range(self.rng.choice((1, 1, 2)))])
        return True

    async def _send_several(self, tried: Tried, tp: TopicPartition) -> None:
        """Batches that do not wait for each other, as pipelining producers send them."""
        loop, outside = asyncio.get_running_loop(), self.client.cluster.outside
        tasks: list[asyncio.Task[None]] = []
        for _ in range(self.rng.choice((2, 3))):
            before = tasks[-1] if tasks else None
            tasks.append(loop.create_task(self.send(tried, tp, [self._value()], before), context=outside))
            await self.client.pause(1)  # its sequence is drawn before that of the next
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
        for task in tasks:
            task.result()

    def _value(self) -> str:
        self._made += 1
        return f"{self.name}/{self.number}/{self._made}"

    async def send(
        self, tried: Tried, tp: TopicPartition, values: Sequence[str], before: asyncio.Task[None] | None = None
    ) -> None:
        """One batch, again and again until it is acknowledged. It may be out of order while the one `before` has no verdict."""
        sent = [Sent(tp=tp, value=value) for value in values]
        tried.sends += sent
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + len(values)
        batch = self._build(tp, values, sequence)
        end_us = self.client.now_us() + DELIVERY_US
        self._unsure = True
        while True:
            may_be_early = before is not None and not before.done()
            code, offset = await self._attempt(tp, batch)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                break
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and may_be_early:
                await self.client.backoff()
                continue
            if code in ABORTABLE or self.client.now_us() >= end_us:
                raise Aborting
            if code in FATAL:
                raise Ended
            if tp == PASSING and code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                raise Aborting
            await self.client.backoff()
            await self.client.refresh()
        self._unsure = False
        if code is ErrorCode.NONE:
            for index, it in enumerate(sent):
                it.offset = offset + index

    def _build(self, tp: TopicPartition, values: Sequence[str], sequence: int, *, transactional: bool = True) -> bytes:
        return bytes(
            build_batch(
                [Record(key=self._key(tp, value), value=value.encode()) for value in values],
                timestamp_ms=self.client.cluster.wall_ms(),
                transactional=transactional,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                base_sequence=sequence,
            )
        )

    def _key(self, tp: TopicPartition, value: str) -> bytes | None:
        """The key of a record that is about to be written."""
        return f"k{self._keeping.randrange(KEYS)}".encode() if tp.topic == COMPACTED else None

    async def _dawdle(self, tried: Tried) -> None:
        """Pause, maybe for longer than the transaction may take; or until its end and the coordinator's patience meet. In half of
        the cases it gets another partition late: its time began with the first one all the same (TX-62)."""
        limit_us = 1_000 * self.client.timeout_ms
        fresh = [tp for tp in self.targets if all(tp != sent.tp for sent in tried.sends)]
        if fresh and self._late.randrange(2) == 0:
            await self.client.pause(max(1, tried.began_us + limit_us * 4 // 5 - self.client.now_us()))
            await self.add(fresh[:1])
            await self.send(tried, fresh[0], [self._value()])
            await self.client.pause(self._late.randint(limit_us, 2 * limit_us))
        us = self.rng.randint(1, 2 * limit_us)
        if self.rng.randrange(2):
            us = tried.began_us + limit_us - self.client.now_us() + self.rng.randint(-5_000, 1_000_000)
        await self.client.pause(max(1, us))

    async def _somewhere(self, tried: Tried) -> TopicPartition:
        """Choose where the transaction has written, or where it has not: there the leader must ask about the batch first."""
        fresh = [tp for tp in self.targets if all(tp != sent.tp for sent in tried.sends)]
        if not fresh or self.rng.randrange(3) == 0:
            return tried.sends[-1].tp
        await self.add(fresh[:1])
        return fresh[0]

    def _leave_behind(self, tried: Tried, tp: TopicPartition) -> None:
        """A batch that is on its way when its transaction is aborted: it may arrive before the marker, behind it, or in the next
        transaction."""
        value = self._value()
        tried.sends.append(Sent(tp=tp, value=value))
        batch = self._build(tp, [value], self._sequences.get(tp, 0))
        self._unsure = True
        delay_us = self.rng.choice((0, 0, self.rng.randint(1, 3_000), self.rng.randint(1, 30_000)))

        async def arrive() -> None:
            await self.client.pause(delay_us)
            await self._attempt(tp, batch)

        self._left.append(asyncio.get_running_loop().create_task(arrive(), context=self.client.cluster.outside))

    async def _attempt(self, tp: TopicPartition, batch: bytes) -> tuple[ErrorCode, int]:
        leader = await self.client.leader(tp)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1
        ask = TransactionalProduceAsk(self.name, self.version, (TransactionalBatch(tp, batch),), REQUEST_TIMEOUT_MS // 2)
        try:
            told = await self.client.call(leader, PRODUCE, ask)
        except (TransportError, ApiError):
            return ErrorCode.NETWORK_EXCEPTION, -1
        (result,) = told.result
        return ErrorCode(result.error), result.base_offset
