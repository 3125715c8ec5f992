"""`audit`: whether all replicas of a cluster hold what they must, byte for byte, from the files alone.

    from kraftlite.spark.jobs.audit import audit
    report = audit({"b4": [Path("…/node-4/data")], "b5": […]}, history=["run/*.jsonl"])
    report.ok, report.findings

On Spark: every task reads a few segments (headers and CRC, 64 MB or one segment). The headers of a partition meet in one task,
which checks it and goes to the files again where replicas are compared, differ, or a history is given. What can be found has the
names in `kraftlite.audit.findings`. Best run on stopped or copied directories; on those of running brokers, what lies above
the high watermark that a broker has written down is not judged.

Source: docs/ON-DISK.md.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlite.audit.checks import check_log_dirs
from kraftlite.audit.findings import VIOLATION, Finding, PartitionResult
from kraftlite.audit.partition import check_partition, without_replica
from kraftlite.audit.scan import scan_segment
from kraftlite.local.history import HistoryError, Sent, history_files, read_history
from kraftlite.model.limits import MIB
from kraftlite.segments.directories import AuditInputError, LogDir, Replica, SegmentFiles, discover
from kraftlite.spark.workers import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES: Final = ("spark", "local")
TASK_BYTES: Final = 64 * MIB
"""Segments are put together in one task up to this size: a task costs some ten milliseconds."""
TASK_SEGMENTS: Final = 256
HISTORY_CHUNK: Final = 20_000
_ROWS: Final = "topic string, partition int, kind string, body binary"
_RESULT: Final = "body binary"
_POLL_S: Final = 0.2
Key = tuple[str, int]
OnProgress = Callable[[str, int, int], None]
"""Called with what is done, how much of it is, and of how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit. `findings` has violations first, each partition's in order of offset, and notes behind them."""

    engine: str
    brokers: Mapping[str, tuple[str, ...]]
    partitions: tuple[PartitionResult, ...]
    findings: tuple[Finding, ...]
    seconds: float
    bytes: int

    @property
    def ok(self) -> bool:
        return not any(finding.severity == VIOLATION for finding in self.findings)

    @property
    def complete(self) -> bool:
        """Return True if everything could be read."""
        return not any(finding.kind == "unread" for finding in self.findings)

    @property
    def violations(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == VIOLATION)

    def totals(self) -> dict[str, int]:
        """Return how much was read, and how many records of the history were found or had expired."""
        replicas = [replica for partition in self.partitions for replica in partition.replicas]
        return {
            "partitions": len(self.partitions),
            "replicas": len(replicas),
            "segments": sum(replica.segments for replica in replicas),
            "batches": sum(replica.batches for replica in replicas),
            "bytes": self.bytes,
            "acked": sum(partition.acked for partition in self.partitions),
            "expired": sum(partition.expired for partition in self.partitions),
        }

    def as_json(self) -> dict[str, object]:
        counts = Counter(finding.kind for finding in self.findings)
        return {
            "ok": self.ok,
            "complete": self.complete,
            "engine": self.engine,
            "brokers": {name: list(paths) for name, paths in self.brokers.items()},
            "seconds": round(self.seconds, 3),
            "totals": self.totals(),
            "counts": dict(sorted(counts.items())),
            "findings": [finding.as_json() for finding in self.findings],
            "partitions": [
                {
                    **{key: value for key, value in asdict(partition).items() if key != "findings"},
                    "violations": partition.violations,
                }
                for partition in self.partitions
            ],
        }


