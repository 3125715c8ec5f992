"""Invariant 38: a client is refused only what it may be refused: each error has its conditions, here as a table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.broker.lifecycle_core import BrokerState
from kraftlite.log.batch import MAX_SEQUENCE, parse_header
from kraftlite.log.log import Log
from kraftlite.log.producers import BATCHES_KEPT
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import LogDirFailed, LogDirUnusable
from kraftlite.sim.checkers.arrivals import Arrival, Arrivals
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker, may_forget_producers
from kraftlite.sim.checkers.replica_views import Batch, ReplicaView
from kraftlite.sim.client import FIRST_CLIENT_ID
from kraftlite.sim.service import FETCH, OFFSETS, PRODUCE, FetchAsk, OffsetAsk, ProduceAsk
from kraftlite.sim.workloads.stranger import NUMBER as STRANGER
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

Ask = ProduceAsk | FetchAsk | OffsetAsk
_LATEST: Final = -1
DEFAULT_LIMIT: Final = 1_048_588
"""The default of max.message.bytes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition as its broker has it at one moment. What the broker does not have is None, -1 or False."""

    partition: Partition | None
    leader: LeaderState | None
    log: Log | None
    leader_epoch: int
    partition_epoch: int
    start: int
    leo: int
    settled: bool
    """The HW has reached the start of the leader epoch."""
    few: bool
    """The committed ISR is smaller than min.insync.replicas."""
    listed: bool
    """The metadata image that clients are answered from has it."""
    last: Batch | None
    """The last batch of the producer that asks."""


@dataclass(frozen=True, slots=True)
class Case:
    """A refusal, with what its broker knew when the request arrived and what it knows now. In between it may have known either,
    and when the two differ, anything between them."""

    ask: Ask
    was: Seen
    now: Seen
    view: ReplicaView | None
    from_stranger: bool
    waited_us: int
    stopping: bool
    limit: int
    """The smallest max.message.bytes that the topic ever had."""
    broken: bool
    """A log directory of this broker has failed, or files of this replica were damaged."""
    shrank: bool
    """In the leader epoch in which the request came the ISR lacked a replica, then or later; true where that is not known."""

    @property
    def moved(self) -> bool:
        """The replica has not led all the time, in one leader epoch and with one log."""
        was, now = self.was, self.now
        return was.leader is None or was.leader is not now.leader or was.log is not now.log or self.deleted

    @property
    def deleted(self) -> bool:
        """The replica is gone, or is one of another topic of the same name."""
        return self.was.partition is not self.now.partition


Condition = Callable[[Case], bool]


def _not_leader(it: Case) -> bool:
    return it.moved or it.stopping


def _unknown_topic(it: Case) -> bool:
    return it.deleted or not (it.was.listed and it.now.listed)


def _not_enough(it: Case) -> bool:
    assert isinstance(it.ask, ProduceAsk)
    changed = it.moved or it.was.partition_epoch != it.now.partition_epoch
    return it.ask.acks == -1 and (it.was.few or it.now.few or (changed and it.shrank))


def _storage(it: Case) -> bool:
    return it.deleted or ((it.was.log is None or it.now.log is None) and it.broken)


def _fenced_epoch(it: Case) -> bool:
    return isinstance(it.ask, FetchAsk) and it.ask.leader_epoch is not None and it.ask.leader_epoch < it.now.leader_epoch


def _unknown_epoch(it: Case) -> bool:
    return isinstance(it.ask, FetchAsk) and it.ask.leader_epoch is not None and it.ask.leader_epoch > it.was.leader_epoch


def _out_of_range(it: Case) -> bool:
    assert isinstance(it.ask, FetchAsk)
    return it.moved or it.ask.offset < it.now.start or it.ask.offset > it.was.leo


def _not_available(it: Case) -> bool:
    assert isinstance(it.ask, OffsetAsk)
    return it.ask.timestamp == _LATEST and (it.moved or not it.was.settled)


def _out_of_order(it: Case) -> bool:
    assert isinstance(it.ask, ProduceAsk)
    sent = Batch.of(parse_header(it.ask.batch))
    if it.moved or it.view is None:
        return True
    if it.was.last is None and it.view.bases[:1] != [0]:
        return True  # its last batch was deleted, and what the log remembers of it is not known here
    if all(_follows(sent, last) for last in (it.was.last, *_since(sent.producer_id, it.view, it.was.leo))):
        return False
    return not _is_resend(sent, it.view, it.was.leo)


def _since(producer_id: int, view: ReplicaView, leo: int) -> Iterator[Batch]:
    """The producer's batches beyond `leo`: when the request was decided, any of them may have been its last. A broker that slept
    decides in one turn what came meanwhile, and the later of two requests of a producer may have come first."""
    first = bisect_left(view.bases, leo)
    return (batch for batch in view.batches[first:] if batch.producer_id == producer_id)


def _follows(sent: Batch, last: Batch | None) -> bool:
    """LG-17. Of a producer that the log does not know, any sequence may come first."""
    if last is None:
        return True
    if sent.producer_epoch != last.producer_epoch:
        return sent.producer_epoch > last.producer_epoch and sent.first_sequence == 0
    return sent.first_sequence == (last.last_sequence + 1) & MAX_SEQUENCE


def _is_resend(sent: Batch, view: ReplicaView, leo: int) -> bool:
    """Return whether it was, until the log went beyond `leo`, one of the producer's batches that are remembered now (LG-16)."""
    kept = 0
    for batch in reversed(view.batches):
        if batch.producer_id != sent.producer_id:
            continue
        if batch.producer_epoch != sent.producer_epoch or kept == BATCHES_KEPT:
            return False
        kept += 1
        same = (batch.first_sequence, batch.last_sequence) == (sent.first_sequence, sent.last_sequence)
        if same and batch.next_offset <= leo:
            return True
    return False


