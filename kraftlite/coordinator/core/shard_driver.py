"""One led partition of a coordinator's topic on the loop: loads its shard, steps it, writes what it asks for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from kraftlite.coordinator.core.effects import Append, Output
from kraftlite.coordinator.core.loader import PartitionLoader
from kraftlite.coordinator.core.ports import CoordinatorLog
from kraftlite.coordinator.core.shards import Asked, GoOn, Late, Shard, ShardSettings, ShardTrace, Tick, Written
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.validation import AppendOrigin
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import ProduceEntry
from kraftlite.runtime.ports import Ports, TaskHandle, TimerHandle
from kraftlite.runtime.turns import Turns

S = TypeVar("S", bound=Shard)

_LED_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""The replica has moved on before the coordinator heard of it: no failure."""
MOST_UNDECIDED: Final = 50_000
"""The most appends of a shard whose fate is not known: further ones are refused as if too few replicas were in sync. Clients come
again after `offsets.commit.timeout.ms`, while a high watermark may stand still for as long as the controller is away."""


class ShardDriver(Generic[S]):
    """This broker's coordination of one partition in one leader epoch; from `start` to `close`, both once.

    While it loads, `shard` and `ask` raise ApiError(COORDINATOR_LOAD_IN_PROGRESS); after a failed load, and once closed,
    ApiError(NOT_COORDINATOR). What is written is written in this leader epoch or not at all. `turns` are those of all shards of
    the coordinator, for what a step leaves. Source: ML-22.
    """

    def __init__(
        self,
        ports: Ports,
        settings: ShardSettings,
        log: CoordinatorLog,
        trace: ShardTrace,
        tp: TopicPartition,
        topic_id: UUID,
        leader_epoch: int,
        shard: S,
        turns: Turns,
    ) -> None:
        self._ports = ports
        self._settings = settings
        self._log = log
        self._trace = trace
        self.tp = tp
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self._loading: S | None = shard
        self._shard: S | None = None
        self._turns = turns
        self._task: TaskHandle | None = None
        self._going_on: TaskHandle | None = None
        self._timer: TimerHandle | None = None
        self._armed_for = 0
        self._events: deque[object] = deque()
        self._stepping = False
        self._asked = 0
        self.most_undecided = MOST_UNDECIDED
        self._undecided = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._trace.loading(self.tp, self.leader_epoch)
        self._task = self._ports.tasks.spawn(self._load(), name=f"load-{self.tp}")

    def refuse(self, reason: str) -> None:
        """Coordinate nothing, instead of `start`: as after a load that has failed."""
        self._loading = None
        self._trace.failed(self.tp, self.leader_epoch, reason)

    async def _load(self) -> None:
        shard, clock = self._loading, self._ports.clock
        assert shard is not None, "started twice, or after it was closed"
        began_ms = clock.now_ms()
        at_once = self._ports.tuning.group_load_bytes
        loader = PartitionLoader(
            self._log, clock, self._turns, self._settings, self.tp, self.topic_id, self.leader_epoch, at_once
        )
        try:
            end = await loader.load(shard)
        except ApiError as error:
            self._loading = None
            if error.code not in _LED_ELSEWHERE:
                self._trace.failed(self.tp, self.leader_epoch, str(error))
            return
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 - what was read is thrown away: nothing is half changed, see docs/adr/0005
            self._loading = None
            self._trace.failed(self.tp, self.leader_epoch, f"{type(error).__name__}: {error}")
            return
        if self._loading is None:
            return  # closed meanwhile
        self._loading, self._shard = None, shard
        elapsed_ms = clock.now_ms() - began_ms
        self._trace.loaded(self.tp, self.leader_epoch, shard, end_offset=end, elapsed_ms=elapsed_ms)
        self._run(lambda: shard.loaded(clock.now_ms(), clock.wall_ms()))
        self._drain()

    def close(self) -> None:
        """Another broker coordinates now, or this one stops: who waits is told to look for the coordinator."""
        for task in (self._task, self._going_on):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        shard, self._shard, self._loading = self._shard, None, None
        self._events.clear()
        if shard is not None:
            self._trace.unloaded(self.tp, self.leader_epoch, shard)
            self._answer(shard.resign())
        refused = ApiError(ErrorCode.NOT_COORDINATOR, f"{self.tp} has another leader")
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(refused)

    # --- asking -------------------------------------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        return self._loading is not None

    @property
    def loaded(self) -> bool:
        return self._shard is not None

    @property
    def shard(self) -> S:
        """The shard, to look at. Raises ApiError."""
        if self._shard is not None:
            return self._shard
        if self._loading is not None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.tp} is being loaded")
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self.tp} is not coordinated here")

    async def ask(self, request: object, *, timeout_ms: int | None = None) -> Any:
        """The result of a request, when it is there. Raises ApiError; REQUEST_TIMED_OUT when it is not there in time, which
        undoes nothing."""
        self.shard  # noqa: B018 - raises unless it is loaded
        self._asked += 1
        request_id = self._asked
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        timer: TimerHandle | None = None
        try:
            self.tell(Asked(request_id=request_id, request=request))
            if timeout_ms is not None and not future.done():
                timer = self._ports.clock.call_later(timeout_ms, lambda: _expire(future))
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(request_id, None)

    def tell(self, event: object) -> None:
        """Step the shard; while it loads, afterwards. Events come in order, also those that a step itself gives rise to."""
        self._events.append(event)
        self._drain()

    # --- stepping -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        clock = self._ports.clock
        while self._events and not self._stepping and (shard := self._shard) is not None:
            event = self._events.popleft()
            self._run(lambda e=event, s=shard: s.step(e, clock.now_ms(), clock.wall_ms()))  # type: ignore[misc]
        self._arm()

    def _run(self, step: Callable[[], Output]) -> None:
        self._stepping = True
        try:
            output = step()
            for append in output.appends:
                self._append(append)
            self._answer(output)
            if output.more and self._going_on is None:
                self._going_on = self._ports.tasks.spawn(self._go_on(), name=f"go-on-{self.tp}")
        except Exception as error:  # noqa: BLE001 - a step that broke off may have changed half of a group, see docs/adr/0005
            self._ports.fault(error, f"coordinator of {self.tp}")
        finally:
            self._stepping = False

    async def _go_on(self) -> None:
        await self._turns.next()
        self._going_on = None
        self.tell(GoOn())

    def _arm(self) -> None:
        due = None if self._shard is None else self._shard.next_deadline_ms()
        if self._going_on is not None and due is not None and due <= self._ports.clock.now_ms():
            return  # what is due already is gone on with in its turn
        if due is None or (self._timer is not None and self._armed_for <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = due
        self._timer = self._ports.clock.call_later(max(0, due - self._ports.clock.now_ms()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(Tick())

    def _answer(self, output: Output) -> None:
        for request_id, result in output.answers:
            future = self._waiting.get(request_id)
            if future is None or future.done():
                continue  # the client is gone
            if isinstance(result, ApiError):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _append(self, append: Append) -> None:
        self._undecided += 1
        led = self._log.partition(self.tp)
        if led is None or led.leader_epoch != self.leader_epoch:
            self._written(append.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self._undecided > self.most_undecided:
            self._written(append.token, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        if append.marker is not None:
            self._log.write_markers(
                [append.marker],
                timeout_ms=self._settings.append_timeout_ms,
                on_done=lambda errors: self._written(append.token, errors[0]),
                on_late=lambda error: self._late(append.token, error),
            )
            return
        wall_ms = self._ports.clock.wall_ms()
        records = [Record(record.key, record.value) for record in append.records]
        producer = append.producer
        if producer is None:
            batch = build_batch(records, timestamp_ms=wall_ms, codec=self._settings.compression_codec)
        else:
            batch = build_batch(
                records,
                timestamp_ms=wall_ms,
                codec=self._settings.compression_codec,
                transactional=True,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
            )
        self._log.append(
            [ProduceEntry(tp=self.tp, topic_id=self.topic_id, records=bytearray(batch), terms=append.terms)],
            acks=-1,
            timeout_ms=self._settings.append_timeout_ms if append.timeout_ms is None else append.timeout_ms,
            on_done=lambda done: self._written(append.token, done[0].error),
            origin=AppendOrigin.COORDINATOR,
            on_late=lambda error: self._late(append.token, error),
        )

    def _written(self, token: int, error: ErrorCode) -> None:
        self._undecided -= 1
        if self._shard is not None:
            self.tell(Written(token=token, error=error))

    def _late(self, token: int, error: ErrorCode) -> None:
        if self._shard is not None:
            self.tell(Late(token=token, error=error))


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, "the coordinator's log was not written in time"))
