"""The output of a batch becomes visible exactly once: it is staged by tasks, decided by a driver, ended, and healed.

**Stage.** An attempt of a task takes over the task's transactional id, writes its rows in one transaction, behind them a marker,
and leaves the transaction open. A task never commits one; an attempt that fails aborts what it has written. One that finds,
behind taking over, that the batch has been decided since its run began, by this driver or another, writes nothing: nobody would
end its transaction, which holds readers back.

**Decide.** The driver takes over the query's own id, which fences the drivers before it, and reads the query's last decision. For
a batch that nobody has decided, it records the transactions that make it up. Only then it **ends** them. So rows become visible
for entries of a decision only, and all decisions of a query are in one order.

**Heal.** A batch that was decided before has run in part, and runs again. Every transaction of that decision is brought to an
end, and its marker tells which. What was committed is kept, if this run has staged the same rows: its own copies are aborted. The
rest is what this run has staged. Rows that were committed and are not among this run's cannot be taken back: that is an error.

No timeout is relied upon: a transaction that has timed out cannot be ended, so the batch fails and is healed when it runs again.

Source: SX-01 to SX-04; docs/spec/spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from kraftlite.exactly_once.records import Decision, Entry, Marker, driver_id, task_id
from kraftlite.model.producer import Producer


class Fate(Enum):
    """The outcome of a transaction, as the partition of its marker has it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Cluster(Protocol):
    """The cluster, so far as the protocol needs it. Everything raises when its outcome is not known."""

    def take_over(self, transactional_id: str) -> Producer:
        """Fence every other producer of the id. Each of their transactions has ended, in every partition, when it returns."""
        ...

    def mark(self, transactional_id: str, producer: Producer, marker: Marker) -> tuple[int, int]:
        """Write a marker in the producer's open transaction. Returns its partition of the state topic, and its offset."""
        ...

    def decided(self, query: str, batch: int, since: int) -> bool:
        """Return whether a decision about the batch, or a later one, has been written at this position or behind it, and has not
        been aborted."""
        ...

    def last_decision(self, query: str) -> Decision | None:
        """The newest decision that was committed. The driver's id has been taken over before."""
        ...

    def record(self, transactional_id: str, producer: Producer, decision: Decision) -> None:
        """Write a decision in a transaction of its own, and commit it."""
        ...

    def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> bool:
        """Return whether the transaction has ended so, now or earlier. False: it never will."""
        ...

    def fate(self, query: str, batch: int, entry: Entry) -> Fate:
        """Look up what has become of a staged transaction by its marker. What is not OPEN is final."""
        ...


class CommitFailed(Exception):
    """A batch that is not committed as a whole. It may run again; the text says why it failed."""


class Overtaken(CommitFailed):
    """A newer batch of the query has been decided."""


class SplitChanged(CommitFailed):
    """Some of the batch is committed, and is not what this run has staged: only a run with the old options can complete it."""


class TooLate(CommitFailed):
    """An attempt of a task begins to stage when its batch has been decided without it: a zombie, or a slow twin."""


class Staging:
    """One attempt of a task: `begin` before its first row, `mark` when its last one is acknowledged. No rows: neither. `abort` is
    for an attempt that has failed, and reports nothing. `since`: the end of the decisions when the run began."""

    def __init__(self, cluster: Cluster, *, prefix: str, query: str, batch: int, run: str, since: int, task: int) -> None:
        self._cluster = cluster
        self._query, self._batch, self._run, self._since, self._task = query, batch, run, since, task
        self.transactional_id = task_id(prefix, query, task)
        self._producer: Producer | None = None

    def begin(self) -> Producer:
        """Fence the attempts before this one, and return what stamps the rows. Raises TooLate. A driver that decides behind the
        look for its decision finds this attempt's transaction in the place of the one that it was told of, and fails."""
        producer = self._cluster.take_over(self.transactional_id)
        if self._cluster.decided(self._query, self._batch, self._since):
            raise TooLate(
                f"batch {self._batch} of {self._query}: it has been decided since this run of it began, and this attempt of task "
                f"{self._task} writes nothing: another attempt was there before it, or another driver runs the query"
            )
        self._producer = producer
        return producer

    def mark(self, rows: int, fingerprint: str) -> Entry:
        """End the staging, and leave the transaction open."""
        assert self._producer is not None, "begin comes first"
        marker = Marker(query=self._query, task=self._task, batch=self._batch, run=self._run, rows=rows, fingerprint=fingerprint)
        partition, offset = self._cluster.mark(self.transactional_id, self._producer, marker)
        return Entry(
            task=self._task,
            transactional_id=self.transactional_id,
            producer_id=self._producer.producer_id,
            epoch=self._producer.producer_epoch,
            rows=rows,
            fingerprint=fingerprint,
            marker_partition=partition,
            marker_offset=offset,
        )

    def abort(self) -> None:
        """Abort what was written. Nothing depends on it: the next attempt does the same, and at last the timeout."""
        if self._producer is not None:
            self._cluster.end(self.transactional_id, self._producer, commit=False)


