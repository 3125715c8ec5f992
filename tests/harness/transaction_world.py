"""One partition of `__transaction_state` and its coordinators, one after the other: its log, the partitions that get markers, and
what clients are answered. A test moves the high watermark, the markers, the time and the leadership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kraftlite.coordinator.core.effects import Output
from kraftlite.coordinator.core.shards import Asked, GoOn, Late, Tick, Written
from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.coordinator.transactions.events import Add, End, Event, Fenced, Init, Mark, Marked, Request
from kraftlite.coordinator.transactions.records import decode_key, decode_value, record_of
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import PREPARED, Transaction, TransactionState
from kraftlite.coordinator.transactions.telling import Budget, TransactionStory
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import ListTracer

WALL_MS = 1_700_000_000_000
FIRST_ID = 1_000
A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 7)
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
COMPLETED = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
STARTED = Transaction(
    producer_id=70,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({A, C}),
    start_ms=WALL_MS - 20,
    updated_ms=WALL_MS - 10,
)


@dataclass
class Logged:
    """One batch of the log. `token` None: whoever wrote it hears no more of it."""

    records: tuple[CoordinatorRecord, ...]
    token: int | None

    def states(self) -> list[tuple[str, Transaction | None]]:
        found = []
        for record in self.records:
            name = decode_key(record.key)
            assert name is not None
            found.append((name, None if record.value is None else decode_value(record.value)))
        return found


@dataclass(eq=False)
class Sent:
    """Markers of one transaction that a coordinator has sent."""

    mark: Mark
    coordinator_epoch: int
    shard: TransactionShard
    left: list[TopicPartition]
    dropped: bool = False


@dataclass
class Marker:
    """What a partition knows of a producer: the last marker that it was given."""

    epoch: int
    commit: bool
    coordinator_epoch: int


class TransactionWorld:
    """`goes_on` False: steps that leave work are not told to go on with it.
    `refuse` is what the next appends are refused with; `refused_once` ends it after one. Everything else is a method."""

    def __init__(self, *, version: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.version = version
        self.now_ms = 0
        self.wall_shift = 0
        self.log: list[Logged] = []
        self.hw = 0
        self.refuse: ErrorCode | None = None
        self.refuse_once = True
        self.leader_epoch = 0
        self.ids = FIRST_ID
        self.no_ids = False
        self.goes_on = True
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.sent: list[Sent] = []
        self.partitions: dict[tuple[TopicPartition, int], Marker] = {}
        self.history: list[tuple[TopicPartition, int, Marker]] = []
        self.tracer = ListTracer()
        self.shard = self._load()

    # --- the coordinator

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms + self.wall_shift

    def _load(self) -> TransactionShard:
        world = self

        class Outbox:
            def send(self, mark: Mark) -> None:
                world.sent.append(Sent(mark, world.leader_epoch, shard, list(mark.partitions)))

            def forget(self) -> None:
                for sent in world.sent:
                    sent.dropped |= sent.shard is shard

        def new_id() -> int | None:
            if self.no_ids:
                return None
            self.ids += 1
            return self.ids

        story = TransactionStory(self.tracer, Budget(), TopicPartition("__transaction_state", 0), 0)
        shard = TransactionShard(self.config, new_id, Outbox(), self.tracer, story, version=lambda: self.version)
        self.shard = shard
        for batch in self.log[: self.hw]:
            for record in batch.records:
                shard.replay(record.key, record.value, wall_ms=self.wall_ms)
        self._take(shard.loaded(self.now_ms, self.wall_ms))
        return shard

    def load(self, name: str, state: Transaction) -> None:
        """Begin with this in the log."""
        record = record_of(name, state, transaction_version=self.version)
        self.log.append(Logged((record,), None))
        self.fail_over(len(self.log))

    def fail_over(self, kept: int | None = None) -> None:
        """Another coordinator, from a replica that has the log up to `kept`, which is at least the high watermark."""
        kept = self.hw if kept is None else kept
        assert self.hw <= kept <= len(self.log)
        for request_id, result in self.shard.resign().answers:
            self.answers[request_id] = result
        for request_id in range(1, self.asked + 1):  # as the driver does
            self.answers.setdefault(request_id, ApiError(ErrorCode.NOT_COORDINATOR))
        del self.log[kept:]
        self.hw = kept
        for batch in self.log:
            batch.token = None
        self.leader_epoch += 1
        self._load()

    def step(self, event: Event) -> None:
        self._take(self.shard.step(event, self.now_ms, self.wall_ms))
        self.shard.check()

    def _take(self, output: Output) -> None:
        for request_id, result in output.answers:
            assert request_id not in self.answers, "answered twice"
            self.answers[request_id] = result
        for append in output.appends:
            if self.refuse is not None:
                refused, self.refuse = self.refuse, None if self.refuse_once else self.refuse
                self.step(Written(token=append.token, error=refused))
            else:
                self.log.append(Logged(append.records, append.token))
        if output.more and self.goes_on:
            self.step(GoOn())

    def pass_time(self, ms: int) -> None:
        """Steps whenever the shard wants to be stepped."""
        end = self.now_ms + ms
        while (due := self.shard.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.step(Tick())
        self.now_ms = end

    # --- the log

    def commit(self, count: int | None = None) -> None:
        """The high watermark moves over `count` batches, or to the end, and to what is written because of that."""
        until = None if count is None else min(len(self.log), self.hw + count)
        while self.hw < (len(self.log) if until is None else until):
            batch = self.log[self.hw]
            self.hw += 1
            if batch.token is not None:
                token, batch.token = batch.token, None
                self.step(Written(token=token, error=ErrorCode.NONE))

    def time_out(self, index: int = 0, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """One of the batches beyond the high watermark is late; it stays in the log."""
        waiting = [batch for batch in self.log[self.hw :] if batch.token is not None]
        token = waiting[index].token
        assert token is not None
        self.step(Late(token=token, error=error))

    @property
    def waiting(self) -> int:
        return sum(batch.token is not None for batch in self.log[self.hw :])

    def states(self, name: str) -> list[Transaction | None]:
        """What the log says of an id, in its order; None: forgotten."""
        return [state for batch in self.log for key, state in batch.states() if key == name]

    # --- markers

    def deliver(self, sent: Sent, tp: TopicPartition, *, answered: bool = True) -> None:
        """A marker arrives at its partition; without `answered` the coordinator does not hear of it."""
        mark = sent.mark
        key = (tp, mark.producer.producer_id)
        known = self.partitions.get(key)
        fenced = known is not None and known.coordinator_epoch > sent.coordinator_epoch
        if not fenced:
            marker = Marker(mark.producer.producer_epoch, mark.commit, sent.coordinator_epoch)
            self.partitions[key] = marker
            self.history.append((tp, mark.producer.producer_id, marker))
        if not answered:
            return
        if tp in sent.left:
            sent.left.remove(tp)
        if sent.shard is not self.shard or sent.dropped:
            return
        if fenced:
            sent.dropped = True
            self.step(Fenced(transactional_id=mark.transactional_id, attempt=mark.attempt))
        else:
            self.step(Marked(transactional_id=mark.transactional_id, attempt=mark.attempt, partitions=frozenset({tp})))

    def under_way(self) -> list[tuple[Sent, TopicPartition]]:
        return [(sent, tp) for sent in self.sent for tp in sent.left]

    def deliver_all(self) -> None:
        for sent, tp in self.under_way():
            self.deliver(sent, tp)

    def settle(self) -> None:
        """Everything that is under way arrives, again and again, until nothing is."""
        self.refuse = None
        for _ in range(100):
            self.commit()
            self.deliver_all()
            if self.shard.written_again:
                self.pass_time(1_000)
            if self.hw == len(self.log) and not self.under_way() and not self.shard.written_again:
                return
        raise AssertionError("it does not come to rest")

    # --- clients

    def ask(self, request: Request) -> int:
        self.asked += 1
        self.step(Asked(request_id=self.asked, request=request))
        return self.asked

    def init(self, name: str = "t", *, timeout_ms: int = 60_000, expected: Producer | None = None) -> int:
        return self.ask(Init(transactional_id=name, timeout_ms=timeout_ms, expected=expected))

    def add(self, producer: Producer, *tps: TopicPartition, name: str = "t", version: int | None = None) -> int:
        version = self.version if version is None else version
        return self.ask(Add(transactional_id=name, producer=producer, partitions=frozenset(tps), version=version))

    def end(self, producer: Producer, *, commit: bool = True, name: str = "t", version: int | None = None) -> int:
        version = self.version if version is None else version
        return self.ask(End(transactional_id=name, producer=producer, commit=commit, version=version))

    def now(self, request_id: int) -> Any:
        """The answer to a request, once what it wrote is committed: what it gives, or its error code."""
        self.commit()
        return self.answer(request_id)

    def answer(self, request_id: int) -> Any:
        found = self.answers[request_id]
        return found.code if isinstance(found, ApiError) else found

    def begun(self, *tps: TopicPartition, name: str = "t", **asked: Any) -> Producer:
        """A producer with an open transaction in these partitions."""
        producer = self.now(self.init(name, **asked))
        assert isinstance(producer, Producer), producer
        assert self.now(self.add(producer, *tps, name=name)) == producer
        return producer

    def current(self, name: str = "t") -> Transaction:
        return self.shard.by_id[name].current


def obeys_the_order(states: Sequence[Transaction | None]) -> None:
    """TX-05: the order of the states of one id in the log. A state may be written again as it is, when it was not sure to
    be in the log; within a producer id the epoch never decreases; another producer id begins with epoch 0."""
    before: Transaction | None = None
    for state in states:
        if state is not None and before is not None and state != before:
            followed = f"{state.state.title} after {before.state.title}"
            assert state.may_follow(before), followed
            if state.producer_id == before.producer_id:
                assert state.producer_epoch >= before.producer_epoch, followed
            else:
                assert state.producer_epoch == 0, followed
            if before.state in PREPARED:
                assert state.state.name.removeprefix("COMPLETE") == before.state.name.removeprefix("PREPARE"), followed
        before = state


def world(version: int = 2, **config: int) -> TransactionWorld:
    return TransactionWorld(version=version, **config)