def _old_producer_epoch(it: Case) -> bool:
    assert isinstance(it.ask, ProduceAsk)
    sent = Batch.of(parse_header(it.ask.batch))
    return it.moved or (it.now.last is not None and sent.producer_epoch < it.now.last.producer_epoch)


def _bad_acks(it: Case) -> bool:
    return isinstance(it.ask, ProduceAsk) and it.ask.acks not in (-1, 0, 1)


def _too_large(it: Case) -> bool:
    assert isinstance(it.ask, ProduceAsk)
    return it.from_stranger or len(it.ask.batch) > it.limit


def _bad_batch(it: Case) -> bool:
    return it.from_stranger


_ANYWHERE: Final[Mapping[ErrorCode, Condition]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _not_leader,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _unknown_topic,
    ErrorCode.KAFKA_STORAGE_ERROR: _storage,
}

DESERVED: Final[Mapping[AnyMethod, Mapping[ErrorCode, Condition]]] = {
    PRODUCE: {
        **_ANYWHERE,
        ErrorCode.NOT_ENOUGH_REPLICAS: _not_enough,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _not_enough,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _out_of_order,
        ErrorCode.INVALID_PRODUCER_EPOCH: _old_producer_epoch,
        ErrorCode.INVALID_REQUIRED_ACKS: _bad_acks,
        ErrorCode.REQUEST_TIMED_OUT: lambda it: (
            isinstance(it.ask, ProduceAsk) and it.ask.acks == -1 and it.waited_us >= 1000 * it.ask.timeout_ms
        ),
        ErrorCode.CORRUPT_MESSAGE: _bad_batch,
        ErrorCode.INVALID_RECORD: _bad_batch,
        ErrorCode.INVALID_TIMESTAMP: _bad_batch,
        ErrorCode.INVALID_TXN_STATE: _bad_batch,
        ErrorCode.MESSAGE_TOO_LARGE: _too_large,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _bad_batch,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _bad_batch,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _bad_batch,
    },
    FETCH: {
        **_ANYWHERE,
        ErrorCode.FENCED_LEADER_EPOCH: _fenced_epoch,
        ErrorCode.UNKNOWN_LEADER_EPOCH: _unknown_epoch,
        ErrorCode.OFFSET_OUT_OF_RANGE: _out_of_range,
    },
    OFFSETS: {
        **_ANYWHERE,
        ErrorCode.OFFSET_NOT_AVAILABLE: _not_available,
    },
}
"""The conditions under which a broker may answer with an error. Nobody deserves an error that is not here: these clients use
neither topic ids nor transactions, and a broker that is out of its depth (UNKNOWN_SERVER_ERROR) has a mistake."""

_OF_PRODUCERS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})


