"""A simulated administrator who changes `min.insync.replicas`, and eligible leader replicas, under the hands of the leaders.

It comes with a fifth of the plain and troubled seeds, and has a random stream of its own. In a quarter of the seeds with
transactions, and of those about groups, it changes the minimum of the coordinators' topics, and nothing else: a coordinator goes
on leading, and its writes are refused while a replica is away.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.model.errors import ApiError
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.themes import GROUPS, PLAIN, TRANSACTIONS, TROUBLES

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 80
ONE_SEED_IN: Final = {PLAIN: 5, TROUBLES: 5, TRANSACTIONS: 4, GROUPS: 4}
OF_COORDINATORS: Final = {TRANSACTIONS: (TRANSACTION_TOPIC, OFFSETS_TOPIC), GROUPS: (OFFSETS_TOPIC,)}
"""The topics whose minimum is changed, where it is not that of the run's own."""
KEY: Final = "min.insync.replicas"
TIMEOUT_MS: Final = 4_000
GAPS_US = (300_000, 1_500_000)
"""The mean times between two changes, one of which a seed takes."""


def comes_with(theme: str, seed: int) -> bool:
    return theme in ONE_SEED_IN and random.Random(f"minimum/{seed}").randrange(ONE_SEED_IN[theme]) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.theme, cluster.seed):
        it, coordinated = MinimumAdmin(cluster, NUMBER, "minimum", history), OF_COORDINATORS.get(cluster.theme)
        gap_us = it.rng.choice(GAPS_US)
        if coordinated is None:
            yield it, it.run(sorted({tp.topic for tp in partitions}), gap_us)
        else:
            yield it, it.run_topics(coordinated, gap_us)


class MinimumAdmin(SimClient):
    """Mostly a topic's own value; now and then that of the cluster, that of one broker, or the feature as a whole."""

    async def run(self, topics: Sequence[str], mean_gap_us: int) -> None:
        rng, toggles = self.rng, self.rng.randrange(3) == 0
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            what = rng.randrange(12)
            if what == 0 and toggles:
                await self._toggle()
            elif what == 1:
                await self._set(int(ConfigResourceType.BROKER), "")
            elif what == 2:
                brokers = [node.node_id for node in self.cluster.brokers]
                await self._set(int(ConfigResourceType.BROKER), str(rng.choice(brokers)))
            else:
                await self._set(int(ConfigResourceType.TOPIC), topics[rng.randrange(len(topics))])

    async def run_topics(self, topics: Sequence[str], mean_gap_us: int) -> None:
        """Change nothing but the topics' own values. Mostly so that a write needs every replica."""
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            await self._set(int(ConfigResourceType.TOPIC), self.rng.choice(topics), ("2", "3", "3", None))

    async def _set(self, kind: int, name: str, values: Sequence[str | None] = ("1", "1", "2", "2", "3", None)) -> None:
        value = self.rng.choice(values)
        op = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
        change = ConfigChange(name=KEY, op=int(op), value=value)
        resource = ConfigResourceChange(resource_type=kind, resource_name=name, changes=(change,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self._ask("alter_configs", request)

    async def _toggle(self) -> None:
        level = self.rng.randrange(2)
        update = FeatureUpdate(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=level, upgrade_type=1 if level else 2)
        request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self._ask("update_features", request)

    async def _ask(self, kind: str, request: object) -> None:
        """Send it once, whatever comes of it: the checkers look at the controllers. A value that is set again leaves no trace."""
        brokers = [node.node_id for node in self.cluster.brokers]
        with contextlib.suppress(TransportError, ApiError):
            await self.call(brokers[self.rng.randrange(len(brokers))], ADMIN, AdminAsk(kind, request))
