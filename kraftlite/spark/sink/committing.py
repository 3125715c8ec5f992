"""The driver's side of the sink that writes exactly once: from the reports of tasks to the protocol.

Source: SX-01 to SX-05.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient, client_for
from kraftlite.client.settings import ClientSettings
from kraftlite.exactly_once import protocol_core
from kraftlite.exactly_once.driver import KafkaCluster
from kraftlite.exactly_once.listing import abort_strays, has_strays
from kraftlite.exactly_once.protocol_core import CommitFailed, Staging
from kraftlite.exactly_once.reading import DecisionReader
from kraftlite.exactly_once.records import Entry
from kraftlite.spark.sink.producing import ExactlyOnce, SinkSettings

log = logging.getLogger("kraftlite.spark")

STRAYS_MS: Final = 5_000
"""The time that a commit tries at most for each answer about what earlier runs have left: it is done whatever that says."""
MAX_READERS: Final = 16
_readers: dict[tuple[ClientSettings, str, str], DecisionReader] = {}
"""The decisions that this process has read, by cluster, topic and query: the next batch reads on from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run of an output: its name, and the end of the decisions when it began."""

    run: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of an output that one attempt of a task makes. `run`: of the whole output, drawn by its driver; `since`: where the
    decisions ended then."""

    query: str
    batch: int
    run: str
    task: int
    since: int

    @property
    def stamp(self) -> str:
        return f"{self.query}/{self.batch}/{self.task}"


@dataclass
class Committed(WriterCommitMessage):
    """The report of a task: rows, and bytes of encoded batches; where it writes exactly once, its part, and its transaction
    unless it had no rows."""

    rows: int
    bytes: int
    part: Part | None = None
    entry: Entry | None = None


def begin_run(settings: SinkSettings) -> Begun:
    """A new run of an output, which its driver begins. Raises ClientError."""
    exactly, since = settings.exactly_once, 0
    if exactly is not None:
        since = KafkaCluster(client_for(settings.client), exactly.state_topic, exactly.timeout_ms).decisions_end()
    return Begun(run=str(uuid4()), since=since)


def staging_of(client: KafkaClient, settings: ExactlyOnce, part: Part) -> Staging:
    """The staging of a task."""
    return Staging(
        KafkaCluster(client, settings.state_topic, settings.timeout_ms),
        prefix=settings.prefix,
        query=part.query,
        batch=part.batch,
        run=part.run,
        since=part.since,
        task=part.task,
    )


def commit_staged(settings: SinkSettings, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
    """Make an output visible. `batch`: the one that Spark names. Raises CommitFailed, ClientError."""
    reports = [it for it in messages if isinstance(it, Committed) and it.part is not None]
    parts = [it.part for it in reports if it.part is not None]
    if not parts or len(parts) < len(messages):
        raise CommitFailed(f"{len(messages) - len(parts)} of {len(messages)} tasks did not tell what they staged")
    first = parts[0]
    same = all((it.query, it.batch, it.run) == (first.query, first.batch, first.run) for it in parts)
    if not same or len({it.task for it in parts}) < len(parts) or batch not in (None, first.batch):
        raise CommitFailed(f"the reports of tasks are not those of one run of batch {batch} of {first.query}")
    exactly = settings.exactly_once
    assert exactly is not None
    key = (settings.client, exactly.state_topic, first.query)
    known = _readers.pop(key, None)
    reader = known or DecisionReader(first.query)
    client = client_for(settings.client)
    decision = protocol_core.commit(
        KafkaCluster(client, exactly.state_topic, exactly.timeout_ms, reader),
        prefix=exactly.prefix,
        query=first.query,
        batch=first.batch,
        run=first.run,
        staged=[it.entry for it in reports if it.entry is not None],
    )
    entries = () if decision is None else decision.entries
    if known is None or has_strays(reader.last, first.batch, entries):  # an earlier process may have staged in other tasks
        _abort_strays(settings.client, exactly, first.query)
    _readers[key] = reader
    while len(_readers) > MAX_READERS:
        del _readers[next(iter(_readers))]


def _abort_strays(client: ClientSettings, exactly: ExactlyOnce, query: str) -> None:
    """Abort what an earlier run has staged in tasks that this one has not, which would hold readers until the timeout. Nothing
    depends on it."""
    limit_ms = min(client.retry_timeout_ms, STRAYS_MS)
    hasty = replace(client, retry_timeout_ms=limit_ms, request_timeout_ms=min(client.request_timeout_ms, limit_ms))
    try:
        with ClusterClient(hasty) as cluster:
            for stage in abort_strays(cluster, query, prefix=exactly.prefix):
                log.info("%s was open since an earlier run of the query, and is aborted", stage.transactional_id)
    except ClientError as error:
        log.warning("query %s: what earlier runs have left open could not be looked for: %s", query, error)


def abort_staged(settings: SinkSettings, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Abort what tasks have reported. Nothing depends on it: what stays open is aborted when the output is made again, and at the
    latest by its timeout."""
    entries = [it.entry for it in messages if isinstance(it, Committed) and it.entry is not None]
    exactly = settings.exactly_once
    assert exactly is not None
    try:
        protocol_core.discard(KafkaCluster(client_for(settings.client), exactly.state_topic, exactly.timeout_ms), entries)
    except ClientError as error:
        log.warning("%s failed, and what it staged could not be aborted yet: %s", what, error)
