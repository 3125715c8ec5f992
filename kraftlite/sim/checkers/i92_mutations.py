"""Invariant 92, of changes to topics: a client makes as many partitions as its quota allows, and is refused no less (QU-07)."""

from __future__ import annotations

import math
from typing import ClassVar, Final, NamedTuple

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import CreateTopicsRequest, CreateTopicsResponse
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.i92_quotas import SAMPLES, Limit, limit_in
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

KEY: Final = "controller_mutation_rate"
_DUST: Final = 0.01
"""Tokens of a few milliseconds: controllers count whole ones."""


class Bucket:
    """Tokens that come at a rate, up to those of eleven seconds; full at first."""

    def __init__(self, bound: float) -> None:
        self.left = SAMPLES * bound
        self._since_us: int | None = None

    def refill(self, bound: float, now_us: int) -> None:
        passed_us = 0 if self._since_us is None else now_us - self._since_us
        self.left, self._since_us = min(SAMPLES * bound, self.left + bound * passed_us / 1_000_000), now_us


class Tokens:
    """The tokens that one scope has at one controller: at least those of `low` and at most those of `high`."""

    def __init__(self, bound: float) -> None:
        self.low, self.high = Bucket(bound), Bucket(bound)


class Asked(NamedTuple):
    """A request as it came: who had it, its limit, the tokens that were left at least, and those that it costs."""

    author: tuple[NodeId, int]
    came_us: int
    limit: Limit
    low: float
    cost: int


class MutationsBounded(MetadataChecker):
    """A client that knows the error makes a topic only while its scope has tokens left, of which there are those of eleven
    seconds at first, and is refused one only when it may have none left; another client is refused nothing. Whatever is made is
    charged. Only requests of one topic are looked at, and each controller, which begins with full buckets, by itself."""

    numbers: ClassVar[tuple[int, ...]] = (92,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tokens: dict[tuple[tuple[NodeId, int], tuple[str, str]], Tokens] = {}
        self._asked: dict[AnyExchange, Asked] = {}
        self.made = self.refused = 0
        self.facts.watch_arrival(CREATE_TOPICS, self._on_arrival)
        self.facts.watch_served(CREATE_TOPICS, self._on_served)

    def _limit(self, exchange: AnyExchange) -> Limit | None:
        """The limit by what the controller itself has replayed, committed or not: a change holds from the next request on."""
        request: CreateTopicsRequest = exchange.request
        view = self.facts.views.get(exchange.target)
        core = None if view is None else view.controller
        if core is None or not core.active or request.quota is None or len(request.topics) != 1 or request.validate_only:
            return None
        quotas = dict(core.state.quotas.quotas.items())
        return limit_in(quotas, KEY, request.quota.user, request.quota.client_id)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        limit, view = self._limit(exchange), self.facts.views.get(exchange.target)
        if limit is None or view is None:
            return
        tokens = self._tokens.setdefault((view.author, limit.scope), Tokens(limit.bound))
        now_us = self.world.cluster.loop.now_us()
        tokens.low.refill(limit.bound * _slowest(view.node), now_us)
        cost = max(exchange.request.topics[0].num_partitions, 1)
        self._asked[exchange] = Asked(view.author, now_us, limit, tokens.low.left, cost)
        tokens.low.left -= cost

    def _on_served(self, exchange: AnyExchange, response: CreateTopicsResponse) -> None:
        asked, limit, view = self._asked.pop(exchange, None), self._limit(exchange), self.facts.views.get(exchange.target)
        if asked is None or view is None or view.author != asked.author:
            return
        tokens, bound = self._tokens[asked.author, asked.limit.scope], asked.limit.bound
        same = limit == asked.limit
        error, strict = response.topics[0].error, exchange.request.quota.strict
        where = (
            f"controller {view.node_id} answers {exchange.request.topics} of {exchange.request.quota} with {error.name}, and "
            f"{asked.limit.scope} may change {bound} partitions a second"
        )
        if same:
            tokens.high.refill(bound * _fastest(view.node), self.world.cluster.loop.now_us())
        else:
            tokens.high.left = math.inf  # the next one to look finds a full bucket at most
        if error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.refused += 1
            if not strict or (same and asked.low >= _DUST):
                self.fail(f"{where}: it has {asked.low:.3f} tokens left at least")
        elif error is ErrorCode.NONE:
            self.made += 1
            if same and strict and tokens.high.left < -_DUST:
                self.fail(f"{where}: it has {tokens.high.left:.3f} tokens left at most")
            # It was charged at any time since it came, and what came to a full bucket before that was lost to it.
            waited_us = self.world.cluster.loop.now_us() - asked.came_us
            tokens.high.left += bound * _fastest(view.node) * waited_us / 1_000_000 - response.topics[0].num_partitions
            self._lose_what_overflowed(asked, tokens, bound * _slowest(view.node))
            return
        tokens.low.left += asked.cost

    def _lose_what_overflowed(self, asked: Asked, tokens: Tokens, rate: float) -> None:
        """The bucket may have been full until this request was charged, just now: what came to it since the request came is
        lost, also to those that came meanwhile."""
        tokens.low.refill(rate, self.world.cluster.loop.now_us())
        lost = tokens.low.left - (SAMPLES * asked.limit.bound - asked.cost)
        if lost > 0:
            tokens.low.left -= lost
            for exchange, it in self._asked.items():
                if (it.author, it.limit.scope) == (asked.author, asked.limit.scope):
                    self._asked[exchange] = it._replace(low=it.low - lost)


def _fastest(node: SimHost) -> float:
    return 1 + node.fastest_ppm / 1_000_000


def _slowest(node: SimHost) -> float:
    return 1 + node.slowest_ppm / 1_000_000
