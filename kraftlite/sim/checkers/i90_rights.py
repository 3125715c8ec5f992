"""Invariants 90 and 91: every broker decides by the entries of its image, and what is denied changes nothing (SE-31 to SE-34)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.metadata import records as r
from kraftlite.model.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kraftlite.model.ids import NodeId
from kraftlite.model.principal import Principal
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import Facts, MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk, error_codes
from kraftlite.sim.workloads.security import GROW, LIST, RETENTION_MS, TOPICS, TRANSACT, TRANSACTIONAL_ID, USERS
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

REFUSED: Final = frozenset(
    {"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
)
NEEDS: Final[Mapping[str, tuple[tuple[Operation, ResourceType], ...]]] = {
    "produce": ((Operation.WRITE, ResourceType.TOPIC),),
    "configure": ((Operation.ALTER_CONFIGS, ResourceType.TOPIC),),
    "create": ((Operation.CREATE, ResourceType.CLUSTER), (Operation.CREATE, ResourceType.TOPIC)),
    "grant": ((Operation.ALTER, ResourceType.CLUSTER),),
    "revoke": ((Operation.ALTER, ResourceType.CLUSTER),),
    "limit": ((Operation.ALTER_CONFIGS, ResourceType.CLUSTER),),
    LIST: ((Operation.DESCRIBE, ResourceType.CLUSTER),),
    GROW: ((Operation.ALTER, ResourceType.TOPIC),),
    TRANSACT: ((Operation.WRITE, ResourceType.TOPIC),),
}
"""By kind of request: what its client must be allowed, one of these; others are for `i90_removals`. Source: SE-40."""
AT_ITS_BROKER: Final = frozenset({"produce", TRANSACT, LIST})
"""The kinds of request that are decided where they come."""
IMPLIED_BY: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
IN_FORCE_WITHIN_US: Final = 3_000_000
"""The time for which a broker may act on older entries than those that it knows to be committed: its own, while it runs."""
RUNS_AT_MOST_US: Final = 1_000_000
"""A pause between two of its steps counts as running for so long: it may have stood still."""


class Rules:
    """The settings of the authorizers, and the decision as the specification words it: without an index, over all entries."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.supers = {it.strip() for it in config.get("super.users", "").split(";")}
        self.everybody = config.get("allow.everyone.if.no.acl.found", "false") == "true"

    def allows(
        self,
        entries: Iterable[r.AccessControlEntryRecord],
        principal: Principal,
        host: str,
        operation: Operation,
        kind: int,
        name: str,
    ) -> bool:
        who = f"{principal.kind}:{principal.name}"
        if who in self.supers:
            return True
        covering = [it for it in entries if it.resource_type == kind and _covers(it, name)]
        mine = [it for it in covering if it.principal in (who, "User:*") and _same_host(it.host, host)]
        if any(it.permission_type == Permission.DENY and it.operation in (operation, Operation.ALL) for it in mine):
            return False
        granting = {operation, Operation.ALL} | IMPLIED_BY.get(operation, set())
        granted = any(it.permission_type == Permission.ALLOW and it.operation in granting for it in mine)
        return granted or (self.everybody and not covering)

    def allow(self, state: MetadataState, ask: DoorAsk) -> bool:
        entries = state.acls.values()
        if ask.kind == TRANSACT and not self.allows(
            entries, ask.principal, ask.host, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID
        ):
            return False
        for operation, kind in NEEDS[ask.kind]:
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else ask.name
            if self.allows(entries, ask.principal, ask.host, operation, kind, name):
                return True
        return False


def _covers(entry: r.AccessControlEntryRecord, name: str) -> bool:
    if entry.pattern_type == PatternType.PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in (name, "*")


def _same_host(a: str, b: str) -> bool:
    return a in ("*", b) or (":" in a and ":" in b and ipaddress.ip_address(a) == ipaddress.ip_address(b))


def oldest_image(facts: Facts) -> int:
    """The offset of the oldest image that any node has now."""
    nodes = [it.node.node for it in facts.views.values() if it.node.node is not None]
    return min(node.loader.image.offset for node in nodes)


