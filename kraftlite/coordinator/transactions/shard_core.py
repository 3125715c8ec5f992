"""The transactional ids of one partition of `__transaction_state`: the core that the driver steps.

Each step of an id is written first and counts when it is below the high watermark (TX-06): `Entry.pending` says that one is on
its way. Behind a decided outcome the markers go out (`Mark`); what became of them comes back (`Marked`); behind the last one the
id is complete. Source: KIP-98, KIP-360, KIP-890; TX-06 to TX-63."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.core.effects import Effects, Output
from kraftlite.coordinator.core.shards import Asked, Tick, Written
from kraftlite.coordinator.transactions import rules
from kraftlite.coordinator.transactions.records import decode_key, decode_value, record_of
from kraftlite.coordinator.transactions.rules import Answered, Decision, Entry, Next, Producer, Refused
from kraftlite.coordinator.transactions.states import PREPARED, Transaction, TransactionState
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition

_S: Final = TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """InitProducerId. The answer is a `Producer`."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """AddPartitionsToTxn, AddOffsetsToTxn. The answer is a `Producer`."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn. The answer is the `Producer` to go on with."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int


Request = Init | Add | End


class Mark(NamedTuple):
    """Markers to write. `attempt` tells them from those of other transactions of the id, and of other coordinators (TX-55)."""

    transactional_id: str
    attempt: int
    producer: Producer
    commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Partitions in which the marker is below the high watermark, or which do not exist any more, or need none."""

    transactional_id: str
    attempt: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A partition has refused the marker for good: a newer coordinator wrote there (TX-53). Nothing more is done for the
    transaction by this one."""

    transactional_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChanged:
    """The cluster's `transaction.version` is another one."""

    version: int


Event = Asked[Request] | Written | Marked | Fenced | VersionChanged | Tick

_TIMEOUTS: Final = "timeouts"
_EXPIRY: Final = "expiry"
_EXPIRED_AT_ONCE: Final = 100
"""The tombstones in one batch."""

_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The errors that clients are told when an append fails (TX-07); any other is UNKNOWN_SERVER_ERROR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Kafka's keys; times in milliseconds."""

    expiration_ms: int = 604_800_000
    timeouts_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000


@dataclass(slots=True)
class _Marking:
    """The markers of a transaction that are under way."""

    attempt: int
    waiting: set[TopicPartition] = field(default_factory=set)


