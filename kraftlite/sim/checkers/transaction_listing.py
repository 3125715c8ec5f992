"""The lists of transactions, and the markers that no log can hold (TA-02, TA-05)."""

from __future__ import annotations

import re
from typing import Final

from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.hanging import MARK, MarkAsk
from kraftlite.sim.services.listing import LIST, ListAsk
from kraftlite.sim.workloads.transaction_listing import BAD_PATTERN, NEVER_THERE
from kraftlite.simhost.network import AnyExchange

_TITLES: Final = {it.title for it in TransactionState}
_WHILE_ELSEWHERE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_UNWRITABLE: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class TransactionsListed(Checker):
    """A broker lists each id once, with the state in which it has it, and all that pass the filters of those whose state was the
    same from the question to the answer. A marker of nobody, or of no epoch, is written nowhere."""

    only_methods = (LIST, MARK)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[AnyExchange, dict[str, Transaction]] = {}
        self.judged = {"listed": 0, "ids": 0, "markers": 0}

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is LIST:
            self._known.setdefault(exchange, self._in_memory(exchange.target))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is MARK:
            assert isinstance(response, Told)
            self._marked(exchange, exchange.request, response.error)
            return
        before = self._known.pop(exchange, None)
        if before is not None:
            assert isinstance(response, Told)
            self._listed(exchange, response, before)

    def _in_memory(self, node_id: NodeId) -> dict[str, Transaction]:
        """The ids that a broker coordinates and that nothing is under way for."""
        node = self.world.nodes[node_id].node
        if node is None or node.broker is None:
            return {}
        return {
            name: entry.current
            for driver in node.broker.transactions.led.drivers()
            if driver.loaded
            for name, entry in driver.shard.by_id.items()
            if entry.pending is None
        }

    def _marked(self, exchange: AnyExchange, ask: MarkAsk, code: ErrorCode) -> None:
        if ask.producer.producer_id >= 0 and ask.producer.producer_epoch >= 0:
            return
        self.judged["markers"] += 1
        allowed = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if ask.tp == NEVER_THERE else _UNWRITABLE
        if code not in allowed:
            self.fail(f"node {exchange.target} answers {code.name} to {ask}, of which no marker can be written")

    def _listed(self, exchange: AnyExchange, told: Told, before: dict[str, Transaction]) -> None:
        ask: ListAsk = exchange.request
        where = f"node {exchange.target} answers {ask}"
        bad = ask.pattern == BAD_PATTERN
        if told.error is not ErrorCode.NONE or bad:
            allowed = {ErrorCode.INVALID_REGULAR_EXPRESSION} if bad else _WHILE_ELSEWHERE
            if told.error not in allowed:
                self.fail(f"{where} with {told.error.name}")
            return
        self.judged["listed"] += 1
        found = {it.transactional_id: it for it in told.result.transactions}
        if len(found) < len(told.result.transactions):
            self.fail(f"{where} with {told.result.transactions}: one of them twice")
        if set(told.result.unknown_states) != set(ask.states) - _TITLES:
            self.fail(f"{where}: unknown are the states {told.result.unknown_states}")
        for name, it in found.items():
            if not _passes(ask, name, it.state, it.producer_id):
                self.fail(f"{where} with {it}, which does not pass")
        after = self._in_memory(exchange.target)
        for name, known in before.items():
            if after.get(name) != known:
                continue
            self.judged["ids"] += 1
            shown, wanted = found.get(name), _passes(ask, name, known.state, known.producer_id)
            if (shown is not None) is not wanted:
                self.fail(f"{where} with {sorted(found)}; it has {name}: {known}")
            if shown is not None and (shown.producer_id, shown.state) != (known.producer_id, known.state):
                self.fail(f"{where} with {shown}; it has {known}")


def _passes(ask: ListAsk, name: str, state: TransactionState, producer_id: int) -> bool:
    return (
        ask.min_duration_ms < 0
        and (not ask.states or state.title in ask.states)
        and (not ask.producer_ids or producer_id in ask.producer_ids)
        and (not ask.pattern or re.fullmatch(ask.pattern, name) is not None)
    )
