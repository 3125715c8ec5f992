"""The resources that all client connections of a node share: the loop's time, and memory."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.wire.budgets import RECEIVE_BUDGET_BYTES, RESPONSE_BUDGET_BYTES, ReceiveBudget, ResponseBudget
from kraftlite.wire.turns import Turns


class NodeShare:
    """One per node, for all its listeners. `queued_max_request_bytes` as Kafka's key; -1 means `RECEIVE_BUDGET_BYTES` here."""

    def __init__(self, now_ms: Callable[[], int], *, queued_max_request_bytes: int = -1) -> None:
        limit = queued_max_request_bytes if queued_max_request_bytes > 0 else RECEIVE_BUDGET_BYTES
        self.turns = Turns()
        self.receive = ReceiveBudget(limit, now_ms)
        self.responses = ResponseBudget(RESPONSE_BUDGET_BYTES, now_ms)

    def sweep(self) -> None:
        self.receive.sweep()
        self.responses.sweep()
