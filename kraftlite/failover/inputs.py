"""The inputs of the report about one run of a cluster: its metadata log, the nodes' traces, the clients' histories. No pyspark.

A run is a local cluster's directory (`kraftlite up --data-dir`), which has a ledger of the faults that were caused, or any
directory below which there are `__cluster_metadata-0`, of Apache Kafka too, `trace.jsonl` and history files (see `history.py`).
All of its clocks are taken to be one.

Source: CM-26, ML-16; `kraftlite.local.story` (one topic's story, for people).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from kraftlite.local.history import Injected, Sent, read_history
from kraftlite.local.ledger import read_faults
from kraftlite.local.state import STATE_NAME, LocalError, load
from kraftlite.log.control import LeaderChange
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.obs.faults import SILENCING, Fault
from kraftlite.postmortem.reading import Entry, read_metadata_log
from kraftlite.segments.directories import METADATA_TOPIC, AuditInputError

I64 = npt.NDArray[np.int64]
TRACE_NAME: Final = "trace.jsonl"
DEFAULT_HISTORY: Final = "*.jsonl"
_EVENTS: Final = frozenset(
    {
        "controller.activated",
        "controller.broker_session_expired",
        "fetcher.request_failed",
        "node.starting",
        "node.stopping",
        "partition.first_produce_acknowledged",
        "partition.hw_resumed",
        "raft.fetch_timed_out",
        "raft.leader_elected",
        "raft.leader_resigned",
    }
)
"""The events of a trace that are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of one partition; `before` is None where it was made."""

    time_ms: int
    offset: int
    topic: str
    partition: int
    before: PartitionRegistration | None
    after: PartitionRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """`what`: registered, fenced, unfenced, leaving (controlled shutdown), or leads (the quorum, in `epoch`)."""

    time_ms: int
    offset: int
    node: int
    what: str
    epoch: int = -1


@dataclass(slots=True)
class Acks:
    """The acknowledgements of one partition: when its records were acknowledged, sorted, and when some were refused (wall
    milliseconds)."""

    times: I64
    errors: I64


@dataclass(slots=True, kw_only=True)
class RunData:
    """Everything about one run, in order of time."""

    name: str
    moves: list[Move] = field(default_factory=list)
    nodes: list[NodeChange] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    acks: dict[tuple[str, int], Acks] = field(default_factory=dict)
    end_ms: int = 0
    faults: list[Fault] = field(default_factory=list)
    """Those of the ledger, which may be the reason for what was noticed."""
    has_history: bool = False
    """True when some client's history is there: without one nobody knows what was acknowledged."""
    lost_errors: int = 0
    """Records that were refused and of which nobody knows the partition."""

    def partitions(self) -> list[tuple[str, int]]:
        return sorted({(move.topic, move.partition) for move in self.moves})

    def cause(self, change: NodeChange, node: int, active: int | None, began_ms: int, source: str) -> tuple[str, str, int]:
        """Return what a failure that began so is called, where that is known from, and when it began.

        A fault of the ledger counts that kept the node from those who missed it: a broker from the active controller, a
        controller from anybody."""
        others = range(1 << 31) if change.what != "fenced" or active is None else (active,)
        fault = next((it for it in self.faults if it.disturbs(node, began_ms, change.time_ms, others)), None)
        if fault is None:
            return "fenced" if change.what == "fenced" else "replaced", source, began_ms
        return fault.kind, f"ledger: {fault.by}", max(fault.asked_ms, began_ms)

    def events(self, name: str, since_ms: int, until_ms: int) -> Iterator[dict[str, Any]]:
        """Events of a name with since <= time <= until."""
        return (e for e in self.trace if e["event"] == name and since_ms <= e["ts"] <= until_ms)


def read_run(directory: str | Path, history: Sequence[str] = ()) -> RunData:
    """Read all there is. `history`: patterns, relative to the run (default `*.jsonl`). Raises AuditInputError, HistoryError."""
    path = Path(directory)
    if not path.is_dir():
        raise AuditInputError(f"{path}: there is no such directory")
    logs, traces = _sources(path)
    run = RunData(name=str(path))
    found = [log for log in logs if log.is_dir()]
    if not found:
        raise AuditInputError(f"{path}: there is no {METADATA_TOPIC}-0 in or below it")
    _, entries = max((_entries(log) for log in found), key=lambda read: read[0])
    if not entries:
        raise AuditInputError(f"{path}: its metadata logs are empty")
    _replay(run, entries)
    _read_trace(run, traces)
    _read_histories(run, _histories(path, history))
    _read_ledger(run, path)
    run.end_ms = max([run.end_ms, *(int(acks.times[-1]) for acks in run.acks.values() if acks.times.size)])
    return run


def _sources(path: Path) -> tuple[list[Path], list[Path]]:
    if (path / STATE_NAME).exists():
        try:
            cluster = load(path, copied=True)
        except LocalError as error:
            raise AuditInputError(str(error)) from None
        return (
            [Path(node.data_dir) / f"{METADATA_TOPIC}-0" for node in cluster.nodes],
            [node.trace_path for node in cluster.nodes],
        )
    return sorted(path.rglob(f"{METADATA_TOPIC}-0")), sorted(path.rglob(TRACE_NAME))


