"""Users whose rights and quotas change while they use them (theme `security`).

A super user grants, denies and takes back; users write, configure, create and grant, rightly and wrongly, from two addresses and
under two client ids each. All of them come through the door for bytes (`services/doors`). What a request changes has a name or a
value of its own, so that the checkers know whose it is.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.acls import CLUSTER_NAME, EVERYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ApiError
from kraftlite.model.principal import USER, Principal
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN as ADMIN_METHOD
from kraftlite.sim.service import AdminAsk
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.creation import create
from kraftlite.sim.workloads.security_settings import ADMIN

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 240
TOPICS: Final = ("vault-a", "vault-b", "vault", "other")
USERS: Final = ("alice", "bob", "carol")
HOSTS: Final = ("10.0.0.1", "10.0.0.2")
RETENTION_MS: Final = 3_000_000_000_000
"""The first of the values of `retention.ms` that users set, each once."""
MOST_TOPICS: Final = 4
"""The topics that one user may ask for: more would make the run long."""
VALUE_BYTES: Final = (50, 300, 1_200)
PATTERNS: Final = (*((name, PatternType.LITERAL) for name in (*TOPICS, WILDCARD)), ("vault-", PatternType.PREFIXED),
                   ("vault", PatternType.PREFIXED), ("o", PatternType.PREFIXED))  # fmt: skip
OPERATIONS: Final = (
    Operation.WRITE,
    Operation.WRITE,
    Operation.ALL,
    Operation.ALTER_CONFIGS,
    Operation.CREATE,
    Operation.DESCRIBE,
)
ON_CLUSTER: Final = (Operation.ALTER, Operation.CREATE, Operation.ALL, Operation.ALTER_CONFIGS)
QUOTAS: Final = ("100", "400", "2000")
"""Bytes per second that may be produced."""
LIST: Final = "list"
GROW: Final = "grow"
TWICE: Final = "grow twice"
TRANSACT: Final = "transact"
"""The kinds of request of `rights_asked`: DescribeAcls, CreatePartitions of a topic, or of one that is named twice, and Produce
of a transaction's batch."""
TRANSACTIONAL_ID: Final = "dave-writes"


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    rng = random.Random(f"security/users/{cluster.seed}")
    admin = SecurityAdmin(cluster, FIRST_NUMBER, "granter", history)
    yield admin, admin.run(rng.choice((100_000, 300_000)))
    for index, name in enumerate(USERS):
        user = SecuredUser(cluster, FIRST_NUMBER + 1 + index, name, history)
        yield user, user.run(rng.choice((30_000, 80_000, 200_000)))


class DoorClient(SimClient):
    """Asks once, whatever comes of it."""

    asked = 0

    def token(self) -> str:
        self.asked += 1
        return f"{self.name}-{self.asked}"

    async def ask(
        self,
        kind: str,
        name: str,
        token: str,
        body: bytes,
        *,
        principal: Principal,
        host: str,
        client_id: str,
        version: int | None = None,
    ) -> None:
        """`version`: of the request whose body is given, where it is another one than usual."""
        from kraftlite.protocol import api_keys

        brokers = [node.node_id for node in self.cluster.brokers]
        broker = self.rng.choice(brokers)
        if kind in ("produce", TRANSACT):
            leader = await self.leader(TopicPartition(name, 0))
            if leader is None:
                await self.refresh()
            elif self.rng.randrange(8):
                broker = leader
        api_key, usual = {
            "produce": (api_keys.PRODUCE, 9),
            "create": (19, 7),
            "configure": (44, 1),
            "grant": (30, 3),
            "revoke": (31, 3),
            "limit": (49, 1),
            LIST: (29, 3),
            GROW: (37, 3),
            TWICE: (37, 3),
            TRANSACT: (api_keys.PRODUCE, 9),
            "delete topics": (20, 6),
            "grow topics": (37, 3),
        }[kind]
        version = usual if version is None else version
        ask = DoorAsk(
            connection=f"{self.name}/{host}/{client_id}",
            principal=principal,
            host=host,
            client_id=client_id,
            kind=kind,
            name=name,
            token=token,
            api_key=api_key,
            version=version,
            body=body or body_of(api_key, version, _values(kind, name, token)),
        )
        with contextlib.suppress(TransportError, ApiError):
            await self.heed(await self.call(broker, DOOR, ask))

    async def heed(self, answer: DoorAnswer) -> None:
        """A client that is told to wait may, or may not."""
        if answer.muted_ms and self.rng.randrange(2):
            await self.pause(1000 * min(answer.muted_ms, 2_000))


