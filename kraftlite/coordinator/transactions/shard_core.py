"""The transactional ids of one partition of `__transaction_state`: the core that the driver steps.

Each step of an id is written first and counts when it is below the high watermark (TX-06): `Entry.pending` says that one is on
its way. Behind a decided outcome the markers go out (`Mark`); what became of them comes back (`Marked`); behind the last one the
id is complete. Source: KIP-98, KIP-360, KIP-890; TX-06 to TX-63.

Departs: a state that is in the leader's log, and only not below the high watermark in time, stays pending until it is; meanwhile
the client is told to come again. Kafka goes back to the state before, so that its log may be ahead of its memory, and another
outcome may come behind one that is decided (TX-09, TX-47).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final

from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.core.effects import Effects, Output, nothing
from kraftlite.coordinator.core.keys import Keyed
from kraftlite.coordinator.core.shards import Asked, GoOn, Late, Written
from kraftlite.coordinator.core.walks import AT_ONCE, Walks, pieces
from kraftlite.coordinator.transactions import rules
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.coordinator.transactions.events import Add, End, Event, Fenced, Init, Mark, Marked, MarkerOutbox, Request
from kraftlite.coordinator.transactions.failures import TOO_LARGE, told_of
from kraftlite.coordinator.transactions.held import HELD, Held, HeldAdds
from kraftlite.coordinator.transactions.records import decode_key, decode_value, record_of
from kraftlite.coordinator.transactions.rules import Answered, Decision, Entry, Next, Refused
from kraftlite.coordinator.transactions.states import LOGGED, PREPARED, Transaction, TransactionState, replace
from kraftlite.coordinator.transactions.telling import TransactionStory
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_TRANSACTION_RECORD_BYTES
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.transaction import TransactionalIdsExpired

_S: Final = TransactionState
_Answer = Callable[[ErrorCode], None]
_Failed = Callable[[], None] | None

WRITE_AGAIN_MS: Final = 100
"""The pause before a state that could not be written for now is written again."""

FEW_PARTITIONS: Final = 1_000
"""So many fit into a record, whatever they are called: a topic has 249 characters at most."""

_TIMEOUTS: Final = ("timeouts", "")
_EXPIRY: Final = ("expiry", "")
_WRITE: Final = "write"

_CONCURRENT: Final = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)


@dataclass(slots=True)
class _Marking:
    """The markers of a transaction that are under way. `stopped`: a partition has refused them for good."""

    attempt: int
    waiting: set[TopicPartition] = field(default_factory=set)
    stopped: bool = False


class TransactionShard:
    """A deterministic state machine, as `core.shards.Shard` says.

    `new_id` draws a producer id, or gives None while there is none at hand. `version` says the cluster's `transaction.version`.
    `first_epoch`: the epoch that a new id begins with.
    """

    def __init__(
        self,
        config: TransactionConfig,
        new_id: Callable[[], int | None],
        outbox: MarkerOutbox,
        tracer: Tracer,
        story: TransactionStory,
        *,
        version: Callable[[], int],
        first_epoch: int = 0,
    ) -> None:
        self._config = config
        self._new_id = new_id
        self._outbox = outbox
        self._tracer = tracer
        self._story = story
        self._version = version
        self._first_epoch = first_epoch
        self._effects = Effects()
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        self._held = HeldAdds(self._deadlines)
        self._attempts = 0
        self._marking: dict[str, _Marking] = {}
        self._write_again: dict[str, Callable[[], None]] = {}
        self._walks = Walks()
        self._behind = False
        self._open: dict[str, None] = {}
        """The ids in state Ongoing: few of all, and looked at every ten seconds."""
        self._decided: dict[str, None] = {}
        """The ids with an outcome that is not carried out yet."""
        self.by_id: Keyed[Entry] = Keyed()

    # --- loading ------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None, *, producer_id: int | None = None, wall_ms: int) -> None:
        """One record of the log. ApiError(CORRUPT_MESSAGE) when it cannot be read; one of a newer kind is passed over (TX-04)."""
        if key is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record of __transaction_state without a key")
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        found = None if value is None else decode_value(value)
        if found is not None:
            self.by_id[transactional_id] = Entry(current=found)
        elif value is None:
            self.by_id.pop(transactional_id, None)
        else:
            return
        self._note_state(transactional_id, found)

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Nothing in this topic is written in a transaction."""

    def settle(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """An id that nothing is under way for needs nothing; for the others, see `loaded`."""
        return iter(())

    def loaded(self, now_ms: int, wall_ms: int) -> Output:
        """Send the markers of every outcome that is decided (TX-60), and begin to look at the times."""
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        self._walks.begin("take over", self._take_over())
        self._deadlines.set(_TIMEOUTS, now_ms + self._config.timeouts_interval_ms)
        self._deadlines.set(_EXPIRY, now_ms + self._config.expiry_interval_ms)
        self.check(AT_ONCE)
        return self._take()

    def _take_over(self) -> Iterator[None]:
        for some in pieces([*self._decided, *self._open]):
            for transactional_id in some:
                entry = self.by_id.get(transactional_id)
                if entry is None or entry.pending is not None:
                    continue  # somebody asked for something meanwhile
                self._story.taken_over(transactional_id, entry.current, self._effects.now_ms, self._effects.wall_ms)
                if entry.current.state in PREPARED:
                    self._mark(transactional_id, entry)
            yield

    def check(self, most: int | None = None) -> None:
        """Raise AssertionError when an invariant does not hold between two steps. `most`: of so many of the ids that something is
        under way for; None: of all ids."""
        names = self.by_id if most is None else islice(chain(self._decided, self._open), most)
        for transactional_id in names:
            current, pending = self.by_id[transactional_id].current, self.by_id[transactional_id].pending
            noted = (transactional_id in self._open, transactional_id in self._decided)
            assert noted == (current.state is _S.ONGOING, current.state in PREPARED), (
                f"{transactional_id} is {current.state.title}"
            )
            assert current.state in LOGGED, f"{transactional_id} is {current.state.title}, which no record says"
            if pending is not None:
                followed = f"{transactional_id}: {pending.state.title} after {current.state.title}"
                assert pending.may_follow(current), followed
            marking = self._marking.get(transactional_id)
            left = (marking is not None and marking.stopped) or "take over" in self._walks
            if current.state in PREPARED and not left:
                assert pending is not None, f"{transactional_id} is {current.state.title}, and nobody completes it"
            if marking is not None:
                assert current.state in PREPARED, f"{transactional_id}: markers in {current.state.title}"
                assert marking.waiting <= current.partitions, f"{transactional_id}: a marker for what it has not written to"
        assert len(self._marking) <= len(self._decided), "markers of ids that are not decided"

    # --- stepping -----------------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int, wall_ms: int) -> Output:
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        if isinstance(event, Asked):
            self._ask(event.request_id, event.request)
        elif isinstance(event, Written):
            self._effects.written(event.token, event.error)
        elif isinstance(event, Late):
            self._effects.late(event.token, event.error)
        elif isinstance(event, Marked):
            self._marked(event)
        elif isinstance(event, Fenced):
            self._markers_fenced(event)
        elif isinstance(event, GoOn):
            self._walks.go_on()
        for due in () if self._behind and not isinstance(event, GoOn) else self._deadlines.due(now_ms):
            self._fall_due(due)
        return self._take()

    def next_deadline_ms(self) -> int | None:
        """Return when to step at the latest (monotonic), maybe earlier than anything is really due."""
        return self._deadlines.next_ms()

    def resign(self) -> Output:
        """Forget the markers that wait; those under way may still land (TX-61)."""
        self.check(AT_ONCE)
        self._walks.clear()
        self._marking.clear()
        self._write_again.clear()
        self._held.clear()
        self._outbox.forget()
        return self._effects.take()

    def _take(self) -> Output:
        self._behind = self._deadlines.is_due(self._effects.now_ms)
        self._effects.more = bool(self._walks) or self._behind
        return self._effects.take()

    def _ask(self, request_id: int, request: Request) -> None:
        match request:
            case Init():
                self._init(request_id, request)
            case Add():
                self._add(Held(request_id, request, self._effects.now_ms + request.wait_ms))
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
        found = rules.init(
            entry,
            request.expected,
            timeout_ms=request.timeout_ms,
            now_ms=now_ms,
            new_id=self._new_id,
            first_epoch=self._first_epoch,
        )
        if isinstance(found, Next) and found.transaction.state is _S.PREPARE_EPOCH_FENCE:
            self._abort(transactional_id, entry, found.transaction, "taken over", partial(self._told_to_ask_again, request_id))
        else:
            self._carry_out(request_id, transactional_id, found)

    def _add(self, asked: Held) -> None:
        request_id, request, _ = asked
        transactional_id = request.transactional_id
        entry = self.by_id.get(transactional_id)
        now_ms = self._effects.wall_ms
        found = rules.add(entry, request.producer, request.partitions, version=request.version, now_ms=now_ms)
        if found == _CONCURRENT and self._held.hold(asked, self._effects.now_ms):
            return
        if isinstance(found, Next) and len(found.transaction.partitions) > FEW_PARTITIONS:
            record = record_of(transactional_id, found.transaction, transaction_version=self._version())
            if len(record.value or b"") > MAX_TRANSACTION_RECORD_BYTES:
                message = f"a transaction of {len(found.transaction.partitions)} partitions does not fit into a record"
                error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message} of {MAX_TRANSACTION_RECORD_BYTES} bytes")
                self._effects.answer(request_id, error)
                return
        self._tell_refusal(transactional_id, request.producer, found)
        self._carry_out(request_id, transactional_id, found, request.producer)

    def _end(self, request_id: int, request: End) -> None:
        entry, now_ms = self.by_id.get(request.transactional_id), self._effects.wall_ms
        found = rules.end(
            entry, request.producer, commit=request.commit, version=request.version, now_ms=now_ms, new_id=self._new_id
        )
        answer = request.producer
        self._tell_refusal(request.transactional_id, answer, found)
        if isinstance(found, Next) and request.version >= 2:
            done = rules.complete(found.transaction, now_ms=now_ms)
            answer = Producer(done.producer_id, done.producer_epoch)
        self._carry_out(request_id, request.transactional_id, found, answer)

    def _tell_refusal(self, transactional_id: str, producer: Producer, found: Decision) -> None:
        if isinstance(found, Refused) and found.error is ErrorCode.PRODUCER_FENCED:
            self._story.refused(transactional_id, producer, self.by_id[transactional_id].current, self._effects.now_ms)

    def _carry_out(self, request_id: int, transactional_id: str, found: Decision, answer: Producer | None = None) -> None:
        """Refuse, answer, or write and answer then. `answer` None: the producer of what is written."""
        if isinstance(found, Refused):
            self._refuse(request_id, found.error)
        elif isinstance(found, Answered):
            self._effects.answer(request_id, found.producer)
        else:
            after = answer or Producer(found.transaction.producer_id, found.transaction.producer_epoch)
            answered = partial(self._answer, request_id, after)
            self._write(transactional_id, self.by_id[transactional_id], found.transaction, answered)

    def _answer(self, request_id: int, producer: Producer, error: ErrorCode) -> None:
        self._effects.answer(request_id, producer if error is ErrorCode.NONE else ApiError(error))

    def _told_to_ask_again(self, request_id: int, error: ErrorCode) -> None:
        """The answer to a client whose InitProducerId had to abort first (TX-13)."""
        self._refuse(request_id, ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error)

    def _refuse(self, request_id: int, error: ErrorCode) -> None:
        self._effects.answer(request_id, ApiError(error))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(
        self,
        transactional_id: str,
        entry: Entry,
        transaction: Transaction,
        answer: _Answer,
        failed: _Failed = None,
    ) -> None:
        """Write a state, make it the current one when it is committed, however late, and go on from there. `answer` is told what
        the client is told, once. `failed` is called when it is not in the log, nor ever will be by this coordinator."""
        assert transaction.may_follow(entry.current), f"{transaction.state.title} cannot follow {entry.current.state.title}"
        entry.pending = transaction
        self._effects.append(
            [record_of(transactional_id, transaction, transaction_version=self._version())],
            partial(self._written, transactional_id, entry, transaction, failed),
            lambda error: answer(told_of(error)),
            timeout_ms=transaction.timeout_ms,
        )

    def _written(self, transactional_id: str, entry: Entry, transaction: Transaction, failed: _Failed, error: ErrorCode) -> None:
        completes = transaction.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
        if error is ErrorCode.NONE:
            before, entry.current = entry.current, transaction
            entry.pending, entry.fence_failed = None, False
            self._note_state(transactional_id, transaction)
            self._story.changed(transactional_id, before, transaction, self._effects.now_ms, self._effects.wall_ms)
            if transaction.state in PREPARED:
                self._mark(transactional_id, entry)
            else:
                self._marking.pop(transactional_id, None)
        elif completes and told_of(error) is not ErrorCode.NOT_COORDINATOR:
            self._write_again[transactional_id] = partial(self._write, transactional_id, entry, transaction, nothing)
            self._deadlines.set((_WRITE, transactional_id), self._effects.now_ms + WRITE_AGAIN_MS)
        else:
            entry.pending = None
            if completes:
                self._marking[transactional_id].stopped = True  # the next coordinator does the work again (TX-54)
            if failed is not None:
                failed()
        if entry.pending is None:
            self._go_on(transactional_id)

    def _go_on(self, transactional_id: str) -> None:
        """Nothing is under way for the id any more: those who waited for that come now."""
        for held in self._held.release(transactional_id):
            self._add(held)

    def _abort(self, transactional_id: str, entry: Entry, fenced: Transaction, reason: str, answer: _Answer) -> None:
        """Abort as the coordinator itself, in the epoch of a fence (TX-13, TX-62)."""
        version, epoch = self._version(), fenced.producer_epoch
        aborting = rules.abort_fenced(fenced, version=version, now_ms=self._effects.wall_ms, new_id=self._new_id)
        if aborting is None:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._story.fenced(transactional_id, fenced, reason)

        def failed() -> None:
            if version < 2:  # the epoch is used up, and the next try uses it again (TX-19)
                entry.current = replace(entry.current, producer_epoch=epoch, last_epoch=fenced.last_epoch)
                entry.fence_failed = True

        self._write(transactional_id, entry, aborting, answer, failed)

    def _note_state(self, transactional_id: str, now: Transaction | None) -> None:
        self._open.pop(transactional_id, None)
        self._decided.pop(transactional_id, None)
        if now is not None and now.state is _S.ONGOING:
            self._open[transactional_id] = None
        elif now is not None and now.state in PREPARED:
            self._decided[transactional_id] = None

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
        self._outbox.send(Mark(transactional_id, self._attempts, producer, commit, current.version, partitions))

    def _marked(self, event: Marked) -> None:
        marking = self._marking.get(event.transactional_id)
        if marking is None or marking.attempt != event.attempt or marking.stopped or not marking.waiting:
            return
        marking.waiting -= event.partitions
        if not marking.waiting:
            self._complete(event.transactional_id, self.by_id[event.transactional_id])

    def _markers_fenced(self, event: Fenced) -> None:
        """Leave the id as it is, which is decided and pending, until the partition is loaded again (TX-53)."""
        marking = self._marking.get(event.transactional_id)
        if marking is not None and marking.attempt == event.attempt:
            marking.stopped = True

    def _complete(self, transactional_id: str, entry: Entry) -> None:
        assert entry.pending is not None
        self._write(transactional_id, entry, entry.pending, nothing)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _fall_due(self, due: tuple[str, str]) -> None:
        now_ms = self._effects.now_ms
        if due == _TIMEOUTS:
            self._deadlines.set(_TIMEOUTS, now_ms + self._config.timeouts_interval_ms)
            self._walks.begin("timeouts", self._abort_those_that_timed_out())
        elif due == _EXPIRY:
            self._deadlines.set(_EXPIRY, now_ms + self._config.expiry_interval_ms)
            self._walks.begin("expiry", self._forget_those_that_expired())
        elif due[0] == HELD:
            for held in self._held.expire(due[1], now_ms):
                self._refuse(held.request_id, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._write_again.pop(due[1])()

    def _abort_those_that_timed_out(self) -> Iterator[None]:
        for some in pieces(list(self._open)):
            for transactional_id, entry in self._known(some):
                if rules.has_timed_out(entry, self._effects.wall_ms):
                    self._abort(transactional_id, entry, rules.fence(entry), "timed out", nothing)
            yield

    def _forget_those_that_expired(self) -> Iterator[None]:
        expiration_ms = self._config.expiration_ms
        for some in pieces(list(self.by_id)):
            now_ms = self._effects.wall_ms
            expired = [key for key, it in self._known(some) if rules.has_expired(it, now_ms, expiration_ms=expiration_ms)]
            if expired:
                self._forget(expired)
            yield

    def _known(self, transactional_ids: Sequence[str]) -> Iterator[tuple[str, Entry]]:
        """Those of them that are known (still)."""
        return ((key, entry) for key in transactional_ids if (entry := self.by_id.get(key)) is not None)

    def _forget(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            entry = self.by_id[transactional_id]
            entry.pending = replace(entry.current, state=_S.DEAD)
        tombstones = [record_of(key, None, transaction_version=self._version()) for key in transactional_ids]
        self._effects.append(tombstones, partial(self._forgotten, transactional_ids))

    def _forgotten(self, transactional_ids: Sequence[str], error: ErrorCode) -> None:
        if error in TOO_LARGE and (half := len(transactional_ids) // 2):  # ids may be long
            self._forget(transactional_ids[:half])
            self._forget(transactional_ids[half:])
            return
        if error is ErrorCode.NONE:
            self._tracer.emit(TransactionalIdsExpired(count=len(transactional_ids)))
        for transactional_id in transactional_ids:
            self.by_id[transactional_id].pending = None
            if error is ErrorCode.NONE:
                del self.by_id[transactional_id]
                self._story.forget(transactional_id)
            self._go_on(transactional_id)

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
        if entry is None or entry.is_dying:
            return None
        marking = self._marking.get(transactional_id)
        return entry.current if marking is None else replace(entry.current, partitions=frozenset(marking.waiting))

    def listed(self) -> Iterator[list[tuple[str, Transaction]]]:
        """Every id but those that are being forgotten, in pieces (TA-02). The shard may be stepped between two of them: an id is
        told as it is then."""
        for some in pieces(list(self.by_id)):
            yield [(key, entry.current) for key, entry in self._known(some) if not entry.is_dying]

    @property
    def to_carry_out(self) -> int:
        """The number of ids that have an outcome that is decided and not carried out."""
        return len(self._decided)

    @property
    def open_count(self) -> int:
        """The number of transactions that are open."""
        return len(self._open)

    @property
    def written_again(self) -> int:
        """The number of states that wait to be written again."""
        return len(self._write_again)
