"""Asking for transactions: before a batch begins a transaction in a partition, its coordinator must know of it.

A leader asks through the `TransactionGate`: from transaction.version 2 on the partition is *added* to the transaction by that,
below it is *verified* that the producer has added it. A transaction that is open in the partition already is asked about no more.

Source: KIP-890; TP-03 to TP-10; Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.log.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader, attributes_of, parse_header
from kraftlite.log.guards import Guard, TransactionTerms
from kraftlite.log.log import Log
from kraftlite.model.broker_configs import value_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import ProduceEntry, ProduceTransaction
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.ports import NO_TOPIC_IDS, TransactionGate
from kraftlite.replication.table import PartitionTable
from kraftlite.runtime.ports import Clock

VERIFICATION: Final = "transaction.partition.verification.enable"
ADDS_FROM: Final = 2
"""The transaction.version from which a write adds its partition to the transaction."""
UNREACHABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
RETRIED: Final = UNREACHABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Answers behind which the same batch may come again: its guard stays, and with it the lowest sequence that was seen."""


TURN_WAIT_MS: Final = 1_000
"""The time for which a question waits for the one under way, whose answer may be lost: that is known after `request.timeout.ms`
only, and the connection that waits is not read meanwhile. Then it is asked all the same: to a coordinator it looks like a request
that came twice."""


