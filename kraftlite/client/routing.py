"""Finds the broker to ask: connections, metadata, leaders and coordinators of a client, and how long it goes on trying.

Source: the Kafka protocol; KIP-207 (OFFSET_NOT_AVAILABLE), KIP-320 (leader epochs).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftlite.client.connection import QUIET_S, Buffer, Connection, code_of
from kraftlite.client.errors import ClientError, UnknownTopic
from kraftlite.client.settings import ClientSettings, split_address
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.api_keys import FIND_COORDINATOR, METADATA
from kraftlite.protocol.errors import ProtocolViolation

UNKNOWN_PATIENCE_S: Final = 5.0
"""The least time for which a topic that nobody knows is asked for again: brokers learn of a new one at different times."""
FIRST_ANSWER_S: Final = QUIET_S
"""The time that the first round for metadata waits for each broker; every further round twice as long."""
FAILURES: Final = (OSError, ProtocolViolation)
"""The errors that may not come again with another broker, or later."""

E = ErrorCode
Address = tuple[str, int]
_UNKNOWN: Final = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """`partitions` in ascending order; `topic_id` None: the cluster has no topic ids."""

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[int, ...]


class Round(NamedTuple):
    """The result of asking brokers in turn: an answer, or why each gave none. `unreachable`: none gave a connection on which it
    speaks Kafka's protocol."""

    answer: Any
    reasons: list[str]
    unreachable: bool


class _Leader(NamedTuple):
    address: Address
    epoch: int


