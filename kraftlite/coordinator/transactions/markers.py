"""The markers that wait to be written, by the broker that leads their partition: the core that `markers_driver` drives.

An order is what a shard has given: the markers of one transaction. Each of its partitions is looked up anew before each attempt,
queued for its leader, sent with what else is queued there, and tried again after a pause, for ever, until it is written or needs
no marker any more. Bounded by what gives rise to it: an id has one order at most, of as many partitions as fit into a record.
Source: Kafka's TransactionMarkerChannelManager; TX-50 to TX-55.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from kraftlite.coordinator.transactions.events import Fenced, Mark, Marked
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_MARKER_REQUESTS_IN_FLIGHT
from kraftlite.model.topic_partition import TopicPartition

SEND_AGAIN_MS: Final = 100
"""The pause before a marker that could not be written is sent again, and before a leader that is missing is looked for."""
ROUTED_AT_ONCE: Final = 1_000
"""The markers that are looked up in one go."""

MARKERS_PER_REQUEST: Final = 200
"""The markers in one request. Each may be the last of a transaction, whose end is written when the answer comes: some 100 µs."""

Reply = Callable[[Marked | Fenced], None]


class Fate(Enum):
    """The consequence for a marker of the answer of the partition's leader."""

    DONE = auto()
    """Written, or never needed."""
    AGAIN = auto()
    STOPPED = auto()
    """A newer coordinator wrote there: nothing more is sent for the transaction."""


_FATES: Final = {
    ErrorCode.NONE: Fate.DONE,
    ErrorCode.UNSUPPORTED_VERSION: Fate.DONE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Fate.DONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Fate.STOPPED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Fate.STOPPED,
}


def fate_of(error: ErrorCode) -> Fate:
    """TX-51, TX-53. Departs: Kafka stops the broker at an error that it does not expect here; ours tries again."""
    return _FATES.get(error, Fate.AGAIN)


class Order:
    """The markers of one transaction, in the leader epoch of its coordinator."""

    __slots__ = ("coordinator_epoch", "left", "mark", "reply", "stopped", "told")

    def __init__(self, mark: Mark, coordinator_epoch: int, reply: Reply) -> None:
        self.mark = mark
        self.coordinator_epoch = coordinator_epoch
        self.reply = reply
        self.left = len(mark.partitions)
        self.stopped = False
        self.told: dict[TopicPartition, str] = {}
        """The reason why a marker waits, by partition, as it was told last."""


class Item(NamedTuple):
    """One marker: of an order, for a partition."""

    order: Order
    tp: TopicPartition


class Gone(Enum):
    """The answer of a look-up where the metadata does not have the partition (TX-52)."""

    GONE = auto()


Where = Callable[[TopicPartition], NodeId | Gone | None]
"""Looks up the leader of a partition; None while it has none that is alive."""


class MarkerQueues:
    """Used by its driver: `add`, then `batches` and send each, then `answered`; `batches` again in the next turn while there are
    `more`, and at `next_due_ms`."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._new: deque[Item] = deque()
        self._later: deque[tuple[int, Item]] = deque()
        """In the order of their times, for the pause is the same for all."""
        self._queued: dict[NodeId, deque[Item]] = {}
        self._in_flight: dict[NodeId, int] = {}
        self.leaderless: list[Item] = []
        """Those of the last `batches` whose partition has no leader that is alive."""

    def add(self, order: Order) -> None:
        self._new.extend(Item(order, tp) for tp in order.mark.partitions)

    def look_again(self) -> None:
        """The metadata has changed: what waits may have a leader now."""
        self._new.extend(item for _, item in self._later)
        self._later.clear()

    @property
    def more(self) -> bool:
        """True while there are markers that were not looked up yet."""
        return bool(self._new)

    def next_due_ms(self) -> int | None:
        return self._later[0][0] if self._later else None

    def batches(self, now_ms: int) -> Iterator[tuple[NodeId, list[Item]]]:
        """Look up what has no place yet, and take what may be sent now. Each batch counts as under way until `answered`."""
        self._route(now_ms)
        for node in list(self._queued):
            queue = self._queued[node]
            while queue and self._in_flight.get(node, 0) < MAX_MARKER_REQUESTS_IN_FLIGHT:
                batch = [item for item in _take(queue, MARKERS_PER_REQUEST) if not item.order.stopped]
                if batch:
                    self._in_flight[node] = self._in_flight.get(node, 0) + 1
                    yield node, batch
            if not queue:
                del self._queued[node]

    def answered(self, node: NodeId, batch: Sequence[Item], errors: Sequence[ErrorCode], now_ms: int) -> None:
        """Take what became of a whole batch, or of what is left of it: it is under way no more."""
        self._in_flight[node] -= 1
        if not self._in_flight[node]:
            del self._in_flight[node]
        self.answered_in_part(batch, errors, now_ms)

    def answered_in_part(self, batch: Sequence[Item], errors: Sequence[ErrorCode], now_ms: int) -> None:
        """Take what became of some items of a batch. Replies to the shards whose orders get further by it."""
        done: list[Item] = []
        for item, error in zip(batch, errors, strict=True):
            if item.order.stopped:
                continue
            fate = fate_of(error)
            if fate is Fate.DONE:
                done.append(item)
            elif fate is Fate.AGAIN:
                self._later.append((now_ms + SEND_AGAIN_MS, item))
            else:
                mark = item.order.mark
                item.order.stopped = True
                item.order.reply(Fenced(transactional_id=mark.transactional_id, attempt=mark.attempt))
        _reply(done)

    def _route(self, now_ms: int) -> None:
        self.leaderless = []
        while self._later and self._later[0][0] <= now_ms:
            self._new.append(self._later.popleft()[1])
        gone: list[Item] = []
        for item in _take(self._new, ROUTED_AT_ONCE):
            if item.order.stopped:
                continue
            leader = self._where(item.tp)
            if isinstance(leader, Gone):
                gone.append(item)
            elif leader is None:
                self._later.append((now_ms + SEND_AGAIN_MS, item))
                self.leaderless.append(item)
            else:
                self._queued.setdefault(leader, deque()).append(item)
        _reply(gone)

    @property
    def waiting(self) -> int:
        """The number of markers that wait for a leader, or to be sent again."""
        return sum(not item.order.stopped for _, item in self._later)


def _take(queue: deque[Item], most: int) -> Iterator[Item]:
    for _ in range(min(most, len(queue))):
        yield queue.popleft()


def _reply(done: Iterable[Item]) -> None:
    """Tell each order once of all its partitions that are done."""
    by_order: dict[Order, list[TopicPartition]] = {}
    for item in done:
        if not item.order.stopped:
            by_order.setdefault(item.order, []).append(item.tp)
    for order, tps in by_order.items():
        order.left -= len(tps)
        mark = order.mark
        order.reply(Marked(transactional_id=mark.transactional_id, attempt=mark.attempt, partitions=frozenset(tps)))