class RefusalsDeserved(ReplicaChecker):
    """Produce, Fetch and ListOffsets of simulated clients. The broker's own knowledge is the measure, since it may lag behind the
    controller's; that it learns what it must, and keeps what it has, others check."""

    numbers: ClassVar[tuple[int, ...]] = (38,)
    only_events = (LogDirFailed, LogDirUnusable)
    only_methods = tuple(DESERVED)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arrivals = Arrivals(world, lambda node, exchange: self._see(node, exchange.request))
        self._lacked: dict[tuple[TopicIdPartition, int], int] = {}
        """By partition and leader epoch: the last partition epoch in which the ISR lacked a replica."""

    def on_partition(self, change: PartitionChange) -> None:
        new = change.new
        if new is not None and len(new.isr) < len(new.replicas):
            self._lacked[change.key, new.leader_epoch] = new.partition_epoch

    def _shrank(self, was: Seen) -> bool:
        if was.leader is None or was.partition is None:
            return True
        key = TopicIdPartition(was.partition.topic_id, was.partition.tp.partition)
        return self._lacked.get((key, was.leader_epoch), -1) >= was.partition_epoch

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, LogDirFailed | LogDirUnusable):
            self._arrivals.broken.add(node.node_id)

    def on_boot(self, node: SimHost) -> None:
        self._arrivals.on_boot(node)

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method in DESERVED:
            self._arrivals.on_arrival(exchange)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        table = DESERVED.get(exchange.method)
        if table is None:
            return
        code = ErrorCode(getattr(response, "error", ErrorCode.NONE))
        if code is ErrorCode.NONE:
            self._arrivals.forget(exchange)
            return
        arrival = self._arrivals.of(exchange)
        if arrival is None:
            return
        if code in _OF_PRODUCERS and may_forget_producers(self.world):
            return
        node = self.world.nodes[exchange.target]
        case = self._case(exchange, node, arrival)
        deserved = table.get(code)
        if deserved is None or not deserved(case):
            why = "never" if deserved is None else f"not now: {_describe(case)}"
            self.fail(
                f"{case.ask.tp}: node {node.node_id} refuses {exchange.method} of client {exchange.source} with {code.name}, "
                f"which it may {why}"
            )

    def _case(self, exchange: AnyExchange, node: SimHost, arrival: Arrival[Seen]) -> Case:
        ask: Ask = exchange.request
        assert node.node is not None and node.node.broker is not None
        return Case(
            ask=ask,
            was=arrival.seen,
            now=self._see(node, ask),
            view=self.facts.view(node.node_id, ask.tp),
            from_stranger=exchange.source == FIRST_CLIENT_ID + STRANGER,
            waited_us=self._arrivals.waited_us(exchange, arrival),
            stopping=node.node.broker.lifecycle.state is BrokerState.SHUTTING_DOWN,
            limit=min(self.facts.numbers_of.get((ask.tp.topic, "max.message.bytes"), ()), default=DEFAULT_LIMIT),
            shrank=self._shrank(arrival.seen),
            broken=node.node_id in self._arrivals.broken or (node.node_id, ask.tp) in self.world.losses.damaged,
        )

    def _see(self, node: SimHost, ask: Ask) -> Seen:
        broker = None if node.node is None else node.node.broker
        if broker is None:
            return _NOTHING
        tp = ask.tp
        topic = broker.cache.image.topics.by_name.get(tp.topic)
        listed = topic is not None and tp.partition in topic.partitions
        partition = broker.replicas.partition(tp)
        if partition is None:
            return _LISTED if listed else _NOTHING
        log, leader = partition.log, partition.leader
        return Seen(
            partition=partition,
            leader=leader,
            log=log,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            start=-1 if log is None else log.log_start_offset,
            leo=-1 if log is None else log.leo,
            settled=log is not None and leader is not None and log.hw >= leader.epoch_start_offset,
            few=leader is not None and len(leader.isr.committed) < partition.min_isr,
            listed=listed,
            last=self._last_batch(node.node_id, ask) if isinstance(ask, ProduceAsk) else None,
        )

    def _last_batch(self, node_id: NodeId, ask: ProduceAsk) -> Batch | None:
        view = self.facts.view(node_id, ask.tp)
        if view is None or len(ask.batch) < _PRODUCER_ID_END:
            return None
        producer_id = int.from_bytes(ask.batch[_PRODUCER_ID_END - 8 : _PRODUCER_ID_END], "big", signed=True)
        if producer_id < 0:
            return None
        found = view.producers.get(producer_id)
        if found is None and view.bases[:1] != [0]:  # what this incarnation never saw, since it was deleted before
            known = self.facts.truth(view.key, view.tp).by_base
            mine = (it for it in reversed(known.values()) if it.producer_id == producer_id and it.next_offset <= view.leo)
            found = next(mine, None)
        return found


_PRODUCER_ID_END: Final = 51
"""The position behind the producer id in a batch, in bytes."""


def _nothing(*, listed: bool) -> Seen:
    return Seen(None, None, None, -1, -1, -1, -1, False, False, listed, None)


_NOTHING: Final = _nothing(listed=False)
_LISTED: Final = _nothing(listed=True)


def _describe(it: Case) -> str:
    def text(seen: Seen) -> str:
        if seen.partition is None:
            return "has no replica" + (" of it" if seen.listed else " and has not heard of it")
        role = "is offline" if seen.log is None else "follows" if seen.leader is None else "leads"
        few = ", the ISR being too small" if seen.few else ""
        return f"{role} in leader epoch {seen.leader_epoch} with [{seen.start},{seen.leo}){few}, last of the producer {seen.last}"

    ask = it.ask
    if isinstance(ask, ProduceAsk):
        asked = f"{Batch.of(parse_header(ask.batch))} with acks={ask.acks}" if len(ask.batch) > 60 else f"{len(ask.batch)} bytes"
    else:
        asked = f"{ask}"
    return f"asked is {asked}; when it came the broker {text(it.was)}; {it.waited_us // 1000} ms later it {text(it.now)}"