class Identity(NamedTuple):
    """A producer under its transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Asked(NamedTuple):
    """An entry of a produce whose transaction is not open in its partition yet."""

    entry: ProduceEntry
    topic_id: UUID
    header: BatchHeader
    log: Log
    guard: Guard


@dataclass(slots=True)
class Verifications:
    """The questions that were answered, milliseconds from asking to the answer, and the partitions that were refused."""

    count: int = 0
    total_ms: int = 0
    failures: int = 0

    def answered(self, elapsed_ms: int, errors: Iterable[ErrorCode]) -> None:
        self.count += 1
        self.total_ms += elapsed_ms
        self.failures += sum(error is not ErrorCode.NONE for error in errors)


class Enroller:
    """The questions of one broker to transaction coordinators.

    `gate` None: there is no way to a coordinator yet, and batches that need one are refused as retriable. `verifies` is
    `transaction.partition.verification.enable`, which may change at any time; adding is never left out.
    """

    def __init__(self, table: PartitionTable, clock: Clock, config: ReplicationConfig) -> None:
        self.gate: TransactionGate | None = None
        self.verifies = config.verification_enabled
        self._table = table
        self.clock = clock
        self.verifications = Verifications()
        self._backoff_ms = config.enrol_backoff_ms
        self._retry_ms = min(config.enrol_retry_max_ms, config.request_timeout_ms)
        self._asking: dict[str, object] = {}
        """Transactional id -> a mark of the question that others wait for."""
        self._waiting: dict[str, tuple[Identity, asyncio.Future[None]]] = {}
        """Transactional id -> producer and turn of the one question that waits for the one under way."""

    def update_broker_values(self, values: Mapping[str, str]) -> None:
        self.verifies = bool(value_of(values, VERIFICATION))

    # --- produces -----------------------------------------------------------------------------------------------------

    def begin(self, entries: Sequence[ProduceEntry], transaction: ProduceTransaction) -> Enrolment | None:
        """Find the entries about which a coordinator must be asked; None: none. Entries that are refused whatever it says have
        that in their terms."""
        adds = transaction.version >= ADDS_FROM
        if not adds and not self.verifies:
            return None
        asked = [found for entry in entries if (found := self.begin_one(entry, adds)) is not None]
        return Enrolment(self, transaction, asked, self._retry_ms if adds else 0, self._backoff_ms) if asked else None

    def begin_one(self, entry: ProduceEntry, adds: bool) -> _Asked | None:
        """Begin the question about one entry; None: there is none. What is not led here now is refused, whoever leads when the
        others have their answers: nobody was asked about it."""
        if len(entry.records) < HEADER_BYTES or not attributes_of(entry.records) & TRANSACTIONAL_BIT:
            return None
        header = parse_header(entry.records)
        try:
            partition = self._table.find(entry.tp, entry.topic_id)
            leader, log = partition.leading()
            guard = log.begin_verification(header, leader_epoch=leader.leader_epoch, wall_ms=self.clock.wall_ms(), adds=adds)
        except ApiError as error:
            entry.terms = TransactionTerms(refusal=error)
            return None
        entry.terms = TransactionTerms(guard)
        return None if guard is None else _Asked(entry, partition.topic_id, header, log, guard)

    # --- one partition, for coordinators ------------------------------------------------------------------------------

    async def enrol(self, identity: Identity, tp: TopicPartition, *, version: int) -> TransactionTerms | None:
        """Ask about a coordinator's own batch, without a sequence, for one partition that is led here.

        The terms go into its `ProduceEntry`; None: nobody needs to be asked. Raises ApiError with the coordinator's own code.
        """
        adds = version >= ADDS_FROM
        if not adds and not self.verifies:
            return None
        partition = self._table.find(tp, None)
        leader, log = partition.leading()
        header = _sequenceless(identity)
        guard = log.begin_verification(header, leader_epoch=leader.leader_epoch, wall_ms=self.clock.wall_ms(), adds=adds)
        if guard is not None:
            answers = await self.ask(identity, (tp,), adds=adds, topic_ids={tp: partition.topic_id})
            code = answers.get(tp, ErrorCode.NETWORK_EXCEPTION)
            if code is not ErrorCode.NONE:
                if code not in RETRIED:
                    log.drop_guard(identity.producer_id, guard)
                raise ApiError(code, f"transaction of {identity.transactional_id}: {tp} is not part of it ({code.name})")
        return TransactionTerms(guard)

    # --- questions ----------------------------------------------------------------------------------------------------

    async def ask(
        self,
        identity: Identity,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        topic_ids: Mapping[TopicPartition, UUID] = NO_TOPIC_IDS,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """One question of a transactional id at a time, but for those without an answer for `TURN_WAIT_MS`; one more waits, and a
        newer one takes its place (TP-09)."""
        began_ms = self.clock.now_ms()
        found = await self._ask(identity, partitions, adds, topic_ids)
        self.verifications.answered(self.clock.now_ms() - began_ms, found.values())
        return found

    async def _ask(
        self, identity: Identity, partitions: Sequence[TopicPartition], adds: bool, topic_ids: Mapping[TopicPartition, UUID]
    ) -> Mapping[TopicPartition, ErrorCode]:
        transactional_id, producer_id, producer_epoch = identity
        if self.gate is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            if transactional_id in self._asking:
                await self._wait_turn(identity)
            mine = self._asking[transactional_id] = object()
            try:
                return await self.gate.ask(
                    transactional_id, producer_id, producer_epoch, partitions, add=adds, topic_ids=topic_ids
                )
            finally:
                self._pass_turn(transactional_id, mine)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)

    async def _wait_turn(self, identity: Identity) -> None:
        """The epochs of two producer ids say nothing about which one is newer: the coordinator knows."""
        transactional_id, producer_id, producer_epoch = identity
        older = self._waiting.get(transactional_id)
        if older is not None:
            (_, waiting_id, epoch), turn = older
            comparable = producer_id == waiting_id
            if comparable and producer_epoch < epoch:
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of {transactional_id} waits already")
            fenced = comparable and producer_epoch > epoch
            code = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION
            if not turn.done():
                turn.set_exception(ApiError(code, f"a newer request of {transactional_id} took its place"))
        turn = asyncio.get_running_loop().create_future()
        self._waiting[transactional_id] = identity, turn
        timer = self.clock.call_later(TURN_WAIT_MS, lambda: self._give_turn(transactional_id))
        try:
            await turn
        except (asyncio.CancelledError, ApiError):
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # its turn had come
                self._pass_turn(transactional_id, turn)
            elif self._waiting.get(transactional_id) == (identity, turn):
                del self._waiting[transactional_id]
            raise
        finally:
            timer.cancel()

    def _pass_turn(self, transactional_id: str, mine: object) -> None:
        """Nothing, where nobody waits for this question any more."""
        if self._asking.get(transactional_id) is mine:
            del self._asking[transactional_id]
            self._give_turn(transactional_id)

    def _give_turn(self, transactional_id: str) -> None:
        following = self._waiting.pop(transactional_id, None)
        if following is not None and not following[1].done():
            self._asking[transactional_id] = following[1]  # nobody may come between
            following[1].set_result(None)


class Enrolment:
    """The question of one produce. `run` ends with terms or a refusal in every entry that it asks about."""

    def __init__(
        self, enroller: Enroller, transaction: ProduceTransaction, asked: Sequence[_Asked], retry_ms: int, backoff_ms: int
    ) -> None:
        self._enroller = enroller
        self._transaction = transaction
        self._asked = asked
        self._retry_ms = retry_ms
        self._backoff_ms = backoff_ms

    async def run(self) -> None:
        """Ask, and ask again while the transaction before this one is being completed (TP-08)."""
        clock = self._enroller.clock
        began = clock.now_ms()
        while True:
            answers = await self._ask()
            if ErrorCode.CONCURRENT_TRANSACTIONS not in answers.values() or clock.now_ms() - began >= self._retry_ms:
                break
            await clock.sleep(self._backoff_ms)
            self._begin_again()
        for entry, _topic_id, header, log, guard in self._asked:
            code = answers.get(entry.tp, ErrorCode.NETWORK_EXCEPTION)
            if code is ErrorCode.NONE:
                continue
            if code not in RETRIED:
                log.drop_guard(header.producer_id, guard)
            entry.terms = TransactionTerms(refusal=_refusal(code, self._transaction, entry.tp))

    async def _ask(self) -> Mapping[TopicPartition, ErrorCode]:
        if not self._asked:
            return {}
        header = self._asked[0].header
        identity = Identity(self._transaction.transactional_id, header.producer_id, header.producer_epoch)
        topic_ids = {it.entry.tp: it.topic_id for it in self._asked}
        adds = self._transaction.version >= ADDS_FROM
        return await self._enroller.ask(identity, list(topic_ids), adds=adds, topic_ids=topic_ids)

    def _begin_again(self) -> None:
        """The marker of the transaction before may have come meanwhile and taken the guards away."""
        again = (self._enroller.begin_one(it.entry, True) for it in self._asked)
        self._asked = [found for found in again if found is not None]


def _sequenceless(identity: Identity) -> BatchHeader:
    return BatchHeader(0, 0, -1, 2, 0, TRANSACTIONAL_BIT, 0, -1, -1, identity.producer_id, identity.producer_epoch, -1, 0)


def _refusal(code: ErrorCode, transaction: ProduceTransaction, tp: TopicPartition) -> ApiError:
    """Translate a coordinator's answer into what a producer understands (TP-07)."""
    said = f"the transaction of {transaction.transactional_id} does not take {tp}: {code.name}"
    if code in UNREACHABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and transaction.version < ADDS_FROM):
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, said)
    if code is ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, said)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not transaction.knows_abortable:
        return ApiError(ErrorCode.INVALID_TXN_STATE, said)
    return ApiError(code, said)