class RightsDecided(MetadataChecker):
    """The authorizer of every node has the entries of the node's image, after each change of that. A request is refused for want
    of rights if and only if the entries say so that who decides it had meanwhile: its broker, or the active controller. Before
    the first entries are there nobody is refused, or let in, but super users; the connection is closed then. A request that was
    refused has left nothing in the metadata log, and nothing in any partition."""

    numbers: ClassVar[tuple[int, ...]] = (90,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rules = Rules(world.cluster.shape.config)
        self._denied: dict[str, str] = {}
        """By token: what was denied."""
        self._allowed: set[str] = set()
        self.judged = {"allowed": 0, "denied": 0, "too early": 0}
        self._oldest: dict[AnyExchange, int] = {}
        """By the request under way: the oldest image that any node had when it came."""
        self.facts.watch_arrival(DOOR, self._arrived)
        self.facts.watch_served(DOOR, self._served)

    def _arrived(self, exchange: AnyExchange) -> None:
        if exchange.request.kind not in NEEDS:
            return
        self._oldest[exchange] = oldest_image(self.facts)

    def _states(self, exchange: AnyExchange, answer: DoorAnswer) -> list[MetadataState]:
        """The states by which it may have been decided: by its broker; or, where that hands it on, by whichever controller was
        active meanwhile, whose image may be older than the broker's, or newer."""
        history, (first, last) = self.facts.history, (answer.first, answer.last)
        if exchange.request.kind not in AT_ITS_BROKER:
            first, last = min(first, self._oldest.get(exchange, first)), self.facts.committed_end - 1
        return [history.visible(first), *history.between(first, last)]

    def on_image(self, view: NodeView, image: Any) -> None:
        node = view.node.node
        if node is None or node.gate is None:
            return
        authorizer = node.gate.authorizer
        if not authorizer.is_loaded:
            return
        wanted = self.facts.history.visible(image.offset).acls
        if authorizer._entries != wanted:
            difference = _difference(authorizer._entries, wanted)
            self.fail(f"the authorizer of node {view.node_id} has the image of offset {image.offset}, and {difference}")

    def _served(self, exchange: AnyExchange, answer: DoorAnswer) -> None:
        ask: DoorAsk = exchange.request
        if ask.kind not in NEEDS:
            return
        where = f"node {exchange.target} answers {ask.kind} {ask.name} of {ask.principal} at {ask.host}, by offset {answer.first}"
        if "not loaded" in answer.closed:
            self.judged["too early"] += 1
            if str(ask.principal) in self._rules.supers:
                self.fail(f"{where}: {answer.closed}; a super user needs no entries")
            return
        codes = [] if not answer.response else error_codes(ask, answer)
        if not codes:
            return
        denied = any(code in REFUSED for code in codes)
        states = self._states(exchange, answer)
        self._oldest.pop(exchange, None)
        if not any(self._rules.allow(state, ask) is not denied for state in states):
            self.fail(f"{where}: {codes}; the entries say that it is {'allowed' if denied else 'denied'}")
        self.judged["denied" if denied else "allowed"] += 1
        if denied:
            self._denied[_mark(ask)] = where
        else:
            self._allowed.add(_mark(ask))

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.ConfigRecord):
            self._effect(record.value or "", f"offset {offset} of the metadata log")
        elif isinstance(record, r.TopicRecord):
            self._effect(record.name, f"offset {offset} of the metadata log")
        elif isinstance(record, r.AccessControlEntryRecord):
            self._effect(record.resource_name, f"offset {offset} of the metadata log")

    def _effect(self, mark: str, where: str) -> None:
        if mark in self._denied and mark not in self._allowed:
            self.fail(f"{mark} is in {where}, and was denied: {self._denied[mark]}")

    def at_end(self) -> None:
        for view in self.facts.views.values():
            node = view.node.node
            if node is None or node.gate is None:
                continue
            if not node.gate.authorizer.is_loaded:
                self.fail(f"the authorizer of node {view.node_id} has no entries yet, though all is well")
            self.on_image(view, node.loader.image)
            for mark, where in () if node.broker is None else _written(view.node):
                self._effect(mark, where)


