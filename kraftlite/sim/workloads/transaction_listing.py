"""A client that lists transactions (theme `transactions`, TA-02), with filters of every kind, some of them wrong.

It comes with a quarter of the seeds, and has a random stream of its own. `checkers/transaction_listings.py` judges what it
is told.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.transactions import LIST, ListAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 372
ONE_SEED_IN: Final = 4
MEAN_GAP_US: Final = 150_000
NO_STATE: Final = "Unheard"
NO_PATTERN: Final = "("
STATES: Final = (
    (),
    (),
    ("Ongoing",),
    ("PrepareCommit", "PrepareAbort"),
    ("Empty", "CompleteCommit", "CompleteAbort"),
    (NO_STATE,),
    (NO_STATE, "Ongoing", NO_STATE),
)
PATTERNS: Final = (None, None, None, "", "x.*", "x0", "x", ".*[01]", NO_PATTERN)
DURATIONS_MS: Final = (-1, -1, 0, 500, 3_000)


def comes_with(seed: int) -> bool:
    return random.Random(f"listing/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Lister(cluster, NUMBER, "lister", history)
        yield it, it.run()


class Lister(SimClient):
    """Asks one broker after another: each lists what it coordinates itself."""

    async def run(self) -> None:
        rng = self.rng
        brokers = [node.node_id for node in self.cluster.brokers]
        seen: list[int] = [77]
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            producer_ids = tuple(rng.sample(seen, min(2, len(seen)))) if rng.randrange(4) == 0 else ()
            ask = ListAsk(rng.choice(STATES), producer_ids, rng.choice(DURATIONS_MS), rng.choice(PATTERNS))
            with contextlib.suppress(TransportError, ApiError):
                told = await self.call(rng.choice(brokers), LIST, ask)
                if told.result is not None:
                    seen += [it.producer_id for it in told.result.transactions if it.producer_id not in seen]
