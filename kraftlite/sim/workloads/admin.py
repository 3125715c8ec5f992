"""An administrator who uses all of the admin API, and a tenant of the topics that it creates, deletes and creates again.

`admin_topics` and `admin_configs` draw what is asked; everything is written down with what came of it, and the checkers i50 to
i54 know what may come of it. A third of the seeds have both, with random streams of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kraftlite.broker.handlers.configs import ConfigQuery
from kraftlite.broker.handlers.metadata import TopicQuery
from kraftlite.broker.handlers.quotas import QuotaFilter
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import CreateTopicsResponse, UnregisterBrokerRequest
from kraftlite.model.messages.introspection import NodeStatusRequest, ReplicaStatesRequest
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient, records_of
from kraftlite.sim.history import UNANSWERED, Description, History, Operation, TenantRead, TenantWrite
from kraftlite.sim.service import PRODUCER_ID, ProducerIdAsk
from kraftlite.sim.services.admin import (
    CHANGE,
    DESCRIBE,
    TENANT_FETCH,
    TENANT_PRODUCE,
    ChangeAsk,
    DescribeAsk,
    TenantAsk,
)
from kraftlite.sim.workloads.admin_configs import CONFIG_DRAWS, GROUP, METRICS, TOPIC
from kraftlite.sim.workloads.admin_topics import NAMES, NOBODY, TOPIC_DRAWS, Drawn, Sight

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 120
"""Behind the numbers of all other clients; the tenant has the next one."""
MOST_IN_FLIGHT: Final = 4
KEYLESS_ONE_IN: Final = 6
"""So many records of the tenant, one of which has no key."""
MOST_BLOCKS: Final = 2_500
"""Producer ids that are asked for in one go: blocks have 1000 (CM-55)."""


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    operator = SimOperator(cluster, history)
    yield operator, operator.run(operator.rng.choice((50_000, 100_000, 250_000)))
    tenant = SimTenant(cluster, history)
    yield tenant, tenant.run(tenant.rng.choice((40_000, 150_000)))


class SimOperator(SimClient):
    """Draws one request after the other, without waiting for more than a few answers. A fifth of the requests are sent a second
    time, as by somebody who has had no answer."""

    def __init__(self, cluster: SimCluster, history: History, number: int = NUMBER, name: str = "operator") -> None:
        super().__init__(cluster, number, name, history)
        self.sight = Sight(brokers=[node.node_id for node in cluster.brokers], shape=cluster.shape.topics)

    async def run(self, mean_gap_us: int) -> None:
        rng = self.rng
        tasks: dict[asyncio.Task[None], None] = {}
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            if len(tasks) < MOST_IN_FLIGHT:
                task = asyncio.get_running_loop().create_task(self._act(), context=self.cluster.outside)
                tasks[task] = None
                task.add_done_callback(lambda it: (tasks.pop(it, None), it.result()))
        while tasks:
            await asyncio.wait(list(tasks))

    async def _act(self) -> None:
        rng = self.rng
        at = rng.randrange(20)
        if at < 9:
            await self._change(rng.choice(TOPIC_DRAWS)(rng, self.sight))
        elif at < 14:
            await self._change(rng.choice(CONFIG_DRAWS)(rng, self.sight))
        elif at < 17:
            await self._describe()
        elif at == 17:
            await self._unregister()
        elif at == 18:
            await self._look()
            await self._look_inside()
        else:
            await self._take_producer_ids()

    def some_broker(self) -> NodeId:
        return self.sight.brokers[self.rng.randrange(len(self.sight.brokers))]

    async def _change(self, drawn: Drawn) -> None:
        kind, request = drawn
        broker = self.some_broker()
        if kind == "alter_configs" and self.rng.randrange(4):  # the configs of a broker are for itself to take
            named = [it.resource_name for it in request.resources if it.resource_name.isdecimal()]
            broker = next((it for it in self.sight.brokers if str(it) in named), broker)
        await self.send(kind, request, broker)
        if self.rng.randrange(5) == 0:
            await self.pause(self.rng.choice((1, 100_000, 2_000_000)))
            await self.send(kind, request, self.some_broker())
        if self.rng.randrange(2):
            await self._look()

    async def send(self, kind: str, request: Any, broker: NodeId) -> Operation:
        op = Operation(kind=kind, request=request, broker=broker, invoked_us=self.now_us())
        self.history.operations.append(op)
        try:
            answer = await self.call(broker, CHANGE, ChangeAsk(kind, request), 5_000)
        except TransportError:
            op.error = UNANSWERED
        except ApiError as error:
            op.error = error.code.name
        else:
            op.response = answer.response
            self._learn(answer.response)
        op.returned_us = self.now_us()
        return op

    def _learn(self, response: object) -> None:
        if isinstance(response, CreateTopicsResponse):
            for topic in response.topics:
                if topic.topic_id is not None:
                    self.sight.ids.setdefault(topic.name, []).append(topic.topic_id)

    async def _look(self) -> None:
        await self.refresh()
        if self.known is not None:
            counts: dict[str, int] = {}
            for tp in self.known.leaders:
                counts[tp.topic] = counts.get(tp.topic, 0) + 1
            mine = {*NAMES, *(it.name for it in self.sight.shape)}
            self.sight.counts = {name: count for name, count in counts.items() if name in mine}

    async def _look_inside(self) -> None:
        """Ask a node of either role what it is and holds, as tools do. Checker i60 sees the answer."""
        node = self.rng.choice(list(self.cluster.nodes.values()))
        port = 9192 if node.config.is_broker else 9093
        topics = self.rng.choice((None, None, NAMES[:2]))
        with contextlib.suppress(TransportError, ApiError):
            await self.call_node(node.node_id, port, NODE_STATUS, NodeStatusRequest())
            await self.call_node(node.node_id, port, REPLICA_STATES, ReplicaStatesRequest(topics=topics))

    async def call_node(self, node: NodeId, port: int, method: Method[Req, Res], request: Req) -> Res:
        """Raises TransportError or ApiError."""
        return await self.transport.call(Endpoint(f"n{node}", port), method, request, 1_000)

    async def _unregister(self) -> None:
        """Take out a broker that is down; it registers again when it comes back. Or one that never was there."""
        down = [node.node_id for node in self.cluster.brokers if not node.running]
        broker = self.rng.choice(down) if down else NOBODY
        await self.send("unregister_broker", UnregisterBrokerRequest(broker_id=broker, timeout_ms=1_000), self.some_broker())

    async def _take_producer_ids(self) -> None:
        broker = self.some_broker()
        for _ in range(self.rng.choice((1, 10, MOST_BLOCKS if self.rng.randrange(8) == 0 else 100))):
            try:
                await self.call(broker, PRODUCER_ID, ProducerIdAsk(), 500)
            except (TransportError, ApiError):
                return
            if self.stopping:
                return

    # --- questions

    async def _describe(self) -> None:
        broker = self.some_broker()
        ask = self._question(broker)
        invoked = self.now_us()
        try:
            answer = await self.call(broker, DESCRIBE, ask)
        except (TransportError, ApiError):
            return
        self.history.descriptions.append(
            Description(
                kind=ask.kind,
                request=ask.request,
                broker=broker,
                invoked_us=invoked,
                returned_us=self.now_us(),
                offset=answer.offset,
                found=answer.found,
            )
        )

    def _question(self, broker: NodeId) -> DescribeAsk:
        rng = self.rng
        names = (*NAMES, *(it.name for it in self.sight.shape), "never-there")
        asks = (
            DescribeAsk("configs", self._query(broker, names)),
            DescribeAsk("configs", self._query(broker, names)),
            DescribeAsk("cluster", rng.choice((True, False))),
            DescribeAsk("topics", tuple(rng.sample(names, 3)) if rng.randrange(2) else ()),
            DescribeAsk("features"),
            DescribeAsk("lookup", self._lookup(names)),
            DescribeAsk("quotas", ()),
            DescribeAsk(rng.choice(("quotas", "strict quotas")), self._filters()),
            DescribeAsk("scram", rng.choice((None, ("u1", "u2"), ("u1", "u1", "nobody")))),
            DescribeAsk("log dirs"),
            DescribeAsk("producers", TopicPartition(rng.choice((*names, "no/name")), 0)),
            DescribeAsk("quorum"),
            DescribeAsk("metadata", rng.choice((False, False, True))),
            DescribeAsk("resources", rng.choice(((), (TOPIC,), (METRICS, GROUP), (4, 8), (TOPIC, 1)))),
        )
        return asks[rng.randrange(len(asks))]

    def _query(self, broker: NodeId, names: Sequence[str]) -> ConfigQuery:
        rng = self.rng
        kind, name = rng.choice(
            (
                *((TOPIC, rng.choice(names)),) * 4,
                *((4, ""), (4, str(broker)), (4, str(NOBODY)), (4, "x"), (8, str(broker)), (8, ""), (77, "z")),
                *((GROUP, "zg1"), (GROUP, ""), (METRICS, "zm1"), (METRICS, "")),
            )
        )
        return ConfigQuery(resource_type=kind, resource_name=name, keys=rng.choice((None, None, ("retention.ms",))))

    def _lookup(self, names: Sequence[str]) -> tuple[TopicQuery, ...] | None:
        known = [it for ids in self.sight.ids.values() for it in ids]
        if known and self.rng.randrange(2):
            return tuple(TopicQuery(None, it) for it in self.rng.sample(known, min(3, len(known))))
        return self.rng.choice((None, tuple(TopicQuery(it, None) for it in (*self.rng.sample(list(names), 2), "no/name"))))

    def _filters(self) -> tuple[QuotaFilter, ...]:
        parts = (
            (QuotaFilter(type="user", match_type=2, match=None),),
            (QuotaFilter(type="user", match_type=0, match="u1"),),
            (QuotaFilter(type="user", match_type=1, match=None), QuotaFilter(type="client-id", match_type=2, match=None)),
            (QuotaFilter(type="ip", match_type=2, match=None),),
            (QuotaFilter(type="ip", match_type=2, match=None), QuotaFilter(type="user", match_type=2, match=None)),
            (QuotaFilter(type="user", match_type=0, match=None),),
            (QuotaFilter(type="user", match_type=9, match=None),),
            (QuotaFilter(type="user", match_type=2, match="u1"),),
            (QuotaFilter(type="tribe", match_type=2, match=None),),
            (QuotaFilter(type="", match_type=2, match=None),),
        )
        return parts[self.rng.randrange(len(parts))]


class SimTenant(SimClient):
    """Writes to and reads from the administrator's topics by name and by id, whether or not they are still those that it knew."""

    def __init__(self, cluster: SimCluster, history: History) -> None:
        super().__init__(cluster, NUMBER + 1, "tenant", history)
        self._ids: list[tuple[TopicPartition, UUID]] = []
        self._made = 0
        self._keys = random.Random(f"tenant/keys/{cluster.seed}")

    async def run(self, mean_gap_us: int) -> None:
        rng = self.rng
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            if rng.randrange(6) == 0:
                await self.refresh()
            tp, topic_id = self._place()
            leader = await self.leader(tp)
            if leader is None:
                continue
            if rng.randrange(3) == 0:
                await self.pause(rng.choice((1_000, 300_000)))  # the topic may be another one by then
            if rng.randrange(2):
                await self._write(tp, topic_id, leader)
            else:
                await self._read(tp, topic_id, leader)

    def _place(self) -> tuple[TopicPartition, UUID | None]:
        known = [] if self.known is None else [tp for tp in self.known.leaders if tp.topic in NAMES]
        tp = known[self.rng.randrange(len(known))] if known else TopicPartition(NAMES[0], 0)
        topic_id = self.topic_id(tp)
        if topic_id is not None and (tp, UUID(topic_id)) not in self._ids:
            self._ids.append((tp, UUID(topic_id)))
        at = self.rng.randrange(4)
        if at == 0 and self._ids:
            return self._ids[self.rng.randrange(len(self._ids))]
        return tp, UUID(topic_id) if at == 1 and topic_id is not None else None

    async def _write(self, tp: TopicPartition, topic_id: UUID | None, leader: NodeId) -> None:
        self._made += 1
        keyed, now_us = self._keys.randrange(KEYLESS_ONE_IN) > 0, self.now_us()
        it = TenantWrite(tp=tp, topic_id=topic_id, value=f"tenant/{self._made}", invoked_us=now_us, keyed=keyed)
        self.history.tenant_writes.append(it)
        batch = build_batch([Record(key=b"k" if keyed else None, value=it.value.encode())], timestamp_ms=self.cluster.wall_ms())
        try:
            result = await self.call(leader, TENANT_PRODUCE, TenantAsk(tp, topic_id, bytes(batch)))
        except TransportError:
            it.error = UNANSWERED
        except ApiError as error:
            it.error = error.code.name
        else:
            code = ErrorCode(result.error)
            it.error = None if code is ErrorCode.NONE else code.name
            it.offset = result.base_offset if code is ErrorCode.NONE else -1
        it.returned_us = self.now_us()

    async def _read(self, tp: TopicPartition, topic_id: UUID | None, leader: NodeId) -> None:
        invoked = self.now_us()
        try:
            result = await self.call(leader, TENANT_FETCH, TenantAsk(tp, topic_id))
        except (TransportError, ApiError):
            return
        if ErrorCode(result.error) is ErrorCode.NONE:
            self.history.tenant_reads.append(
                TenantRead(
                    tp=tp,
                    topic_id=topic_id,
                    broker=leader,
                    invoked_us=invoked,
                    returned_us=self.now_us(),
                    records=records_of(bytes(result.records)),
                )
            )
