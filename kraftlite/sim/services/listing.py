"""ListTransactions: the transactional ids that a broker coordinates (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.transactions import list_transactions
from kraftlite.model.method import Method
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route
from kraftlite.sim.services.groups import Told, told


@dataclass(frozen=True, slots=True)
class ListAsk:
    """Filters: empty, negative or None lets everything pass."""

    states: tuple[str, ...]
    producer_ids: tuple[int, ...]
    min_duration_ms: int
    pattern: str | None


LIST: Final = Method("Client", "ListTransactions", ListAsk, Told)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx = node.broker.context

    async def listed(ask: ListAsk) -> Told:
        """The result is a `TransactionListing`."""
        return await told(
            lambda: list_transactions(
                ctx,
                states=ask.states,
                producer_ids=ask.producer_ids,
                min_duration_ms=ask.min_duration_ms,
                pattern=ask.pattern,
            )
        )

    return dict((route(LIST, listed),))
