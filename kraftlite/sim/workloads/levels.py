"""A simulated administrator who moves `metadata.version` and eligible leader replicas up and down, from an older release.

It comes with an eighth of the plain and troubled seeds, and has a random stream of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MIN_METADATA_VERSION,
)
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import FeatureUpdate, UpdateFeaturesRequest
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.shape import Shape
from kraftlite.sim.themes import LEVELS

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 85
ONE_SEED_IN: Final = 8
TIMEOUT_MS: Final = 4_000
UP, SAFE, UNSAFE = 1, 2, 3
BEGINNINGS: Final = (7, 10, 11, 12, 13, 14, 14, 14, 16, 17, 21, 22, 22, 23, 25, 29, 30)
"""Levels at which a cluster is formatted: on both sides of everything that a level switches on."""
GAPS_US = (200_000, 1_000_000)
"""The mean times between two changes, one of which a seed takes."""


def comes_with(seed: int) -> bool:
    return random.Random(f"levels/{seed}").randrange(ONE_SEED_IN) == 0


def with_beginning(shape: Shape, seed: int, theme: str) -> Shape:
    """The shape, formatted at an older level where the administrator comes, who then has a way up. A feature that is set for the
    shape and that the level does not have is left out."""
    if theme not in LEVELS or not comes_with(seed):
        return shape
    level = random.Random(f"levels/release/{seed}").choice(BEGINNINGS)
    off = {name: it for name, it in shape.features.items() if it == 0}
    return replace(shape, release=METADATA_VERSIONS[level].name, features=off)


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if cluster.theme not in LEVELS:
        return
    it = LevelsAdmin(cluster, NUMBER, "levels", history)
    cluster.raise_level = it.order
    if comes_with(cluster.seed):
        yield it, it.run(it.rng.choice(GAPS_US))


def finalized(cluster: SimCluster) -> int | None:
    """The level of `metadata.version` that some broker knows, as an administrator would look it up."""
    for node in cluster.brokers:
        if node.node is not None:
            return node.node.loader.image.features.metadata_version
    return None


class LevelsAdmin(SimClient):
    """Mostly one step up; now and then far up, down by either kind of downgrade, both features at once, or only asking. Scenes
    may tell it to act at a given moment (`raise-level`), also where it does nothing by itself."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self._orders: dict[asyncio.Task[None], None] = {}

    async def run(self, mean_gap_us: int) -> None:
        rng = self.rng
        level = MIN_METADATA_VERSION
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            what = rng.randrange(12)
            level = finalized(self.cluster) or level
            if what < 5:
                updates = [self._version(min(level + rng.randint(1, 2), LATEST_METADATA_VERSION), UP)]
            elif what == 5:
                updates = [self._version(rng.randint(level, LATEST_METADATA_VERSION), UP)]
            elif what < 9:
                below = rng.randint(max(MIN_METADATA_VERSION, level - 3), level)
                updates = [self._version(below, rng.choice((SAFE, UNSAFE, UP)))]
            elif what == 9:
                updates = [self._elr(), self._version(min(level + rng.randint(0, 3), LATEST_METADATA_VERSION), UP)]
            else:
                updates = [self._elr()]
            await self._update(updates, validate_only=rng.randrange(6) == 0)

    def order(self, levels: int) -> None:
        """Raise `metadata.version` by so many levels now, whatever else is under way."""
        if self.stopping:
            return
        update = self._version(min((finalized(self.cluster) or MIN_METADATA_VERSION) + levels, LATEST_METADATA_VERSION), UP)
        task = asyncio.get_running_loop().create_task(self._carry_out(update), context=self.cluster.outside)
        self._orders[task] = None
        task.add_done_callback(lambda it: self._orders.pop(it, None))

    async def _carry_out(self, update: FeatureUpdate) -> None:
        running = [node.node_id for node in self.cluster.brokers if node.started]
        await self._update([update], validate_only=False, brokers=running)

    @staticmethod
    def _version(level: int, kind: int) -> FeatureUpdate:
        return FeatureUpdate(name=METADATA_VERSION, level=level, upgrade_type=kind)

    def _elr(self) -> FeatureUpdate:
        level = self.rng.randrange(2)
        return FeatureUpdate(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=level, upgrade_type=UP if level else SAFE)

    async def _update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool, brokers: Sequence[NodeId] = ()) -> None:
        """Send it once, whatever comes of it: the checkers look at what is written and at what was asked for."""
        request = UpdateFeaturesRequest(updates=tuple(updates), validate_only=validate_only, timeout_ms=TIMEOUT_MS)
        brokers = brokers or [node.node_id for node in self.cluster.brokers]
        with contextlib.suppress(TransportError, ApiError):
            await self.call(brokers[self.rng.randrange(len(brokers))], ADMIN, AdminAsk("update_features", request))