class RetryBudget:
    """The time for which one call goes on trying. `what`: the call, for errors; when empty, their text is the reason alone."""

    def __init__(self, settings: ClientSettings, what: str, timeout_ms: int | None = None) -> None:
        self._settings = settings
        self._what = what
        self._timeout_s = (settings.retry_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        self._start = time.monotonic()
        self._pause_s = settings.retry_backoff_ms / 1000
        self._unknown_since: float | None = None

    def deadline(self, limit_s: float | None = None) -> float:
        """Return the deadline of one request: never beyond the call's own, but for the last one, which gets a second."""
        now = time.monotonic()
        request_s = self._settings.request_timeout_ms / 1000
        left = max(1.0, self._start + self._timeout_s - now)
        return now + min(request_s, left, request_s if limit_s is None else limit_s)

    def pause(self, reason: str, code: ErrorCode | None = None, *, unreachable: bool = False) -> None:
        """Wait before the next attempt; raises ClientError when there must be none. `unreachable`: no broker gave a
        connection."""
        waited = time.monotonic() - self._start
        limit_ms = self._settings.unreachable_timeout_ms if unreachable else None
        if waited + self._pause_s > (self._timeout_s if limit_ms is None else min(self._timeout_s, limit_ms / 1000)):
            raise ClientError(f"{self._what}: {reason} (tried for {waited:.1f} s)" if self._what else reason, code)
        time.sleep(self._pause_s)
        self._pause_s = min(max(self._pause_s, 0.001) * 2, self._settings.retry_backoff_max_ms / 1000)

    def unknown(self, tp: TopicPartition | str) -> None:
        """Wait as `pause` does, for what nobody knows; raises UnknownTopic."""
        now = time.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now
        limit_s = min(self._timeout_s, max(UNKNOWN_PATIENCE_S, self._timeout_s / 10))
        if now + self._pause_s > self._unknown_since + limit_s:
            raise UnknownTopic(f"{self._what}: the cluster has no {tp}", E.UNKNOWN_TOPIC_OR_PARTITION)
        time.sleep(self._pause_s)

    def known(self) -> None:
        self._unknown_since = None


class Routing:
    """Finds the right broker for a request, and asks again. Not to be shared by threads; begins anew after a fork."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._bootstrap = tuple(split_address(it) for it in settings.bootstrap)
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._failed: dict[Address, float] = {}
        self._leaders: dict[TopicPartition, _Leader] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._ids: dict[str, UUID | None] = {}
        self._past_ids: set[UUID | None] = set()
        self._answered: Address | None = None
        self._coordinators: dict[str, Address] = {}
        self._transaction_coordinators: dict[str, Address] = {}
        self._buffer = Buffer()

    def close(self) -> None:
        """Idempotent. The next call connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _budget(self, what: str, timeout_ms: int | None = None) -> RetryBudget:
        if self._pid != os.getpid():
            self.close()  # of this process: the other one's connections live on
            self._start()
        return RetryBudget(self.settings, what, timeout_ms)

    # --- topics

    def _describe(self, names: list[str] | None, budget: RetryBudget, *, create: bool = False) -> dict[str, TopicInfo]:
        while True:
            answer = self._refresh(names, budget, create=create)
            found: dict[str, TopicInfo] = {}
            waiting = E.NONE
            for topic in answer.topics:
                code, name = code_of(topic), str(topic.name)
                if topic.topic_id is not None and topic.topic_id in self._past_ids:
                    waiting = E.UNKNOWN_TOPIC_ID
                elif code is E.NONE:
                    found[name] = TopicInfo(
                        name=name,
                        topic_id=topic.topic_id,
                        internal=bool(topic.is_internal),
                        partitions=tuple(sorted(int(it.partition_index) for it in topic.partitions)),
                    )
                elif code in _UNKNOWN:
                    continue
                elif code.retriable:
                    waiting = code
                elif names is not None:
                    raise ClientError(f"metadata of {name}: {code.name}", code)
            if waiting is E.NONE:
                return dict(sorted(found.items()))
            budget.pause(f"metadata: {waiting.name}", waiting)

    # --- leaders

    def _spread(
        self,
        tps: list[TopicPartition],
        send: Callable[[Connection, list[TopicPartition], float], None],
        receive: Callable[[memoryview], dict[TopicPartition, tuple[ErrorCode, str]]] | None,
        budget: RetryBudget,
    ) -> None:
        """Send to every leader, then take every answer, then again for what may be repeated. `receive` None: no answers."""
        left = tps
        while left:
            leaders = self._locate(left, budget)
            by_address: dict[Address, list[TopicPartition]] = {}
            for tp in left:
                by_address.setdefault(leaders[tp].address, []).append(tp)
            sent: list[tuple[Address, list[TopicPartition], Connection, float]] = []
            outcome: dict[TopicPartition, tuple[ErrorCode, str]] = {}
            for address, theirs in sorted(by_address.items()):
                deadline = budget.deadline()
                try:
                    connection = self._connect(address, deadline)
                    send(connection, theirs, deadline)
                except FAILURES as error:
                    outcome.update(self._broken(address, theirs, error))
                else:
                    sent.append((address, theirs, connection, deadline))
            for address, theirs, connection, deadline in sent if receive is not None else ():
                try:
                    frame = connection.receive(deadline, self._suspicion(address, theirs))
                    codes = receive(frame)  # type: ignore[misc]
                    if sorted(codes) != theirs:
                        raise ProtocolViolation(f"answers for {sorted(codes)}, not for {theirs}")
                    outcome.update(codes)
                except FAILURES as error:
                    outcome.update(self._broken(address, theirs, error))
            left = [tp for tp in left if tp in outcome and outcome[tp][0].retriable]
            if left:
                self._again({tp: outcome[tp] for tp in left}, budget)

    def _broken(
        self, address: Address, tps: list[TopicPartition], error: Exception
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        self._lost(address)
        return dict.fromkeys(tps, (E.NETWORK_EXCEPTION, told(address, error)))

    def _again(self, outcome: Mapping[TopicPartition, tuple[ErrorCode, str]], budget: RetryBudget) -> None:
        """Wait before these are repeated, with leaders asked for anew."""
        self._forget(outcome)
        unknown = [tp for tp, (code, _) in outcome.items() if code in _UNKNOWN]
        if unknown:
            budget.unknown(unknown[0])
            return
        tp, (code, message) = next(iter(outcome.items()))
        budget.pause(f"{tp}: {code.name}{f', {message}' if message else ''}", code)

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._leaders.pop(tp, None)

    def _locate(self, tps: Sequence[TopicPartition], budget: RetryBudget) -> dict[TopicPartition, _Leader]:
        while True:
            found = {tp: self._leaders[tp] for tp in tps if tp in self._leaders}
            if len(found) == len(tps):
                return found
            topics = sorted({tp.topic for tp in tps if tp not in found})
            known = self._describe(topics, budget)
            missing = [tp for tp in tps if tp.topic in topics and not _has(known, tp)]
            if missing:
                budget.unknown(missing[0])
                continue
            budget.known()
            idle = [tp for tp in tps if tp not in self._leaders]
            if idle:
                budget.pause(f"{idle[0]} has no leader", E.LEADER_NOT_AVAILABLE)

    def _suspicion(self, address: Address, tps: Sequence[TopicPartition]) -> Callable[[], None]:
        """Make the check for `Connection.receive`: do not wait for a broker that does not lead these partitions any more."""

        def ask() -> None:
            self._failed[address] = time.monotonic()
            values = metadata_values(sorted({tp.topic for tp in tps}))
            until = time.monotonic() + FIRST_ANSWER_S
            found = self._round(METADATA, values, lambda: until, without=address)
            if found.answer is None:
                return
            self._learn(found.answer)
            gone = [tp for tp in tps if tp not in self._leaders or self._leaders[tp].address != address]
            if gone:
                raise ConnectionError(f"it keeps quiet and does not lead {gone[0]} any more")

        return ask

    # --- metadata

    def _refresh(self, names: list[str] | None, budget: RetryBudget, *, create: bool = False) -> Any:
        answer = self._ask_anyone(METADATA, metadata_values(names, create=create), budget)
        self._learn(answer)
        return answer

    def _learn(self, answer: Any) -> None:
        """Learn who leads, unless it is known that somebody has led since: the highest epoch counts, while the topic is the
        same."""
        if answer.brokers:
            self._brokers = {int(it.node_id): (str(it.host), int(it.port)) for it in answer.brokers}
        for topic in answer.topics:
            name = str(topic.name)
            if not self._is_newest(name, topic.topic_id):
                self._suspect()
                continue
            for part in topic.partitions:
                self._learn_leader(TopicPartition(name, int(part.partition_index)), int(part.leader_id), int(part.leader_epoch))

    def _is_newest(self, name: str, topic_id: UUID | None) -> bool:
        """A topic that was made again has another id, and its leaders' epochs begin anew. No id: of a topic that is not there, or
        of a cluster that has none."""
        known = self._ids.get(name)
        if topic_id is None or topic_id == known:
            return True
        if topic_id in self._past_ids:
            return False
        if known is not None:
            self._past_ids.add(known)
            for tp in [it for it in self._epochs if it.topic == name]:
                del self._epochs[tp]
                self._leaders.pop(tp, None)
        self._ids[name] = topic_id
        return True

    def _learn_leader(self, tp: TopicPartition, leader_id: int, epoch: int) -> None:
        address = self._brokers.get(leader_id)
        if 0 <= epoch < self._epochs.get(tp, -1):
            self._suspect()
            return
        self._epochs[tp] = max(epoch, self._epochs.get(tp, -1))
        if address is None:
            self._leaders.pop(tp, None)
        else:
            self._leaders[tp] = _Leader(address, epoch)

    def _suspect(self) -> None:
        """The broker that has answered last knows less than we do: others are asked before it from now on."""
        if self._answered is not None:
            self._failed[self._answered] = time.monotonic()

    def _ask_anyone(
        self,
        api_key: int,
        values: Mapping[str, object],
        budget: RetryBudget,
        *,
        version: int | None = None,
        limit_s: float = FIRST_ANSWER_S,
        among: Sequence[Address] = (),
    ) -> Any:
        """The answer of the first broker that gives one. `limit_s`: how long the first round waits for each. `among`: ask nobody
        else."""
        while True:
            found = self._round(api_key, values, partial(budget.deadline, limit_s), version=version, among=among)
            if found.answer is not None:
                return found.answer
            budget.pause(f"no broker answered ({'; '.join(found.reasons)})", unreachable=found.unreachable)
            limit_s *= 2

    def _ask_all(self, api_key: int, values: Mapping[str, object], budget: RetryBudget) -> list[Any]:
        """Ask each live broker, and return what they answer, but for those that do not."""
        self._refresh([], budget)
        answers = []
        for _node, address in sorted(self._brokers.items()):
            deadline = budget.deadline(FIRST_ANSWER_S)
            try:
                answers.append(self._connect(address, deadline).ask(api_key, values, deadline))
            except FAILURES:
                self._lost(address)
        return answers

    def _round(
        self,
        api_key: int,
        values: Mapping[str, object],
        deadline: Callable[[], float],
        *,
        version: int | None = None,
        without: Address | None = None,
        among: Sequence[Address] = (),
    ) -> Round:
        """Ask each broker once, until one answers: those that have failed come last."""
        reasons: list[str] = []
        unreachable = True
        for address in among or self._candidates():
            if address == without:
                continue
            until = deadline()
            try:
                answer = self._connect(address, until).ask(api_key, values, until, version=version)
            except FAILURES as error:
                unreachable = unreachable and address not in self._connections
                self._lost(address)
                reasons.append(told(address, error))
            else:
                self._failed.pop(address, None)
                self._answered = address
                return Round(answer, reasons, False)
        return Round(None, reasons, unreachable)

    def _candidates(self) -> list[Address]:
        known = list(dict.fromkeys((*(self._brokers[it] for it in sorted(self._brokers)), *self._bootstrap)))
        return sorted(known, key=lambda it: (self._failed.get(it, 0.0), it not in self._connections, known.index(it)))

    # --- coordinators

    def _ask_coordinator(
        self, group: str, api_key: int, values: Mapping[str, object], budget: RetryBudget, *, version: int | None = None
    ) -> Any:
        """The answer of the group's coordinator, of which neither the whole nor a partition may be better elsewhere or later.
        Raises ClientError for any other error in it."""
        while True:
            answer = self._ask_where(group, api_key, values, budget, version)
            if answer is None:
                continue
            codes = {TopicPartition(str(t.name), int(p.partition_index)): code_of(p) for t in answer.topics for p in t.partitions}
            bad = {tp: code for tp, code in codes.items() if code is not E.NONE}
            whole = code_of(answer) if hasattr(answer, "error_code") else E.NONE
            if whole is E.NONE and not bad:
                return answer
            self._coordinators.pop(group, None)
            final = next(((tp, code) for tp, code in bad.items() if not code.retriable), None)
            if final is not None or (whole is not E.NONE and not whole.retriable):
                code = whole if final is None else final[1]
                raise ClientError(f"group {group}{'' if final is None else f', {final[0]}'}: {code.name}", code)
            unknown = [tp for tp, code in bad.items() if code in _UNKNOWN]
            if unknown:
                budget.unknown(unknown[0])
            else:
                code = whole if whole is not E.NONE else next(iter(bad.values()))
                budget.pause(code.name, code)

    def _ask_where(self, group: str, api_key: int, values: Mapping[str, object], budget: RetryBudget, version: int | None) -> Any:
        """Return what the group's coordinator answers; None, after a pause, when it is not there."""
        address = self._coordinators.get(group) or self._find_coordinator(group, budget)
        deadline = budget.deadline()
        try:
            return self._connect(address, deadline).ask(api_key, values, deadline, version=version)
        except FAILURES as error:
            self._lost(address)
            self._coordinators.pop(group, None)
            budget.pause(told(address, error), E.NETWORK_EXCEPTION)
            return None

    def _find_coordinator(self, name: str, budget: RetryBudget, *, of_transactions: bool = False) -> Address:
        """Look for the coordinator of a group, or of a transactional id."""
        known = self._transaction_coordinators if of_transactions else self._coordinators
        what = "transactional id" if of_transactions else "group"
        while True:
            answer = self._ask_anyone(FIND_COORDINATOR, {"key": name, "key_type": int(of_transactions)}, budget)
            code = code_of(answer)
            if code is E.NONE:
                known[name] = (str(answer.host), int(answer.port))
                return known[name]
            if not code.retriable:
                raise ClientError(f"coordinator of {what} {name}: {code.name}", code)
            budget.pause(f"coordinator: {code.name}", code)

    # --- connections

    def _connect(self, address: Address, deadline: float) -> Connection:
        found = self._connections.get(address)
        if found is None:
            wait_s = self._failed.get(address, -math.inf) + self.settings.reconnect_backoff_ms / 1000 - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            found = self._connections[address] = Connection(address, self.settings, deadline)
        return found

    def _lost(self, address: Address) -> None:
        self._failed[address] = time.monotonic()
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def metadata_values(names: Collection[str] | None, *, create: bool = False) -> dict[str, Any]:
    topics = None if names is None else [{"topic_id": None, "name": name} for name in names]
    return {"topics": topics, "allow_auto_topic_creation": create, "include_topic_authorized_operations": False}


def _has(known: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    topic = known.get(tp.topic)
    return topic is not None and tp.partition in topic.partitions


def told(address: Address, error: Exception) -> str:
    """Whom it was and what was wrong."""
    reason = error.reason if isinstance(error, ProtocolViolation) else getattr(error, "strerror", None) or str(error)
    return f"{address[0]}:{address[1]}: {reason or type(error).__name__}"
