"""The rules of pushed metrics (TM-02, TM-03), and of what clients hear that come to a controller directly (CB-02, CB-03)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigsResponse,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.sim.services.at_controller import CONFIGS_HERE, CONTROLLERS_HERE, MOVES_HERE, ControllersTold
from kraftlite.sim.services.telemetry import MAX_BYTES, PUSH, SUBSCRIBE, UNREADABLE, PushAsk, PushTold, SubscribeTold
from kraftlite.sim.workloads.callers import NOBODY, UNKNOWN_KIND
from kraftlite.simhost.network import AnyExchange

_CODECS: Final = range(5)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A push that a broker took. Times by its own clock."""

    arrived_ms: int
    subscription_id: int
    changes: int
    """The number of changes of subscriptions that the broker had heard of."""


class PushesInOrder(MetadataChecker):
    """A push is taken only when it is sound, names a subscription that its client was told, and comes no sooner behind the last
    one than the interval that goes with it: but for the last push of a client, one behind an answer to what there is to push, and
    one behind a change of the subscriptions."""

    only_methods = (SUBSCRIBE, PUSH)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._intervals: dict[tuple[UUID, int], int] = {}
        """By instance and subscription, as some broker has told it."""
        self._arrived_ms: dict[int, tuple[AnyExchange, int]] = {}
        self._taken: dict[tuple[NodeId, int, UUID], _Taken] = {}
        self._seen: dict[NodeId, list[object]] = {}
        self._changes: Counter[NodeId] = Counter()
        self.judged = 0

    def on_image(self, view: NodeView, image: MetadataImage) -> None:
        self._look(view, 0, image)

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        self._look(view, 1, image)

    def _look(self, view: NodeView, which: int, image: MetadataImage) -> None:
        kind = ConfigResourceType.CLIENT_METRICS.value
        resources = image.configs.resources
        found = {key[1]: dict(resources[key]) for key in resources if key[0] == kind}
        seen = self._seen.setdefault(view.node_id, [None, None])
        if seen[which] != found:
            seen[which] = found
            self._changes[view.node_id] += 1

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is PUSH:
            self._arrived_ms.setdefault(id(exchange), (exchange, self._now_ms(exchange.target)))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        node = self.world.nodes[exchange.target]
        if node.now is None:
            return
        if isinstance(response, SubscribeTold) and response.error is ErrorCode.NONE:
            self._intervals[response.instance_id, response.subscription_id] = response.interval_ms
            self._taken.pop((node.node_id, node.boots, response.instance_id), None)
            if response.instance_id == NOBODY:
                self.fail(f"broker {node.node_id} told a client the instance id {NOBODY}")
        elif isinstance(response, PushTold):
            self._judge(exchange, exchange.request, response)

    def _now_ms(self, node_id: NodeId) -> int:
        now = self.world.nodes[node_id].now
        return 0 if now is None else now.clock.now_ms()

    def _judge(self, exchange: AnyExchange, ask: PushAsk, told: PushTold) -> None:
        push, broker = ask.push, exchange.target
        _, arrived_ms = self._arrived_ms.pop(id(exchange), (exchange, self._now_ms(broker)))
        whose = f"broker {broker} and the push {push}: {told.error.name}"
        if told.error is ErrorCode.INVALID_RECORD and push.payload != UNREADABLE:
            self.fail(f"{whose}, though it can be read")
        if told.error is ErrorCode.TELEMETRY_TOO_LARGE and len(push.payload) <= MAX_BYTES:
            self.fail(f"{whose}, though {MAX_BYTES} bytes are allowed")
        if told.error is not ErrorCode.NONE:
            return
        self.judged += 1
        if push.instance_id == NOBODY or push.codec not in _CODECS or push.payload == UNREADABLE or len(push.payload) > MAX_BYTES:
            self.fail(f"{whose}, though it is not sound")
        interval_ms = self._intervals.get((push.instance_id, push.subscription_id))
        if interval_ms is None:
            self.fail(f"{whose}, though nobody has told its client of that subscription")
            return
        if push.terminating:
            return  # it is taken at any time, and need not begin an interval
        key = (broker, self.world.nodes[broker].boots, push.instance_id)
        before, now = self._taken.get(key), _Taken(arrived_ms, push.subscription_id, self._changes[broker])
        if before is not None and before.arrived_ms > arrived_ms:
            return  # it was read for longer than a later one
        same = before is not None and (before.subscription_id, before.changes) == (now.subscription_id, now.changes)
        if same and before is not None and (waited_ms := self._now_ms(broker) - before.arrived_ms) < interval_ms:
            self.fail(f"{whose}, {waited_ms} ms behind the last one; the interval is {interval_ms}")
        self._taken[key] = now


class ToldByControllers(MetadataChecker):
    """A controller tells of controllers that are registered, and with the listener that is asked for; of partitions that are
    being moved; and refuses what no controller can change, and a resource that is named twice."""

    only_methods = (CONTROLLERS_HERE, MOVES_HERE, CONFIGS_HERE)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = 0

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        self.judged += 1
        request, whose = exchange.request, f"controller {exchange.target}"
        if isinstance(response, ControllersTold):
            strangers = set(response.node_ids) - set(self.facts.history.latest.controllers)
            if strangers or len(set(response.node_ids)) < len(response.node_ids):
                self.fail(f"{whose} tells of the controllers {response.node_ids}, of which {strangers} are not registered")
            if request.listener != "CONTROLLER" and response.node_ids:
                self.fail(f"{whose} tells of the controllers {response.node_ids} at the listener {request.listener}")
        elif isinstance(response, ListPartitionReassignmentsResponse):
            asked = None if request.partitions is None else {(it.topic, it.partition) for it in request.partitions}
            for it in response.reassignments:
                if not (it.adding or it.removing) or (asked is not None and (it.topic, it.partition) not in asked):
                    self.fail(f"{whose} tells of a move that is none, or was not asked for: {it}")
        elif isinstance(response, AlterConfigsResponse):
            self._judge_configs(whose, request, response)

    def _judge_configs(self, whose: str, request: IncrementalAlterConfigsRequest, response: AlterConfigsResponse) -> None:
        named = Counter((it.resource_type, it.resource_name) for it in request.resources)
        answered = {(it.resource_type, it.resource_name) for it in response.resources}
        if answered != set(named):
            self.fail(f"{whose} was asked about {sorted(named)} and answers {sorted(answered)}")
        for it in response.resources:
            kind, times = it.resource_type, named[it.resource_type, it.resource_name]
            if kind == UNKNOWN_KIND and it.error != ErrorCode.UNSUPPORTED_VERSION:
                self.fail(f"{whose} answers {ErrorCode(it.error).name} for a resource of no kind")
            if (
                times > 1
                and kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
                and it.error != ErrorCode.INVALID_REQUEST
            ):
                self.fail(f"{whose} answers {ErrorCode(it.error).name} for {it.resource_name}, which is named {times} times")
