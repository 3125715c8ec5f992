"""A member of a group is dropped for what it has not done, and not for what it has (CP-30, CP-32; KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kraftlite.coordinator.api import ConsumerHeartbeatRequest, JoinRequest, JoinResult, SyncRequest
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupMemberRemoved
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import GroupChecker
from kraftlite.sim.services.groups import BEAT, HEARTBEAT, JOIN, SYNC
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_WELL: Final = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
_ASKED: Final = (JOIN, SYNC, HEARTBEAT, BEAT)


@dataclass(slots=True)
class _Deeds:
    """The deeds of a member that one coordination has accepted. `lived_us`: when the last request came that began its session
    anew, which then lasts `session_ms` at least. `synced`: the generation of which it has its assignment, since it joined last.
    `rejoined`: it has joined, and nothing has come from it since. `joins`, `asks`: how many of its JoinGroups, and of its other
    requests, have come."""

    lived_us: int = -1
    session_ms: int = 0
    synced: int | None = None
    rejoined: bool = False
    joins: int = 0
    asks: int = 0


class _Came(NamedTuple):
    """A request when it came: the time, the coordination, and what had come from its member by then, it included."""

    at_us: int
    driver: GroupDriver
    joins: int
    asks: int


class RemovalsDeserved(GroupChecker):
    """A coordinator drops a member because its session has expired only when the session has lasted, from the last request that
    it has accepted, for as long as it must; because it did not sync, only when it has not had the assignment of this generation
    since it joined; and in a group of the consumer protocol because it did not rejoin, only when it has not done so since it was
    told to. It judges by requests that were answered, and by when they came. A join that changes nothing begins no session."""

    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = (GroupMemberRemoved,)
    only_methods: ClassVar[tuple[AnyMethod, ...] | None] = _ASKED

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[tuple[GroupDriver, str, str], _Deeds] = {}
        """By coordination, group and member."""
        self._came: dict[AnyExchange, _Came] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        """The session that a member of the classic protocol has joined with, wherever that was."""
        self.judged = 0

    # --- requests

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method not in _ASKED:
            return
        request = exchange.request
        driver = self.groups.driver(self.world.nodes[exchange.target], request.group_id)
        again = self._came.pop(exchange, None)
        if driver is None:
            return
        deeds = self._deeds(driver, request.group_id, request.member_id)
        if isinstance(request, JoinRequest):
            deeds.joins += 1
            deeds.synced = None
        else:
            deeds.asks += 1
            deeds.rejoined = False
        if again is None:  # of one that comes twice nobody knows which is answered
            self._came[exchange] = _Came(self.world.cluster.loop.now_us(), driver, deeds.joins, deeds.asks)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        came = self._came.pop(exchange, None)
        request = exchange.request
        if came is None or self.groups.driver(self.world.nodes[exchange.target], request.group_id) is not came.driver:
            return
        error = getattr(response, "error", None)
        if isinstance(request, JoinRequest):
            if error is ErrorCode.NONE and isinstance(response, JoinResult):
                deeds = self._deeds(came.driver, request.group_id, response.member_id)
                self._sessions[request.group_id, response.member_id] = request.session_timeout_ms
                deeds.rejoined = request.member_id != "" and deeds.asks == came.asks
            return
        deeds = self._deeds(came.driver, request.group_id, request.member_id)
        if isinstance(request, ConsumerHeartbeatRequest):
            if error is ErrorCode.NONE and request.member_epoch >= 0:
                self._lives(deeds, came, came.driver.shard._config.consumer_min_session_timeout_ms)
        elif error is ErrorCode.NONE or (error in _WELL and not isinstance(request, SyncRequest)):
            self._lives(deeds, came, self._sessions.get((request.group_id, request.member_id), 0))
            if isinstance(request, SyncRequest) and deeds.joins == came.joins:
                deeds.synced = request.generation

    def _deeds(self, driver: GroupDriver, group_id: str, member_id: str) -> _Deeds:
        return self._known.setdefault((driver, group_id, member_id), _Deeds())

    def _lives(self, deeds: _Deeds, came: _Came, session_ms: int) -> None:
        deeds.lived_us, deeds.session_ms = max(deeds.lived_us, came.at_us), session_ms

    # --- removals

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if not isinstance(event, GroupMemberRemoved):
            return
        driver = self.groups.driver(node, event.group)
        deeds = None if driver is None else self._known.get((driver, event.group, event.member))
        if driver is None or not driver.loaded or deeds is None:
            return
        self.judged += 1
        what = f"{driver.tp}: node {node.node_id} drops {event.member} of group {event.group} ({event.reason})"
        classic = driver.shard.groups.by_id.get(event.group)
        if event.reason == "session expired" and deeds.lived_us >= 0:
            silent_us = now_us - deeds.lived_us
            silent_ms = silent_us * (1_000_000 + node.fastest_ppm) // 1_000_000_000 + 2
            if silent_ms < deeds.session_ms:
                self.fail(f"{what}, of which it has heard {silent_us // 1000} ms ago; a session lasts {deeds.session_ms} ms")
        elif event.reason == "did not sync in time" and deeds.synced is not None:
            if classic is None or classic.generation == deeds.synced:
                self.fail(f"{what}, which has the assignment of generation {deeds.synced}")
        elif event.reason == "did not rejoin in time" and classic is None and deeds.rejoined:
            self.fail(f"{what}, which has joined, and was not told anything since")
