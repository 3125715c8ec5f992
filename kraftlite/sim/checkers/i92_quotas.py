"""Invariant 92: a client that is throttled was over its quota, and one that is over it does not go on (QU-01 to QU-05)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk
from kraftlite.simhost.network import AnyExchange

KEY: Final = "producer_byte_rate"
SAMPLES: Final = 11
WINDOW_MS: Final = 1_000
"""The defaults of `quota.window.num` and `quota.window.size.seconds`."""
COUNTED_MS: Final = (SAMPLES + 2) * WINDOW_MS
"""Usage that is older counts in no rate: one window more than there are reaches into them, and may have begun before it."""
CONNECTIONS: Final = 4
"""The connections of one user in these runs, each of which may have one request more."""


class Limit(NamedTuple):
    """A quota: who shares it, and its bytes per second."""

    scope: tuple[str, str]
    bound: float


class Used(NamedTuple):
    """A produce request as its broker took it, by the broker's clock."""

    taken_ms: int
    size: int
    user: str
    client_id: str


def limit_of(state: MetadataState, user: str, client_id: str) -> Limit | None:
    return limit_in(state.quotas, KEY, user, client_id)


def limit_in(
    quotas: Mapping[tuple[QuotaEntityPart, ...], Mapping[str, str]], key: str, user: str, client_id: str
) -> Limit | None:
    """The first that is set, from the most to the least specific entity (QU-01)."""
    both, users, clients = (user, client_id), (user, ""), ("", client_id)
    order: tuple[tuple[dict[str, str | None], tuple[str, str]], ...] = (
        ({"user": user, "client-id": client_id}, both),
        ({"user": user, "client-id": None}, both),
        ({"user": user}, users),
        ({"user": None, "client-id": client_id}, both),
        ({"user": None, "client-id": None}, both),
        ({"user": None}, users),
        ({"client-id": client_id}, clients),
        ({"client-id": None}, clients),
    )
    set_for = {frozenset((part.type, part.name) for part in entity): values for entity, values in quotas.items()}
    for entity, scope in order:
        value = set_for.get(frozenset(entity.items()), {}).get(key)
        if value is not None:
            return Limit(scope, float(value))
    return None


def _shares(used: Used, scope: tuple[str, str]) -> bool:
    user, client_id = scope
    return user in ("", used.user) and client_id in ("", used.client_id)


class QuotasKept(MetadataChecker):
    """Every produce that is answered with a throttle time comes when those who share the quota have produced more than it allows
    in the windows that count. And what they produced in the windows, while one limit held, is no more than it allows and one
    request for each connection."""

    numbers: ClassVar[tuple[int, ...]] = (92,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._used: dict[tuple[NodeId, int], list[Used]] = {}
        self._on_the_way: dict[NodeId, list[tuple[Any, int]]] = {}
        """Requests that a broker may have counted and has not answered."""
        self._held: dict[tuple[NodeId, int], dict[tuple[str, str], tuple[Limit | None, int]]] = {}
        """By incarnation and client: its limit, and since when, by the broker's clock, it was seen to be that."""
        self.throttled = self.bounded = 0
        self.facts.watch_arrival(DOOR, self._arrived)
        self.facts.watch_served(DOOR, self._served)

    def _arrived(self, exchange: AnyExchange) -> None:
        if exchange.request.kind == "produce":
            self._on_the_way.setdefault(exchange.target, []).append((exchange, len(exchange.request.frame)))

    def _served(self, exchange: AnyExchange, answer: DoorAnswer) -> None:
        ask: DoorAsk = exchange.request
        view = self.facts.views.get(exchange.target)
        if ask.kind != "produce" or view is None:
            return
        waiting = self._on_the_way.get(exchange.target, [])
        self._on_the_way[exchange.target] = [it for it in waiting if it[0] is not exchange]
        if answer.closed:
            return
        used = self._used.setdefault(view.author, [])
        used.append(Used(answer.taken_ms, len(ask.frame), ask.principal.name, ask.client_id))
        states = [self.facts.history.visible(answer.first), *self.facts.history.between(answer.first, answer.last)]
        limits = [limit_of(state, ask.principal.name, ask.client_id) for state in states]
        where = f"node {exchange.target}, {ask.principal} as {ask.client_id} by offset {answer.first}"
        if answer.muted_ms:
            self._check_deserved(where, answer, limits, used, exchange.target)
        self._check_bounded(where, answer, limits, used, view.author)
        oldest_ms = max(it.taken_ms for it in used) - 2 * COUNTED_MS
        self._used[view.author] = [it for it in used if it.taken_ms >= oldest_ms]

    def _check_deserved(
        self, where: str, answer: DoorAnswer, limits: list[Limit | None], used: list[Used], node_id: NodeId
    ) -> None:
        self.throttled += 1
        pending = sum(size for _, size in self._on_the_way.get(node_id, ()))
        for limit in limits:
            if limit is None:
                continue
            since_ms = answer.taken_ms - COUNTED_MS
            total = pending + sum(it.size for it in used if it.taken_ms >= since_ms and _shares(it, limit.scope))
            if total / (SAMPLES - 1) > limit.bound:
                return
        self.fail(f"{where}: throttled for {answer.muted_ms} ms, and none of {limits} is used up")

    def _check_bounded(
        self, where: str, answer: DoorAnswer, limits: list[Limit | None], used: list[Used], author: tuple[NodeId, int]
    ) -> None:
        client = used[-1].user, used[-1].client_id
        held = self._held.setdefault(author, {})
        limit, since_ms = held.get(client, (None, answer.taken_ms))
        if limit is None or any(it != limit for it in limits):
            held[client] = limits[-1], answer.taken_ms
            return
        span_ms = SAMPLES * WINDOW_MS
        end_ms = answer.taken_ms
        if end_ms - since_ms < span_ms:
            return
        self.bounded += 1
        within = [it for it in used if end_ms - span_ms < it.taken_ms <= end_ms and _shares(it, limit.scope)]
        largest = max(it.size for it in within)
        allowed = limit.bound * SAMPLES + largest * CONNECTIONS * max(1, len({(it.user, it.client_id) for it in within}))
        total = sum(it.size for it in within)
        if total > allowed:
            self.fail(f"{where}: {total} bytes in {span_ms} ms, the quota of {limit.scope} is {limit.bound} a second")
