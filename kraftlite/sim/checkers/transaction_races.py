"""The races of transactions that a run has really met, by their names in docs/TESTING.md ("Races of transactions").

A scene that is played shows nothing by itself: its faults may strike when nothing is under way. So each race is recognised by its
own facts: what was in the log when a coordinator took over, what a request met where it arrived. `met` counts them; a swarm tells
them at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.transactions.rules import Entry
from kraftlite.coordinator.transactions.states import PREPARED, TransactionState
from kraftlite.log.batch import parse_header
from kraftlite.log.log import Log
from kraftlite.log.producers import ProducerEntry
from kraftlite.metadata.features import TRANSACTION_VERSION
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ENROLL, WRITE_MARKERS
from kraftlite.model.messages.transactions import EnrollRequest, EnrollResponse, WriteMarkersRequest
from kraftlite.model.method import AnyMethod
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupsLoading
from kraftlite.runtime.trace.log import LogStartAdvanced
from kraftlite.runtime.trace.transaction import TransactionFenced, TransactionsLoaded
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import group_facts
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.sim.checkers.transaction_log import Deal, InLog, StateRecord, TransactionChecker
from kraftlite.sim.services import groups
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.hanging import HANG, MARK, HangAsk, MarkAsk
from kraftlite.sim.services.transactions import (
    ADD,
    COMMIT,
    END,
    INIT,
    PRODUCE,
    EndAsk,
    InitAsk,
    TransactionalCommitAsk,
    TransactionalProduceAsk,
)
from kraftlite.sim.workloads.transactions_history import HANGING
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_S: Final = TransactionState
_REPLACED: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class RaceWatch(ReplicaChecker, TransactionChecker):
    """Counts races; it judges nothing."""

    only_events = (TransactionsLoaded, TransactionFenced, GroupsLoading, LogStartAdvanced)
    only_methods = (INIT, ADD, END, PRODUCE, COMMIT, ENROLL, WRITE_MARKERS, groups.COMMIT, HANG, MARK)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.met: Counter[str] = Counter()
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch in which each partition of `__transaction_state` was loaded last."""
        self._fenced: dict[str, str] = {}
        """Transactional id → why its coordinator has fenced it last."""
        self._ends: dict[tuple[int, int], int] = {}
        """Producer id and epoch → the coordinator's epoch when its EndTxn came first."""
        self._unanswered: dict[tuple[int, int], EndAsk] = {}
        self._began: dict[int, tuple[object, Deal | None]] = {}
        """The requests of clients, by identity, with the transaction of their id when they were sent."""
        self._questions: dict[int, tuple[NodeId, EnrollRequest, tuple[object, ...]]] = {}
        self._undecided: dict[TopicIdPartition, dict[Any, None]] = {}
        self._waits: dict[tuple[int, int, TopicPartition], int] = {}
        """Producer and partition → the lowest sequence that was refused for lack of an answer."""
        self._gone: dict[str, None] = {}
        self._level = -1
        self._ended_by_hand: dict[Producer, None] = {}
        self._all_restarted = False
        """Every broker was down at once since coordinators have loaded."""

    # --- the places

    def _count(self, topic: str) -> int:
        found = self.facts.metadata.history.latest.topic_named(topic)
        return 1 if found is None else len(found[1].partitions)

    def _place(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(TRANSACTION_TOPIC, partition_for(transactional_id, self._count(TRANSACTION_TOPIC)))

    def _entry(self, node_id: NodeId, transactional_id: str) -> Entry | None:
        """The id in the memory of the node, if it coordinates it."""
        node = self.world.nodes.get(node_id)
        broker = None if node is None or node.node is None else node.node.broker
        driver = None if broker is None else broker.transactions.led.get(self._place(transactional_id).partition)
        return driver.shard.by_id.get(transactional_id) if driver is not None and driver.loaded else None

    def _deals(self) -> Iterator[Deal]:
        yield from (it for it in self.transactions.current.values() if it is not None)

    def _open_in(self, key: TopicIdPartition) -> bool:
        """Return whether a transaction that is not over has written there."""
        known = self.transactions.in_log.get(key, {})
        return any(it.deal is not None and not it.deal.complete and key not in it.deal.marked for it in known.values())

    # --- coordinators

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, TransactionFenced):
            self._fenced[event.transactional_id] = event.reason
            entry = self._entry(node.node_id, event.transactional_id)
            if entry is not None and event.reason == "timed out":
                self._timed_out(node, event.transactional_id, entry)
        elif isinstance(event, TransactionsLoaded):
            before = self._epochs.get(event.tp)
            self._epochs[event.tp] = max(event.leader_epoch, -1 if before is None else before)
            if before is not None and event.leader_epoch > before:
                self._taken_over(event.tp)
        elif isinstance(event, GroupsLoading):
            log = group_facts(self.world).logs.get(event.tp)
            if log is not None and any(log.pending.values()):
                self.met["R14 the coordinator of a group goes between an offset and its marker"] += 1

        elif isinstance(event, LogStartAdvanced):
            view = self.facts.view(node.node_id, event.tp)
            if view is not None and view.log is not None:
                self._cut_off(view.log, event)

    def _cut_off(self, log: Log, event: LogStartAdvanced) -> None:
        first = log._ctx.producers.first_unstable_offset()
        if first is not None and event.old <= first < event.new:
            self.met["R17 the beginning of an open transaction is deleted"] += 1

    def _taken_over(self, tp: TopicPartition) -> None:
        prepared = 0
        for name, deal in self.transactions.current.items():
            if deal is None or self._place(name) != tp:
                continue
            asked = self._unanswered.get((deal.producer_id, deal.epoch))
            partitions = {it for it in deal.partitions if self.transactions.key_of(it) is not None}
            marked = {TopicPartition(it.topic, it.partition) for it in partitions if self.transactions.key_of(it) in deal.marked}
            if deal.commit is None:
                self.met["R3 (a) the coordinator goes before the outcome is committed"] += asked is not None
            elif not deal.complete:
                prepared += 1
                at = (
                    "(d) behind the last marker"
                    if marked == partitions
                    else "(c) between markers"
                    if marked
                    else "(b) before them"
                )
                self.met[f"R3 {at} the coordinator goes"] += 1
            elif asked is not None:
                self.met["R3 (e) the coordinator goes when all is done but the answer"] += 1
        if self._all_restarted and prepared:
            self.met["R24 everybody restarts with outcomes that are not carried out"] += 1

    def _timed_out(self, node: SimHost, transactional_id: str, entry: Entry) -> None:
        deal = self.transactions.current.get(transactional_id)
        now_ms = self.world.cluster.wall_ms()
        if now_ms < entry.current.start_ms + entry.current.timeout_ms:
            self.met["R21 a clock that jumps forward ends a transaction"] += 1
        short = [it for it in (deal.partitions if deal is not None else ()) if self._is_short(it)]
        if short:
            self.met["R11 a partition has too few replicas for longer than the timeout"] += 1

    def _is_short(self, tp: TopicPartition) -> bool:
        key = self.transactions.key_of(tp)
        found = None if key is None else self.facts.registration(key)
        return found is not None and len(found.isr) < len(found.replicas)

    def on_death(self, node: SimHost, how: str) -> None:
        self._all_restarted = self._all_restarted or not any(it.running for it in self.world.cluster.brokers)

    # --- requests

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if isinstance(request, EnrollRequest):
            self._questions[id(request)] = (source, request, self._guards(source, request))
            return
        name = getattr(request, "transactional_id", None)
        if name is not None:
            self._began[id(request)] = (request, self.transactions.current.get(name))

    def _guards(self, node_id: NodeId, request: EnrollRequest) -> tuple[object, ...]:
        """The guards of the partitions that are asked about."""
        views = [self.facts.view(node_id, TopicPartition(it.topic, it.partition)) for it in request.partitions]
        return tuple(
            None if view is None or view.log is None else view.log._ctx.producers.guards.by_producer.get(request.producer_id)
            for view in views
        )

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if isinstance(request, EnrollRequest) and isinstance(response, EnrollResponse):
            asked = self._questions.pop(id(request), None)
            if asked is None:
                return
            for error, before, now in zip(response.errors, asked[2], self._guards(source, request), strict=True):
                if error is ErrorCode.NONE and before is not None and before is not now:
                    self.met["R6 a marker comes between the coordinator's yes and the append"] += 1
        elif isinstance(request, EndAsk) and isinstance(response, Told) and response.error is ErrorCode.NONE:
            self._unanswered.pop(request.producer, None)
            self._all_restarted = False  # life goes on

    def on_arrival(self, exchange: AnyExchange) -> None:
        request = exchange.request
        self._note_late(exchange)
        if isinstance(request, EndAsk):
            self._end_comes(exchange.target, request)
        elif isinstance(request, InitAsk):
            entry = self._entry(exchange.target, request.transactional_id)
            pending = None if entry is None else entry.pending
            if entry is not None and pending is not None and pending.state is _S.DEAD:
                self.met["R19 an id is asked for while it is forgotten"] += 1
            elif entry is not None and pending is not None and pending.state in PREPARED and entry.current.state is _S.ONGOING:
                self.met["R2 the end comes first, then another instance"] += 1
        elif isinstance(request, TransactionalProduceAsk):
            self._batch_comes(exchange.target, request)
        elif isinstance(request, WriteMarkersRequest):
            self._markers_come(exchange.target, request)
        elif isinstance(request, HangAsk):
            self._wakes(exchange.target, request.tp, request.batch)
        elif isinstance(request, MarkAsk):
            self._is_ended_by_hand(exchange.target, request)

    def _note_late(self, exchange: AnyExchange) -> None:
        began = self._began.pop(id(exchange.request), None)
        if began is None or not exchange.done.done():
            return
        name: str = exchange.request.transactional_id
        if self.transactions.current.get(name) is not began[1]:
            self.met[f"R10 {exchange.method.name} comes when the next transaction has begun"] += 1

    def _end_comes(self, node_id: NodeId, ask: EndAsk) -> None:
        now = self._epochs.get(self._place(ask.transactional_id), -1)
        first = self._ends.setdefault(ask.producer, now)
        self._unanswered[ask.producer] = ask
        deal, entry = self.transactions.current.get(ask.transactional_id), self._entry(node_id, ask.transactional_id)
        if deal is not None and deal.commit is not None and first < now and (deal.producer_id, deal.epoch) == ask.producer:
            self.met[f"R9 the answer of an end is lost, and the next coordinator is asked (version {ask.version})"] += 1
        if entry is None or not ask.commit:
            return
        node, current, pending = self.world.nodes[node_id], entry.current, entry.pending
        assert node.now is not None
        wall_ms = node.now.clock.wall_ms()
        if pending is None and current.state is _S.ONGOING:
            if current.start_ms + current.timeout_ms < wall_ms:
                self.met["R1 the end comes first, and then the timeout"] += 1
            if wall_ms < current.start_ms:
                self.met["R21 a clock that jumps back meets an open transaction"] += 1
        ending = pending if pending is not None and pending.state is _S.PREPARE_ABORT else current
        if ending.state is _S.PREPARE_ABORT and ending.producer_epoch > ask.producer.producer_epoch:
            why = {"timed out": "R1 the timeout comes first, and then the end", "taken over": "R2 another instance comes first"}
            reason = self._fenced.get(ask.transactional_id)
            if reason is not None:
                self.met[why[reason]] += 1

    def _entry_in(self, node_id: NodeId, tp: TopicPartition, producer_id: int) -> ProducerEntry | None:
        view = self.facts.view(node_id, tp)
        return None if view is None or view.log is None else view.log._ctx.producers.entries.get(producer_id)

    def _wakes(self, node_id: NodeId, tp: TopicPartition, batch: bytes) -> None:
        header = parse_header(batch)
        entry = self._entry_in(node_id, tp, header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return
        if entry.txn_first_offset is not None:
            self.met["R23 the producer of what hangs wakes first"] += 1
        elif Producer(header.producer_id, header.producer_epoch) in self._ended_by_hand:
            self.met["R23 an administrator comes first, and then the producer"] += 1

    def _is_ended_by_hand(self, node_id: NodeId, ask: MarkAsk) -> None:
        entry = self._entry_in(node_id, ask.tp, ask.producer.producer_id)
        if entry is None or entry.txn_first_offset is None:
            return
        if entry.producer_epoch > ask.producer.producer_epoch:
            self.met["R23 the next transaction of the producer has begun before the administrator comes"] += 1
        self._ended_by_hand[ask.producer] = None

    def _batch_comes(self, node_id: NodeId, ask: TransactionalProduceAsk) -> None:
        for it in ask.batches if ask.batches[0].tp.topic == HANGING else ():
            self._wakes(node_id, it.tp, it.batch)
        for it in ask.batches if ask.version >= 2 else ():
            header = parse_header(it.batch)
            entry = self._entry_in(node_id, it.tp, header.producer_id)
            if entry is not None and entry.txn_first_offset is not None and entry.producer_epoch == header.producer_epoch - 1:
                self.met["R8 a batch comes before the marker of the transaction before"] += 1

    def _markers_come(self, node_id: NodeId, request: WriteMarkersRequest) -> None:
        for it in request.markers:
            name = self.transactions.by_producer.get(it.producer_id)
            if name is None:
                continue
            if it.coordinator_epoch < self._epochs.get(self._place(name), -1):
                self.met["R4 the marker of a coordinator that was replaced comes"] += 1
                deal = self.transactions.current.get(name)
                if deal is not None and deal.commit is None and TopicPartition(it.topic, it.partition) in deal.partitions:
                    self.met["R4 it comes in the middle of the next transaction"] += 1
            node = self.world.nodes[node_id]
            broker = None if node.node is None else node.node.broker
            driver = None if broker is None or it.topic != OFFSETS_TOPIC else broker.groups.led.get(it.partition)
            if driver is not None and driver.loading:
                self.met["R14 the marker comes while the coordinator of the group loads"] += 1

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        if isinstance(request, TransactionalProduceAsk) and isinstance(response, Told) and response.result is not None:
            for it, result in zip(request.batches, response.result, strict=True):
                self._produced(it.tp, it.batch, ErrorCode(result.error))
        elif isinstance(request, TransactionalCommitAsk) and isinstance(response, Told):
            codes = [response.error, *(response.result or ())]
            if request.generation >= 0 and any(code in _REPLACED for code in codes):
                log = group_facts(self.world).log_of(request.group_id)
                kind = "consumer" if log is not None and request.group_id in log.consumers else "classic"
                self.met[f"R15 an offset of an older generation ({kind} protocol)"] += 1
        elif exchange.method is groups.COMMIT:
            self._committed_plainly(request)
        elif isinstance(response, Told) and response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE and isinstance(request, EndAsk):
            if self._is_short(self._place(request.transactional_id)):
                self.met["R11 the partition of the coordinator has too few replicas"] += 1
        elif isinstance(request, InitAsk) and getattr(response, "error", None) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            entry = self._entry(exchange.target, request.transactional_id)
            self.met["R20 there is no producer id at hand"] += entry is not None

    def _produced(self, tp: TopicPartition, batch: bytes, error: ErrorCode) -> None:
        header = parse_header(batch)
        place = (header.producer_id, header.producer_epoch, tp)
        if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
            self._waits[place] = min(header.base_sequence, self._waits.get(place, header.base_sequence))
        elif (
            error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and self._waits.get(place, header.base_sequence) < header.base_sequence
        ):
            self.met["R7 of two batches the first is refused, and the second waits for it"] += 1

    def _committed_plainly(self, request: Any) -> None:
        log = group_facts(self.world).log_of(request.base.group_id)
        pending = [] if log is None else [key.tp for records in log.pending.values() for _, key, _ in records]
        if any(TopicPartition(it.topic.name or "", it.partition) in pending for it in request.commits):
            self.met["R16 a plain commit behind one in a transaction that is open"] += 1

    # --- logs

    def on_state(self, record: StateRecord) -> None:
        level = self.facts.metadata.history.latest.features.get(TRANSACTION_VERSION, 0)
        if self._level not in (-1, level):
            versions = {0 if it.epoch == it.marker_epoch else 2 for it in self._deals() if not it.complete}
            if versions:
                self.met[f"R22 transaction.version goes {'up' if level > self._level else 'down'} under an open transaction"] += 1
        self._level = level
        name = record.transactional_id
        if record.new is None:
            self._gone[name] = None
        elif record.old is None and name in self._gone:
            self.met["R19 an id is used again that was forgotten"] += 1
        if record.new is not None and record.new.state in PREPARED and record.deal is not None:
            self._note_reborn(record.deal)

    def _note_reborn(self, deal: Deal) -> None:
        for key, known in self.transactions.in_log.items():
            if self.transactions.exists(key) or not any(it.deal is deal for it in known.values()):
                continue
            tp = next(iter(known.values())).tp
            how = "deleted" if self.transactions.key_of(tp) is None else "deleted and created again"
            self.met[f"R12 a topic is {how} in a transaction"] += 1

    def on_appended(self, it: InLog) -> None:
        if it.marker is not None:
            self._undecided.setdefault(it.key, {})[it.batch] = None

    def on_committed(self, it: InLog) -> None:
        if it.marker is not None:
            self._undecided.get(it.key, {}).pop(it.batch, None)

    def on_partition(self, change: PartitionChange) -> None:
        old, new = change.old, change.new
        if old is None or new is None:
            return
        if old.replicas != new.replicas and self._open_in(change.key):
            self.met["R13 a partition moves in a transaction"] += 1
        if old.leader_epoch == new.leader_epoch or old.leader == new.leader:
            return
        asking = [
            it
            for it in self._questions.values()
            if it[0] == old.leader and any(_is(part, change.tp) for part in it[1].partitions)
        ]
        if asking:
            self.met["R5 the leader goes between question and append"] += 1
        if self._undecided.get(change.key):
            self.met["R5 the leader goes between a marker and its HW"] += 1
        elif self._open_in(change.key):
            self.met["R5 the leader goes between append and marker"] += 1

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        if was is None and view.log is not None and view.log._ctx.producers._open:
            self.met["R18 a start finds an open transaction"] += 1
            if len(view.log.segments) > 1:
                self.met["R18 it is in a log of several segments"] += 1


def _is(part: Any, tp: TopicPartition) -> bool:
    return (part.topic, part.partition) == (tp.topic, tp.partition)
