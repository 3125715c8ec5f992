"""Invariant 47, of waiting: DeleteRecords waits for replicas that live, and no longer than they take (KIP-107)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.replication.api import DeleteRecordsResult
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import running_log
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_LOOK_US: Final = 100_000
_QUIET_US: Final = 300_000
"""All nodes may have been paused when none has run for so long, and nobody has looked."""
_PATIENCE_US: Final = 700_000
"""The time that an answer may take when there is nothing to wait for any more."""
_TOLD_US: Final = 300_000
"""So long before a timeout the leader surely knew what there was to know."""


@dataclass(slots=True)
class _Wait:
    boots: int
    required: int
    since_us: int | None = None
    """The time at which all that live had followed, not counting the time in which the node did not run; None: they have not."""


class DeletionsEnd(Checker):
    """A DeleteRecords is answered, and not as timed out, when every replica has followed whose broker lives by the metadata that
    the leader has: who has died meanwhile is not waited for (RP-17)."""

    numbers: ClassVar[tuple[int, ...]] = (47,)
    only_methods = (DELETE_RECORDS,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits: dict[AnyExchange, _Wait] = {}
        self._looked_us = 0
        self.judged = 0

    def on_arrival(self, exchange: AnyExchange) -> None:
        ask, node = exchange.request, self.world.nodes[exchange.target]
        log = running_log(node, ask.tp) if isinstance(ask, DeleteAsk) else None
        if log is not None and exchange not in self._waits:
            self._waits[exchange] = _Wait(node.boots, log.hw if ask.offset == -1 else ask.offset)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        wait = self._waits.pop(exchange, None)
        timed_out = isinstance(response, DeleteRecordsResult) and response.error is ErrorCode.REQUEST_TIMED_OUT
        if wait is not None and timed_out and wait.since_us is not None:
            self._judge(exchange, wait, wait.since_us, _TOLD_US, "answers that it has timed out, and")

    def on_step(self, node: SimHost) -> None:
        now_us = self.world.cluster.loop.now_us()
        passed_us = now_us - self._looked_us
        if passed_us >= _LOOK_US:
            self._looked_us = now_us
            for exchange, wait in list(self._waits.items()):
                self._look(exchange, wait, now_us, passed_us)

    def _look(self, exchange: AnyExchange, wait: _Wait, now_us: int, passed_us: int) -> None:
        node = self.world.nodes[exchange.target]
        if node.boots != wait.boots or node.now is None or exchange.handler is None or exchange.handler.done():
            del self._waits[exchange]
            return
        if not _all_followed(node, exchange.request, wait.required):
            wait.since_us = None
        elif wait.since_us is None:
            wait.since_us = now_us
        elif node.paused or self.world.cluster.loop.is_slowed(node.now.pid) or passed_us > _QUIET_US:
            wait.since_us += passed_us
        else:
            self._judge(exchange, wait, wait.since_us, _PATIENCE_US, "has no answer, and")

    def _judge(self, exchange: AnyExchange, wait: _Wait, since_us: int, patience_us: int, what: str) -> None:
        waited_us = self.world.cluster.loop.now_us() - since_us
        node = self.world.nodes[exchange.target]
        if waited_us * 1_000_000 > patience_us * (1_000_000 + node.slowest_ppm):
            ask = exchange.request
            self.fail(
                f"{ask.tp}: node {node.node_id} {what} for {waited_us // 1000} ms every replica that lives has begun at "
                f"{wait.required} or behind: {ask}"
            )


def _all_followed(node: SimHost, ask: DeleteAsk, required: int) -> bool:
    """Return whether the leader has heard so of everybody who lives by its metadata. It has to hear it: a log start that has
    moved says nothing while the network is cut."""
    broker = None if node.node is None else node.node.broker
    partition = None if broker is None else broker.replicas.partition(ask.tp)
    if broker is None or partition is None or partition.leader is None or partition.log is None:
        return False
    if partition.log.log_start_offset < required:
        return False
    alive = broker.cache.image.cluster.is_alive
    return all(it.log_start_offset >= required or not alive(broker_id) for broker_id, it in partition.leader.followers.items())