def _mark(ask: DoorAsk) -> str:
    """The text by which the effect of a request is known."""
    if ask.kind == "create":
        return ask.name
    if ask.kind == "configure":
        user, _, number = ask.token.rpartition("-")
        return str(RETENTION_MS + 10_000 * USERS.index(user) + int(number))
    return ask.token


def _written(node: SimHost) -> Iterator[tuple[str, str]]:
    """The values in the partitions of a broker that secured users write to."""
    assert node.node is not None and node.node.broker is not None
    for replica in node.node.broker.replicas.partitions():
        if replica.log is None or replica.tp.topic not in TOPICS:
            continue
        with node.disk.undisturbed():
            data = bytes(replica.log.read(replica.log.log_start_offset, 1 << 24, up_to=replica.log.leo))
        for header, raw in iter_batches(memoryview(data)):
            for record in () if header.is_control else iter_records(raw):
                yield bytes(record.value or b"").decode().rstrip("."), f"{replica.tp} of node {node.node_id}"


def _difference(found: Mapping[UUID, Any], wanted: Mapping[UUID, Any]) -> str:
    more, less = found.keys() - wanted.keys(), wanted.keys() - found.keys()
    if more or less:
        return f"entries too many: {[str(found[it]) for it in _some(more)]}, missing: {[str(wanted[it]) for it in _some(less)]}"
    return f"others than these: {[str(it) for key, it in wanted.items() if found[key] != it][:3]}"


def _some(keys: Collection[UUID]) -> list[UUID]:
    return sorted(keys)[:3]


class RightsInForce(MetadataChecker):
    """A change of the entries is in force at a broker `IN_FORCE_WITHIN_US` after the broker knows it to be committed: nobody is
    judged by older ones any more, so that a right that was taken back is not used, and one that was given is."""

    numbers: ClassVar[tuple[int, ...]] = (91,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._changes: list[int] = []
        """The offsets of committed records about entries."""
        self._known: dict[tuple[NodeId, int], list[tuple[int, int]]] = {}
        """By incarnation: (offset of a change, its own time when it learned that this is committed)."""
        self._ran: dict[NodeId, tuple[int, int]] = {}
        """(time of the last step, own time)."""
        self.judged = 0
        self.facts.watch_served(DOOR, self._served)

    def on_step(self, node: SimHost) -> None:
        if self._changes:
            self._own_us(node.node_id)

    def _own_us(self, node_id: NodeId) -> int:
        now_us = self.world.cluster.loop.now_us()
        last_us, own_us = self._ran.get(node_id, (now_us, 0))
        own_us += min(now_us - last_us, RUNS_AT_MOST_US)
        self._ran[node_id] = now_us, own_us
        return own_us

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.AccessControlEntryRecord | r.RemoveAccessControlEntryRecord):
            self._changes.append(offset)

    def on_hw_noted(self, view: NodeView, old: int, new: int) -> None:
        learned = [(offset, self._own_us(view.node_id)) for offset in reversed(self._changes) if old <= offset < new]
        if learned:
            self._known.setdefault(view.author, []).extend(reversed(learned))

    def _served(self, exchange: AnyExchange, answer: DoorAnswer) -> None:
        view = self.facts.views.get(exchange.target)
        if view is None:
            return
        self.judged += 1
        own_us = self._own_us(view.node_id)
        for offset, learned_us in self._known.get(view.author, ()):
            if answer.last < offset and own_us - learned_us > IN_FORCE_WITHIN_US:
                self.fail(
                    f"node {view.node_id} judges {exchange.request.principal} by offset {answer.last}, and has known for "
                    f"{(own_us - learned_us) // 1000} ms that offset {offset} is committed"
                )
        self._known[view.author] = [it for it in self._known.get(view.author, ()) if it[0] > answer.last]
