"""Filters that make the offset ranges of a batch query narrower.

A range is by offset, a filter by row: what is pushed down only leaves out what no filter would keep, and Spark applies every
filter again. Upper bounds of time are not pushed down: records behind the first one of a time may be older.
"""

from __future__ import annotations

import contextlib
import datetime
import operator
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import Range
from kraftlite.spark.source.planning import Cluster

CLAIMS_S: Final = 7 * 86_400
"""No query runs longer."""
MAX_CLAIM_BYTES: Final = 1024
"""A claim is the id of a query."""
COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`kind` is the name of Spark's filter class."""

    column: str
    kind: str
    value: Any


def understood(condition: Any) -> Condition | None:
    """A filter of Spark's as a condition on one of `COLUMNS`; None for others."""
    kind = type(condition).__name__
    attribute: Any = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in COLUMNS or (kind not in _COMPARE and kind != "In"):
        return None
    value = condition.value
    if value is None:
        return None
    if kind == "In":  # a comparison with null is never true
        value = tuple(it for it in value if it is not None)
    return Condition(attribute[0], kind, value)


def narrow(ranges: list[Range], conditions: list[Condition], cluster: Cluster) -> list[Range]:
    """The ranges without what the conditions exclude."""
    kept = [it for it in ranges if all(_may_hold(condition, it.tp) for condition in conditions)]
    for condition in conditions:
        if condition.column == "offset":
            kept = [_by_offset(condition, it) for it in kept]
        elif condition.column == "timestamp":
            kept = _from_time(condition, kept, cluster)
    return [it for it in kept if it.size > 0]


def claim(plan: str, query: str, within: Path | None = None) -> None:
    """Let one query only use the ranges that filters have left. Raises ValueError for another one.

    A loaded DataFrame that is used again, with other filters or none, is given the same tasks by Spark: rows would be missing.
    Claims are files of this machine, `within` a directory, else that of temporary files: on a cluster it is the second task on
    one machine that is refused.
    """
    directory = (within or Path(tempfile.gettempdir())) / f"kraftlite-spark-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / plan
    if not path.exists():
        _forget_old(directory)
        mine = directory / f"{plan}.{os.getpid()}"
        mine.write_text(query)
        with contextlib.suppress(FileExistsError):
            os.link(mine, path)  # with its content, or not at all
        mine.unlink()
    with path.open("rb") as file:
        found = file.read(MAX_CLAIM_BYTES + 1)
    if len(found) > MAX_CLAIM_BYTES:
        raise ValueError(f"{path} has more than {MAX_CLAIM_BYTES} bytes, so no query has written it; delete it and try again")
    if found != query.encode():
        raise ValueError(
            'a DataFrame that was loaded with option "pushdown" is for one query: Spark gives the ranges of its filters to every '
            "other one. load() again for each query, or leave the option out"
        )


def _forget_old(directory: Path) -> None:
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > CLAIMS_S:
                path.unlink()


def _may_hold(condition: Condition, tp: TopicPartition) -> bool:
    if condition.column not in ("topic", "partition"):
        return True
    actual = tp.topic if condition.column == "topic" else tp.partition
    return actual in condition.value if condition.kind == "In" else _COMPARE[condition.kind](actual, condition.value)


def _by_offset(condition: Condition, whole: Range) -> Range:
    kind, value = condition.kind, condition.value
    first, end = whole.start, whole.end
    if kind == "In":
        first, end = min(value, default=end), max(value, default=first - 1) + 1
    elif kind in ("EqualTo", "EqualNullSafe"):
        first, end = value, value + 1
    elif kind.startswith("GreaterThan"):
        first = value + (kind == "GreaterThan")
    else:
        end = value + (kind == "LessThanOrEqual")
    return Range(whole.tp, max(whole.start, first), min(whole.end, end))


def _from_time(condition: Condition, ranges: list[Range], cluster: Cluster) -> list[Range]:
    """Nothing before the first record of a time is as late. A time before 1970 leaves nothing out: Kafka takes -1 and -2
    for the ends of a log."""
    if condition.kind.startswith("LessThan"):
        return ranges
    values = condition.value if condition.kind == "In" else (condition.value,)
    since = min((it for it in map(_milliseconds, values) if it is not None), default=None)
    if since is None or since < 0 or not ranges:
        return ranges
    found = cluster.list_offsets({it.tp: since for it in ranges})
    return [Range(it.tp, max(it.start, found[it.tp].offset), it.end) for it in ranges if found[it.tp].offset >= 0]


def _milliseconds(value: Any) -> int | None:
    """Rounded down. A time without a zone is one of the driver's zone, as PySpark hands it over. -1, so that nothing is left out:
    one that Python cannot move to another zone, at the ends of its calendar."""
    if not isinstance(value, datetime.datetime):
        return None
    try:
        return (value.astimezone(datetime.UTC) - _EPOCH) // datetime.timedelta(milliseconds=1)
    except (OverflowError, ValueError):
        return -1