class SecurityAdmin(DoorClient):
    """Makes the topics, and then grants, takes back and limits without end."""

    async def run(self, mean_gap_us: int) -> None:
        await self._make_topics()
        rng = self.rng
        limits_in = rng.choice((4, 4, 30, 100))
        kind = "limit"
        while not self.stopping:
            body = {"grant": self._grants, "revoke": self._revocations, "limit": self._limits}[kind]()
            await self.ask(kind, CLUSTER_NAME, self.token(), body, principal=ADMIN, host=HOSTS[0], client_id="admin")
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            kind = "limit" if not rng.randrange(limits_in) else "revoke" if not rng.randrange(3) else "grant"

    async def _make_topics(self) -> None:
        most = min(3, len(self.cluster.brokers))
        for name in TOPICS:
            plan = TopicPlan(name=name, partitions=1, replication=most)
            while not self.stopping:
                broker = self.rng.choice([node.node_id for node in self.cluster.brokers])
                try:
                    await self.call(broker, ADMIN_METHOD, AdminAsk("create_topics", create(plan)), 5_000)
                    break
                except (TransportError, ApiError):
                    await self.backoff()

    def _grants(self) -> bytes:
        entries = [self._entry() for _ in range(self.rng.choice((1, 1, 2, 6)))]
        if len(entries) > 2:
            entries.append(entries[0])  # one that is named twice is there once
        return body_of(30, 3, {"creations": entries})

    def _entry(self) -> Mapping[str, object]:
        rng = self.rng
        on_cluster = rng.randrange(5) == 0
        name, pattern = (CLUSTER_NAME, PatternType.LITERAL) if on_cluster else rng.choice(PATTERNS)
        return {
            "resource_type": int(ResourceType.CLUSTER if on_cluster else ResourceType.TOPIC),
            "resource_name": name,
            "resource_pattern_type": int(pattern),
            "principal": rng.choice((*(f"User:{user}" for user in USERS), EVERYBODY)),
            "host": rng.choice((WILDCARD, WILDCARD, *HOSTS)),
            "operation": int(rng.choice(ON_CLUSTER if on_cluster else OPERATIONS)),
            "permission_type": int(rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.ALLOW, Permission.DENY))),
        }

    def _revocations(self) -> bytes:
        """Now and then by filters of which several match the same entry."""
        rng, filters = self.rng, []
        for _ in range(rng.choice((1, 1, 2, 3))):
            narrow = rng.randrange(4)
            filters.append(
                {
                    "resource_type_filter": int(ResourceType.ANY),
                    "resource_name_filter": rng.choice(TOPICS) if narrow == 0 else None,
                    "pattern_type_filter": int(PatternType.MATCH if narrow == 0 else PatternType.ANY),
                    "principal_filter": f"User:{rng.choice(USERS)}" if narrow == 1 else None,
                    "host_filter": rng.choice(HOSTS) if narrow == 2 else None,
                    "operation": int(rng.choice(OPERATIONS) if narrow else Operation.ANY),
                    "permission_type": int(rng.choice((Permission.ANY, Permission.ALLOW, Permission.DENY))),
                }
            )
        return body_of(31, 3, {"filters": filters})

    def _limits(self) -> bytes:
        rng = self.rng
        user, client_id = rng.choice((None, *USERS)), rng.choice((None, "c-0", "c-1"))
        kinds = rng.choice((("user",), ("client-id",), ("user", "client-id")))
        names = {"user": user, "client-id": client_id}
        remove = rng.randrange(3) == 0
        op = {"key": "producer_byte_rate", "value": 0.0 if remove else float(rng.choice(QUOTAS)), "remove": remove}
        entity = [{"entity_type": kind, "entity_name": names[kind]} for kind in kinds]
        return body_of(49, 1, {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False})


class SecuredUser(DoorClient):
    """Tries what it may and what it may not, from both addresses and under both client ids."""

    async def run(self, mean_gap_us: int) -> None:
        rng, made = self.rng, 0
        principal = Principal(USER, self.name)
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            token, name, what = self.token(), rng.choice(TOPICS), rng.randrange(20)
            kind = (
                "produce"
                if what < 12
                else "configure"
                if what < 16
                else "grant"
                if what == 16
                else "revoke"
                if what == 17
                else "create"
            )
            body = b""
            if kind == "produce":
                body = self._batch(name, token)
            elif kind == "create":
                made += 1
                name = f"{rng.choice(TOPICS)}-{token}"
                if made > MOST_TOPICS:
                    continue
            host, client_id = rng.choice(HOSTS), f"c-{rng.randrange(2)}"
            await self.ask(kind, name, token, body, principal=principal, host=host, client_id=client_id)

    def _batch(self, name: str, token: str) -> bytes:
        from kraftlite.protocol.record_requests import encode_produce

        value = token.encode().ljust(self.rng.choice(VALUE_BYTES), b".")
        batch = build_batch([Record(None, value)], timestamp_ms=self.now_us() // 1000)
        return b"".join(encode_produce({TopicPartition(name, 0): bytes(batch)}, acks=self.rng.choice((1, -1)), timeout_ms=1_500))


def _values(kind: str, name: str, token: str) -> Mapping[str, Any]:
    """A request of which `token` is in what it changes."""
    number = int(token.rpartition("-")[2])
    if kind == "configure":
        value = str(RETENTION_MS + 10_000 * USERS.index(token.partition("-")[0]) + number)
        config = {"name": "retention.ms", "config_operation": 0, "value": value}
        return {"resources": [{"resource_type": 2, "resource_name": name, "configs": [config]}], "validate_only": False}
    if kind == "create":
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        return {"topics": [topic], "timeout": 4_000, "validate_only": False}
    if kind == "revoke":
        everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
                      "host_filter": "10.9.9.9", "operation": 1, "permission_type": 1}  # fmt: skip
        return {"filters": [everything]}
    return {
        "creations": [
            {
                "resource_type": int(ResourceType.GROUP),
                "resource_name": token,
                "resource_pattern_type": int(PatternType.LITERAL),
                "principal": EVERYBODY,
                "host": "10.9.9.9",
                "operation": int(Operation.READ),
                "permission_type": int(Permission.ALLOW),
            }
        ]
    }


def body_of(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    from kraftlite.protocol.kio_codec import encode_request

    return encode_request(api_key, version, values)
