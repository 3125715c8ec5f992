"""A broker lists the transactions that it coordinates, and none that a filter leaves out (TA-02, KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftlite.coordinator.transactions.api import TransactionListing
from kraftlite.coordinator.transactions.states import Transaction
from kraftlite.model.errors import ErrorCode
from kraftlite.sim.checkers.arrivals import Arrivals
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import LIST, ListAsk
from kraftlite.sim.workloads.transaction_listing import NO_PATTERN, NO_STATE
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

JUDGED_WITHIN_US: Final = 20_000
"""A list that takes longer may tell of ids that came and went meanwhile, or of a clock that was set and set back."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The coordinators of a broker at one moment, by identity, with the wall time and all that they have."""

    drivers: tuple[int, ...]
    wall_ms: int
    ids: Mapping[str, Transaction]


class ListingsComplete(Checker):
    """An id that does not change while a broker lists is in the list exactly if the filters let it pass; one that changes is
    there only as they do. Names of states that there are not are told apart, and only a pattern that is none is refused so."""

    only_methods = (LIST,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arrivals = Arrivals(world, lambda node, exchange: self._see(node))
        self.judged = self.listed = 0

    def on_boot(self, node: SimHost) -> None:
        self._arrivals.on_boot(node)

    def on_arrival(self, exchange: AnyExchange) -> None:
        self._arrivals.on_arrival(exchange)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        assert isinstance(response, Told)
        ask: ListAsk = exchange.request
        arrival = self._arrivals.of(exchange)
        self._arrivals.forget(exchange)
        if arrival is None:
            return
        where = f"node {exchange.target} answers {ask}"
        if (response.error is ErrorCode.INVALID_REGULAR_EXPRESSION) != (ask.pattern == NO_PATTERN):
            self.fail(f"{where} with {response.error.name}")
        if response.error is not ErrorCode.NONE:
            return
        listing: TransactionListing = response.result
        if listing.unknown_states != ((NO_STATE,) if NO_STATE in ask.states else ()):
            self.fail(f"{where}: the unknown states are {listing.unknown_states}")
        was, now = arrival.seen, self._see(self.world.nodes[exchange.target])
        if was.drivers == now.drivers and self._arrivals.waited_us(exchange, arrival) < JUDGED_WITHIN_US:
            self._compare(where, ask, listing, was, now)

    def _compare(self, where: str, ask: ListAsk, listing: TransactionListing, was: _Seen, now: _Seen) -> None:
        self.judged += 1
        listed = {it.transactional_id: it for it in listing.transactions}
        if len(listed) < len(listing.transactions):
            self.fail(f"{where}: an id is listed twice: {listing.transactions}")
        for name, one in listed.items():
            self.listed += 1
            known = now.ids.get(name, was.ids.get(name))
            if known is None:
                self.fail(f"{where}: {one} is not coordinated there")
            if not _named(ask, name) or not _stated(ask, one.producer_id, one.state.title):
                self.fail(f"{where}: {one} is filtered out")
        for name, known in was.ids.items():
            if now.ids.get(name) is not known:
                continue
            passes = _named(ask, name) and _stated(ask, known.producer_id, known.state.title)
            ages_ms = [wall_ms - known.start_ms for wall_ms in (was.wall_ms, now.wall_ms)]
            long_enough = {ask.min_duration_ms < 0 or age_ms > ask.min_duration_ms for age_ms in ages_ms}
            if len(long_enough) == 1 and (passes and True in long_enough) != (name in listed):
                self.fail(f"{where}: {name} is {'not ' * (name not in listed)}listed, and is {known}, {ages_ms} ms old")

    def _see(self, node: SimHost) -> _Seen:
        broker = None if node.node is None else node.node.broker
        if broker is None or broker.transactions is None or node.now is None:
            return _Seen((), 0, {})
        shards = list(broker.transactions.led.loaded())
        ids = {name: entry.current for shard in shards for name, entry in shard.by_id.items() if not entry.is_dying}
        return _Seen(tuple(map(id, shards)), node.now.clock.wall_ms(), ids)


def _named(ask: ListAsk, name: str) -> bool:
    return not ask.pattern or re.fullmatch(ask.pattern, name) is not None


def _stated(ask: ListAsk, producer_id: int, state: str) -> bool:
    return (not ask.states or state in ask.states) and (not ask.producer_ids or producer_id in ask.producer_ids)
