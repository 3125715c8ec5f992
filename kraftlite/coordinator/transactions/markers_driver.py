"""Sends markers to the brokers that lead their partitions, and takes their answers. Source: TX-50, TX-51, TX-61."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kraftlite.coordinator.core.walks import pieces
from kraftlite.coordinator.transactions.events import Fenced, Mark, Marked
from kraftlite.coordinator.transactions.markers import Fate, Gone, Item, MarkerQueues, Order, fate_of
from kraftlite.coordinator.transactions.telling import Budget
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.ports import Ports, TaskHandle, TimerHandle, TransportError
from kraftlite.runtime.trace.transaction import (
    TransactionMarkersDelayed,
    TransactionMarkersStopped,
    TransactionMarkerWaits,
    TransactionMarkerWritten,
)
from kraftlite.runtime.turns import Turns


class MarkerPost(Protocol):
    """Carries markers to a broker, this one included."""

    def write(self, node: NodeId, markers: Sequence[MarkerEntry], /) -> Awaitable[Sequence[ErrorCode]]:
        """One error for each, in order, when each is below the high watermark. Raises TransportError, ApiError."""
        ...


class MarkerSender:
    """The markers of all shards of one broker. Those to partitions that it leads itself take the same way as all others.

    What is added in one turn of the loop goes out together at the next. A request to a broker that the metadata says is gone is
    given up at once, so that its markers find the next leader.
    """

    def __init__(self, ports: Ports, post: MarkerPost, image: Callable[[], MetadataImage]) -> None:
        self._ports = ports
        self._post = post
        self._image = image
        self._queues = MarkerQueues(self._where)
        self._timer: TimerHandle | None = None
        self._due_ms = 0
        self._calls: dict[_Call, None] = {}
        self._closed = False
        self._budget = Budget()
        self._held = False
        self._turns = Turns(ports.clock)

    def outbox(self, coordinator_epoch: int) -> ShardOutbox:
        """The outbox of a shard that coordinates in a leader epoch."""
        return ShardOutbox(self._add, coordinator_epoch)

    def metadata_changed(self) -> None:
        """Leaders may have moved."""
        if self._closed:
            return
        self._queues.look_again()
        image = self._image()
        for call in self._calls:
            if call.begun and not image.cluster.is_alive(call.node):
                call.cancel()
        self._wake(0)

    def hold(self, held: bool) -> None:
        """Send nothing from now on, or go on: for tests of what happens between a decision and its markers."""
        self._held = held
        self._wake(0)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in self._calls:
            call.cancel()

    @property
    def waiting(self) -> int:
        """The number of markers that wait for a leader, or to be sent again (`UnknownDestinationQueueSize`)."""
        return self._queues.waiting

    def _add(self, order: Order) -> None:
        self._queues.add(order)
        self._wake(0)

    def _where(self, tp: TopicPartition) -> NodeId | Gone | None:
        image = self._image()
        registration = image.topics.registration(tp)
        if registration is None:
            return Gone.GONE
        leader = registration.leader
        return leader if leader is not None and image.cluster.is_alive(leader) else None

    # --- sending ------------------------------------------------------------------------------------------------------

    def _wake(self, delay_ms: int) -> None:
        due_ms = self._ports.clock.now_ms() + delay_ms
        if self._closed or (self._timer is not None and self._due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._ports.clock.call_later(delay_ms, self._pump)

    def _pump(self) -> None:
        self._timer = None
        if self._held:
            return
        now_ms = self._ports.clock.now_ms()
        for node, batch in self._queues.batches(now_ms):
            call = _Call(node, batch)
            self._calls[call] = None
            call.task = self._ports.tasks.spawn(self._send(call), name=f"markers-{node}")
        for item in self._queues.leaderless:
            self._tell_wait(item, None, ErrorCode.LEADER_NOT_AVAILABLE)
        due_ms = now_ms if self._queues.more else self._queues.next_due_ms()
        if due_ms is not None:
            self._wake(max(0, due_ms - now_ms))

    async def _send(self, call: _Call) -> None:
        """Ends by cancellation when the broker is gone: then nobody knows what it had done, as after any answer that is lost. A
        task that is cancelled before it has begun would tell nobody."""
        call.begun = True
        node, left = call.node, call.batch
        try:
            if self._image().cluster.is_alive(node):
                errors = await self._written(node, left)
                async for some in self._turns.each(pieces(list(zip(left, errors, strict=True)))):
                    items, theirs = [item for item, _ in some], [error for _, error in some]
                    self._tell(node, items, theirs)
                    self._queues.answered_in_part(items, theirs, self._ports.clock.now_ms())
                    left = left[len(some) :]
        finally:
            del self._calls[call]
            if not self._closed:
                lost = [ErrorCode.NETWORK_EXCEPTION] * len(left)
                self._tell(node, left, lost)
                self._queues.answered(node, left, lost, self._ports.clock.now_ms())
                self._wake(0)

    async def _written(self, node: NodeId, batch: list[Item]) -> Sequence[ErrorCode]:
        """One error for each marker. An answer that is lost, or has not as many, says nothing about any."""
        count, error = len(batch), ErrorCode.NETWORK_EXCEPTION
        try:
            errors = await self._post.write(node, [_entry(item, self._image()) for item in batch])
        except TransportError:
            return [error] * count
        except ApiError as refused:  # of the request, not of a partition: it fences nobody
            return [error if fate_of(refused.code) is not Fate.AGAIN else refused.code] * count
        return errors if len(errors) == count else [error] * count

    def _tell(self, node: NodeId, batch: list[Item], errors: Sequence[ErrorCode]) -> None:
        failed = [error for error in errors if error is not ErrorCode.NONE]
        if failed:
            self._ports.tracer.emit(TransactionMarkersDelayed(leader=node, count=len(failed), error=failed[0].name))
        for item, error in zip(batch, errors, strict=True):
            name = item.order.mark.transactional_id
            if fate_of(error) is Fate.STOPPED and not item.order.stopped:
                self._ports.tracer.emit(TransactionMarkersStopped(transactional_id=name, tp=item.tp, error=error.name))
            elif fate_of(error) is Fate.AGAIN:
                self._tell_wait(item, node, error)
            elif item.tp in item.order.told:
                self._ports.tracer.emit(TransactionMarkerWritten(transactional_id=name, tp=item.tp, leader=node))

    def _tell_wait(self, item: Item, node: NodeId | None, error: ErrorCode) -> None:
        """Tell where a marker waits, once for each reason."""
        told, reason = item.order.told, f"{node} {error.name}"
        if told.get(item.tp) != reason and self._budget.take(self._ports.clock.now_ms(), ordinary=False):
            told[item.tp] = reason
            name = item.order.mark.transactional_id
            self._ports.tracer.emit(TransactionMarkerWaits(transactional_id=name, tp=item.tp, leader=node, error=error.name))


class _Call:
    """A request to a broker that is under way. `begun`: its task has run."""

    __slots__ = ("batch", "begun", "node", "task")

    def __init__(self, node: NodeId, batch: list[Item]) -> None:
        self.node = node
        self.batch = batch
        self.begun = False
        self.task: TaskHandle | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class ShardOutbox:
    """The outbox of one shard in one leader epoch; `connect` says whom to tell before anything is sent."""

    def __init__(self, add: Callable[[Order], None], coordinator_epoch: int) -> None:
        self._add = add
        self._coordinator_epoch = coordinator_epoch
        self._tell: Callable[[Marked | Fenced], None] | None = None
        self._open: dict[int, Order] = {}

    def connect(self, tell: Callable[[Marked | Fenced], None]) -> None:
        self._tell = tell

    def send(self, mark: Mark) -> None:
        order = self._open[mark.attempt] = Order(mark, self._coordinator_epoch, self._reply)
        self._add(order)

    def forget(self) -> None:
        for order in self._open.values():
            order.stopped = True
        self._open.clear()

    def _reply(self, told: Marked | Fenced) -> None:
        order = self._open[told.attempt]
        if order.stopped or not order.left:
            del self._open[told.attempt]
        assert self._tell is not None, "an outbox that nobody is connected to"
        self._tell(told)


def _entry(item: Item, image: MetadataImage) -> MarkerEntry:
    mark = item.order.mark
    topic = image.topics.topic(item.tp.topic)
    return MarkerEntry(
        producer_id=mark.producer.producer_id,
        producer_epoch=mark.producer.producer_epoch,
        coordinator_epoch=item.order.coordinator_epoch,
        commit=mark.commit,
        version=mark.version,
        tp=item.tp,
        topic_id=None if topic is None else topic.topic_id,
    )
