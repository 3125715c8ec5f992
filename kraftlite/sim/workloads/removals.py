"""Users who delete topics and add partitions, where they may and where they may not (theme `security`, SE-40).

They come with a third of the seeds, and have random streams of their own. A super user makes the topics again and again, and
grants and denies rights on them. Topics are named by their names and by their ids, of which some are over and some have never
been.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kraftlite.model.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ApiError
from kraftlite.model.principal import USER, Principal
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN as ADMIN_METHOD
from kraftlite.sim.service import AdminAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.creation import create
from kraftlite.sim.workloads.security import HOSTS, DoorClient, body_of
from kraftlite.sim.workloads.security_settings import ADMIN

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 390
ONE_SEED_IN: Final = 3
USERS: Final = ("dave", "erin")
TOPICS: Final = ("gone-a", "gone-b")
NEVER_THERE: Final = "gone-c"
DELETE, GROW = "delete topics", "grow topics"
MOST_PARTITIONS: Final = 4
OPERATIONS: Final = (
    Operation.DELETE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE,
    Operation.ALL,
)


def comes_with(seed: int) -> bool:
    return random.Random(f"removals/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if not comes_with(cluster.seed):
        return
    owner = Owner(cluster, NUMBER, "owner", history)
    yield owner, owner.run(owner.rng.choice((150_000, 400_000)))
    for index, name in enumerate(USERS):
        user = Remover(cluster, NUMBER + 1 + index, name, history)
        yield user, user.run(user.rng.choice((100_000, 300_000)))


class Owner(DoorClient):
    """Keeps the topics there, and changes who may do what with them."""

    async def run(self, mean_gap_us: int) -> None:
        rng = self.rng
        while not self.stopping:
            await self._make_topics()
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            if rng.randrange(4):
                kind, body = "grant", body_of(30, 3, {"creations": [self._entry() for _ in range(rng.choice((1, 2)))]})
            else:
                kind, body = "revoke", body_of(31, 3, {"filters": [self._filter()]})
            await self.ask(kind, CLUSTER_NAME, self.token(), body, principal=ADMIN, host=HOSTS[0], client_id="owner")

    async def _make_topics(self) -> None:
        newest = self.cluster.newest_image()
        for name in TOPICS:
            if newest is None or newest.topics.topic(name) is None:
                broker = self.rng.choice([node.node_id for node in self.cluster.brokers])
                with contextlib.suppress(TransportError, ApiError):
                    plan = TopicPlan(name=name, partitions=1, replication=1)
                    await self.call(broker, ADMIN_METHOD, AdminAsk("create_topics", create(plan)))

    def _entry(self) -> Mapping[str, object]:
        rng = self.rng
        on_cluster = rng.randrange(12) == 0
        prefixed = not on_cluster and rng.randrange(4) == 0
        name = CLUSTER_NAME if on_cluster else "gone-" if prefixed else rng.choice(TOPICS)
        return {
            "resource_type": int(ResourceType.CLUSTER if on_cluster else ResourceType.TOPIC),
            "resource_name": name,
            "resource_pattern_type": int(PatternType.PREFIXED if prefixed else PatternType.LITERAL),
            "principal": f"User:{rng.choice(USERS)}",
            "host": rng.choice((WILDCARD, WILDCARD, *HOSTS)),
            "operation": int(Operation.DELETE if on_cluster else rng.choice(OPERATIONS)),
            "permission_type": int(rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))),
        }

    def _filter(self) -> Mapping[str, object]:
        return {
            "resource_type_filter": int(ResourceType.ANY),
            "resource_name_filter": None,
            "pattern_type_filter": int(PatternType.ANY),
            "principal_filter": f"User:{self.rng.choice(USERS)}",
            "host_filter": None,
            "operation": int(self.rng.choice((Operation.ANY, *OPERATIONS))),
            "permission_type": int(self.rng.choice((Permission.ANY, Permission.DENY))),
        }


class Remover(DoorClient):
    """Asks for one topic at a time."""

    async def run(self, mean_gap_us: int) -> None:
        rng, principal = self.rng, Principal(USER, self.name)
        ids: dict[str, str] = {}
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            if rng.randrange(3) == 0:
                await self.refresh()
                ids |= {} if self.known is None else {name: self.known.topic_ids.get(name, "") for name in TOPICS}
            name = rng.choice((*TOPICS, *TOPICS, NEVER_THERE))
            kind, body = self._delete(name, ids) if rng.randrange(2) else self._grow(name)
            host = rng.choice(HOSTS)
            await self.ask(kind, name, self.token(), body, principal=principal, host=host, client_id=f"r-{rng.randrange(2)}")

    def _delete(self, name: str, ids: Mapping[str, str]) -> tuple[str, bytes]:
        known, by_id = ids.get(name), self.rng.randrange(2)
        topic: dict[str, Any] = {"name": name, "topic_id": None}
        if by_id and (known or name == NEVER_THERE):
            topic = {"name": None, "topic_id": UUID(known) if known else UUID(int=self.rng.getrandbits(128))}
        return DELETE, body_of(20, 6, {"topics": [topic], "timeout": 2_000})

    def _grow(self, name: str) -> tuple[str, bytes]:
        topic = {"name": name, "count": self.rng.randint(2, MOST_PARTITIONS), "assignments": None}
        return GROW, body_of(37, 3, {"topics": [topic], "timeout": 2_000, "validate_only": False})
