"""The committed content of `__transaction_state`, and the transactions in every other log: what was decided, and who was told.

`TransactionWatch` reads each batch once. It tells the checkers of transactions of every state that is committed, of every
transactional batch and every marker that appears in any log, and of every one that is committed there. What it says of
transactions it takes from the bytes alone. Where a partition lost something that it was allowed to lose, nobody is judged by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.records import decode_key, decode_value
from kraftlite.coordinator.transactions.states import PREPARED, Transaction, TransactionState
from kraftlite.log.batch import iter_records, parse_header
from kraftlite.log.control import EndTxnMarker, decode_control
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker, ReplicaFacts, replica_facts
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.simhost.host import SimHost

NOTE: Final = "transaction facts"
_S: Final = TransactionState


@dataclass(eq=False, slots=True, kw_only=True)
class Deal:
    """One transaction as `__transaction_state` tells it, from Ongoing (or an abort of nothing) on. `epoch`: of its batches.
    `marker`: producer id and epoch of its markers, None until it is decided; `commit` likewise."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    commit: bool | None = None
    marker_epoch: int | None = None
    complete: bool = False
    added: dict[TopicPartition, TopicIdPartition | None] = field(default_factory=dict)
    """Its partitions as they were when they were added; None: there was none of that name."""
    marked: dict[TopicIdPartition, TopicPartition] = field(default_factory=dict)
    """The partitions in whose committed log its marker is."""

    @property
    def name(self) -> str:
        end = {None: "open", True: "committed", False: "aborted"}[self.commit]
        return f"the transaction of {self.transactional_id} with producer {self.producer_id}, epoch {self.epoch}, which is {end}"


class StateRecord(NamedTuple):
    """One record of `__transaction_state`, with the state before it; None: there is none. `deal`: the transaction that it is
    about, as of now. `epoch`: the leader epoch in which it was written."""

    tp: TopicPartition
    offset: int
    transactional_id: str
    old: Transaction | None
    new: Transaction | None
    deal: Deal | None
    epoch: int


class InLog(NamedTuple):
    """A transactional batch, or a marker, in a log. `deal`: of a batch, the transaction that its producer was in when it came
    there."""

    key: TopicIdPartition
    tp: TopicPartition
    batch: Batch
    marker: EndTxnMarker | None
    deal: Deal | None


class TransactionFacts:
    """Shared by all checkers of transactions of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.checkers: list[TransactionChecker] = []
        self.states: dict[str, Transaction] = {}
        self.current: dict[str, Deal | None] = {}
        """The transaction of each id that is open or being carried out; the last one behind that."""
        self.by_producer: dict[int, str] = {}
        """Producer id → transactional id."""
        self.decided: dict[tuple[int, int], list[Deal]] = {}
        """(producer id, epoch of the markers) → transactions in the order of their decisions."""
        self.in_log: dict[TopicIdPartition, dict[Batch, InLog]] = {}
        self.ends: dict[TopicIdPartition, int] = {}
        """The end of what has been read of each log."""
        self.ended_early: dict[TopicIdPartition, list[Batch]] = {}
        """Batches that a repeated marker of an earlier transaction has ended, where nobody could tell that it was one."""
        self.unjudged = False
        """`__transaction_state` may have lost something: nothing is known of transactions any more."""

    @property
    def replicas(self) -> ReplicaFacts:
        return replica_facts(self.world)

    def may_have_lost(self, key: TopicIdPartition) -> bool:
        return key in self.replicas.excuses

    def deal_of(self, producer_id: int) -> Deal | None:
        found = self.by_producer.get(producer_id)
        return None if found is None else self.current.get(found)

    def exists(self, key: TopicIdPartition) -> bool:
        return self.replicas.registration(key) is not None

    def key_of(self, tp: TopicPartition) -> TopicIdPartition | None:
        """The partition that has this name now; None: there is none."""
        found = self.replicas.metadata.history.latest.topic_named(tp.topic)
        if found is None or tp.partition not in found[1].partitions:
            return None
        return TopicIdPartition(found[0], tp.partition)

    # --- what comes

    def replay(self, tp: TopicPartition, offset: int, transactional_id: str, new: Transaction | None, *, epoch: int = 0) -> None:
        """A record of `__transaction_state`, of a leader epoch, is committed."""
        old = self.states.get(transactional_id)
        if new is None:
            self.states.pop(transactional_id, None)
            self.current.pop(transactional_id, None)
        else:
            self.states[transactional_id] = new
            self.by_producer.setdefault(new.producer_id, transactional_id)
            self._follow(transactional_id, old, new)
        record = StateRecord(tp, offset, transactional_id, old, new, self.current.get(transactional_id), epoch)
        for checker in self.checkers:
            checker.on_state(record)

    def _follow(self, transactional_id: str, old: Transaction | None, new: Transaction) -> None:
        deal = self.current.get(transactional_id)
        is_new = deal is None or (deal.commit is not None and (old is None or old.state not in PREPARED))
        if is_new and (new.state is _S.ONGOING or new.state in PREPARED):
            deal = self.current[transactional_id] = Deal(
                transactional_id=transactional_id,
                producer_id=new.producer_id,
                epoch=new.producer_epoch,
                partitions=new.partitions,
            )
        if deal is None:
            return
        for tp in new.partitions - deal.added.keys():
            deal.added[tp] = self.key_of(tp)
        if new.state is _S.ONGOING:
            deal.partitions = new.partitions
        elif new.state in PREPARED and deal.commit is None:
            deal.commit = new.state is _S.PREPARE_COMMIT
            deal.marker_epoch = new.producer_epoch
            self.decided.setdefault((new.producer_id, new.producer_epoch), []).append(deal)
        elif new.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
            deal.complete = True

    def appended(self, it: InLog, *, judged: bool = True) -> None:
        """A transactional batch or a marker is in a log that no log had before."""
        deal = self.deal_of(it.batch.producer_id) if it.marker is None and judged else None
        known = self.in_log.setdefault(it.key, {})[it.batch] = it._replace(deal=deal)
        for checker in self.checkers if judged else ():
            checker.on_appended(known)

    def committed(self, it: InLog) -> None:
        for checker in self.checkers:
            checker.on_committed(it)


def transaction_facts(world: World) -> TransactionFacts:
    found = world.notes.get(NOTE)
    if found is None:
        found = world.notes[NOTE] = TransactionFacts(world)
    assert isinstance(found, TransactionFacts)
    return found


class TransactionChecker(Checker):
    """A checker on top of `TransactionFacts`. Needs a `TransactionWatch` before it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.transactions = transaction_facts(world)
        self.transactions.checkers.append(self)

    def on_state(self, record: StateRecord) -> None:
        """A state is committed."""

    def on_appended(self, it: InLog) -> None:
        """A transactional batch or a marker is in a log that no log had before."""

    def on_committed(self, it: InLog) -> None:
        """It is committed there. Of each partition in the order of its log."""


