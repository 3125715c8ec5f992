"""Somebody who looks at the transactions of every broker, and who asks for markers that no log can hold (theme `transactions`).

It comes with a third of the seeds. Checker `transaction_listing` judges what it hears.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.errors import ApiError
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.hanging import MARK, MarkAsk
from kraftlite.sim.services.listing import LIST, ListAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 370
ONE_SEED_IN: Final = 3
GAPS_US: Final = (100_000, 400_000)
NO_STATE: Final = "Sleeping"
BAD_PATTERN: Final = "x["
LONGEST_MS: Final = 1 << 50
"""No transaction has been open for so long."""
STATES: Final = (*(it.title for it in TransactionState), NO_STATE)
NEVER_THERE: Final = TopicPartition("never-there", 0)
NO_MARKER: Final = (Producer(-1, 0), Producer(5, -1))
"""No batch can say them."""


def comes_with(seed: int) -> bool:
    return random.Random(f"transactions/listing/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Onlooker(cluster, NUMBER, "onlooker", history)
        yield it, it.run(partitions)


class Onlooker(SimClient):
    """It changes nothing."""

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        rng, brokers = self.rng, [node.node_id for node in self.cluster.brokers]
        gap_us, known = rng.choice(GAPS_US), list[int]()
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * gap_us))
            with contextlib.suppress(TransportError, ApiError):
                if rng.randrange(5) == 0:
                    tp = rng.choice((*partitions, NEVER_THERE))
                    await self.call(rng.choice(brokers), MARK, MarkAsk(tp, rng.choice(NO_MARKER), 0))
                    continue
                found = (await self.call(rng.choice(brokers), LIST, self._ask(known))).result
                known = known if found is None else [it.producer_id for it in found.transactions] or known

    def _ask(self, known: Sequence[int]) -> ListAsk:
        rng = self.rng
        return ListAsk(
            states=tuple(rng.sample(STATES, rng.choice((0, 0, 1, 3)))),
            producer_ids=tuple(rng.sample(known, 1)) if known and rng.randrange(4) == 0 else (),
            min_duration_ms=LONGEST_MS if rng.randrange(10) == 0 else -1,
            pattern=rng.choice((None, None, "", "x.*", "x0", "(x|copier-)[0-9]", BAD_PATTERN)),
        )
