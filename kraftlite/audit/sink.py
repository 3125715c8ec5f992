"""The audit of the exactly-once sink: every row that readers of committed records see against what was decided.

The rows are judged by two things that do not depend on each other: the producer id and epoch of their transaction, which the
decision names, and their stamp (`kraftlite.batch`), which says query, batch, task and index.

| kind | what is wrong |
|---|---|
| `undecided` | rows are visible that no decision names |
| `duplicated` | a row is visible a second time, or more rows than were decided |
| `torn` | of a decided transaction some rows are visible and others are not |
| `lost` | of a decided and committed transaction nothing is visible |
| `foreign` | rows of a decided task were written in another transaction than the decision names |
| `misnumbered` | a task's rows are as many as were decided, and their indexes are not those from 0 on |
| `unfinished` | note: the newest batch is decided and not committed everywhere; its query commits it, or writes it again |
| `expired` | note: rows are missing in topics that delete or compact |

The topics are read first and the decisions again afterwards, so queries may run meanwhile. A state topic is compacted, so of
batches long ago there may be no decision any more: of these only the stamps are checked.

Source: SX-07.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.exactly_once.listing import decisions, fates, newest
from kraftlite.exactly_once.outcomes import Outcome, outcomes
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.reading import bounds
from kraftlite.exactly_once.records import Decision, Entry
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition

STAMP: Final = "kraftlite.batch"
MAX_EPOCH: Final = 2**15 - 1
NOTES: Final = ("unfinished", "expired")
MAX_FINDINGS: Final = 1_000
"""More are counted and left out."""


class Finding(NamedTuple):
    """One thing that is wrong, or a note. `task` -1: the batch as a whole."""

    kind: str
    query: str
    batch: int
    task: int
    detail: str

    @property
    def is_note(self) -> bool:
        return self.kind in NOTES


class Place(NamedTuple):
    """The task that wrote a row."""

    query: str
    batch: int
    task: int


@dataclass(slots=True)
class Seen:
    """The content of the topics. `lacking`: older records may have been deleted."""

    visible: int = 0
    aborted: int = 0
    lacking: bool = False
    indexes: dict[Place, array[int]] = field(default_factory=dict)
    """The index of every committed row that has a stamp."""
    writers: dict[Place, Counter[Producer]] = field(default_factory=dict)
    rows_of: Counter[Producer] = field(default_factory=Counter)
    """Committed rows by the transaction that wrote them, with a stamp or without."""
    stamped_of: Counter[Producer] = field(default_factory=Counter)
    """Those of them that have a stamp."""
    open_of: Counter[Producer] = field(default_factory=Counter)
    """Rows whose transaction is open, or is just being ended."""

    def add(self, it: Outcome) -> None:
        if it.committed is None and it.producer is not None:
            self.open_of[it.producer] += 1
        if not it.committed:
            self.aborted += it.committed is False
            return
        self.visible += 1
        if not it.transactional or it.producer is None:
            return
        self.rows_of[it.producer] += 1
        own = next((value for name, value in reversed(it.record.headers) if name == STAMP), None)
        found = stamped(own)  # in front of it there may be those of queries that have written the row elsewhere
        if found is not None:
            place, index = found
            if place not in self.indexes:
                self.indexes[place], self.writers[place] = array("q"), Counter()
            self.stamped_of[it.producer] += 1
            self.indexes[place].append(index)
            self.writers[place][it.producer] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """The result of an audit. `queries`: that were judged; `transactions`: of decisions, that were looked for; `found`: of all
    findings the first `MAX_FINDINGS`, violations before notes."""

    queries: int
    decisions: int
    transactions: int
    visible: int
    aborted: int
    violations: int
    found: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return self.violations == 0


def stamped(value: bytes | None) -> tuple[Place, int] | None:
    """The place and index that a stamp names; None for what is no stamp."""
    parts = (value or b"").decode("ascii", "replace").split("/")
    if len(parts) != 4 or not all(it.isascii() and it.isdecimal() and len(it) < 19 for it in parts[1:]):
        return None
    query, batch, task, index = parts
    return Place(query, int(batch), int(task)), int(index)


def audit_sink(
    client: KafkaClient, topics: Sequence[str], state_topic: str, *, query: str | None = None, lacking: bool = False
) -> SinkReport:
    """Judge all queries of a state topic, or one. `topics`: all that they write to. `lacking`: old rows may be missing in them,
    since a topic is compacted. Raises ClientError, also for a query that nobody knows; UnknownTopic; BadRecord when the state
    topic has other records in it."""
    before = decisions(client, state_topic)
    ended = {name: fates(client, state_topic, it) for name, it in newest(before).items()}
    seen = look(client, topics)
    seen.lacking = seen.lacking or lacking
    after = decisions(client, state_topic)
    names = sorted({it.query for it in (*before, *after)} | {it.query for it in seen.indexes})
    if query is not None and query not in names:
        raise ClientError(f"{state_topic} has no decision of query {query}, and no row of it is visible; try kraftlite sink list")
    wanted = names if query is None else [query]
    found: list[Finding] = []
    transactions = 0
    for name in wanted:
        of_query = Judged([it for it in before if it.query == name], [it for it in after if it.query == name])
        transactions += len(of_query.promised(ended.get(name, ())))
        found += of_query.judge(name, seen, ended.get(name, ()))
    violations = sum(not it.is_note for it in found)
    return SinkReport(
        queries=len(wanted),
        decisions=sum(it.query in wanted for it in after),
        transactions=transactions,
        visible=seen.visible,
        aborted=seen.aborted,
        violations=violations,
        found=tuple(sorted(found, key=lambda it: (it.is_note, it))[:MAX_FINDINGS]),
    )


def look(client: KafkaClient, topics: Iterable[str]) -> Seen:
    """Read topics as readers of committed records do, and what these do not see. Raises ClientError, UnknownTopic."""
    seen = Seen()
    for topic in topics:
        for index in client.partitions_for(topic):
            tp = TopicPartition(topic, index)
            seen.lacking = seen.lacking or bounds(client, tp)[0] > 0
            for it in outcomes(client, tp):
                seen.add(it)
    return seen


class Judged:
    """The decisions of one query: those that were there before the topics were read, and those that were there afterwards."""

    def __init__(self, before: Sequence[Decision], after: Sequence[Decision]) -> None:
        self._before, self._after = before, after
        self._decided = {it.batch: {entry.task: entry for entry in it.entries} for it in after}
        """The last decision of each batch is the one that counts."""

    def promised(self, ended: Sequence[Fate]) -> list[tuple[int, Entry]]:
        """The (batch, transaction) that were committed before the topics were read: all but what is open of the newest batch."""
        last = {it.batch: it for it in self._before}
        found = []
        for batch, decision in last.items():
            if decision is self._before[-1]:
                found += [(batch, it) for it, fate in zip(decision.entries, ended, strict=True) if fate is Fate.COMMITTED]
            else:
                found += [(batch, it) for it in decision.entries]
        return found

    def judge(self, query: str, seen: Seen, ended: Sequence[Fate]) -> Iterator[Finding]:
        yield from self._visible(query, seen)
        yield from self._transactions(query, seen)
        promised = self.promised(ended)
        for batch, entry in promised:
            yield from self._missing(query, batch, entry, seen)
        if self._before and any(fate is not Fate.COMMITTED for fate in ended):
            told = ", ".join(f"{count} {fate.value}" for fate, count in Counter(ended).items())
            yield Finding("unfinished", query, self._before[-1].batch, -1, f"its transactions are: {told}")

    def _visible(self, query: str, seen: Seen) -> Iterator[Finding]:
        """Judge every task that has stamped rows."""
        newest_batch = max(self._decided, default=-1)
        for place in sorted(it for it in seen.indexes if it.query == query):
            indexes, writers = seen.indexes[place], seen.writers[place]
            once = len({*indexes})
            if once != len(indexes):
                yield Finding("duplicated", *place, f"{len(indexes)} rows are visible, {once} different ones")
            decided = self._decided.get(place.batch)
            if decided is None:
                if place.batch > newest_batch:
                    yield Finding(
                        "undecided", *place, f"{len(indexes)} rows are visible, and nothing was decided about the batch"
                    )
                continue
            entry = decided.get(place.task)
            if entry is None:
                yield Finding("undecided", *place, f"{len(indexes)} rows are visible, and the decision has no such task")
                continue
            others = {it: count for it, count in writers.items() if it != entry.producer}
            for producer, count in sorted(others.items()):
                told = f"{count} rows are of producer {producer.producer_id}, epoch {producer.producer_epoch}"
                yield Finding("foreign", *place, f"{told}; decided were {entry.producer_id}, epoch {entry.epoch}")
            if not others and once == len(indexes) == entry.rows and max(indexes) != entry.rows - 1:
                yield Finding("misnumbered", *place, f"{entry.rows} rows have indexes up to {max(indexes)}")

    def _transactions(self, query: str, seen: Seen) -> Iterator[Finding]:
        """Judge what the transactions have written, with stamps or without."""
        entries = {entry.producer: (batch, entry) for batch, tasks in self._decided.items() for entry in tasks.values()}
        highest: dict[int, int] = {}
        for producer in entries:
            highest[producer.producer_id] = max(producer.producer_epoch, highest.get(producer.producer_id, -1))
        for producer, rows in sorted(seen.rows_of.items()):
            if producer in entries:
                batch, entry = entries[producer]
                if rows > entry.rows:
                    yield Finding("duplicated", query, batch, entry.task, f"{rows} rows are visible, decided were {entry.rows}")
            elif rows > seen.stamped_of[producer] and producer.producer_epoch > highest.get(producer.producer_id, MAX_EPOCH):
                told = f"{rows} rows of producer {producer.producer_id}, epoch {producer.producer_epoch}, are visible"
                yield Finding("undecided", query, -1, -1, f"{told}, and no decision names this transaction")

    def _missing(self, query: str, batch: int, entry: Entry, seen: Seen) -> Iterator[Finding]:
        rows = seen.rows_of[entry.producer]
        if rows + seen.open_of[entry.producer] >= entry.rows:
            return  # those that are open yet are being committed: their marker is on its way
        kind = "expired" if seen.lacking else "torn" if rows else "lost"
        yield Finding(kind, query, batch, entry.task, f"{rows} of {entry.rows} rows are visible")
