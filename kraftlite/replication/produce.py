"""The produce path: append now, answer now or when the HW has passed. Source: RP-01 to RP-07, RP-10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.log.log import AppendOrigin, RecordsRejected
from kraftlite.model.errors import ApiError, ErrorCode, Fault, HalfChanged
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import ProduceEntry, ProduceResult
from kraftlite.replication.purgatory import Deadlines, ParkedProduce
from kraftlite.replication.table import PartitionTable
from kraftlite.runtime.ports import Clock, Tracer
from kraftlite.runtime.trace.partition import ProduceParked

_NONE: Final = ErrorCode.NONE
_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

OnIoError = Callable[[OSError, TopicPartition], None]


class ProducePath:
    """Synchronous. `tracer` None: nothing is traced per produce."""

    def __init__(
        self, table: PartitionTable, clock: Clock, deadlines: Deadlines, tracer: Tracer | None, on_io_error: OnIoError
    ) -> None:
        self._table = table
        self._partitions = table.by_tp
        self._now_ms = clock.now_ms
        self._wall_ms = clock.wall_ms
        self._deadlines = deadlines
        self._tracer = tracer
        self._on_io_error = on_io_error
        self._parked = 0

    def append(
        self,
        entries: Sequence[ProduceEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        origin: AppendOrigin,
    ) -> None:
        if acks not in (-1, 0, 1):
            message = f"acks={acks}: allowed are -1, 0 and 1"
            on_done([ProduceResult(tp=e.tp, error=ErrorCode.INVALID_REQUIRED_ACKS, message=message) for e in entries])
            return
        now_ms, wall_ms, all_acks = self._now_ms(), self._wall_ms(), acks == -1
        results: list[ProduceResult] = []
        parked: ParkedProduce | None = None
        for entry in entries:
            tp = entry.tp
            try:
                partition = self._partitions.get(tp)
                if partition is None or entry.topic_id != partition.topic_id:
                    partition = self._table.find(tp, entry.topic_id)
                info = partition.append(entry.records, wall_ms=wall_ms, now_ms=now_ms, origin=origin, all_acks=all_acks)
            except ApiError as error:
                results.append(self._refused(tp, error))
                continue
            except OSError as error:
                self._on_io_error(error, tp)
                results.append(ProduceResult(tp=tp, error=ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)))
                continue
            except Fault:
                raise
            except Exception as error:  # as `changing` has it, see docs/adr/0005
                raise HalfChanged(f"append to {tp}", error) from error
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
                if parked is None:
                    parked = self._park(results, on_done)
                parked.wait_for(partition, info.last_offset + 1, len(results) - 1)
                if self._tracer is not None:
                    self._tracer.emit(ProduceParked(tp=tp, id=parked.name, until_hw=info.last_offset + 1))
        if parked is None:
            on_done(results)
        else:
            parked.start(timeout_ms)

    def _park(self, results: list[ProduceResult], on_done: Callable[[list[ProduceResult]], None]) -> ParkedProduce:
        self._parked += 1
        name = f"p{self._parked}" if self._tracer is not None else ""
        return ParkedProduce(results, on_done, self._deadlines, self._tracer, name)

    def _refused(self, tp: TopicPartition, error: ApiError) -> ProduceResult:
        return ProduceResult(
            tp=tp,
            error=error.code,
            message=error.message,
            leader=self._table.hint(tp) if error.code in _HINTED else None,
            record_errors=error.record_errors if isinstance(error, RecordsRejected) else (),
        )
