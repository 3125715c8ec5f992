"""Chooses where the replicas of new partitions go: striped over racks and brokers.

Source: Kafka's StripedReplicaPlacer; CM-17, CM-20.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

from kraftlite.controller.turns import Steps, at_once
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableBroker:
    broker_id: NodeId
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers of one rack and one kind, visited round robin. Each partition starts one further, and each full round of the racks
    `_extra` further still: otherwise a rack with as many brokers as there are racks would always lead with the same one.
    `shuffled`: they come in an order that is drawn, and not in that of their ids.
    """

    def __init__(self, brokers: Iterable[NodeId], racks: int, rng: random.Random, *, shuffled: bool) -> None:
        self._brokers = sorted(brokers)
        self._racks = racks
        count = len(self._brokers)
        if shuffled:
            rng.shuffle(self._brokers)
        self._first = rng.randrange(count) if count else 0
        self._extra = next((extra for extra in range(count) if gcd(racks + extra, count) == 1), 0)
        self._taken = 0
        self._turn = -1

    def next(self, turn: int) -> NodeId | None:
        count = len(self._brokers)
        if self._turn != turn:
            self._turn, self._taken = turn, 0
        if self._taken >= count:
            return None
        start = self._first + turn + turn // self._racks * self._extra
        broker = self._brokers[(start + self._taken) % count]
        self._taken += 1
        return broker


class _Rack:
    def __init__(self, brokers: list[UsableBroker], racks: int, rng: random.Random, *, shuffled: bool = False) -> None:
        self.fenced = _Ring((broker.broker_id for broker in brokers if broker.fenced), racks, rng, shuffled=shuffled)
        self.unfenced = _Ring((broker.broker_id for broker in brokers if not broker.fenced), racks, rng, shuffled=shuffled)

    def next_unfenced(self, turn: int) -> NodeId | None:
        return self.unfenced.next(turn)

    def next(self, turn: int) -> NodeId | None:
        found = self.unfenced.next(turn)
        return found if found is not None else self.fenced.next(turn)


class StripedPlacer:
    """Goals, in this order: spread over racks, spread over brokers, also of what one of them leads when it fails, prefer unfenced
    brokers. Musts: one replica per broker, first replica (the preferred leader) on an unfenced one. Raises
    ApiError(INVALID_REPLICATION_FACTOR).
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def place(self, count: int, replication_factor: int, brokers: Iterable[UsableBroker]) -> list[tuple[NodeId, ...]]:
        return at_once(self.placing(count, replication_factor, brokers))

    def placing(self, count: int, replication_factor: int, brokers: Iterable[UsableBroker]) -> Steps[list[tuple[NodeId, ...]]]:
        """`place`, partition by partition."""
        usable = sorted(brokers, key=lambda broker: broker.broker_id)
        self._check(replication_factor, usable)
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in usable:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        racks = [_Rack(by_rack[name], len(names), self._rng) for name in names]
        offset = self._rng.randrange(len(racks))
        placed: list[tuple[NodeId, ...]] = []
        spread = len(usable) * len(racks)
        for number in range(count):
            yield
            if number and number % spread == 0:
                # All rotations have been used once. In the same order again, everything that one broker leads would go to the
                # same other one when it fails.
                self._rng.shuffle(names)
                racks = [_Rack(by_rack[name], len(names), self._rng, shuffled=True) for name in names]
            placed.append(self._place_one(racks, (offset + number) % len(racks), number, replication_factor))
        return placed

    @staticmethod
    def _check(replication_factor: int, usable: list[UsableBroker]) -> None:
        if replication_factor <= 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
            )
        if all(broker.fenced for broker in usable):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced.",
            )
        if replication_factor > len(usable):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
                f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered "
                "or some brokers have all their log directories cordoned.",
            )

    @staticmethod
    def _place_one(racks: list[_Rack], first: int, turn: int, replication_factor: int) -> tuple[NodeId, ...]:
        count = len(racks)
        replicas: list[NodeId] = []
        rack = first
        while not replicas:
            leader = racks[rack].next_unfenced(turn)
            if leader is not None:
                replicas.append(leader)
            rack = (rack + 1) % count
        while len(replicas) < replication_factor:
            found = racks[rack].next(turn)
            if found is not None:
                replicas.append(found)
            rack = (rack + 1) % count
        return tuple(replicas)
