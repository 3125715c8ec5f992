"""The checker of lists of transactions fails when it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.coordinator.transactions.api import TransactionListing, TransactionOverview
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.transaction_listing import TransactionsListed
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.hanging import MARK, MarkAsk
from kraftlite.sim.services.listing import LIST, ListAsk
from kraftlite.sim.workloads.transaction_listing import BAD_PATTERN, NEVER_THERE, NO_MARKER, NO_STATE

ALL = ListAsk((), (), -1, None)
X0 = TransactionOverview("x0", 7, TransactionState.ONGOING)


class Broker:
    """It has x0 in memory, in an open transaction, and x1, of which something is under way."""

    def __init__(self) -> None:
        def entry(pending: object = None, **fields: Any) -> Any:
            return SimpleNamespace(pending=pending, current=Transaction(**fields))

        open_ = {"producer_id": 7, "producer_epoch": 0, "timeout_ms": 1_000, "updated_ms": 1, "state": TransactionState.ONGOING}
        self.ids = {"x0": entry(**open_), "x1": entry(object(), **{**open_, "producer_id": 8})}
        driver = SimpleNamespace(loaded=True, shard=SimpleNamespace(by_id=self.ids))
        transactions = SimpleNamespace(led=SimpleNamespace(drivers=lambda: [driver]))
        node = SimpleNamespace(node=SimpleNamespace(broker=SimpleNamespace(transactions=transactions)))
        world: Any = SimpleNamespace(nodes={NodeId(4): node})
        self.checker = TransactionsListed(world)

    def answers(self, ask: ListAsk, *found: TransactionOverview, error: ErrorCode = ErrorCode.NONE, **fields: Any) -> None:
        exchange: Any = _Exchange(LIST, ask)
        self.checker.on_arrival(exchange)
        self.checker.on_served(exchange, Told(error, TransactionListing(transactions=found, **fields)))

    def marks(self, ask: MarkAsk, error: ErrorCode) -> None:
        exchange: Any = _Exchange(MARK, ask)
        self.checker.on_served(exchange, Told(error))


class _Exchange:
    def __init__(self, method: Any, request: object) -> None:
        self.target, self.method, self.request = NodeId(4), method, request


def test_what_is_so_may_be_told() -> None:
    broker = Broker()
    broker.answers(ALL, X0)
    broker.answers(ALL, X0, X0._replace(transactional_id="x1", producer_id=8))
    broker.answers(ListAsk(("Ongoing", NO_STATE), (7,), -1, "x.*"), X0, unknown_states=(NO_STATE,))
    broker.answers(ListAsk(("Empty",), (), -1, None))
    broker.answers(ListAsk((), (), -1, BAD_PATTERN), error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    broker.answers(ALL, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert broker.checker.judged["listed"] == 4
    broker.marks(MarkAsk(NEVER_THERE, NO_MARKER[0], 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    broker.marks(MarkAsk(TopicPartition("t", 0), NO_MARKER[1], 0), ErrorCode.UNKNOWN_SERVER_ERROR)
    broker.marks(MarkAsk(TopicPartition("t", 0), Producer(1, 1), 0), ErrorCode.NONE)


@pytest.mark.parametrize(
    ("ask", "found", "fields", "words"),
    [
        (ALL, (), {}, "it has x0"),
        (ALL, (X0, X0), {}, "twice"),
        (ALL, (X0._replace(producer_id=6),), {}, "it has .*producer_id=7"),
        (ALL, (X0,), {"unknown_states": (NO_STATE,)}, "unknown are the states"),
        (ListAsk(("Empty",), (), -1, None), (X0,), {}, "does not pass"),
        (ListAsk((), (), -1, "y.*"), (X0,), {}, "does not pass"),
        (ListAsk((), (), 1 << 50, None), (X0,), {}, "does not pass"),
        (ListAsk((), (), -1, BAD_PATTERN), (), {}, "with NONE"),
        (ALL, (), {"error": ErrorCode.UNKNOWN_SERVER_ERROR}, "with UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_list_that_is_wrong(ask: ListAsk, found: tuple[TransactionOverview, ...], fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Violation, match=words):
        Broker().answers(ask, *found, **fields)


def test_a_marker_that_nobody_can_write() -> None:
    with pytest.raises(Violation, match="no marker can be written"):
        Broker().marks(MarkAsk(NEVER_THERE, NO_MARKER[0], 0), ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(Violation, match="no marker can be written"):
        Broker().marks(MarkAsk(TopicPartition("t", 0), NO_MARKER[0], 0), ErrorCode.NONE)