def _histories(path: Path, patterns: Sequence[str]) -> list[str]:
    found: set[Path] = set()
    for pattern in patterns or (DEFAULT_HISTORY,):
        absolute = Path(pattern).is_absolute()
        base, relative = (Path("/"), str(Path(pattern).relative_to("/"))) if absolute else (path, pattern)
        matched = {file for file in base.glob(relative) if file.is_file() and not file.name.startswith(TRACE_NAME)}
        if patterns and not matched:
            raise AuditInputError(f"{pattern}: there is no such file in {path}")
        found |= matched
    return sorted(map(str, found))


def _entries(directory: Path) -> tuple[tuple[int, int], list[Entry]]:
    """(epoch, offset) of the last record of a metadata log, and all of its records; what is behind damage is left out."""
    found = list(read_metadata_log(directory))
    last = found[-1] if found else None
    return (-1, -1) if last is None else (last.epoch, last.offset), found


def _replay(run: RunData, entries: Sequence[Entry]) -> None:
    topics: dict[UUID, str] = {}
    state: dict[tuple[UUID, int], PartitionRegistration] = {}
    for entry in entries:
        record = entry.record
        run.end_ms = max(run.end_ms, entry.time_ms)
        if isinstance(record, TopicRecord):
            topics[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            topics.pop(record.topic_id, None)
        elif isinstance(record, ClearElrRecord):
            for key, before in list(state.items()):
                cleared = before.without_elr() if record.topic_name in ("", topics.get(key[0])) else None
                state[key] = before if cleared is None else cleared
        elif isinstance(record, PartitionRecord | PartitionChangeRecord):
            key = (record.topic_id, record.partition)
            known = state.get(key)
            if isinstance(record, PartitionRecord):
                after = PartitionRegistration.from_record(record)
            elif known is not None:
                after = known.merge(record)
            else:
                continue  # of a topic from before what is left of the log
            state[key] = after
            name = topics.get(record.topic_id)
            if name is not None:
                run.moves.append(
                    Move(
                        time_ms=entry.time_ms,
                        offset=entry.offset,
                        topic=name,
                        partition=record.partition,
                        before=known,
                        after=after,
                    )
                )
        else:
            _replay_node(run, entry)


def _replay_node(run: RunData, entry: Entry) -> None:
    record = entry.record

    def note(node: int, what: str, epoch: int = -1) -> None:
        run.nodes.append(NodeChange(time_ms=entry.time_ms, offset=entry.offset, node=int(node), what=what, epoch=epoch))

    if isinstance(record, RegisterBrokerRecord):
        note(record.broker_id, "registered")
    elif isinstance(record, BrokerRegistrationChangeRecord):
        if isinstance(record.fenced, bool):
            note(record.broker_id, "fenced" if record.fenced else "unfenced")
        if record.in_controlled_shutdown is True:
            note(record.broker_id, "leaving")
    elif isinstance(record, LeaderChange):
        note(record.leader_id, "leads", entry.epoch)


def _read_trace(run: RunData, paths: Sequence[Path]) -> None:
    from kraftlite.obs.timeline import merge_timelines

    run.trace = [event for event in merge_timelines(paths) if event["event"] in _EVENTS and isinstance(event.get("node"), int)]


def _read_histories(run: RunData, paths: Sequence[str]) -> None:
    times: dict[tuple[str, int], list[int]] = {}
    errors: dict[tuple[str, int], list[int]] = {}
    for path in paths:
        for line in read_history(path):
            if isinstance(line, Injected):
                run.injected.append(line)
                continue
            run.has_history = True
            if isinstance(line, Sent) and line.partition < 0:
                run.lost_errors += 1
            elif line.time_ms >= 0:
                (errors if line.offset < 0 else times).setdefault((line.topic, line.partition), []).append(line.time_ms)
    run.injected.sort(key=lambda event: (event.time_ms, event.node))
    for key in sorted({*times, *errors}):
        run.acks[key] = Acks(np.sort(np.array(times.get(key, []), np.int64)), np.sort(np.array(errors.get(key, []), np.int64)))


_ONE_FAULT_MS: Final = 10_000
"""A fault that a history and the ledger both tell within this time is one: a history notes it when the process is gone."""


def _read_ledger(run: RunData, path: Path) -> None:
    """The kills and pauses that `kraftlite kill`, `pause` and others did, and their ends, unless a history lists them."""
    listed = list(run.injected)
    run.faults = read_faults(path)
    for fault in run.faults:
        if fault.kind not in SILENCING or fault.failed is not None:
            continue
        if any(
            it.event == fault.kind and it.node == fault.node and abs(it.time_ms - fault.asked_ms) < _ONE_FAULT_MS for it in listed
        ):
            continue
        run.injected.append(Injected(fault.kind, fault.node, fault.asked_ms, by=str(fault.by)))
        if fault.ended_ms is not None:
            end = "resume" if fault.ended_how == "resume" else "start"
            run.injected.append(Injected(end, fault.node, fault.ended_ms, by=str(fault.ended_by)))
    run.injected.sort(key=lambda event: (event.time_ms, event.node))
