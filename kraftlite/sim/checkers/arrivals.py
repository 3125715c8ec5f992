"""The knowledge of a broker when a request arrived, for the checkers that judge its answer by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import World
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Arrival(Generic[Seen]):
    """A request under way: the boots of its node, the virtual time in µs when it came first, and what was seen there then."""

    boots: int
    since_us: int
    seen: Seen


class Arrivals(Generic[Seen]):
    """Requests under way at nodes that have not been restarted since, and the nodes that are broken since they booted."""

    def __init__(self, world: World, see: Callable[[SimHost, AnyExchange], Seen]) -> None:
        self._world = world
        self._see = see
        self._known: dict[AnyExchange, Arrival[Seen]] = {}
        self.broken: set[NodeId] = set()
        """Nodes of which something failed that only a restart mends. The checker says what."""

    def on_boot(self, node: SimHost) -> None:
        self.broken.discard(node.node_id)
        for exchange in [it for it in self._known if it.target == node.node_id]:
            del self._known[exchange]

    def on_arrival(self, exchange: AnyExchange) -> None:
        """The first time counts, when a request arrives twice."""
        if exchange not in self._known:
            node = self._world.nodes[exchange.target]
            self._known[exchange] = Arrival(node.boots, self._world.cluster.loop.now_us(), self._see(node, exchange))

    def of(self, exchange: AnyExchange) -> Arrival[Seen] | None:
        """None when the broker that answers is not running any more, or is not the incarnation that the request came to."""
        node, found = self._world.nodes[exchange.target], self._known.get(exchange)
        runs = node.node is not None and node.node.broker is not None
        return found if found is not None and found.boots == node.boots and runs else None

    def forget(self, exchange: AnyExchange) -> None:
        self._known.pop(exchange, None)

    def waited_us(self, exchange: AnyExchange, arrival: Arrival[Seen]) -> int:
        """The longest that the node can take the wait for. Its clock counts milliseconds, and may have run faster for a part."""
        waited_us = self._world.cluster.loop.now_us() - arrival.since_us
        return waited_us * (1_000_000 + self._world.nodes[exchange.target].fastest_ppm) // 1_000_000 + 1_000