def commit(cluster: Cluster, *, prefix: str, query: str, batch: int, run: str, staged: Iterable[Entry]) -> Decision | None:
    """Make what the tasks of a batch have staged visible, once. `staged`: of each task that had rows. When it returns, the rows
    that are committed for the batch are those of the decision that it returns; None: there are none. Raises CommitFailed, and
    what the cluster raises; then the batch is to run again."""
    mine = {entry.task: entry for entry in sorted(staged, key=lambda it: it.task)}
    driver = driver_id(prefix, query)
    producer = cluster.take_over(driver)
    last = cluster.last_decision(query)
    if last is not None and last.batch > batch:
        raise Overtaken(
            f"batch {batch} of {query}: batch {last.batch} has been decided already. Another driver runs this query, or its "
            "checkpoint is an old copy"
        )
    kept: Mapping[int, Entry] = {}
    if last is not None and last.batch == batch:
        kept = _heal(cluster, last, mine)
    entries = tuple(kept.get(task) or mine[task] for task in mine)
    decided = last is not None and (last.batch, last.run, last.entries) == (batch, run, entries)
    decision = Decision(query=query, batch=batch, run=run, entries=entries) if entries else None
    if decision is not None and not decided:
        cluster.record(driver, producer, decision)
    _end(cluster, f"batch {batch} of {query}", [entry for entry in entries if entry.task not in kept])
    _discard_copies(cluster, [mine[task] for task in kept])
    return decision


def _discard_copies(cluster: Cluster, copies: Sequence[Entry]) -> None:
    """Abort this run's copies of what is kept, and what another attempt has begun in their place before the run was decided."""
    for entry in copies:
        if not cluster.end(entry.transactional_id, entry.producer, commit=False):
            cluster.take_over(entry.transactional_id)


def discard(cluster: Cluster, staged: Sequence[Entry]) -> None:
    """Abort what was staged, where that is not too late."""
    for entry in staged:
        cluster.end(entry.transactional_id, entry.producer, commit=False)


def _heal(cluster: Cluster, last: Decision, mine: Mapping[int, Entry]) -> dict[int, Entry]:
    """Bring every transaction of an earlier decision about the same batch to its end. Returns those that are committed."""
    kept: dict[int, Entry] = {}
    fenced = []
    for old in last.entries:
        if mine.get(old.task) == old:
            continue  # this run itself has decided so, and asks once more
        fate = cluster.fate(last.query, last.batch, old)
        if fate is Fate.OPEN:
            cluster.take_over(old.transactional_id)
            fate = cluster.fate(last.query, last.batch, old)
            fenced.append(old.task)
        if fate is Fate.OPEN:
            raise CommitFailed(f"{old.transactional_id}: its transaction has ended, and the state topic does not show how")
        if fate is Fate.COMMITTED:
            kept[old.task] = old
    changed = [task for task, old in kept.items() if not _same_rows(old, mine.get(task))]
    if changed:
        discard(cluster, list(mine.values()))
        raise SplitChanged(
            f"batch {last.batch} of {last.query} is at least partly written, and its rows are others now, or split into tasks "
            f"otherwise than before (task {', '.join(map(str, changed))}). Nothing more was written. Start it with the options "
            "and settings that it had: those that decide the number of tasks and which rows each one has. Two outputs of one "
            "batch (foreachBatch) need a kraftlite.sink.job.id each"
        )
    stopped = [task for task in fenced if task in mine and task not in kept]
    if stopped:
        raise CommitFailed(
            f"batch {last.batch} of {last.query}: another run staged after this one (task {', '.join(map(str, stopped))})"
        )
    return kept


def _same_rows(old: Entry, new: Entry | None) -> bool:
    return new is not None and (old.rows, old.fingerprint) == (new.rows, new.fingerprint)


def _end(cluster: Cluster, what: str, entries: Sequence[Entry]) -> None:
    refused = [entry.task for entry in entries if not cluster.end(entry.transactional_id, entry.producer, commit=True)]
    if refused:
        raise CommitFailed(
            f"{what}: what was staged by task {', '.join(map(str, refused))} cannot be committed any more. It was open for "
            "longer than kafka.transaction.timeout.ms, or another attempt of the task or another driver of the query has come "
            "after it. Run it again: it is completed then"
        )
