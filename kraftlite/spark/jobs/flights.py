"""The delays that the demonstration computes from the flights, and the same in plain Python to compare them with."""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kraftlite.spark.jobs.aggregate import Windows
from kraftlite.spark.jobs.decode import Format

SCHEMA: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int, "
    "hour int, minute int, time_hour string"
)
FORM: Final = Format(kind="json", schema=SCHEMA, event_time="time_hour")
WINDOWS: Final = Windows(group_by=("carrier",), value="dep_delay", length="1 hour", watermark="400 days", mode="update")
"""The data set is not in order of time: behind January comes October. Nothing may be too late."""
Key = tuple[str, int]
"""Carrier, and where its hour starts in epoch seconds."""


@dataclass(slots=True)
class Delays:
    """The delays of one carrier in one hour, in minutes."""

    rows: int = 0
    values: int = 0
    sum: int = 0
    min: int | None = None
    max: int | None = None

    def add(self, delay: int | None) -> None:
        self.rows += 1
        if delay is None:
            return
        self.values += 1
        self.sum += delay
        self.min = delay if self.min is None else min(self.min, delay)
        self.max = delay if self.max is None else max(self.max, delay)

    def agrees(self, row: Mapping[str, Any]) -> bool:
        """Return True if a row of the job says the same."""
        mean = self.sum / self.values if self.values else None
        said = (int(row["rows"]), int(row["values"]), row["sum"], row["min"], row["max"])
        mine = (self.rows, self.values, self.sum if self.values else None, self.min, self.max)
        if said != mine:
            return False
        return row["mean"] is None if mean is None else row["mean"] is not None and math.isclose(row["mean"], mean, rel_tol=1e-9)


def expected(archive: Path) -> dict[Key, Delays]:
    """From the CSV file, in this process."""
    found: dict[Key, Delays] = {}
    for row in _rows(archive):
        start = int(datetime.fromisoformat(row["time_hour"]).timestamp())
        delay = row["dep_delay"]
        found.setdefault((row["carrier"], start), Delays()).add(None if delay in ("", "NA") else int(delay))
    return found


def differences(truth: Mapping[Key, Delays], results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return in words where the results differ from the truth; empty when they agree in everything."""
    wrong = []
    seen: dict[Key, None] = {}
    for row in results:
        start = row["window_start"]
        if isinstance(start, str):
            start = datetime.fromisoformat(start)
        key = (row["carrier"], int((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()))
        if key in seen:
            wrong.append(f"{_named(key)} is there twice")
        seen[key] = None
        if key not in truth:
            wrong.append(f"{_named(key)} has no flight")
        elif not truth[key].agrees(row):
            wrong.append(f"{_named(key)} is {dict(row)} and should be {truth[key]}")
    wrong += [f"{_named(key)} is missing" for key in truth if key not in seen]
    return wrong


def grown(results: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[int, dict[str, Mapping[str, Any]], list[str]]:
    """Count results that come in order, by key, and keep the last one of each. Every result of a window has more rows than the
    one before, so what was written twice is seen: return in words where that is not so."""
    count, last, wrong = 0, dict[str, Mapping[str, Any]](), list[str]()
    for key, row in results:
        count += 1
        before = last.get(key)
        if before is not None and int(row["rows"]) <= int(before["rows"]):
            wrong.append(f"{key} has {before['rows']} rows, and behind that {row['rows']}: a result is there twice")
        last[key] = row
    return count, last, wrong


def _named(key: Key) -> str:
    return f"{key[0]} at {datetime.fromtimestamp(key[1], UTC):%Y-%m-%d %H:%M}"


def _rows(archive: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
