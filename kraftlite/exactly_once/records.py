"""The records of the state topic: what was decided about a batch of a query, and what a task of it has staged.

The topic is compacted. Partition 0 has the decisions, by the name of the query, in transactions of the queries' drivers; the
other partitions have the markers, by query and task, each the last record of the transaction in which the task wrote its rows.
Values are JSON, so that `kraftlite consume` shows them to people:

    Q    {"kraftlite.sink": 1, "kind": "decision", "query": Q, "batch": N, "run": …, "entries": […]}
    Q/t  {"kraftlite.sink": 1, "kind": "marker", "query": Q, "task": t, "batch": N, "run": …, "rows": …, "fingerprint": …}

A record of this version has these fields and no others. Whoever reads one checks every value: the topic is open to everybody.

Source: SX-01.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from kraftlite.model.limits import MAX_INT32, MAX_INT64, MAX_OFFSET, MIB
from kraftlite.model.producer import Producer

STATE_TOPIC: Final = "__kraftlite_sink_state"
STATE_PARTITIONS: Final = 9
DECISIONS_PARTITION: Final = 0
MAX_RECORD_BYTES: Final = 8 * MIB
"""The longest decision: one of some 25,000 tasks."""
DEFAULT_PREFIX: Final = "kraftlite"

_VERSION_FIELD: Final = "kraftlite.sink"
_VERSION: Final = 1
_MAX_EPOCH: Final = 2**15 - 1
_MAX_NAME: Final = 200
_MAX_ID: Final = 3 * _MAX_NAME
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_RUN: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}")


class BadRecord(ValueError):
    """A record that is not one of the state topic's; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The transaction in which a task staged its rows, and where its marker is.

    `fingerprint`: 32 hexadecimal digits made of the rows, the same in whatever order they came. `marker_partition` and
    `marker_offset`: of the state topic.
    """

    task: int
    transactional_id: str
    producer_id: int
    epoch: int
    rows: int
    fingerprint: str
    marker_partition: int
    marker_offset: int

    def __post_init__(self) -> None:
        _whole("task", self.task, MAX_INT32)
        name = self.transactional_id
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID or not name.isascii():
            raise BadRecord(f"transactional_id is {_shown(name)}: allowed are 1 to {_MAX_ID} ASCII characters")
        _whole("producer_id", self.producer_id, MAX_INT64)
        _whole("epoch", self.epoch, _MAX_EPOCH)
        _check_rows(self.rows, self.fingerprint)
        _whole("marker_partition", self.marker_partition, MAX_INT32, least=DECISIONS_PARTITION + 1)
        _whole("marker_offset", self.marker_offset, MAX_OFFSET)

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The transactions that make up batch `batch` of a query, one for each task that has rows, in the order of tasks. They are
    committed once this record is. `run`: the attempt at the batch that has decided."""

    query: str
    batch: int
    run: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        _check_batch(self.query, self.batch, self.run)
        tasks = [entry.task for entry in self.entries]
        if any(later <= earlier for earlier, later in pairwise(tasks)):
            raise BadRecord("entries are not in ascending order of their tasks")
        for entry in self.entries:
            ending = task_id("", self.query, entry.task)
            if not entry.transactional_id.endswith(ending) or entry.transactional_id == ending:
                raise BadRecord(f"transactional_id is {_shown(entry.transactional_id)}: allowed is one that ends in {ending}")

    @property
    def key(self) -> str:
        return self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The last record of the transaction in which a task staged its rows of a batch."""

    query: str
    task: int
    batch: int
    run: str
    rows: int
    fingerprint: str

    def __post_init__(self) -> None:
        _check_batch(self.query, self.batch, self.run)
        _whole("task", self.task, MAX_INT32)
        _check_rows(self.rows, self.fingerprint)

    @property
    def key(self) -> str:
        return f"{self.query}/{self.task}"


_FIELDS: Final[dict[type, frozenset[str]]] = {
    kind: frozenset(it.name for it in fields(kind)) for kind in (Entry, Decision, Marker)
}


def check_name(name: str, what: str) -> str:
    """The name itself: of a query, a job, or a prefix. Raises ValueError."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{what}={_shown(name)}: allowed are 1 to {_MAX_NAME} letters, digits, '.', '_' and '-'")
    return name


