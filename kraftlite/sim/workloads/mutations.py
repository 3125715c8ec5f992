"""A client that makes more topics than its quota of changes allows (theme `security`, KIP-599).

It comes with half of the seeds, and has a random stream of its own. It asks one topic at a time, mostly in versions that know
THROTTLING_QUOTA_EXCEEDED, and changes its quota and takes it away meanwhile. In half of them it rests for seconds first, and then
asks for more than it may.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.acls import CLUSTER_NAME
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.workloads.security import HOSTS, DoorClient, body_of
from kraftlite.sim.workloads.security_settings import ADMIN

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 246
ONE_SEED_IN: Final = 2
KEY: Final = "controller_mutation_rate"
RATES: Final = (0.4, 0.8, 1.5)
"""Partitions a second."""
CLIENT_IDS: Final = ("m-0", "m-1")
STRICT: Final = 7
LAX: Final = 5
"""Versions of CreateTopics: the first may be refused for its quota, the other is carried out and told to wait."""
HOSTS_OF_ONE: Final = 20
"""The hosts that it comes from, each with connections of its own, of which those are muted that were told to wait."""
MOST_ASKED: Final = 40
MOST_LAX: Final = 3
"""More topics would make the run long, and so would a connection that is muted until a large debt is paid."""


def comes_with(seed: int) -> bool:
    return random.Random(f"mutations/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Mutator(cluster, NUMBER, "mutator", history)
        yield it, it.run(it.rng.choice((100_000, 300_000)))


class Mutator(DoorClient):
    """A super user, whom no entry holds back."""

    async def run(self, mean_gap_us: int) -> None:
        rng, lax = self.rng, 0
        if rng.randrange(2):
            await self._rest()
        else:
            await self._limit()
        while not self.stopping and self.asked < MOST_ASKED:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            if not rng.randrange(8):
                await self._limit()
                continue
            version = LAX if lax < MOST_LAX and not rng.randrange(4) else STRICT
            lax += version == LAX
            await self._create(version, rng.choice((1, 1, 2, 3)) if version == STRICT else 1)

    async def _rest(self) -> None:
        """Use little, wait for longer than what was used needs to come back, and ask for all there is: no more may have come than
        there is room for."""
        await self._limit(("user",))
        await self._create(STRICT, 1)
        await self.pause(self.rng.randint(4_000_000, 8_000_000))
        for _ in range(8):
            if not self.stopping:
                await self._create(STRICT, 3)

    async def _limit(self, kinds: tuple[str, ...] = ()) -> None:
        """`kinds`: what is limited for sure; one or both of them if not given, and it may be lifted as well."""
        rng = self.rng
        remove = not kinds and not rng.randrange(4)
        kinds = kinds or rng.choice((("user",), ("client-id",), ("user", "client-id")))
        names = {"user": ADMIN.name, "client-id": rng.choice(CLIENT_IDS)}
        op = {"key": KEY, "value": 0.0 if remove else rng.choice(RATES), "remove": remove}
        entity = [{"entity_type": kind, "entity_name": names[kind]} for kind in kinds]
        body = body_of(49, 1, {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False})
        await self.ask("limit", CLUSTER_NAME, self.token(), body, principal=ADMIN, host=HOSTS[0], client_id="admin")

    async def _create(self, version: int, partitions: int) -> None:
        token = self.token()
        name = f"quota-{token}"
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        body = body_of(19, version, {"topics": [topic], "timeout": 4_000, "validate_only": False})
        client_id = self.rng.choice(CLIENT_IDS)
        await self.ask("create", name, token, body, principal=ADMIN, host=HOSTS[0], client_id=client_id, version=version)
