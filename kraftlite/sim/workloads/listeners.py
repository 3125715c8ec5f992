"""A simulated administrator who adds a listener to brokers, moves it and takes it away, while they register and fail (CB-06).

It comes with a third of the seeds of `membership`, and has a random stream of its own. There are no sockets: what the broker
registers follows all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster
    from kraftlite.simhost.host import SimHost

NUMBER: Final = 89
ONE_SEED_IN: Final = 3
ADDED: Final = "ADDED"
KEYS: Final = ("listeners", "listener.security.protocol.map")
TIMEOUT_MS: Final = 4_000
GAPS_US: Final = (50_000, 400_000, 1_500_000)
"""The mean times between two turns, one of which a seed takes."""
MANY: Final = 10_000
FEW: Final = 8
"""The turns of a seed: as many as there is time for, or at most so few."""
CLOSE_US: Final = 60_000
"""The longest time between two changes of one turn: that of a registration."""


def comes_with(seed: int) -> bool:
    return random.Random(f"listeners/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = ListenerAdmin(cluster, NUMBER, "listeners", history)
        yield it, it.run(it.rng.choice(GAPS_US))


class ListenerAdmin(SimClient):
    """Each request says the listeners of one broker whole, and goes to that broker; what comes of it the metadata says."""

    async def run(self, mean_gap_us: int) -> None:
        rng = self.rng
        turns = rng.choice((MANY, rng.randint(1, FEW)))
        while not self.stopping and turns:
            turns -= 1
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            await self._change(self.cluster.brokers[rng.randrange(len(self.cluster.brokers))], twice=rng.randrange(2) == 0)
        if not turns:  # a broker that starts later has what is stored, and no change that reminds it
            return
        for node in self.cluster.brokers:  # nothing comes after these that would put right what they break
            await self._change(node, twice=True)

    async def _change(self, node: SimHost, *, twice: bool) -> None:
        changes = [self._set(node.node_id, self._drawn(node))]
        if twice:
            changes.append(self._later(self.rng.randint(1, CLOSE_US), node))
        await asyncio.gather(*changes)

    async def _later(self, after_us: int, node: SimHost) -> None:
        await self.pause(after_us)
        await self._set(node.node_id, self._drawn(node))

    def _drawn(self, node: SimHost) -> tuple[str | None, str | None]:
        if self.rng.randrange(4) == 0:
            return None, None
        added = f"{ADDED}://n{node.node_id}:{self.rng.randint(9_300, 9_305)}"
        return f"{node.config.values['listeners']},{added}", f"PLAINTEXT:PLAINTEXT,{ADDED}:PLAINTEXT"

    async def _set(self, broker: NodeId, values: tuple[str | None, str | None]) -> None:
        changes = tuple(
            ConfigChange(name=key, op=int(AlterConfigOp.DELETE if value is None else AlterConfigOp.SET), value=value)
            for key, value in zip(KEYS, values, strict=True)
        )
        kind = int(ConfigResourceType.BROKER)
        resource = ConfigResourceChange(resource_type=kind, resource_name=str(broker), changes=changes)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        with contextlib.suppress(TransportError, ApiError):
            await self.call(broker, ADMIN, AdminAsk("alter_configs", request))