def driver_id(prefix: str, query: str) -> str:
    """The transactional id with which the drivers of a query decide, and fence one another."""
    return f"{prefix}-{query}"


def task_id(prefix: str, query: str, task: int) -> str:
    """The transactional id with which a task of a query stages. The slash, which no query's name has, keeps it apart from the
    driver's of every other query."""
    return f"{prefix}-{query}/{task}"


def marker_partition(query: str, task: int, partitions: int) -> int:
    """The partition of a state topic that has the markers of a task. Raises ValueError for a topic of less than two."""
    if partitions < 2:
        raise ValueError(f"a state topic has at least 2 partitions, and this one has {partitions}")
    return 1 + zlib.crc32(f"{query}/{task}".encode()) % (partitions - 1)


def encode(record: Decision | Marker) -> tuple[bytes, bytes]:
    """(key, value). Raises BadRecord for a decision that is longer than the topic takes."""
    kind = "decision" if isinstance(record, Decision) else "marker"
    value = json.dumps({_VERSION_FIELD: _VERSION, "kind": kind, **asdict(record)}, separators=(",", ":")).encode()
    if len(value) > MAX_RECORD_BYTES:
        raise BadRecord(f"a {kind} of {len(value)} bytes: at most {MAX_RECORD_BYTES} are allowed; let the batch have fewer tasks")
    return record.key.encode(), value


def decode(key: bytes | None, value: bytes | None) -> Decision | Marker | None:
    """None: what the key stands for is deleted. Raises BadRecord for anything that `encode` would not have written."""
    if key is None:
        raise BadRecord("a record without a key")
    if value is None:
        return None
    if len(value) > MAX_RECORD_BYTES:
        raise BadRecord(f"a value of {len(value)} bytes: at most {MAX_RECORD_BYTES} are allowed")
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"a value that is not JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise BadRecord("a value that is not a JSON object")
    version = found.pop(_VERSION_FIELD, None)
    if type(version) is not int or version != _VERSION:
        raise BadRecord(f"{_VERSION_FIELD} is {_shown(version)}: this release reads version {_VERSION}")
    kind = found.pop("kind", None)
    record = _decision(found) if kind == "decision" else _made(Marker, found) if kind == "marker" else None
    if not isinstance(record, Decision | Marker):
        raise BadRecord(f"kind is {_shown(kind)}: allowed is decision or marker")
    if record.key.encode() != key:
        raise BadRecord(f"the key is {_shown(key)}, and the value is for {record.key!r}")
    return record


def _decision(found: dict[str, Any]) -> Any:
    entries = found.get("entries")
    if not isinstance(entries, list):
        raise BadRecord(f"entries is {_shown(entries)}: allowed is an array")
    return _made(Decision, {**found, "entries": tuple(_made(Entry, it) for it in entries)})


def _made(kind: type[Any], found: Any) -> Any:
    if not isinstance(found, Mapping) or found.keys() != _FIELDS[kind]:
        raise BadRecord(f"a {kind.__name__.lower()} has the fields {', '.join(sorted(_FIELDS[kind]))}, and no others")
    return kind(**found)


def _check_batch(query: object, batch: object, run: object) -> None:
    if not isinstance(query, str) or _NAME.fullmatch(query) is None:
        raise BadRecord(f"query is {_shown(query)}: allowed are 1 to {_MAX_NAME} letters, digits, '.', '_' and '-'")
    _whole("batch", batch, MAX_INT64)
    if not isinstance(run, str) or _RUN.fullmatch(run) is None:
        raise BadRecord(f"run is {_shown(run)}: allowed are 1 to 64 letters, digits and '-'")


def _check_rows(rows: object, fingerprint: object) -> None:
    _whole("rows", rows, MAX_INT64, least=1)
    if not isinstance(fingerprint, str) or _FINGERPRINT.fullmatch(fingerprint) is None:
        raise BadRecord(f"fingerprint is {_shown(fingerprint)}: allowed are 32 hexadecimal digits")


def _whole(name: str, value: object, most: int, *, least: int = 0) -> None:
    if type(value) is not int or not least <= value <= most:
        raise BadRecord(f"{name} is {_shown(value)}: allowed is a whole number from {least} to {most}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