def audit(
    dirs: Mapping[str, Sequence[Path | str]],
    *,
    history: Iterable[str] = (),
    topics: Iterable[str] = (),
    compacted: Iterable[str] = (),
    engine: str = "spark",
    spark: SparkSession | None = None,
    on_progress: OnProgress | None = None,
) -> AuditReport:
    """Check all replicas in `dirs` (broker name -> its log directories). `history`: patterns of files, see `history.py`.

    `topics`: only these. `compacted`: topics that may have gaps, besides those that are known to. `engine` local needs no Spark.
    Raises AuditInputError (nothing to read), HistoryError, ValueError (engine), and what Spark raises when it cannot run.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; allowed are {', '.join(ENGINES)}")
    began = time.monotonic()
    say = on_progress or (lambda what, done, total: None)
    log_dirs = discover({name: [Path(p) for p in paths] for name, paths in dirs.items()}, topics=topics, compacted=compacted)
    plan = _plan(log_dirs)
    files = history_files(history)
    if not plan and not files:
        raise AuditInputError(f"there is no partition in {', '.join(log_dir.path for log_dir in log_dirs)}")
    wanted = frozenset(topics)
    here = engine == "local"
    results = _run_here(plan, files, wanted, say) if here else _run_on_spark(spark, plan, files, wanted, say)
    results.sort(key=lambda result: (result.topic, result.partition))
    findings = [*check_log_dirs(log_dirs), *(finding for result in results for finding in result.findings)]
    findings.sort(key=lambda finding: finding.severity != VIOLATION)
    brokers: dict[str, tuple[str, ...]] = {}
    for log_dir in log_dirs:
        brokers[log_dir.broker] = (*brokers.get(log_dir.broker, ()), log_dir.path)
    return AuditReport(
        engine=engine,
        brokers=brokers,
        partitions=tuple(results),
        findings=tuple(findings),
        seconds=time.monotonic() - began,
        bytes=sum(replica.bytes for result in results for replica in result.replicas),
    )


def _plan(log_dirs: Sequence[LogDir]) -> dict[Key, list[Replica]]:
    plan: dict[Key, list[Replica]] = {}
    for log_dir in log_dirs:
        for replica in log_dir.replicas:
            plan.setdefault((replica.topic, replica.partition), []).append(replica)
    return plan


def _check(plan: Mapping[Key, list[Replica]], key: Key, scans: list[Any], history: list[Sent]) -> PartitionResult:
    if key not in plan:
        return without_replica(*key, history)
    return check_partition(plan[key], scans, history)


# in this process


def _run_here(
    plan: Mapping[Key, list[Replica]], files: Sequence[str], wanted: frozenset[str], say: OnProgress
) -> list[PartitionResult]:
    history: dict[Key, list[Sent]] = {}
    for done, path in enumerate(files):
        say("reading the history", done, len(files))
        for line in _sent(path, wanted):
            history.setdefault((line.topic, line.partition), []).append(line)
    keys = sorted({*plan, *history})
    results = []
    for done, key in enumerate(keys):
        say("checking partitions", done, len(keys))
        scans = [scan_segment(segment) for replica in plan.get(key, ()) for segment in replica.segments]
        results.append(_check(plan, key, scans, history.get(key, [])))
    say("checking partitions", len(keys), len(keys))
    return results


def _sent(path: str, wanted: frozenset[str]) -> Iterator[Sent]:
    """The records of a history whose partition is known."""
    for line in read_history(path):
        if isinstance(line, Sent) and line.partition >= 0 and (not wanted or line.topic in wanted):
            yield line


# on Spark


def bundles_of(segments: Iterable[SegmentFiles]) -> list[list[SegmentFiles]]:
    """Segments put together for tasks, the largest first, so that the last task to end is a small one."""
    bundles: list[list[SegmentFiles]] = []
    size = 0
    for segment in sorted(segments, key=lambda segment: (-segment.log_bytes, segment.log_path)):
        if not bundles or size + segment.log_bytes > TASK_BYTES or len(bundles[-1]) >= TASK_SEGMENTS:
            bundles.append([])
            size = 0
        bundles[-1].append(segment)
        size += segment.log_bytes
    return bundles


def _run_on_spark(
    spark: SparkSession | None, plan: Mapping[Key, list[Replica]], files: Sequence[str], wanted: frozenset[str], say: OnProgress
) -> list[PartitionResult]:
    say("starting Spark", 0, 0)
    spark = spark or _session()
    bundles = bundles_of(segment for replicas in plan.values() for replica in replicas for segment in replica.segments)
    tasks: list[tuple[str, bytes]] = [("segments", pickle.dumps(bundle)) for bundle in bundles]
    tasks += [("history", pickle.dumps((path, wanted))) for path in files]
    tasks += [("partitions", pickle.dumps(sorted(plan)))]
    rows = _distributed(spark, tasks).mapInArrow(_read_rows, _ROWS)

    def check(key: tuple[Any, ...], table: Any) -> Any:
        import pyarrow as pa

        def answer(body: bytes) -> Any:
            return pa.table({"body": [body]}, schema=pa.schema([("body", pa.binary())]))

        topic, partition = key[0].as_py(), key[1].as_py()
        scans, history = [], []
        for kind, body in zip(table.column("kind").to_pylist(), table.column("body").to_pylist(), strict=True):
            if kind == "refused":
                return answer(body)
            if kind == "scan":
                scans.append(pickle.loads(body))
            elif kind == "history":
                history += pickle.loads(body)
        try:
            return answer(pickle.dumps(_check(plan, (topic, partition), scans, history)))
        finally:
            settle()

    checked = rows.groupBy("topic", "partition").applyInArrow(check, _RESULT)
    with _Watch(spark, say):
        collected = checked.collect()
    answers = [pickle.loads(bytes(row.body)) for row in collected]
    for answer in answers:
        if isinstance(answer, HistoryError):
            raise answer
    return answers


def _session() -> SparkSession:
    from kraftlite.spark.session import session

    return session("job", app="kraftlite audit")


def _distributed(spark: SparkSession, tasks: Sequence[tuple[str, bytes]]) -> DataFrame:
    """One row and one Spark task for each."""
    return spark.createDataFrame(
        spark.sparkContext.parallelize([(kind, bytearray(body)) for kind, body in tasks], len(tasks)), "kind string, body binary"
    )


def _read_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """In a Spark task: what segments and histories hold, a row per segment or chunk, and one for each partition."""
    import pyarrow as pa

    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("kind", pa.string()), ("body", pa.binary())])

    def row(topic: str, partition: int, kind: str, body: bytes) -> Any:
        return pa.RecordBatch.from_arrays(
            [pa.array([v], f.type) for v, f in zip((topic, partition, kind, body), schema, strict=True)], schema=schema
        )

    for batch in batches:
        for kind, body in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if kind == "segments":
                for segment in pickle.loads(body):
                    scan = scan_segment(segment)
                    yield row(segment.topic, segment.partition, "scan", pickle.dumps(scan, pickle.HIGHEST_PROTOCOL))
            elif kind == "partitions":
                for topic, partition in pickle.loads(body):
                    yield row(topic, partition, "partition", b"")
            else:
                path, wanted = pickle.loads(body)
                try:
                    for key, lines in _chunks(path, wanted):
                        yield row(*key, "history", pickle.dumps(lines, pickle.HIGHEST_PROTOCOL))
                except HistoryError as error:  # the driver raises it: out of a task it would be Spark's
                    yield row("", -1, "refused", pickle.dumps(error))
    settle()


def _chunks(path: str, wanted: frozenset[str]) -> Iterator[tuple[Key, list[Sent]]]:
    held: dict[Key, list[Sent]] = {}
    for line in _sent(path, wanted):
        lines = held.setdefault((line.topic, line.partition), [])
        lines.append(line)
        if len(lines) >= HISTORY_CHUNK:
            yield (line.topic, line.partition), lines
            held[line.topic, line.partition] = []
    yield from ((key, lines) for key, lines in held.items() if lines)


class _Watch:
    """Says how many tasks are done while Spark works."""

    def __init__(self, spark: SparkSession, say: OnProgress) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._say = say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        names: dict[int, str] = {}
        while not self._done.wait(_POLL_S):
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    name = names.setdefault(stage, "reading segments" if not names else "checking partitions")
                    self._say(name, info.numCompletedTasks, info.numTasks)


__all__ = ["AuditInputError", "AuditReport", "HistoryError", "audit"]
