"""Part of invariant 38: a member, a committer or an administrator of groups is refused only what it may be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from kraftlite.coordinator.api import (
    ConsumerHeartbeatRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)
from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import LogDirFailed, LogDirUnusable
from kraftlite.runtime.trace.group import GroupsLoadFailed
from kraftlite.sim.checkers.arrivals import Arrival, Arrivals
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import GroupChecker
from kraftlite.sim.services.groups import (
    BEAT,
    COMMIT,
    DELETE,
    DESCRIBE,
    HEARTBEAT,
    JOIN,
    LEAVE,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC,
    CommitAsk,
    OffsetFetchAsk,
)
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

METHODS: Final = frozenset((JOIN, SYNC, HEARTBEAT, LEAVE, BEAT, COMMIT, OFFSET_FETCH, OFFSET_DELETE, DESCRIBE, DELETE))


@dataclass(frozen=True, slots=True)
class Seen:
    """A group as its broker has it at one moment. `epochs`: member id → generation or member epoch. `state` "" for no group."""

    driver: GroupDriver | None
    loading: bool
    leads: bool
    topic_known: bool
    type: str
    state: str
    epoch: int
    epochs: Mapping[str, int]
    static: Mapping[str, str]
    pending: tuple[str, ...]
    size: int
    protocols: tuple[str, ...]
    chosen: str = ""
    """The protocol of a classic group, which a sync must name. A group that has become classic again has chosen anew."""
    writing: bool = False
    """Some write of the partition is under way; what has nothing to write itself shares the fate of the last one."""
    few: bool = False
    """The ISR of the partition is below its minimum: the log takes no write, and the coordinator stays."""


_NOTHING: Final = Seen(None, False, False, False, "", "", -1, {}, {}, (), 0, ())


@dataclass(frozen=True, slots=True)
class Case:
    """A refusal, with what its broker knew when the request arrived and what it knows now."""

    ask: Any
    was: Seen
    now: Seen
    member_id: str
    instance_id: str | None
    epoch: int
    waited_ms: int
    commit_timeout_ms: int
    stopping: bool
    broken: bool
    most: int
    """The largest size of a group, of either protocol."""

    @property
    def both(self) -> tuple[Seen, Seen]:
        return self.was, self.now

    @property
    def moved(self) -> bool:
        return self.was.driver is None or self.was.driver is not self.now.driver

    @property
    def changed(self) -> bool:
        """The group has been another one in between: of the other protocol, deleted, or made anew."""
        return self.was.type != self.now.type


Condition = Callable[[Case], bool]


def _not_coordinator(it: Case) -> bool:
    return it.moved or it.stopping or it.broken or not (it.was.leads and it.now.leads)


def _not_available(it: Case) -> bool:
    dying = any(seen.state == "Dead" and seen.writing for seen in it.both)  # its tombstones are; else it would be so for ever
    waited = it.waited_ms >= it.commit_timeout_ms - 1
    shares = it.was.writing and not isinstance(it.ask, CommitAsk)
    few = any(seen.few for seen in it.both)
    return shares or few or not it.was.topic_known or it.stopping or dying or waited or it.moved or it.broken


def _unknown_member(it: Case) -> bool:
    if isinstance(it.ask, CommitAsk) and it.epoch < 0 and not it.member_id:
        return any(seen.size or seen.state not in ("", "Empty") for seen in it.both)
    if it.instance_id is not None and any(it.instance_id not in seen.static for seen in it.both):
        return True
    return any(it.member_id not in seen.epochs and it.member_id not in seen.pending for seen in it.both) or it.changed


def _illegal_generation(it: Case) -> bool:
    return it.changed or any(seen.epochs.get(it.member_id, seen.epoch) != it.epoch for seen in it.both)


def _wrong_epoch(it: Case) -> bool:
    return it.changed or any(seen.epochs.get(it.member_id) != it.epoch for seen in it.both)


def _rebalance(it: Case) -> bool:
    if it.was.loading or it.changed or it.moved:
        return True
    if any(seen.type == "consumer" for seen in it.both):
        return any(seen.state != "Stable" or seen.epochs.get(it.member_id) != seen.epoch for seen in it.both)
    settled = all(seen.state == "Stable" for seen in it.both)
    return not settled or it.was.epoch != it.now.epoch or isinstance(it.ask, JoinRequest | SyncRequest)


def _fenced(it: Case) -> bool:
    return it.instance_id is not None and any(seen.static.get(it.instance_id) != it.member_id for seen in it.both)


def _unreleased(it: Case) -> bool:
    instance_id = it.instance_id or ""
    return any(seen.epochs.get(seen.static.get(instance_id, ""), -2) != -2 for seen in it.both)


def _full(it: Case) -> bool:
    return any(seen.size + len(seen.pending) >= it.most for seen in it.both)


def _no_such_group(it: Case) -> bool:
    other = "classic" if isinstance(it.ask, ConsumerHeartbeatRequest) else None
    if getattr(it.ask, "consumer", None) is not None:
        other = "classic" if it.ask.consumer else "consumer"
    return any(seen.state in ("", "Dead") or seen.type == other for seen in it.both)


def _has_members(it: Case) -> bool:
    return any(seen.size or seen.pending or seen.state not in ("", "Empty", "Dead") for seen in it.both)


def _other_protocol(it: Case) -> bool:
    if isinstance(it.ask, JoinRequest):
        odd = it.ask.protocol_type != "consumer" or not it.ask.protocols
        mine = [protocol.name for protocol in it.ask.protocols]
        return odd or any(seen.size and not set(mine) & set(seen.protocols) for seen in it.both)
    if not isinstance(it.ask, SyncRequest):
        return False
    name = it.ask.protocol_name
    return it.ask.protocol_type != "consumer" or name == "other" or any(seen.chosen not in ("", name) for seen in it.both)


def _malformed(it: Case) -> bool:
    ask = it.ask
    if not isinstance(ask, ConsumerHeartbeatRequest):
        return False
    first = ask.member_epoch == 0 and (ask.rebalance_timeout_ms is None or ask.owned is None or ask.owned != ())
    return not ask.member_id or ask.member_epoch < -2 or first or (ask.member_epoch == -2 and ask.instance_id is None)


CONDITIONS: Final[Mapping[ErrorCode, Condition]] = {
    ErrorCode.NOT_COORDINATOR: _not_coordinator,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _not_available,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: lambda it: it.was.loading,
    ErrorCode.UNKNOWN_MEMBER_ID: _unknown_member,
    ErrorCode.ILLEGAL_GENERATION: _illegal_generation,
    ErrorCode.STALE_MEMBER_EPOCH: _wrong_epoch,
    ErrorCode.FENCED_MEMBER_EPOCH: _wrong_epoch,
    ErrorCode.REBALANCE_IN_PROGRESS: _rebalance,
    ErrorCode.FENCED_INSTANCE_ID: _fenced,
    ErrorCode.UNRELEASED_INSTANCE_ID: _unreleased,
    ErrorCode.GROUP_MAX_SIZE_REACHED: _full,
    ErrorCode.GROUP_ID_NOT_FOUND: _no_such_group,
    ErrorCode.NON_EMPTY_GROUP: _has_members,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _has_members,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _other_protocol,
    ErrorCode.INVALID_REQUEST: _malformed,
    ErrorCode.MEMBER_ID_REQUIRED: lambda it: it.ask.require_known_member_id and not it.ask.member_id,
    ErrorCode.INVALID_GROUP_ID: lambda it: not it.ask.group_id,
    ErrorCode.INVALID_SESSION_TIMEOUT: lambda it: it.ask.session_timeout_ms < 100,
    ErrorCode.UNSUPPORTED_ASSIGNOR: lambda it: it.ask.server_assignor == "no-such",
    ErrorCode.INVALID_REGULAR_EXPRESSION: lambda it: it.ask.regex == "(",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: lambda it: any(len(commit.metadata) > 4096 for commit in it.ask.commits),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: lambda it: True,  # whether the broker knows a partition, `i38` judges by its fetches
}
"""The conditions under which a coordinator may answer with an error; no other error may be answered at all."""


class GroupRefusals(GroupChecker):
    """`RefusalsDeserved` for the APIs of groups: the coordinator's own knowledge is the measure."""

    numbers: ClassVar[tuple[int, ...]] = (38,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arrivals = Arrivals(world, lambda node, exchange: self._see(node, _group(exchange.request)))

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, LogDirFailed | LogDirUnusable | GroupsLoadFailed):
            self._arrivals.broken.add(node.node_id)

    def on_boot(self, node: SimHost) -> None:
        self._arrivals.on_boot(node)

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method in METHODS:
            self._arrivals.on_arrival(exchange)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method not in METHODS:
            return
        arrival = self._arrivals.of(exchange)
        self._arrivals.forget(exchange)
        if arrival is None:
            return
        node = self.world.nodes[exchange.target]
        for code, member_id, instance_id, epoch in _refusals(exchange.request, response):
            case = self._case(exchange, node, arrival, (member_id, instance_id, epoch))
            condition = CONDITIONS.get(code)
            if condition is None or not condition(case):
                self.fail(
                    f"node {node.node_id} refuses {exchange.method} of client {exchange.source} with {code.name}, which it may "
                    f"{'never' if condition is None else 'not now'}: asked is {exchange.request}; when it came the group was "
                    f"{_text(case.was)}; {case.waited_ms} ms later it is {_text(case.now)}"
                )

    def _case(self, exchange: AnyExchange, node: SimHost, arrival: Arrival[Seen], who: tuple[str, str | None, int]) -> Case:
        assert node.node is not None and node.node.broker is not None
        broker = node.node.broker
        config = broker.groups.config
        return Case(
            ask=exchange.request,
            was=arrival.seen,
            now=self._see(node, _group(exchange.request)),
            member_id=who[0],
            instance_id=who[1],
            epoch=who[2],
            waited_ms=self._arrivals.waited_us(exchange, arrival) // 1000,
            commit_timeout_ms=config.commit_timeout_ms,
            stopping=broker.groups.led.closed,
            broken=node.node_id in self._arrivals.broken,
            most=min(config.max_size, config.consumer_max_size),
        )

    def _see(self, node: SimHost, group_id: str) -> Seen:
        driver = self.groups.driver(node, group_id)
        seen = self._look(node, group_id)
        if driver is None or not driver.loaded or node.node is None or node.node.broker is None:
            return seen
        replica = node.node.broker.replicas.partition(driver.tp)
        few = replica is not None and replica.under_min_isr
        return replace(seen, writing=bool(driver.shard._effects._then), few=few)

    def _look(self, node: SimHost, group_id: str) -> Seen:
        broker = None if node.node is None else node.node.broker
        if broker is None:
            return _NOTHING
        topic_known = broker.groups.led.topic is not None
        driver = self.groups.driver(node, group_id)
        if driver is None or not driver.loaded:
            return Seen(driver, driver is not None and driver.loading, False, topic_known, "", "", -1, {}, {}, (), 0, ())
        replica = broker.replicas.partition(driver.tp)
        leads = replica is not None and replica.leader is not None and replica.leader_epoch == driver.leader_epoch
        shard = driver.shard
        consumers, classic = shard.consumers.by_id.get(group_id), shard.groups.by_id.get(group_id)
        if consumers is not None:
            members = {it.member_id: it.epoch for it in consumers.members.values()}
            names = [it.classic.protocols for it in consumers.members.values() if it.classic is not None]
            common = tuple(protocol.name for protocols in names for protocol in protocols)
            return Seen(
                driver, False, leads, topic_known, "consumer", consumers.state.value, consumers.epoch, members,
                dict(consumers.static), (), len(members), common or ("range", "roundrobin", "cooperative-sticky"),
            )  # fmt: skip
        if classic is not None:
            members = dict.fromkeys(classic.members, classic.generation)
            shared = tuple(protocol.name for it in classic.members.values() for protocol in it.protocols)
            common = tuple(it for it in dict.fromkeys(shared) if all(_supports(m, it) for m in classic.members.values()))
            return Seen(
                driver, False, leads, topic_known, "classic", classic.state.value, classic.generation, members,
                dict(classic.static), tuple(classic.pending), len(members), common, classic.protocol_name or "",
            )  # fmt: skip
        return Seen(driver, False, leads, topic_known, "", "", -1, {}, {}, (), 0, ())


