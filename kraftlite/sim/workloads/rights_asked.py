"""A user who asks for more than to write and configure, and a super user who reads the entries (theme `security`).

The user grows topics, also in requests that name one twice, and writes batches of transactions, for which it needs rights to its
transactional id. The super user gives these rights and takes them back, and both ask which entries there are. They have quotas
and connections of their own, so that nobody else is charged for them. Checkers i90 and `described_rights` judge what they hear.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kraftlite.model.principal import USER, Principal
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.history import History
from kraftlite.sim.workloads.security import (
    GROW,
    HOSTS,
    LIST,
    TOPICS,
    TRANSACT,
    TRANSACTIONAL_ID,
    TWICE,
    USERS,
    DoorClient,
    body_of,
)
from kraftlite.sim.workloads.security_settings import ADMIN

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 260
NAME: Final = "dave"
MEAN_GAP_US: Final = 250_000
CLIENT_ID: Final = "t-0"
PRODUCER: Final = (4_711, 0)
"""Nobody's: a batch that is allowed is refused by the coordinator."""
EVERYTHING: Final[Mapping[str, Any]] = {
    "resource_type_filter": int(ResourceType.ANY),
    "resource_name_filter": None,
    "pattern_type_filter": int(PatternType.ANY),
    "principal_filter": None,
    "host_filter": None,
    "operation": int(Operation.ANY),
    "permission_type": int(Permission.ANY),
}


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[DoorClient, Coroutine[None, None, None]]]:
    user = Asking(cluster, FIRST_NUMBER, NAME, history)
    yield user, user.run()
    reader = Reading(cluster, FIRST_NUMBER + 1, "entries", history)
    yield reader, reader.run()


class Asking(DoorClient):
    """The user, who has the rights that everybody has, and now and then one to its transactional id."""

    async def run(self) -> None:
        rng, who = self.rng, Principal(USER, self.name)
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            token, name = self.token(), rng.choice(TOPICS)
            kind = rng.choice((TRANSACT, TRANSACT, GROW, TWICE, LIST, LIST))
            if kind == TRANSACT:
                body = self._batch(name, token)
            elif kind in (GROW, TWICE):
                body = self._growth(name, 1 if kind == GROW else 2)
            else:
                body = body_of(29, 3, filter_of(self.rng))
            await self.ask(kind, name, token, body, principal=who, host=rng.choice(HOSTS), client_id=CLIENT_ID)

    def _growth(self, name: str, times: int) -> bytes:
        topic = {"name": name, "count": self.rng.choice((1, 2, 3)), "assignments": None}
        return body_of(37, 3, {"topics": [topic] * times, "timeout": 4_000, "validate_only": False})

    def _batch(self, name: str, token: str) -> bytes:
        from kraftlite.protocol.record_requests import encode_produce

        producer_id, epoch = PRODUCER
        batch = build_batch(
            [Record(None, token.encode())],
            timestamp_ms=self.now_us() // 1000,
            transactional=True,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        batches = {TopicPartition(name, 0): bytes(batch)}
        return b"".join(encode_produce(batches, acks=-1, timeout_ms=1_500, transactional_id=TRANSACTIONAL_ID))


class Reading(DoorClient):
    """The super user, who gives and takes rights to transactional ids alone."""

    async def run(self) -> None:
        rng = self.rng
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            kind = rng.choice(("grant", "revoke", LIST, LIST))
            body = {"grant": self._grant, "revoke": self._revocation, LIST: self._list}[kind]()
            await self.ask(kind, CLUSTER_NAME, self.token(), body, principal=ADMIN, host=HOSTS[0], client_id="reader")

    def _list(self) -> bytes:
        return body_of(29, 3, filter_of(self.rng))

    def _grant(self) -> bytes:
        rng = self.rng
        entry = {
            "resource_type": int(ResourceType.TRANSACTIONAL_ID),
            "resource_name": rng.choice((TRANSACTIONAL_ID, TRANSACTIONAL_ID, "another")),
            "resource_pattern_type": int(PatternType.LITERAL),
            "principal": f"User:{NAME}",
            "host": rng.choice(("*", HOSTS[0])),
            "operation": int(rng.choice((Operation.WRITE, Operation.DESCRIBE))),
            "permission_type": int(rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))),
        }
        return body_of(30, 3, {"creations": [entry]})

    def _revocation(self) -> bytes:
        kind = int(ResourceType.TRANSACTIONAL_ID)
        return body_of(31, 3, {"filters": [{**filter_of(self.rng), "resource_type_filter": kind}]})


def filter_of(rng: random.Random) -> Mapping[str, Any]:
    """All entries, or some of them."""
    found = dict(EVERYTHING)
    match rng.randrange(6):
        case 0:
            pattern = rng.choice((PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED))
            found |= {"resource_name_filter": rng.choice((*TOPICS, TRANSACTIONAL_ID)), "pattern_type_filter": int(pattern)}
        case 1:
            found["principal_filter"] = f"User:{rng.choice((*USERS, NAME))}"
        case 2:
            found["host_filter"] = rng.choice((*HOSTS, "*"))
        case 3:
            found["permission_type"] = int(rng.choice((Permission.ALLOW, Permission.DENY)))
        case 4:
            found["resource_type_filter"] = int(rng.choice((ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)))
        case _:
            pass
    return found
