"""Transactional ids of an embedded cluster: their state, their coordinator, and fencing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.properties import settings_from
from kraftlite.client.transactions import fence_producer
from kraftlite.coordinator.transactions.states import LOGGED
from kraftlite.testing.conditions import Who, matches
from kraftlite.testing.errors import ClusterError

STATES: Final = tuple(state.title for state in sorted(LOGGED))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionView:
    """A transactional id as its coordinator has it: what is below the high watermark of `__transaction_state`.

    `state` by Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort. `partitions`, as (topic,
    partition) in order: those of the transaction; while its markers are sent, those that have none yet.
    """

    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTransaction:
    """All that is not None must hold at the same moment. Raises ValueError when it makes no sense."""

    transactional_id: str
    state: str | Collection[str] | None = None
    coordinator: int | Who | None = None

    def __post_init__(self) -> None:
        if not self.states and (self.state is not None or self.coordinator is None):
            raise ValueError("nothing to wait for; say state=… or coordinator=…")
        if isinstance(self.coordinator, Who) and self.coordinator.nobody:
            raise ValueError("coordinator=NOBODY: only a coordinator tells of a transactional id; name one, or say other_than(…)")
        unknown = [it for it in self.states if it not in STATES]
        if unknown:
            raise ValueError(f"state {unknown[0]!r}: allowed are {', '.join(STATES)}")

    @property
    def states(self) -> tuple[str, ...]:
        return (self.state,) if isinstance(self.state, str) else tuple(self.state or ())

    @property
    def node_ids(self) -> list[int]:
        """Every node that is named."""
        who = self.coordinator
        return sorted(who.excluded) if isinstance(who, Who) else [] if who is None else [who]

    def unmet(self, view: TransactionView | None) -> list[str]:
        """Say which conditions do not hold, and what was seen instead. `view` None: no coordinator knows the id."""
        if view is None:
            return [f"no coordinator knows transactional id {self.transactional_id}"]
        found = []
        if self.states and view.state not in self.states:
            found.append(f"state of {self.transactional_id}: wanted {' or '.join(self.states)}, seen {view.state}")
        if self.coordinator is not None and not matches(self.coordinator, view.coordinator):
            found.append(f"coordinator of {self.transactional_id}: wanted {self.coordinator}, seen {view.coordinator}")
        return found


def fence(
    bootstrap_servers: str, transactional_id: str, timeout_s: float, security: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """The newest producer id and epoch of the id. Blocks. Raises ClusterError."""
    limit_ms = str(max(1, int(timeout_s * 1000)))
    with ClusterClient(
        settings_from({**(security or {}), "bootstrap.servers": bootstrap_servers, "default.api.timeout.ms": limit_ms})
    ) as client:
        try:
            return fence_producer(client, transactional_id)
        except ClientError as error:
            raise ClusterError(f"transactional id {transactional_id} was not fenced: {error}") from None