def _supports(member: Any, name: str) -> bool:
    return any(protocol.name == name for protocol in member.protocols)


def _group(request: Any) -> str:
    return str(request.base.group_id if isinstance(request, CommitAsk) else request.group_id)


def _refusals(request: Any, response: Any) -> Iterator[tuple[ErrorCode, str, str | None, int]]:
    """(error, member id, instance id, generation or epoch) of everything in the answer that was refused."""
    who: tuple[str, str | None, int] = ("", None, -1)
    if isinstance(request, CommitAsk):
        who = (request.base.member_id, request.base.instance_id, request.base.generation)
    elif isinstance(request, OffsetFetchAsk):
        who = (request.member.member_id or "", None, request.member.member_epoch)
    elif isinstance(request, ConsumerHeartbeatRequest):
        who = (request.member_id, request.instance_id, request.member_epoch)
    elif isinstance(request, HeartbeatRequest | SyncRequest):
        who = (request.member_id, request.instance_id, request.generation)
    elif isinstance(request, JoinRequest):
        who = (request.member_id, request.instance_id, -1)
    if response.error is not ErrorCode.NONE:
        yield (response.error, *who)
    elif isinstance(request, LeaveRequest):
        for member, code in response.result:
            if code is not ErrorCode.NONE:
                yield code, member.member_id, member.instance_id, -1
    elif isinstance(request, CommitAsk) or (
        not hasattr(request, "member") and isinstance(getattr(response, "result", None), list)
    ):
        for code in response.result:
            if code is not ErrorCode.NONE:
                yield (code, *who)


def _text(seen: Seen) -> str:
    if seen.driver is None:
        return "not coordinated there"
    if not seen.state:
        return "being loaded" if seen.loading else "not there"
    members = f"epochs {dict(seen.epochs)}, instances {dict(seen.static)}, pending {list(seen.pending)}"
    return f"{seen.type}, {seen.state}, in {seen.epoch} with {members}, protocols {seen.protocols}"