class TransactionShard:
    """A deterministic state machine, as `core.shards.Shard` says. `new_id` draws a producer id, or gives None while there is none
    at hand. `marks` are taken by the driver's owner after each step."""

    def __init__(self, config: TransactionConfig, new_id: Callable[[], int | None], *, version: int) -> None:
        self._config = config
        self._new_id = new_id
        self._version = version
        self._effects = Effects()
        self._deadlines: Deadlines[str] = Deadlines()
        self._attempts = 0
        self._marking: dict[str, _Marking] = {}
        self.by_id: dict[str, Entry] = {}
        self.marks: list[Mark] = []

    # --- loading ------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None, *, producer_id: int | None = None, wall_ms: int) -> None:
        """One record of the log. ApiError(CORRUPT_MESSAGE) when it cannot be read; one of a newer kind is passed over (TX-04)."""
        if key is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record of __transaction_state without a key")
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.by_id.pop(transactional_id, None)
            return
        found = decode_value(value)
        if found is not None:
            self.by_id[transactional_id] = Entry(current=found)

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Nothing in this topic is written in a transaction."""

    def loaded(self, now_ms: int, wall_ms: int) -> Output:
        """Send the markers of every outcome that is decided (TX-60), and begin to look at the times."""
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        for transactional_id, entry in self.by_id.items():
            if entry.current.state in PREPARED:
                self._mark(transactional_id, entry)
        self._deadlines.set(_TIMEOUTS, now_ms + self._config.timeouts_interval_ms)
        self._deadlines.set(_EXPIRY, now_ms + self._config.expiry_interval_ms)
        self.check()
        return self._effects.take()

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold between two steps."""
        for transactional_id, entry in self.by_id.items():
            marking = self._marking.get(transactional_id)
            if entry.pending is not None:
                allowed = entry.pending.may_follow(entry.current) or entry.current.state is _S.ONGOING
                assert allowed, f"{transactional_id}: {entry.pending.state.title} after {entry.current.state.title}"
            if marking is not None and marking.waiting:
                assert entry.current.state in PREPARED, f"{transactional_id}: markers in {entry.current.state.title}"
                assert marking.waiting <= entry.current.partitions, f"{transactional_id}: a marker for what it has not written to"
        assert self._marking.keys() <= self.by_id.keys(), "markers of ids that are forgotten"

    # --- stepping -----------------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int, wall_ms: int) -> Output:
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        if isinstance(event, Asked):
            self._ask(event.request_id, event.request)
        elif isinstance(event, Written):
            self._effects.written(event.token, event.error)
        elif isinstance(event, Marked):
            self._marked(event)
        elif isinstance(event, Fenced):
            self._fenced(event)
        elif isinstance(event, VersionChanged):
            self._version = event.version
        while (key := self._deadlines.pop_due(now_ms)) is not None:
            if key == _TIMEOUTS:
                self._deadlines.set(_TIMEOUTS, now_ms + self._config.timeouts_interval_ms)
                self._abort_those_that_timed_out()
            else:
                self._deadlines.set(_EXPIRY, now_ms + self._config.expiry_interval_ms)
                self._forget_those_that_expired()
        return self._effects.take()

    def next_deadline_ms(self) -> int | None:
        """Return when to step at the latest (monotonic), maybe earlier than anything is really due."""
        return self._deadlines.next_ms()

    def resign(self) -> Output:
        """Forget the markers that wait; those under way may still land (TX-61)."""
        self.check()
        self._marking.clear()
        self.marks.clear()
        return self._effects.take()

    def _ask(self, request_id: int, request: Request) -> None:
        match request:
            case Init():
                self._init(request_id, request)
            case Add():
                entry = self.by_id.get(request.transactional_id)
                now_ms = self._effects.wall_ms
                found = rules.add(entry, request.producer, request.partitions, version=request.version, now_ms=now_ms)
                self._carry_out(request_id, request.transactional_id, found, request.producer)
            case End():
                self._end(request_id, request)

    def _init(self, request_id: int, request: Init) -> None:
        transactional_id, now_ms = request.transactional_id, self._effects.wall_ms
        entry = self.by_id.get(transactional_id)
        if entry is None:
            producer_id = self._new_id()
            if producer_id is None:
                self._refuse(request_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return
            entry = self.by_id[transactional_id] = Entry(current=rules.new(producer_id, request.timeout_ms, now_ms))
        found = rules.init(entry, request.expected, timeout_ms=request.timeout_ms, now_ms=now_ms, new_id=self._new_id)
        if isinstance(found, Next) and found.transaction.state is _S.PREPARE_EPOCH_FENCE:
            self._abort(transactional_id, entry, found.transaction, lambda error: self._refuse(request_id, _again(error)))
        else:
            self._carry_out(request_id, transactional_id, found, None)

    def _end(self, request_id: int, request: End) -> None:
        entry, now_ms = self.by_id.get(request.transactional_id), self._effects.wall_ms
        found = rules.end(
            entry, request.producer, commit=request.commit, version=request.version, now_ms=now_ms, new_id=self._new_id
        )
        if not isinstance(found, Next):
            self._carry_out(request_id, request.transactional_id, found, None)
            return
        assert entry is not None
        prepared = found.transaction
        answer = request.producer
        if request.version >= 2:
            done = rules.complete(prepared, now_ms=now_ms)
            answer = Producer(done.producer_id, done.producer_epoch)

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._refuse(request_id, error)
                return
            self._effects.answer(request_id, answer)
            self._mark(request.transactional_id, entry)

        self._write(request.transactional_id, entry, prepared, then)

    def _carry_out(self, request_id: int, transactional_id: str, found: Decision, answer: Producer | None) -> None:
        """Refuse, answer, or write and answer then. `answer` None: the producer of what is written."""
        if isinstance(found, Refused):
            self._refuse(request_id, found.error)
            return
        if isinstance(found, Answered):
            self._effects.answer(request_id, found.producer)
            return
        transaction = found.transaction

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._effects.answer(request_id, answer or Producer(transaction.producer_id, transaction.producer_epoch))
            else:
                self._refuse(request_id, error)

        self._write(transactional_id, self.by_id[transactional_id], transaction, then)

    def _refuse(self, request_id: int, error: ErrorCode) -> None:
        self._effects.answer(request_id, ApiError(error))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, transactional_id: str, entry: Entry, transaction: Transaction, then: Callable[[ErrorCode], None]) -> None:
        """Write a state, make it the current one when it is committed, and go on with `then`, which is given what clients are
        told."""
        entry.pending = transaction

        def written(error: ErrorCode) -> None:
            entry.pending = None
            if error is ErrorCode.NONE:
                entry.current, entry.fence_failed = transaction, False
            then(_TOLD.get(error, ErrorCode.UNKNOWN_SERVER_ERROR) if error is not ErrorCode.NONE else error)

        self._effects.append([record_of(transactional_id, transaction, transaction_version=self._version)], written)

    def _abort(self, transactional_id: str, entry: Entry, fenced: Transaction, then: Callable[[ErrorCode], None]) -> None:
        """Abort as the coordinator itself, in the epoch of a fence."""
        version = self._version

        def aborted(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._mark(transactional_id, entry)
            elif version < 2:
                entry.current = replace(entry.current, producer_epoch=fenced.producer_epoch)
                entry.fence_failed = True
            then(error)

        self._write(transactional_id, entry, rules.abort_fenced(fenced, version=version, now_ms=self._effects.wall_ms), aborted)

    # --- markers ------------------------------------------------------------------------------------------------------

    def _mark(self, transactional_id: str, entry: Entry) -> None:
        """Send the markers of a decided outcome; nothing else is begun for the id until they are written."""
        current = entry.current
        entry.pending = rules.complete(current, now_ms=self._effects.wall_ms)
        self._attempts += 1
        self._marking[transactional_id] = _Marking(self._attempts, set(current.partitions))
        if not current.partitions:
            self._complete(transactional_id, entry)
            return
        producer = Producer(current.producer_id, current.producer_epoch)
        commit = current.state is _S.PREPARE_COMMIT
        partitions = tuple(sorted(current.partitions))
        self.marks.append(Mark(transactional_id, self._attempts, producer, commit, current.version, partitions))

    def _marked(self, event: Marked) -> None:
        marking = self._marking.get(event.transactional_id)
        if marking is None or marking.attempt != event.attempt or not marking.waiting:
            return
        marking.waiting -= event.partitions
        if not marking.waiting:
            self._complete(event.transactional_id, self.by_id[event.transactional_id])

    def _fenced(self, event: Fenced) -> None:
        """Leave the id as it is, which is decided and pending, until the partition is loaded again."""
        marking = self._marking.get(event.transactional_id)
        if marking is not None and marking.attempt == event.attempt:
            del self._marking[event.transactional_id]

    def _complete(self, transactional_id: str, entry: Entry) -> None:
        """Write that all is done. What fails for the moment is tried again, with the pending state kept (TX-54)."""
        done = entry.pending
        assert done is not None

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                entry.pending = done
                self._complete(transactional_id, entry)
            else:
                self._marking.pop(transactional_id, None)

        self._write(transactional_id, entry, done, then)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _abort_those_that_timed_out(self) -> None:
        for transactional_id, entry in self.by_id.items():
            if rules.has_timed_out(entry, self._effects.wall_ms):
                self._abort(transactional_id, entry, rules.fence(entry), lambda error: None)

    def _forget_those_that_expired(self) -> None:
        now_ms, expiration_ms = self._effects.wall_ms, self._config.expiration_ms
        expired = [key for key, it in self.by_id.items() if rules.has_expired(it, now_ms, expiration_ms=expiration_ms)]
        for start in range(0, len(expired), _EXPIRED_AT_ONCE):
            self._forget(expired[start : start + _EXPIRED_AT_ONCE])

    def _forget(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            entry = self.by_id[transactional_id]
            entry.pending = replace(entry.current, state=_S.DEAD)
        tombstones = [record_of(key, None, transaction_version=self._version) for key in transactional_ids]
        self._effects.append(tombstones, partial(self._forgotten, transactional_ids))

    def _forgotten(self, transactional_ids: Iterable[str], error: ErrorCode) -> None:
        for transactional_id in transactional_ids:
            if error is ErrorCode.NONE:
                del self.by_id[transactional_id]
            else:
                self.by_id[transactional_id].pending = None

    # --- looking ------------------------------------------------------------------------------------------------------

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Say of each partition whether it is part of the producer's transaction (TX-34)."""
        entry = self.by_id.get(transactional_id)
        return {tp: rules.verify(entry, producer, tp) for tp in partitions}

    def describe(self, transactional_id: str) -> Transaction | None:
        """The state of an id; while markers are sent, with the partitions that have none yet (TA-01). None: unknown."""
        entry = self.by_id.get(transactional_id)
        if entry is None or (entry.pending is not None and entry.pending.state is _S.DEAD):
            return None
        marking = self._marking.get(transactional_id)
        return entry.current if marking is None else replace(entry.current, partitions=frozenset(marking.waiting))


def _again(error: ErrorCode) -> ErrorCode:
    """The answer to a client whose InitProducerId had to abort first: it asks again."""
    return ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error
