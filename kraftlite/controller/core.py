"""The controller: a deterministic state machine over the metadata log.

Source: Kafka's QuorumController; KIP-500, KIP-631, KIP-868; CE-01 to CE-31.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, assert_never

from kraftlite.controller.activation import ACTIVATION, activation_records
from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.deferred import DeferredQueue
from kraftlite.controller.events import (
    Answer,
    Event,
    Internal,
    NothingChanged,
    OnDone,
    Operation,
    R,
    Read,
    Write,
    classify,
    internally,
    nobody_waits,
    whole,
)
from kraftlite.controller.metrics import ControllerMetrics
from kraftlite.controller.performance import EventPerformance
from kraftlite.controller.periodic import PeriodicTask, PeriodicTasks
from kraftlite.controller.queue import EventQueue, QueueClosed, QueueTimeout
from kraftlite.controller.record_trace import RecordTrace
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.state import ControllerState
from kraftlite.controller.turns import Pace, Steps
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.features import METADATA_VERSION, MIN_METADATA_VERSION
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.limits import MAX_RECORDS_PER_BATCH
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, RaftClient
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.controller import (
    ControllerActivated,
    ControllerClaimed,
    ControllerRenounced,
    OperationFailed,
    SnapshotLoaded,
    StableAdvanced,
)

_REPLAYED_AT_ONCE: Final = 100
"""Committed records between two looks at whether the turn is over: replay is where a node that starts spends its time."""
_DONE_AT_ONCE: Final = 20  # the same of records that are encoded and applied for the first time, which takes longer


class ControllerCore:
    """One controller, active or standby. Single-threaded and synchronous: enqueue, then `step`; it never waits.

    State changes only by replaying records: on the active controller right after it computed them and before raft gets them, on
    a standby when they are committed. Answers wait for the stable offset. `step` raises Fault when this node must stop.
    """

    def __init__(
        self,
        config: ControllerConfig,
        raft: RaftClient,
        bootstrap: Sequence[MetadataRecord] | None,
        rng: random.Random,
        tracer: Tracer,
    ) -> None:
        self.config = config
        self._raft = raft
        self._bootstrap = bootstrap
        self._tracer = tracer
        self.state = ControllerState(config, rng, tracer)
        self.state.features.kraft_version = raft.kraft_version
        self.state.features.upgrade_kraft_version = self._upgrade_kraft_version
        self.offsets = self.state.offsets
        self.queue: EventQueue[Event] = EventQueue(self._run, self._failed)
        self.pace = Pace(config.tuning.elements_per_turn)
        self._took_us = 0
        self.deferred = DeferredQueue()
        self.claim_epoch: int | None = None
        self.activated = False
        self.metrics = ControllerMetrics(self)
        self.metrics.performance = EventPerformance(config.performance_period_ms, config.slow_event_ms)
        self.periodic = PeriodicTasks(self.queue, self._periodic_event)
        self._register_periodic_tasks()

    # --- for the driver

    @property
    def active(self) -> bool:
        return self.claim_epoch is not None

    @property
    def queue_size(self) -> int:
        """The number of events that wait to run as soon as possible."""
        return len(self.queue)

    @property
    def last_written_offset(self) -> int:
        assert self.offsets.write_offset is not None
        return self.offsets.write_offset - 1

    def submit(
        self,
        name: str,
        operation: Operation[R],
        on_done: OnDone[R],
        now_ms: int,
        *,
        deadline_ms: int | None = None,
        after: Callable[[int, int], None] | None = None,
        on_timeout: Callable[[], None] | None = None,
    ) -> None:
        """Enqueue a write. `after(last_offset, now_ms)` runs once its records are applied, `on_timeout` if it never runs."""
        event = Write(name, operation, on_done, after, on_timeout, requested=True)
        self.queue.append(event, now_ms, deadline_ms=deadline_ms)

    def read(
        self, name: str, operation: Callable[[int], R], on_done: OnDone[R], now_ms: int, *, deadline_ms: int | None = None
    ) -> None:
        self.queue.append(Read(name, operation, on_done), now_ms, deadline_ms=deadline_ms)

    def step(self, now_ms: int, limit: int = 1_000) -> bool:
        """Run what is due, for one turn: at most `limit` events, and no more elements than a turn may have. Returns whether
        more is waiting. Raises Fault."""
        clock_us = self.metrics.clock_us
        started_us = began_us = clock_us()
        self.pace.begin()
        for _ in range(limit):
            if not self.queue.run_one(now_ms):
                return False
            ended_us = clock_us()
            self._took_us += ended_us - began_us
            if self.queue.has_begun:
                return True
            self._note_event(began_us - started_us)
            if self.pace.is_over:
                return True
            began_us = ended_us
        return True

    def _note_event(self, behind_us: int) -> None:
        """Measure the event that has ended; `behind_us`: how long this turn had run when it began."""
        queue, took_us = self.queue, self._took_us
        waited_ms, delay_ms = queue.last_queue_time_ms, queue.last_delay_ms
        self.metrics.note_event(
            queue.last_name,
            None if waited_ms is None else waited_ms * 1000 + behind_us,
            None if delay_ms is None else delay_ms * 1000 + behind_us,
            took_us,
            expired=queue.last_expired,
        )
        if not queue.last_expired:
            slow = self.metrics.performance.observe(queue.last_name, took_us)
            if slow is not None:
                self._tracer.emit(slow)
        self._took_us = 0

    def next_deadline_ms(self) -> int | None:
        return self.queue.next_deadline_ms()

    def close(self, now_ms: int) -> None:
        """Refuse what is queued and parked: those callers see a timeout (CE-20)."""
        self.periodic.deactivate()
        self.queue.close(now_ms)
        self.queue.drain(now_ms)
        self.deferred.fail_all(QueueClosed("the controller is shutting down"))

    # --- callbacks of raft: they only enqueue

    def on_commit(self, batches: Sequence[CommittedBatch], now_ms: int) -> None:
        self._internal("handle_commit", lambda _now: self._handle_commit(batches), now_ms)

    def on_load_snapshot(self, end_offset: int, epoch: int, batches: Sequence[tuple[Any, ...]], now_ms: int) -> None:
        self._internal("handle_load_snapshot", lambda _now: self._load_snapshot(end_offset, epoch, batches), now_ms)

    def on_leader_change(self, leader: LeaderAndEpoch, now_ms: int) -> None:
        self._internal("handle_leader_change", lambda now: self._handle_leader_change(leader, now), now_ms)

    def _internal(self, name: str, operation: Callable[[int], Steps[None] | None], now_ms: int) -> None:
        if not self.queue.closed:
            self.queue.append(Internal(name, operation), now_ms)

    # --- running events

    def _run(self, event: Event, now_ms: int) -> Iterator[None] | None:
        """Do it; or return it as an iterator, each step of which is the work of one turn."""
        match event:
            case Write():
                return self.pace.through(self._write(event, now_ms))
            case Read():
                event.on_done(event.operation(self.offsets.read_epoch))
                return None
            case Internal():
                return self.pace.through(internally(event, now_ms))
            case _:
                assert_never(event)

    def _failed(self, event: Event, error: BaseException, now_ms: int) -> None:
        """The event did not run (timeout, shutdown), or its body raised `error`."""
        if isinstance(event, Write) and isinstance(error, QueueTimeout) and event.on_timeout is not None:
            event.on_timeout()
        if not isinstance(event, Internal):
            event.on_done(classify(error).answer)
        self._handle_failure(event.name, error)

    def _write(self, event: Write[R], now_ms: int) -> Steps[None]:
        self._check_active()
        result = yield from self._compute(event, now_ms)
        written: tuple[int, int] | None = None
        while True:
            if result.records:
                written = yield from self._append(event.name, result, written)
            if result.rest is None:
                break
            result = yield from result.rest()
        last_offset = self.last_written_offset if written is None else written[1]
        if event.after is not None:
            event.after(last_offset, now_ms)
        self._park(event.on_done, result.response, None if written is None else last_offset)

    @staticmethod
    def _compute(event: Write[R], now_ms: int) -> Steps[ControllerResult[R]]:
        try:
            return (yield from whole(event.operation(now_ms)))
        except (ApiError, Fault):
            raise
        except Exception as error:
            if event.requested:
                raise NothingChanged from error
            raise

    def _upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        assert self.claim_epoch is not None, "checked before an operation runs"
        self._raft.upgrade_kraft_version(self.claim_epoch, level, validate_only=validate_only)

    def _check_active(self) -> None:
        if self.claim_epoch is None:
            leader = self._raft.leader_and_epoch().leader_id
            where = "none appears to be" if leader is None else f"node {leader} appears to be"
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"This node is not the active controller: {where}.")

    def _append(
        self, operation: str, result: ControllerResult[R], before: tuple[int, int] | None
    ) -> Steps[tuple[int, int] | None]:
        """Apply the records, then give them to raft, batch by batch (CE-05, CE-17); the offsets of the operation's first record
        and of the last so far. `before`: the same before this part."""
        records = result.records
        if result.atomic and len(records) > MAX_RECORDS_PER_BATCH:
            raise RuntimeError(f"{operation}: {len(records)} records in an atomic batch, at most {MAX_RECORDS_PER_BATCH} fit")
        written = before
        is_first = operation == ACTIVATION and not result.atomic
        at_once = self.config.tuning.first_records_per_batch if is_first else MAX_RECORDS_PER_BATCH
        for start in range(0, len(records), at_once):
            batch = records[start : start + at_once]
            written = yield from self._append_batch(operation, result, batch, None if written is None else written[0])
        return written

    def _append_batch(
        self, operation: str, it: ControllerResult[R], batch: list[MetadataRecord], first_offset: int | None
    ) -> Steps[tuple[int, int]]:
        """The first offset of the operation and the last one so far. Until all is replayed raft may neither write nor send any
        of it; if it loses its leadership meanwhile, it forgets what is staged, and the news is an event behind this one."""
        assert self.claim_epoch is not None
        encode, encoded = MetadataSerde(self._level_of(it.records)).encode, []
        at_once = min(_DONE_AT_ONCE, self.pace.limit)
        for start in range(0, len(batch), at_once):
            encoded += [encode(record) for record in batch[start : start + at_once]]
            self.pace.note(len(encoded) - start - 1)
            yield
        last_offset = self._raft.prepare_append(self.claim_epoch, batch, encoded)
        base_offset = last_offset - len(batch) + 1
        first_offset = base_offset if first_offset is None else first_offset
        trace = RecordTrace(self.state, operation, it.cause, first_offset=first_offset, base_offset=base_offset, count=len(batch))
        for start in range(0, len(batch), at_once):
            records = batch[start : start + at_once]
            for offset, record in enumerate(records, base_offset + start):
                if trace.tells(offset):
                    trace.before(record, offset)
                    self._replay(record, offset)
                    trace.after(record, offset)
                else:
                    self._replay(record, offset)
            self.pace.note(len(records) - 1)
            yield
        self._raft.schedule_prepared_append()
        self.offsets.handle_scheduled(last_offset)
        self.metrics.note_applied(last_offset, self.metrics.wall_ms())
        trace.emit(self._tracer)
        return first_offset, last_offset

    def _level_of(self, records: list[MetadataRecord]) -> int:
        """Return the metadata.version that says which versions of records an operation writes: the finalized one; for the
        records that a new log begins with, the one that they finalize."""
        levels = (it.level for it in records if isinstance(it, FeatureLevelRecord) and it.name == METADATA_VERSION)
        return self.state.features.metadata_version or next(levels, MIN_METADATA_VERSION)

    def _replay(self, record: MetadataRecord, offset: int) -> None:
        try:
            self.state.replay(record, offset)
        except Exception as error:
            # A record that cannot be applied means that this node would differ from its log (CE-10, CE-21).
            raise Fault(f"cannot apply {type(record).__name__} at offset {offset}: {error}") from error

    def _park(self, on_done: OnDone[R], response: R, last_offset: int | None) -> None:
        """Answer at `last_offset`; without records, when everything now pending is stable (CE-07)."""
        wait_for = self.deferred.highest_pending_offset if last_offset is None else last_offset
        if wait_for is None:
            on_done(response)
        else:
            self.deferred.add(wait_for, Answer(on_done, response))

    def _handle_failure(self, name: str, error: BaseException) -> None:
        """An event failed. Raises Fault if this node must stop; renounces if another one should take over, as it must where the
        first records (CE-14) or the end of a metadata transaction (CE-15) could not be written."""
        verdict = classify(error)
        if verdict.fatal:
            raise error
        if verdict.answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            stack = "".join(traceback.format_exception(error.__cause__ or error))
            code, message = verdict.answer.code.name, verdict.answer.message
            self._tracer.emit(OperationFailed(operation=name, error=code, message=message, trace=stack))
            self.metrics.metadata_error_count += 1
        if self.active and (verdict.renounce or name == ACTIVATION or self.offsets.transaction_start_offset is not None):
            self.renounce(f"{name}: {verdict.answer}")

    # --- claim and renounce

    def _handle_leader_change(self, leader: LeaderAndEpoch, now_ms: int) -> None:
        self.metrics.note_leader(leader)
        mine = leader.leader_id == self._raft.node_id
        if self.claim_epoch is not None:
            if mine and leader.epoch == self.claim_epoch:
                return
            if leader.epoch >= self.claim_epoch:
                self.renounce(f"epoch {leader.epoch} is led by {leader.leader_id}")
        if mine and self.claim_epoch is None:
            self._claim(leader.epoch, now_ms)

    def _claim(self, epoch: int, now_ms: int) -> None:
        self.claim_epoch = epoch
        self.activated = False
        self.offsets.activate(self._raft.log_end_offset())
        self.state.cluster.activate(now_ms)
        self.state.cluster.check()
        self._tracer.emit(
            ControllerClaimed(
                raft_epoch=epoch, write_offset=self.last_written_offset + 1, stable_offset=self.offsets.stable_offset
            )
        )
        event = Write(ACTIVATION, lambda _now: self._activation(), nobody_waits, after=self._after_activation)
        self.queue.prepend(event, now_ms)

    def _activation(self) -> ControllerResult[str]:
        start = self.offsets.transaction_start_offset
        result = activation_records(
            log_is_empty=not self.state.has_records,
            bootstrap=self._bootstrap,
            transaction_start=start,
            empty_before_transaction=start is not None and not self.state.had_records_before(start),
            metadata_version=self.state.features.metadata_version,
            min_isr=self.state.configs.first_min_isr,
        )
        assert self.claim_epoch is not None
        self._tracer.emit(ControllerActivated(raft_epoch=self.claim_epoch, records=len(result.records), reason=result.response))
        return result

    def _after_activation(self, _last_offset: int, now_ms: int) -> None:
        self.activated = True
        self.periodic.activate(now_ms)

    def renounce(self, reason: str) -> None:
        """Stop being active: what was not committed never happened (CE-12)."""
        epoch = self.claim_epoch
        assert epoch is not None, "renounced while not active"
        self.claim_epoch = None
        self.activated = False
        self._raft.resign(epoch)
        failed = self.deferred.fail_all(
            ApiError(ErrorCode.NOT_CONTROLLER, "This controller lost its leadership before the change was committed.")
        )
        self.offsets.deactivate()
        self.metrics.last_applied_record_offset = self.offsets.committed_offset
        self.state.cluster.deactivate()
        self.state.cluster.check()
        self.periodic.deactivate()
        self._tracer.emit(
            ControllerRenounced(
                raft_epoch=epoch, reverted_to=self.offsets.committed_offset, failed_operations=failed, reason=reason
            )
        )

    # --- commits and snapshots

    def _handle_commit(self, batches: Sequence[CommittedBatch]) -> Steps[None]:
        for batch in batches:
            if batch.last_offset <= self.offsets.committed_offset:
                continue
            if not self.active:
                for start in range(0, len(batch.records), _REPLAYED_AT_ONCE):
                    records = batch.records[start : start + _REPLAYED_AT_ONCE]
                    for offset, record in enumerate(records, batch.base_offset + start):
                        self._replay(record, offset)
                    self.pace.note(len(records) - 1)
                    yield
                self.metrics.note_applied(batch.last_offset, batch.append_timestamp_ms)
            if self.offsets.handle_commit(batch.last_offset, batch.epoch):
                self._tracer.emit(
                    StableAdvanced(stable_offset=self.offsets.stable_offset, committed_offset=self.offsets.committed_offset)
                )
        self.deferred.complete_up_to(self.offsets.stable_offset)

    def _load_snapshot(self, end_offset: int, epoch: int, batches: Sequence[tuple[Any, ...]]) -> Steps[None]:
        if self.active:
            raise Fault(f"asked to load the metadata snapshot {end_offset}-{epoch} while being the active controller")
        self.state.reset()
        self.offsets.begin_load_snapshot()
        count = 0
        for batch in batches:
            for record in batch:
                self._replay(record, end_offset - 1)
                count += 1
                yield
        self.offsets.end_load_snapshot(end_offset, epoch)
        self.metrics.last_applied_record_offset = end_offset - 1
        self._tracer.emit(SnapshotLoaded(end_offset=end_offset, raft_epoch=epoch, records=count))

    # --- periodic tasks

    def _register_periodic_tasks(self) -> None:
        config, state = self.config, self.state
        tasks = [
            PeriodicTask(
                name="maybe_fence_stale_broker",
                period_ms=max(1, config.session_timeout_ms // 8),
                run=lambda now_ms: state.brokers.fence_one_stale(now_ms, self.last_written_offset),
                due_ms=state.cluster.next_expiry_ms,
            ),
            PeriodicTask(
                name="elect_unclean",
                period_ms=config.unclean_election_interval_ms,
                run=lambda _now: state.elections.elect_unclean(),
            ),
        ]
        if config.token_secret is not None:
            tasks.append(
                PeriodicTask(
                    name="expire_delegation_tokens",
                    period_ms=config.token_times.check_interval_ms,
                    run=lambda _now: state.tokens.sweep(self.metrics.wall_ms()),
                )
            )
        if config.preferred_election_interval_ms is not None:
            tasks.append(
                PeriodicTask(
                    name="elect_preferred",
                    period_ms=config.preferred_election_interval_ms,
                    run=lambda _now: state.elections.balance_preferred(),
                )
            )
        if config.max_idle_interval_ms > 0:
            tasks.append(
                PeriodicTask(
                    name="write_no_op",
                    period_ms=config.max_idle_interval_ms,
                    run=lambda _now: ControllerResult(records=[NoOpRecord()], response=False),
                )
            )
        tasks.append(
            PeriodicTask(
                name="generate_periodic_performance_message",
                period_ms=config.performance_period_ms,
                run=lambda _now: self._report_performance(),
            )
        )
        for task in tasks:
            self.periodic.register(task)

    def _report_performance(self) -> ControllerResult[bool]:
        self._tracer.emit(self.metrics.performance.report())
        return ControllerResult(records=[], response=False)

    def _periodic_event(self, task: PeriodicTask) -> Event:
        def operation(now_ms: int) -> Steps[ControllerResult[bool]]:
            result = yield from whole(task.run(now_ms))
            self.periodic.schedule(task, now_ms, again=result.response)
            return result

        return Write(task.name, operation, nobody_waits)

    def state_hash(self) -> str:
        """Equal on any two controllers that have replayed to the same offset (CE-22)."""
        return self.state.hash()
