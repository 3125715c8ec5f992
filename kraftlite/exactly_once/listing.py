"""The queries that a state topic knows: what was decided last, what became of it, and what is staged and not decided.

Everything is read from the cluster, and nothing is kept. `finish` commits what was decided and is open yet, as the driver that
has decided would; `abort` ends what a query that is gone has open.

Source: SX-06.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError, UnknownTopic
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.transactions import describe_transactions, fence_producer, list_transactions
from kraftlite.exactly_once.outcomes import outcomes
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.reading import fate_of
from kraftlite.exactly_once.records import (
    DECISIONS_PARTITION,
    DEFAULT_PREFIX,
    BadRecord,
    Decision,
    Entry,
    check_name,
    decode,
    driver_id,
)
from kraftlite.model.topic_partition import TopicPartition

ONGOING: Final = "Ongoing"
OPEN_STATES: Final = (ONGOING, "PrepareCommit", "PrepareAbort")


class Stage(NamedTuple):
    """An open transaction of a task. `start_ms`: wall clock, None when the coordinator does not say."""

    query: str
    task: int
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    start_ms: int | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """A query as the cluster knows it. `decision` None: nothing of it was ever decided. `fates`: of its entries, in their order.
    `stages`: what it has open, decided or not."""

    query: str
    decision: Decision | None
    fates: tuple[Fate, ...]
    stages: tuple[Stage, ...]

    @property
    def state(self) -> str:
        """complete, unfinished or staged: what the newest batch is, as far as the cluster knows."""
        if any(fate is not Fate.COMMITTED for fate in self.fates):
            return "unfinished"
        return "staged" if self.stages else "complete"

    @property
    def undecided(self) -> tuple[Stage, ...]:
        """The stages that are not in the decision."""
        entries = () if self.decision is None else self.decision.entries
        decided = {(it.transactional_id, it.producer_id, it.epoch) for it in entries}
        return tuple(it for it in self.stages if (it.transactional_id, it.producer_id, it.epoch) not in decided)


def queries(
    cluster: ClusterClient, records: KafkaClient, topic: str, *, prefix: str = DEFAULT_PREFIX, only: str | None = None
) -> list[QueryState]:
    """All queries in a state topic, or one, by name. `prefix`: of transactional ids of queries that have decided nothing yet.
    Raises ClientError; BadRecord for a state topic with something else in it."""
    found = newest(decisions(records, topic))
    prefixes = {prefix} | {p for decision in found.values() for p in _prefixes(decision)}
    stages = open_stages(cluster, prefixes)
    names = sorted({*found, *(stage.query for stage in stages)} if only is None else {only})
    return [
        QueryState(
            query=name,
            decision=found.get(name),
            fates=fates(records, topic, found[name]) if name in found else (),
            stages=tuple(stage for stage in stages if stage.query == name),
        )
        for name in names
        if name in found or only is None or any(stage.query == name for stage in stages)
    ]


def decisions(records: KafkaClient, topic: str) -> list[Decision]:
    """The committed decisions that a state topic still has, in the order in which they were made. Raises ClientError; BadRecord,
    which names the offset; UnknownTopic when there is no such topic."""
    if topic not in records.describe([topic]):
        raise UnknownTopic(f"there is no topic {topic}: nothing was written exactly once with it as kraftlite.sink.state.topic")
    tp = TopicPartition(topic, DECISIONS_PARTITION)
    found = []
    for it in outcomes(records, tp):
        if not it.committed:
            continue
        try:
            record = decode(it.record.key, it.record.value)
        except BadRecord as error:
            raise BadRecord(f"{tp} at offset {it.offset}: {error}") from None
        if isinstance(record, Decision):
            found.append(record)
    return found


def newest(found: Iterable[Decision]) -> dict[str, Decision]:
    """The last decision of each query: the one that counts."""
    return {decision.query: decision for decision in found}


def fates(records: KafkaClient, topic: str, decision: Decision) -> tuple[Fate, ...]:
    """The outcomes of a decision's transactions, in their order. Raises ClientError."""
    return tuple(fate_of(records, topic, decision.query, decision.batch, entry) for entry in decision.entries)


