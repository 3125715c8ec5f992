"""Invariant 72, of ends and beginnings: who asks again is told what became of it; and nothing else gets into a transaction."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.coordinator.transactions.states import FENCING_EPOCH, LAST_EPOCH, PREPARED, Transaction, TransactionState
from kraftlite.log.batch import parse_header
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.coordinator_memory import Remembered, remembered
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.sim.checkers.transaction_log import TransactionChecker
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import END, INIT, EndAsk, InitAsk
from kraftlite.simhost.network import AnyExchange

_S: Final = TransactionState
_HAS_EPOCHS: Final = 2
"""The `transaction.version` from which each transaction has an epoch of its own."""
_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of the moment: who is told so asks again."""


class TransactionEnds(ReplicaChecker, TransactionChecker):
    """An EndTxn of a transaction that has ended, by who ended it: the same end succeeds, and gives the producer to go on with, so
    that a lost answer costs nothing; the other end is INVALID_TXN_STATE, also while the outcome is being carried out (TX-42 to
    TX-45; KIP-890). Nothing succeeds for whom nothing changes but such an end.

    An InitProducerId is PRODUCER_FENCED for nobody who has nothing yet, or has the current epoch, or the one from which the last
    InitProducerId or end went on, whose answer may be lost (TX-15; KIP-360).

    A partition takes no batch outside of a transaction from a producer that has one open there (LG-24)."""

    numbers: ClassVar[tuple[int, ...]] = (72,)
    only_methods = (END, INIT)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: dict[AnyExchange, Remembered] = {}
        self.judged = 0

    # --- ends

    def on_arrival(self, exchange: AnyExchange) -> None:
        if isinstance(exchange.request, EndAsk | InitAsk) and exchange not in self._asked:
            found = self._in_memory(exchange)
            if found is not None:
                self._asked[exchange] = found

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        asked = self._asked.pop(exchange, None)
        if asked is None or not isinstance(response, Told) or response.error in _PASSING:
            return
        if self._in_memory(exchange) != asked:  # it was written, and is judged by the log
            return
        if isinstance(exchange.request, InitAsk):
            self._judge_beginning(exchange, asked.state, exchange.request, response)
        else:
            self._judge(exchange, asked.state, exchange.request, response)

    def _in_memory(self, exchange: AnyExchange) -> Remembered | None:
        return remembered(self, exchange, exchange.request.transactional_id, settled=True)

    def _judge(self, exchange: AnyExchange, state: Transaction, ask: EndAsk, told: Told) -> None:
        outcome = "commit" if ask.commit else "abort"
        where = (
            f"node {exchange.target} answers {told.error.name} to the {outcome} of {ask.transactional_id} with "
            f"{tuple(ask.producer)} by version {ask.version}, whose state is {state}"
        )
        ended = {_S.COMPLETE_COMMIT: True, _S.COMPLETE_ABORT: False, _S.PREPARE_COMMIT: True, _S.PREPARE_ABORT: False}
        commit = ended.get(state.state)
        if commit is None or not _has_ended_it(state, ask):
            if told.error is ErrorCode.NONE:
                self.fail(f"{where}: nothing has ended by it")
            return
        self.judged += 1
        if commit is not ask.commit:
            if told.error is not ErrorCode.INVALID_TXN_STATE:
                self.fail(f"{where}: it has ended otherwise, which is INVALID_TXN_STATE")
        elif state.state not in PREPARED:
            if told.error is not ErrorCode.NONE:
                self.fail(f"{where}: it has ended so, and was to succeed again")
            wanted = Producer(state.producer_id, state.producer_epoch)
            if told.result != wanted:
                self.fail(f"{where}, and the producer {tuple(told.result)} to go on with: it is {tuple(wanted)}")

    def _judge_beginning(self, exchange: AnyExchange, state: Transaction, ask: InitAsk, told: Told) -> None:
        expected = ask.expected
        if told.error is not ErrorCode.PRODUCER_FENCED:
            return
        known = {Producer(state.producer_id, state.producer_epoch), Producer(state.producer_id, state.last_epoch)}
        if expected is None or expected in known:
            who = "who has nothing yet" if expected is None else f"{tuple(expected)}"
            self.fail(
                f"node {exchange.target} fences {who} at its InitProducerId of {ask.transactional_id}, whose state is {state}"
            )

    # --- what is no part of a transaction

    def on_batch(self, truth: Truth, batch: Batch, raw: memoryview) -> None:
        if batch.producer_id not in self.transactions.by_producer or parse_header(raw).is_transactional:
            return
        known = self.transactions.in_log.get(truth.key, {})
        before = truth.before.get(batch)
        while before is not None and (before.producer_id != batch.producer_id or before not in known):
            before = truth.before.get(before)
        if before is not None and not before.is_control and not self.transactions.may_have_lost(truth.key):
            self.fail(f"{truth.tp}: {batch} is in no transaction, and its producer has one open there with {before}")


def _has_ended_it(state: Transaction, ask: EndAsk) -> bool:
    """Return whether the transaction that has ended last, or is ending, is that of who asks."""
    if ask.version < _HAS_EPOCHS:
        return ask.producer == Producer(state.producer_id, state.producer_epoch)
    if state.producer_epoch == FENCING_EPOCH:
        return False
    if ask.producer == Producer(state.previous_producer_id, LAST_EPOCH) and state.producer_epoch == 0:
        return True
    before = Producer(state.producer_id, state.producer_epoch - 1)
    return state.version >= _HAS_EPOCHS and ask.producer == before