class TransactionWatch(ReplicaChecker):
    """Reads `__transaction_state`, and the transactions in all other logs. Comes before all checkers of transactions."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.transactions = transaction_facts(world)
        self._records: dict[TopicIdPartition, dict[Batch, list[tuple[int, str, Transaction | None]]]] = {}
        self._appended: list[InLog] = []
        self._grown: dict[TopicIdPartition, Truth] = {}
        """The growth of the callback that is looked at: a coordinator on the same broker may have said in it what allows it."""

    def on_batch(self, truth: Truth, batch: Batch, raw: memoryview) -> None:
        if truth.tp.topic == TRANSACTION_TOPIC:
            self._records.setdefault(truth.key, {})[batch] = list(_states(batch, raw))
        elif batch.producer_id >= 0 and parse_header(raw).is_transactional:
            marker = None
            if batch.is_control:
                found = decode_control(next(iter(iter_records(raw))))
                if not isinstance(found, EndTxnMarker):
                    return
                marker = found
            it = InLog(truth.key, truth.tp, batch, marker, None)
            self.transactions.in_log.setdefault(truth.key, {})[batch] = it
            self._appended.append(it)

    def on_step(self, node: SimHost) -> None:
        if self._appended:
            appended, self._appended = self._appended, []
            for it in appended:
                found = self.facts.registration(it.key)
                is_late = found is None or found.leader_epoch > it.batch.epoch  # a leader that was replaced: it commits nothing
                self.transactions.appended(it, judged=not (is_late or self._is_unjudged()))
        if self._grown:
            grown, self._grown = self._grown, {}
            for truth in grown.values():
                self._extend(truth)

    def _is_unjudged(self) -> bool:
        facts = self.transactions
        if not facts.unjudged and any(tp.topic == TRANSACTION_TOPIC for tp in self.world.losses.excused):
            facts.unjudged = True
        return facts.unjudged

    def on_truth(self, truth: Truth) -> None:
        if truth.tp.topic == TRANSACTION_TOPIC:
            self._extend(truth)
        elif truth.key in self.transactions.in_log:
            self._grown[truth.key] = truth

    def _extend(self, truth: Truth) -> None:
        if self._is_unjudged():
            return
        end = self.transactions.ends.get(truth.key, 0)
        while (batch := truth.by_base.get(end)) is not None:
            if truth.tp.topic == TRANSACTION_TOPIC:
                for offset, transactional_id, new in self._records.get(truth.key, {}).get(batch, ()):
                    self.transactions.replay(truth.tp, offset, transactional_id, new, epoch=batch.epoch)
            else:
                self._tell_committed(truth, batch)
            end = batch.next_offset
        self.transactions.ends[truth.key] = end

    def _tell_committed(self, truth: Truth, batch: Batch) -> None:
        it = self.transactions.in_log[truth.key].get(batch)
        if it is not None and not self.transactions.may_have_lost(truth.key):
            self.transactions.committed(it)


def _states(batch: Batch, raw: memoryview) -> list[tuple[int, str, Transaction | None]]:
    found = []
    for record in iter_records(raw):
        transactional_id = None if record.key is None else decode_key(bytes(record.key))
        if transactional_id is not None:
            value = None if record.value is None else decode_value(bytes(record.value))
            found.append((batch.base_offset + record.offset_delta, transactional_id, value))
    return found
