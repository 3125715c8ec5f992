"""Invariant 18, of answers that change nothing: they say what may be lost with what is not committed (CE-07), and wait for it."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ALTER_PARTITION, BROKER_HEARTBEAT
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.simhost.network import AnyExchange


class _Written(NamedTuple):
    """Up to where a controller had written what waited for its commit when a request came, and in which epoch it was active."""

    author: tuple[NodeId, int]
    claim_epoch: int
    offset: int


class AnswersWait(MetadataChecker):
    """A heartbeat, and a change of ISRs, is answered when all that its controller had written before it came is committed."""

    numbers: ClassVar[tuple[int, ...]] = (18,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._written: dict[AnyExchange, _Written | None] = {}
        """By exchange, of its first message: a network that duplicates it brings another one later. None: nothing waited."""
        for method in (BROKER_HEARTBEAT, ALTER_PARTITION):
            self.facts.watch_arrival(method, self._on_arrival)
            self.facts.watch_served(method, self._on_served)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        view = self.facts.view(self.world.nodes[exchange.target])
        core = view.controller
        pending = None if core is None else core.deferred.highest_pending_offset
        if core is None or core.claim_epoch is None:
            return
        if exchange.method is not ALTER_PARTITION or exchange.request.partitions:
            written = None if pending is None else _Written(view.author, core.claim_epoch, pending)
            self._written.setdefault(exchange, written)

    def _on_served(self, exchange: AnyExchange, response: object) -> None:
        written, view = self._written.pop(exchange, None), self.facts.view(self.world.nodes[exchange.target])
        core = view.controller
        if written is None or core is None or (view.author, core.claim_epoch) != written[:2]:
            return
        if core.offsets.stable_offset < written.offset:
            self.fail(
                f"controller {view.node_id} answers a {exchange.method.name} of node {exchange.source}, and had written up to "
                f"{written.offset} when it came; committed is what goes up to {core.offsets.stable_offset}"
            )