def open_stages(cluster: ClusterClient, prefixes: Iterable[str], states: Sequence[str] = OPEN_STATES) -> list[Stage]:
    """The open transactions of tasks, by query and task. Raises ClientError."""
    wanted = {}
    longest_first = sorted({*prefixes}, key=lambda it: (-len(it), it))
    for one in list_transactions(cluster, states=states):
        place = _place(one.transactional_id, longest_first)
        if place is not None:
            wanted[one.transactional_id] = place
    found = []
    for name, it in describe_transactions(cluster, sorted(wanted)).items():
        if isinstance(it, ClientError) or it.state not in states:
            continue  # ended since
        query, task = wanted[name]
        found.append(Stage(query, task, name, it.producer_id, it.producer_epoch, it.state, it.start_ms, it.partitions))
    return sorted(found)


def _place(transactional_id: str, prefixes: Iterable[str]) -> tuple[str, int] | None:
    places = (query_and_task(prefix, transactional_id) for prefix in prefixes)
    return next((place for place in places if place is not None), None)


def query_and_task(prefix: str, transactional_id: str) -> tuple[str, int] | None:
    """(query, task) of a task's transactional id; None for any other id."""
    head, slash, task = transactional_id.rpartition("/")
    if not slash or not head.startswith(f"{prefix}-") or not (task.isascii() and task.isdecimal()):
        return None
    query = head.removeprefix(f"{prefix}-")
    try:
        return check_name(query, "query"), int(task)
    except ValueError:
        return None


def _prefixes(decision: Decision) -> set[str]:
    ends = {f"-{decision.query}/{entry.task}": entry.transactional_id for entry in decision.entries}
    return {name.removesuffix(end) for end, name in ends.items() if name.endswith(end)}


def finish(records: KafkaClient, state: QueryState) -> list[tuple[Entry, bool]]:
    """Commit the transactions of the newest decision that are open, and return those that are not committed by now as False: they
    have expired, or another run is about to replace them. A driver may do the same meanwhile. Raises ClientError."""
    if state.decision is None:
        return []
    found = []
    for entry, fate in zip(state.decision.entries, state.fates, strict=True):
        if fate is Fate.OPEN:
            found.append((entry, records.end_transaction(entry.transactional_id, entry.producer, commit=True)))
        elif fate is Fate.ABORTED:
            found.append((entry, False))
    return found


def abort(cluster: ClusterClient, state: QueryState, *, prefix: str = DEFAULT_PREFIX) -> list[Stage]:
    """Fence the drivers of a query and abort what it has open, and return that. What is committed stays. Raises ClientError."""
    prefixes = {prefix} | (set() if state.decision is None else _prefixes(state.decision))
    for one in sorted(prefixes):
        fence_producer(cluster, driver_id(one, state.query))
    found = [stage for stage in open_stages(cluster, prefixes) if stage.query == state.query]
    for stage in found:
        fence_producer(cluster, stage.transactional_id)
    return found


def has_strays(before: Decision | None, batch: int, entries: Iterable[Entry]) -> bool:
    """Return whether tasks of a query may have staged for nothing before these entries of a batch were staged. `before`: the
    query's last decision before that. Each stage takes an epoch of its task's id, so a task whose epoch is not the next one of
    the decision before was staged in between."""
    if before is not None and before.batch == batch:
        return True
    known = {} if before is None else {it.transactional_id: it for it in before.entries}
    for it in entries:
        earlier = known.get(it.transactional_id)
        if earlier is None and (before is not None or it.epoch == 0):
            continue
        if earlier is None or (it.producer_id, it.epoch) != (earlier.producer_id, earlier.epoch + 1):
            return True
    return False


def abort_strays(cluster: ClusterClient, query: str, *, prefix: str = DEFAULT_PREFIX) -> list[Stage]:
    """Abort what tasks of a query have staged and nobody will ever commit, and return that: called by a driver whose batch is
    committed, before the next one begins. An earlier run that died may have had tasks that no later one has. Raises
    ClientError."""
    found = [stage for stage in open_stages(cluster, {prefix}, (ONGOING,)) if stage.query == query]
    for stage in found:
        fence_producer(cluster, stage.transactional_id)
    return found
