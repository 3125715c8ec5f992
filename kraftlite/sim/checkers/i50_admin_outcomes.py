"""Invariant 50: each admin request has an outcome that the rules allow in a state of the metadata that it may have met, and each
change of what only administrators change is, record for record, the effect of one request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from kraftlite.metadata import records as r
from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.model.messages.security import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace.controller import BrokerSessionExpired
from kraftlite.sim.checkers import admin_rules as topics
from kraftlite.sim.checkers import admin_rules_configs as configs
from kraftlite.sim.checkers.admin_rules import Entry, Outcome
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState, completes_a_move, ends_a_move_uncleanly, has_elr
from kraftlite.sim.checkers.views import Entry as Batch
from kraftlite.sim.checkers.views import NodeView, is_ahead
from kraftlite.sim.history import UNANSWERED, Operation
from kraftlite.simhost.network import AnyExchange

METHODS: Final[Mapping[str, tuple[AnyMethod, ...]]] = {
    "create_topics": (methods.CREATE_TOPICS,),
    "delete_topics": (methods.DELETE_TOPICS,),
    "create_partitions": (methods.CREATE_PARTITIONS,),
    "alter_configs": (methods.INCREMENTAL_ALTER_CONFIGS, methods.ALTER_CONFIGS),
    "alter_reassignments": (methods.ALTER_PARTITION_REASSIGNMENTS,),
    "list_reassignments": (methods.LIST_PARTITION_REASSIGNMENTS,),
    "elect_leaders": (methods.ELECT_LEADERS,),
    "unregister_broker": (methods.UNREGISTER_BROKER,),
    "update_features": (methods.UPDATE_FEATURES,),
    "alter_quotas": (methods.ALTER_CLIENT_QUOTAS,),
    "alter_scram": (methods.ALTER_USER_SCRAM_CREDENTIALS,),
}
_OF_ADMINISTRATORS: Final = (
    r.TopicRecord, r.RemoveTopicRecord, r.PartitionRecord, r.ConfigRecord, r.UnregisterBrokerRecord, r.FeatureLevelRecord,
    r.ClearElrRecord, r.ClientQuotaRecord, r.UserScramCredentialRecord, r.RemoveUserScramCredentialRecord,
)  # fmt: skip
_OPEN: Final = E.REQUEST_TIMED_OUT
"""Nobody knows what came of it."""


@dataclass(eq=False, slots=True)
class Arrival:
    """A request at a controller. `known`: the offset committed there, as it knew; `ahead`: it had written more than that when the
    request came, or when it was answered. `met`: the offsets before the records that are its effect, or that of another request
    that was open then and would have had the same."""

    exchange: AnyExchange
    source: NodeId
    author: tuple[NodeId, int]
    at_us: int
    known: int
    ahead: bool
    kind: str
    request: Any
    met: list[int] = field(default_factory=list)


class AdminOutcomes(MetadataChecker):
    """`admin_rules` and `admin_rules_configs` say what each request may come to. Requests of all clients explain what is written;
    the answers to the drawn administrator (`workloads/admin`) are compared as well."""

    numbers: ClassVar[tuple[int, ...]] = (50,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        values = world.cluster.shape.config
        self._defaults = (int(values.get("num.partitions", "1")), int(values.get("default.replication.factor", "1")))
        self._min_isr = values.get(configs.MIN_ISR, "1")
        self._arrivals: list[Arrival] = []
        self._open: list[Arrival] = []
        """Those that may still have an effect."""
        self._records: list[tuple[int, r.MetadataRecord]] = []
        """Those of the batch that is being committed."""
        self._committed: list[tuple[int, int]] = []
        """(time in microseconds, offset behind) of each committed batch."""
        for kind, served in METHODS.items():
            for method in served:
                self.facts.watch_arrival(method, lambda exchange, kind=kind: self._on_arrival(kind, exchange))  # type: ignore[misc]
                self.facts.watch_served(method, self._on_served)
        self._expired: dict[NodeId, int] = {}
        """The metadata epoch of the controller that ended a broker's session, until it is fenced."""
        self.facts.watch(BrokerSessionExpired, self._on_expired)

    def outcome(self, state: MetadataState, kind: str, request: Any, at: NodeId | None = None) -> Outcome:
        """The one place where a kind of request is tied to its rule. `at`: the controller that has it, which knows itself."""
        if kind == "create_topics":
            return topics.create_topics(state, request, self._defaults)
        if kind == "update_features":
            return configs.update_features(state, request, [it for it in self.facts.voters if it != at], self._min_isr)
        rule = _RULES.get(kind)
        return Outcome() if rule is None else rule(state, request)

    def _on_expired(self, view: NodeView, event: BrokerSessionExpired) -> None:
        self._expired[event.broker_id] = view.raft.epoch

    def _on_arrival(self, kind: str, exchange: AnyExchange) -> None:
        view = self.facts.views[exchange.target]
        if view.controller is not None:
            core = view.active_controller
            now = self.world.cluster.loop.now_us()
            known, ahead = core.offsets.committed_offset, is_ahead(core)
            arrival = Arrival(exchange, exchange.source, view.author, now, known, ahead, kind, exchange.request)
            self._arrivals.append(arrival)
            self._open.append(arrival)

    def _on_served(self, exchange: AnyExchange, response: object) -> None:
        """An answer waits for what it has written, so nothing is written for it any more; an error need not wait."""
        done = next((it for it in self._open if it.exchange is exchange), None)
        if done is not None:
            self._open.remove(done)
            core = self.facts.views[exchange.target].controller
            done.ahead = done.ahead or (core is not None and is_ahead(core))

    # --- what is written has been asked for

    def on_record(self, entry: Batch, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        self._records.append((offset, record))
        if isinstance(record, r.RegisterBrokerRecord | r.BrokerRegistrationChangeRecord | r.FenceBrokerRecord):
            self._expired.pop(record.broker_id, None)

    def on_commit(self, entry: Batch, before: MetadataState, after: MetadataState) -> None:
        self._committed.append((self.world.cluster.loop.now_us(), entry.next_offset))
        records, self._records = self._records, []
        at = 0
        while at < len(records):
            offset, record = records[at]
            state = self.facts.history.applied(offset - 1)
            at += self._take(entry, offset, [it for _, it in records[at:]], state) if self._is_asked(state, record) else 1

    def _is_asked(self, state: MetadataState, record: Any) -> bool:
        if isinstance(record, r.PartitionChangeRecord):
            return any(isinstance(it, tuple) for it in (record.replicas, record.adding_replicas, record.removing_replicas))
        if isinstance(record, r.FeatureLevelRecord | r.UserScramCredentialRecord) and not state.brokers:
            return False  # the first controller's first words, as the formatted disks say
        if isinstance(record, r.ConfigRecord) and not state.brokers and not state.controllers:
            wanted = r.ConfigRecord(resource_type=configs.BROKER, resource_name="", name=configs.MIN_ISR, value=self._min_isr)
            return not (has_elr(state) and record == wanted)
        return isinstance(record, _OF_ADMINISTRATORS)

    def _take(self, entry: Batch, offset: int, records: Sequence[Any], state: MetadataState) -> int:
        """The number of records that are the effect of one request, the first of `records` among them."""
        author = self.facts.elected.get(entry.epoch)
        longest = 0
        for arrival in self._open:
            if arrival.author == author:
                for seen in self._seen(entry, state):
                    outcome = self.outcome(seen, arrival.kind, arrival.request, arrival.exchange.target)
                    count = _explained(outcome, records, seen)
                    if count:
                        arrival.met.append(offset - 1)
                        longest = max(longest, count)
                        break
        if longest:
            return longest
        record = records[0]
        if isinstance(record, r.PartitionChangeRecord):
            old = state.partition(record.topic_id, record.partition)
            new = self.facts.history.applied(offset).partition(record.topic_id, record.partition)
            if old is not None and new is not None and (completes_a_move(old, new) or ends_a_move_uncleanly(old, new)):
                return 1  # `i52_moves` looks at it
        self.fail(
            f"offset {offset}, written by {author}, is not what any request that reached this controller asks for, nor does the "
            f"rest of its batch make it that: {record}, then {list(records[1:6])}"
        )
        return 1

    def _seen(self, entry: Batch, state: MetadataState) -> Iterator[MetadataState]:
        """The state, and, where brokers' sessions are over, the one in which they are fenced, as they are about to be (CM-10)."""
        yield state
        over = {
            broker_id: replace(broker, fenced=True)
            for broker_id, broker in state.brokers.items()
            if not broker.fenced and self._expired.get(broker_id) == entry.epoch
        }
        if over:
            yield replace(state, brokers={**state.brokers, **over})

    # --- what was answered

    def at_end(self) -> None:
        for op in self.world.history.operations:
            if op.error not in (UNANSWERED, _OPEN.name):
                self._check(op)

    def _check(self, op: Operation) -> None:
        own, request = _divided(op)
        codes = _codes(op)
        if own and codes is not None:
            for code, entry in zip(codes, own, strict=True):
                if entry is not None and not entry.allows(code):
                    self.fail(f"{_named(op)} was answered by its broker with {code.name}, which it may not")
            codes = [code for code, entry in zip(codes, own, strict=True) if entry is None]
        if request is None or (codes and all(it is _OPEN for it in codes)):
            return
        if not self._may_be(op, request, codes):
            latest = self.outcome(self.facts.history.latest, op.kind, request)
            said = op.error if codes is None else [it.name for it in codes] or op.response
            self.fail(
                f"{_named(op)} was answered with {said}, which no state of the metadata between {op.invoked_us} us and "
                f"{op.returned_us} us allows; in the last one it deserves {_described(latest)}"
            )

    def _may_be(self, op: Operation, request: Any, codes: Sequence[E] | None) -> bool:
        """Return whether a request may have been answered like this in one of the states that it may have met."""
        assert op.returned_us is not None
        history = self.facts.history
        arrivals = [
            it
            for it in self._arrivals
            if it.source == op.broker and op.invoked_us <= it.at_us <= op.returned_us and it.request == request
        ]
        for it in arrivals:
            if any(self._fits(history.applied(met), op, request, codes, it.exchange.target, effect=True) for met in it.met):
                return True
        end = self._committed[bisect_right(self._committed, (op.returned_us, 1 << 62)) - 1][1] if self._committed else 0
        begin = min((it.known for it in arrivals), default=end - 1)
        if _is_thrown(op, codes) and any(it.ahead for it in arrivals):
            return True  # by what is not committed, and may never be: nobody waits for it, as in Kafka's controller
        asked: list[NodeId | None] = [*sorted({it.exchange.target for it in arrivals})] or [None]
        states = list(history.between(begin, end - 1))
        return any(self._fits(state, op, request, codes, at, effect=False) for at in asked for state in states)

    def _fits(
        self, state: MetadataState, op: Operation, request: Any, codes: Sequence[E] | None, at: NodeId | None, *, effect: bool
    ) -> bool:
        """`effect`: the request was carried out in this state, and what it asked for is written. `at`: where it arrived."""
        outcome = self.outcome(state, op.kind, request, at)
        if op.error is not None:
            return E[op.error] in outcome.whole
        if outcome.whole:
            return False
        if isinstance(request, m.ListPartitionReassignmentsRequest):
            found = {(it.topic, it.partition): (it.replicas, it.adding, it.removing) for it in op.response.reassignments}
            return found == topics.listed_moves(state, request)
        if isinstance(request, m.ElectLeadersRequest):
            return _elected(state, request, op.response)
        entries = outcome.entries
        if codes is not None and (
            len(codes) != len(entries)
            or not all(code is _OPEN or entry.allows(code) for code, entry in zip(codes, entries, strict=True))
        ):
            return False
        return effect or all(want.optional for wants in outcome.wants for want in wants)


_RULES: Final[Mapping[str, Callable[[MetadataState, Any], Outcome]]] = {
    "delete_topics": topics.delete_topics,
    "create_partitions": topics.create_partitions,
    "alter_configs": configs.alter_configs,
    "alter_reassignments": topics.alter_reassignments,
    "elect_leaders": lambda _state, request: Outcome(
        whole=frozenset() if request.election_type in (0, 1) else frozenset({E.INVALID_REQUEST})
    ),
    "unregister_broker": topics.unregister_broker,
    "alter_quotas": configs.alter_quotas,
    "alter_scram": configs.alter_scram,
}


def _explained(outcome: Outcome, records: Sequence[Any], state: MetadataState) -> int:
    """Return how many of `records` are what a request writes in `state`: all that it must, or none. Their order is free."""
    wants = [want for wants in outcome.wants for want in wants]
    must = sum(not want.optional for want in wants)
    count = 0
    for record in records:
        fitting = next((want for want in wants if want.fits(state, record)), None)
        if fitting is None:
            break
        wants.remove(fitting)
        must -= not fitting.optional
        count += 1
    return 0 if must else count


def _is_thrown(op: Operation, codes: Sequence[E] | None) -> bool:
    """Return whether the request failed as a whole. Refusals of single entries are an answer, which waits for what was written
    before it (CE-07)."""
    return op.error is not None or (bool(codes) and set(codes or ()) == {E.POLICY_VIOLATION})


def _divided(op: Operation) -> tuple[list[Entry | None], Any]:
    """The entries that its broker answers itself (None: the controller does), and the request that goes to the controller."""
    request = op.request
    if op.kind != "alter_configs":
        empty = next((it for it in ("topics", "partitions", "updates", "entries") if getattr(request, it, None) == ()), None)
        nothing = isinstance(request, AlterUserScramCredentialsRequest) and not request.deletions + request.upsertions
        return [], None if (empty and op.kind != "list_reassignments") or nothing else request
    own = [_answered_by(op.broker, it) for it in request.resources]
    if any(own):
        kept = tuple(it for it, entry in zip(request.resources, own, strict=True) if entry is None)
        return own, replace(request, resources=kept) if kept else None
    return [], request


def _answered_by(broker: NodeId, resource: m.ConfigResourceChange | m.LegacyConfigResource) -> Entry | None:
    """CM-48: loggers and the configs of a broker are for that broker alone."""
    kind, name = resource.resource_type, resource.resource_name
    other = name != str(broker)
    if kind == m.ConfigResourceType.BROKER_LOGGER:
        # Only values of configurations are drawn, which are no loggers: the first change decides, or who is asked.
        known = (m.AlterConfigOp.SET, m.AlterConfigOp.DELETE)
        odd = isinstance(resource, m.LegacyConfigResource) or any(it.op not in known for it in resource.changes[:1])
        return Entry(faults=frozenset({E.INVALID_REQUEST if odd or other else E.INVALID_CONFIG}))
    if kind == m.ConfigResourceType.BROKER and name != "" and other:
        return Entry(faults=frozenset({E.INVALID_REQUEST}))
    return None


def _codes(op: Operation) -> list[E] | None:
    """The answer to each entry of a request; None when it was answered as a whole, or is a question."""
    response = op.response
    if isinstance(response, AlterUserScramCredentialsResponse):
        told = {it.user: it.error for it in response.results}
        return [told.get(it, E.UNKNOWN_SERVER_ERROR) for it in configs.scram_users(op.request)]
    if response is None or isinstance(response, m.ElectLeadersResponse):
        return None
    for name in ("topics", "resources", "results", "entries"):
        if hasattr(response, name):
            return [E(it.error) for it in getattr(response, name)]
    return None


def _elected(state: MetadataState, request: m.ElectLeadersRequest, response: m.ElectLeadersResponse) -> bool:
    told = [((it.topic, it.partition), it.error) for it in response.results]
    if request.partitions is None:
        everything = [(topic.name, index) for topic in state.topics.values() for index in topic.partitions]
        known = dict(told)
        told = [(it, known.pop(it, E.ELECTION_NOT_NEEDED)) for it in everything]
        if known:
            return False
    elif [it for it, _ in told] != [(it.topic, it.partition) for it in request.partitions]:
        return False
    seen: list[tuple[str, int]] = []
    for (topic, index), code in told:
        if (topic, index) in seen:
            entry = Entry(faults=frozenset({E.INVALID_REQUEST}))
        else:
            entry = topics.election(state, topic, index, request.election_type)
        seen.append((topic, index))
        if code is not _OPEN and not entry.allows(code):
            return False
    return True


def _described(outcome: Outcome) -> str:
    if outcome.whole:
        return f"{sorted(it.name for it in outcome.whole)} as a whole"
    return str([sorted(it.name for it in entry.faults) or ["NONE"] for entry in outcome.entries])


def _named(op: Operation) -> str:
    return f"{op.kind} {op.request} at node {op.broker}"
