"""The quorum on a real or simulated loop: performs the core's output, and is the `RaftClient` of this node's state machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kraftlite.model.errors import ApiError, ErrorCode, Fault, StorageFault
from kraftlite.model.ids import ZERO_UUID, Endpoint, NodeId, uuid_to_str
from kraftlite.model.messages.methods import (
    ADD_VOTER,
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    PROBE_VERSIONS,
    RAFT_FETCH,
    REMOVE_VOTER,
    UPDATE_VOTER,
    VOTE,
)
from kraftlite.model.messages.raft import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    OffsetAndEpoch,
    RaftRequest,
    RaftResponse,
)
from kraftlite.model.method import AnyMethod, Method
from kraftlite.raft.client import LeaderAndEpoch, RaftListener, RecordSerde, SnapshotWriter
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.core import RaftCore
from kraftlite.raft.delivery import Delivery
from kraftlite.raft.events import (
    AppendScheduled,
    Event,
    LogFlushed,
    OutboundRequest,
    Output,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from kraftlite.raft.measures import RaftMeasures
from kraftlite.runtime.ports import AnyHandler, Handlers, Ports, TaskHandle, TimerHandle, TransportError, route
from kraftlite.runtime.trace.node import NodeStalled

STALL_MS: Final = 500
"""A timer that is so much overdue is told as a stall of the node."""

Asked = TypeVar("Asked", bound=RaftRequest)
Answered = TypeVar("Answered", bound=RaftResponse)


class RaftDriver:
    """Runs a RaftCore over the ports. Implements `RaftClient`; all calls on the node's loop, after `start`.

    `register` may be called before `start`. A Fault, a failed assertion or a disk error goes to `Ports.fault`, and the driver
    refuses everything from then on.
    """

    def __init__(self, ports: Ports, config: QuorumConfig, serde: RecordSerde) -> None:
        self._ports = ports
        self._config = config
        self._serde = serde
        self._core: RaftCore | None = None
        self._delivery: Delivery | None = None
        self._early: list[RaftListener] = []
        self._replies: dict[int, asyncio.Future[RaftResponse]] = {}
        self._next_request_id = 1
        self._timer: TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._tasks: dict[int, TaskHandle] = {}
        self._next_task = 1
        self._flush_wanted = False
        self._flushing = False
        self._deliver = asyncio.Event()
        self._handed_over = asyncio.Event()
        self._stopped = False
        self.measures = RaftMeasures()

    # life

    async def start(self) -> None:
        """Open the log, take up the stored role, begin to tick. Raises Fault or OSError when the directory is unusable."""
        clock = self._ports.clock
        self._core = RaftCore(
            config=self._config,
            disk=self._ports.disk,
            serde=self._serde,
            entropy=self._ports.entropy,
            tracer=self._ports.tracer,
            now_ms=clock.now_ms(),
            wall_ms=clock.wall_ms(),
            trace_appends=self._ports.trace_hot,
        )
        self.measures.begin(self._core.log_end_offset)
        self._delivery = Delivery(self._core, self._serde, self._ports.tracer)
        for listener in self._early:
            self._delivery.register(listener)
        self._early.clear()
        self._spawn(partial(self._deliver_forever, self._delivery), "raft-delivery")
        self._step(Tick())

    async def stop(self, *, graceful: bool) -> None:
        """`graceful`: a leader names its successors and waits until the voters know, or the request timeout (RF-19)."""
        if self._core is not None and graceful and not self._stopped:
            self._step(ShutdownRequested())
            limit = self._ports.clock.call_later(self._config.request_timeout_ms, self._handed_over.set)
            await self._handed_over.wait()
            limit.cancel()
        already, self._stopped = self._stopped, True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        for task in list(self._tasks.values()):
            try:
                await task
            except asyncio.CancelledError:
                if (current := asyncio.current_task()) is not None and current.cancelling():
                    raise
        self._refuse_waiting(f"node {self._config.node_id} is stopping")
        if self._core is not None and self._delivery is not None and not already:
            self._delivery.close()
            self._core.close()

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        number = self._next_task
        self._next_task += 1

        async def run() -> None:
            try:
                await work()
            finally:
                self._tasks.pop(number, None)

        self._tasks[number] = self._ports.tasks.spawn(run(), name=name)

    @property
    def core(self) -> RaftCore:
        if self._core is None:
            raise Fault("the raft driver is not started")
        return self._core

    # steps

    def _step(self, event: Event) -> None:
        if self._stopped:
            return
        clock = self._ports.clock
        self._note_stall(clock.now_ms())
        try:
            self._perform(self.core.step(event, clock.now_ms(), clock.wall_ms()))
            core = self.core
            self.measures.look(clock.now_us(), core.state_name, core.log_end_offset, core.high_watermark)
            self._arm_timer()
        except Exception as error:  # noqa: BLE001 the top of every path into the core: what it asked for is a part of its step
            self._fault(error)

    def _fault(self, error: Exception) -> None:
        """A disk that fails is a reason in one line, which names the directory. Anything else is a bug, and keeps its stack."""
        self._stopped = True
        self._handed_over.set()
        self._refuse_waiting(f"node {self._config.node_id} has failed")
        if isinstance(error, OSError):
            directory = self._config.metadata_dir
            error = StorageFault(f"the metadata log in {directory} has failed: {error}", directory)
        self._ports.fault(error, "raft")

    def _refuse_waiting(self, message: str) -> None:
        """Answer the requests that still wait: the core will not."""
        for future in self._replies.values():
            if not future.done():
                future.set_exception(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, message))

    def _perform(self, output: Output) -> None:
        for request in output.requests:
            self._spawn(partial(self._call, request), f"raft-{request.method.name}")
        if output.flush:
            self._flush_wanted = True
            if not self._flushing:
                self._flushing = True
                self._spawn(self._flush, "raft-flush")
        for reply in output.replies:
            future = self._replies.pop(reply.request_id, None)
            if future is not None and not future.done():
                future.set_result(reply.response)
        if output.deliver:
            self._deliver.set()
        if self.core.shutdown_complete:
            self._handed_over.set()

    def _arm_timer(self) -> None:
        deadline = self.core.next_deadline_ms()
        if self._timer is not None:
            if deadline == self._timer_deadline_ms:
                return
            self._timer.cancel()
        delay = max(1, deadline - self._ports.clock.now_ms())
        self._timer_deadline_ms = deadline
        self._timer = self._ports.clock.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._note_stall(self._ports.clock.now_ms())
        self._timer = None
        self._step(Tick())

    def _note_stall(self, now_ms: int) -> None:
        """A timer that is overdue says that this node's loop stood still. Whatever wakes it first comes by here."""
        due_ms = self._timer_deadline_ms
        if self._timer is not None and due_ms is not None and now_ms - due_ms > STALL_MS:
            self._timer_deadline_ms = None  # told once; arming sets it anew
            self._ports.tracer.emit(NodeStalled(stalled_ms=now_ms - due_ms))

    async def _call(self, request: OutboundRequest) -> None:
        event: Event
        self.measures.requests += 1
        try:
            response = await self._ports.transport.call(request.peer, request.method, request.request, request.timeout_ms)
            self.measures.responses += 1
            event = ResponseReceived(correlation_id=request.correlation_id, response=response)
        except (TransportError, ApiError):
            event = RequestFailed(correlation_id=request.correlation_id)
        self._step(event)

    async def _flush(self) -> None:
        try:
            while self._flush_wanted and not self._stopped:
                self._flush_wanted = False
                durable = await self.core.metalog.log.flush()
                self._step(LogFlushed(leo=durable))
        except OSError as error:
            self._fault(error)
        finally:
            self._flushing = False

    async def _deliver_forever(self, delivery: Delivery) -> None:
        while True:
            await self._deliver.wait()
            self._deliver.clear()
            while delivery.pump():
                await self._ports.clock.sleep(0)

    # service

    def handlers(self) -> Handlers:
        """The raft service, for the controller listener."""
        return dict(
            (
                self._route(VOTE),
                self._route(BEGIN_QUORUM_EPOCH),
                self._route(END_QUORUM_EPOCH),
                self._route(RAFT_FETCH),
                self._route(FETCH_SNAPSHOT),
                self._route(ADD_VOTER),
                self._route(REMOVE_VOTER),
                self._route(UPDATE_VOTER),
                self._route(PROBE_VERSIONS),
                route(DESCRIBE_QUORUM, self._handle_describe),
            )
        )

    def _route(self, method: Method[Asked, Answered]) -> tuple[AnyMethod, AnyHandler]:
        return route(method, partial(self._handle, method))

    async def _handle(self, method: Method[Asked, Answered], request: Asked) -> Answered:
        if self._core is None or self._stopped:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {self._config.node_id} is not running")
        request_id = self._next_request_id
        self._next_request_id += 1
        future: asyncio.Future[RaftResponse] = asyncio.get_running_loop().create_future()
        self._replies[request_id] = future
        try:
            self._step(RequestReceived(request_id=request_id, request=request))
            response = await future
            assert isinstance(response, method.response), f"{method} was answered with {type(response).__name__}"
            return response
        finally:
            self._replies.pop(request_id, None)

    async def _handle_describe(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self.describe_quorum()

    # the client

    @property
    def node_id(self) -> NodeId:
        return self._config.node_id

    @property
    def state_name(self) -> str:
        return self._core.state_name if self._core is not None else "unattached"

    def voted_for(self) -> int:
        """The node that this one has voted for in its epoch, itself if it leads; -1 for none."""
        voted = None if self._core is None else self._core.voted_for
        return -1 if voted is None else voted.id

    def voted_directory(self) -> str:
        """The directory of that node, as the zero id where it is not known."""
        voted = None if self._core is None else self._core.voted_for
        return uuid_to_str(ZERO_UUID if voted is None or voted.directory_id is None else voted.directory_id)

    @property
    def raft_epoch(self) -> int:
        return self._core.epoch if self._core is not None else 0

    def voter_ids(self) -> tuple[NodeId, ...]:
        """The latest voters in this node's log, or those of the configuration."""
        return self._core.voters.ids if self._core is not None else tuple(voter.id for voter in self._config.voters)

    def unknown_voter_count(self) -> int:
        """The voters that this node could not reach, as it has no address of them."""
        known = {} if self._core is None else {voter_id: self._core.voters.endpoint(voter_id) for voter_id in self.voter_ids()}
        return sum(endpoint is None for endpoint in known.values())

    def observer_count(self) -> int:
        """The replicas that fetch from this node without being voters; 0 unless it leads."""
        return self._core.observer_count if self._core is not None else 0

    def voters_are_changing(self) -> bool:
        """Return whether this node leads and has a change of the voters that is not committed."""
        return self._core is not None and self._core.voters_are_changing

    def ignores_configured_voters(self) -> bool:
        """Return whether controller.quorum.voters is set here and has no effect (DQ-09)."""
        return self._core is not None and self._core.ignores_configured_voters

    def register(self, listener: RaftListener) -> None:
        if self._delivery is None:
            self._early.append(listener)
            return
        self._delivery.register(listener)
        self._deliver.set()

    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self._core.leader if self._core is not None else LeaderAndEpoch(leader_id=None, epoch=0)

    def leader_endpoint(self) -> Endpoint | None:
        return self._core.leader_endpoint if self._core is not None else None

    def high_watermark(self) -> int | None:
        return self._core.high_watermark if self._core is not None else None

    def log_end_offset(self) -> int:
        return self._core.log_end_offset if self._core is not None else 0

    def prepare_append(self, epoch: int, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> int:
        self._refuse_when_stopped()
        return self.core.prepare_append(epoch, records, self._ports.clock.wall_ms(), encoded)

    def schedule_prepared_append(self) -> None:
        self._step(AppendScheduled())

    def kraft_version(self) -> int:
        return self._core.kraft_version if self._core is not None else 0

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        self._refuse_when_stopped()
        clock = self._ports.clock
        self.core.upgrade_kraft_version(epoch, level, validate_only=validate_only, now_ms=clock.now_ms(), wall_ms=clock.wall_ms())
        self._step(Tick())

    def resign(self, epoch: int) -> None:
        self.core.check_resign(epoch)
        self._step(ResignRequested(epoch=epoch))

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_timestamp_ms: int) -> SnapshotWriter | None:
        self._refuse_when_stopped()
        return self.core.create_snapshot(snapshot_id, last_contained_timestamp_ms)

    def log_end_epoch(self) -> int:
        """Return the epoch of the last record here; 0 while there is none."""
        return self._core.metalog.last_epoch if self._core is not None else 0

    def latest_snapshot_bytes(self) -> int:
        """Return the size of the newest metadata snapshot here; 0 while there is none."""
        latest = None if self._core is None else self._core.metalog.snapshots.latest
        return 0 if latest is None or self._core is None else self._core.metalog.snapshots.size(latest)

    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self.core.metalog.snapshots.latest

    def latest_snapshot_is_damaged(self) -> bool:
        return self._core is not None and self._core.metalog.latest_is_damaged

    def describe_quorum(self) -> DescribeQuorumResponse:
        self._refuse_when_stopped()
        return self.core.describe(self._ports.clock.wall_ms())

    def _refuse_when_stopped(self) -> None:
        if self._stopped:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"node {self._config.node_id} has stopped")
