"""The produce path: check, append now, answer now or when the HW has passed. Source: RP-01 to RP-07, RP-10.

The batches of clients are checked on the loop as long as that is short. What is longer is checked on another thread, while the
request keeps its bytes (`Lease`); then the request goes on where it was. Each batch is appended when the loop has its verdict:
who leads then, with what ISR, is asked at that moment. A request with batches that begin transactions waits in the same way for
the answer of their coordinator (`enrol_driver`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, RecordsRejected
from kraftlite.log.validation import CHECK_IN_PLACE, BatchCheck, Verdict, check_at_once, finish_all, work_at_once
from kraftlite.model.errors import ApiError, ErrorCode, Fault, HalfChanged
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.api import Lease, ProduceEntry, ProduceResult, ProduceTransaction
from kraftlite.replication.enrol_driver import Enroller, Enrolment
from kraftlite.replication.purgatory import Deadlines, ParkedProduce
from kraftlite.replication.table import PartitionTable
from kraftlite.runtime.begun import begin
from kraftlite.runtime.ports import Clock, Tasks, Tracer
from kraftlite.runtime.trace.partition import ProduceParked
from kraftlite.runtime.turns import OffLoop

_NONE: Final = ErrorCode.NONE
_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_CLIENT: Final = AppendOrigin.CLIENT
BATCHES_PER_TURN: Final = Tuning().batches_per_turn
"""So many batches are checked off the loop before they are appended: what they become when they are packed anew is held."""
CHECKED_AT_ONCE: Final = Tuning().checks_at_once
"""Requests whose checks run on threads at a time. Each may hold a codec's window (128 MiB at most) and a batch that is packed
anew. The others wait in the order in which they came, each once, and keep their connections from sending more."""

OnIoError = Callable[[OSError, TopicPartition], None]
OnDone = Callable[[list[ProduceResult]], None]
OnLate = Callable[[ErrorCode], None]


class ProducePath:
    """Synchronous but for checks that take long. `tracer` None: nothing is traced per produce."""

    def __init__(
        self,
        table: PartitionTable,
        clock: Clock,
        tasks: Tasks,
        deadlines: Deadlines,
        tracer: Tracer | None,
        on_io_error: OnIoError,
        tuning: Tuning,
        enroller: Enroller,
    ) -> None:
        self.table = table
        self.enroller = enroller
        self.batches_per_turn = tuning.batches_per_turn
        self.now_ms = clock.now_ms
        self.wall_ms = clock.wall_ms
        self.on_io_error = on_io_error
        self._deadlines = deadlines
        self._tracer = tracer
        self._tasks = tasks
        self._off_loop = OffLoop(tasks, at_once=tuning.checks_at_once)
        self._parked = 0

    def append(
        self,
        entries: Sequence[ProduceEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: OnDone,
        origin: AppendOrigin,
        lease: Lease | None = None,
        transaction: ProduceTransaction | None = None,
        on_late: OnLate | None = None,
    ) -> None:
        if acks not in (-1, 0, 1):
            message = f"acks={acks}: allowed are -1, 0 and 1"
            on_done([ProduceResult(tp=e.tp, error=ErrorCode.INVALID_REQUIRED_ACKS, message=message) for e in entries])
            return
        request = _Request(self, entries, acks == -1, timeout_ms, on_done, origin, on_late)
        enrolment = None if transaction is None else self.enroller.begin(entries, transaction)
        if enrolment is not None or not request.go_on(CHECK_IN_PLACE):
            rest = begin(self._tasks, self._go_on(request, enrolment, lease), name="produce-checks")
            if rest is not None and lease is not None:
                lease.hold()
                request.held = True

    async def _go_on(self, request: _Request, enrolment: Enrolment | None, lease: Lease | None) -> None:
        """Do what takes long: ask for transactions, check off the loop. The lease is held from the first wait on."""
        try:
            done = False
            if enrolment is not None:
                await enrolment.run()
                done = request.go_on(CHECK_IN_PLACE)
            while not done:
                await self._off_loop.run(0, partial(finish_all, request.next_checks()))
                done = request.go_on(0)
        except Exception as error:  # the request's, or the node's if it is a fault: see docs/adr/0005
            if lease is None:
                raise
            lease.failed(error)
        if request.held and lease is not None:
            lease.release()

    def park(self, request: _Request, tp: TopicPartition, until_hw: int) -> ParkedProduce:
        parked = request.parked
        if parked is None:
            self._parked += 1
            name = f"p{self._parked}" if self._tracer is not None else ""
            parked = request.parked = ParkedProduce(
                request.results, request.on_done, self._deadlines, self._tracer, name, request.on_late
            )
        if self._tracer is not None:
            self._tracer.emit(ProduceParked(tp=tp, id=parked.name, until_hw=until_hw))
        return parked

    def refused(self, tp: TopicPartition, error: ApiError, *, counts: bool) -> ProduceResult:
        """`counts`: the replica here refused it, and not a coordinator or the table."""
        partition = self.table.by_tp.get(tp)
        if counts and partition is not None:
            partition.traffic.produce_failed(error.code)
        return ProduceResult(
            tp=tp,
            error=error.code,
            message=error.message,
            leader=self.table.hint(tp) if error.code in _HINTED else None,
            record_errors=error.record_errors if isinstance(error, RecordsRejected) else (),
        )


class _Request:
    """A request on its way: the entries before `_next` have their results, or wait for the HW."""

    __slots__ = (
        "_all_acks",
        "_checks",
        "_entries",
        "_next",
        "_origin",
        "_path",
        "_timeout_ms",
        "held",
        "on_done",
        "on_late",
        "parked",
        "results",
    )

    def __init__(
        self,
        path: ProducePath,
        entries: Sequence[ProduceEntry],
        all_acks: bool,
        timeout_ms: int,
        on_done: OnDone,
        origin: AppendOrigin,
        on_late: OnLate | None,
    ) -> None:
        self._path = path
        self._entries = entries
        self._all_acks = all_acks
        self._timeout_ms = timeout_ms
        self._origin = origin
        self._next = 0
        self._checks: dict[int, BatchCheck] = {}
        self.on_done = on_done
        self.on_late = on_late
        self.results: list[ProduceResult] = []
        self.parked: ParkedProduce | None = None
        self.held = False

    def go_on(self, work: int) -> bool:
        """Append what is checked, and what `work` is enough to check; False: the rest must be checked elsewhere first."""
        path, entries = self._path, self._entries
        now_ms, wall_ms, all_acks, origin = path.now_ms(), path.wall_ms(), self._all_acks, self._origin
        results, partitions = self.results, path.table.by_tp
        for index in range(self._next, len(entries)):
            entry = entries[index]
            tp, terms = entry.tp, entry.terms
            appending = False
            try:
                if terms is not None and terms.refusal is not None:
                    raise terms.refusal
                partition = partitions.get(tp)
                if partition is None or entry.topic_id != partition.topic_id:
                    partition = path.table.find(tp, entry.topic_id)
                verdict: Verdict | None = None
                if origin is _CLIENT and partition.leader is not None and partition.log is not None:
                    if work > 0:
                        verdict = check_at_once(entry.records, partition.log.config, wall_ms)
                    if verdict is not None:
                        work -= work_at_once(entry.records)
                    else:
                        verdict, work = self._advance(index, partition.log.config, wall_ms, work)
                        if verdict is None:
                            return False
                appending = True
                info = partition.append(
                    entry.records,
                    wall_ms=wall_ms,
                    now_ms=now_ms,
                    origin=origin,
                    all_acks=all_acks,
                    verdict=verdict,
                    terms=terms,
                )
            except ApiError as error:
                results.append(path.refused(tp, error, counts=appending))
                continue
            except OSError as error:
                path.on_io_error(error, tp)
                results.append(ProduceResult(tp=tp, error=ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)))
                continue
            except Fault:
                raise
            except Exception as error:  # as `changing` has it, see docs/adr/0005; a check has changed nothing
                if not appending:
                    raise
                raise HalfChanged(f"append to {tp}", error) from error
            try:
                results.append(
                    ProduceResult(
                        tp=tp,
                        error=_NONE,
                        base_offset=info.base_offset,
                        append_time_ms=info.append_time_ms,
                        log_start_offset=info.log_start_offset,
                    )
                )
                if all_acks and partition.online_log().hw <= info.last_offset:
                    path.park(self, tp, info.last_offset + 1).wait_for(partition, info.last_offset + 1, len(results) - 1)
            except Fault:
                raise
            except Exception as error:  # the records are appended: whoever asked must not be told otherwise
                raise HalfChanged(f"wait for the high watermark of {tp}", error) from error
        if self.parked is None:
            self.on_done(results)
        else:
            self.parked.start(self._timeout_ms)
        return True

    def _advance(self, index: int, config: LogConfig, wall_ms: int, work: int) -> tuple[Verdict | None, int]:
        """Go on with the check of one entry, and return its verdict and the work that is left; None: it is kept for later."""
        check = self._checks.pop(index, None) or BatchCheck(self._entries[index].records, config, wall_ms)
        work -= check.advance(work)
        if check.verdict is None:
            self._next, self._checks[index] = index, check
        return check.verdict, work

    def next_checks(self) -> list[BatchCheck]:
        """Return the checks of the next entries, to be finished: with the one that was begun."""
        path = self._path
        for index in range(self._next, min(self._next + path.batches_per_turn, len(self._entries))):
            entry = self._entries[index]
            partition = path.table.by_tp.get(entry.tp)
            if index not in self._checks and partition is not None and partition.leader is not None and partition.log is not None:
                self._checks[index] = BatchCheck(entry.records, partition.log.config, path.wall_ms())
        return list(self._checks.values())
