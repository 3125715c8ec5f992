"""The lists of partitions that a person gives in a file of JSON: read strictly, so that no number is rounded, cut or made up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kraftlite.cli.files import read_text
from kraftlite.model.limits import MAX_INT32, MAX_INT64


def read_rows(path: str | Path, name: str, *, version: int | None = None) -> list[dict[str, Any]]:
    """The objects of `{name: [{…}, …]}`; with `version` also where that is its "version", or there is none. Raises OSError, and
    ValueError in words for everything else."""
    try:
        found = json.loads(read_text(path))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if version is not None and isinstance(found, dict) and found.get("version", version) != version:
        raise ValueError(f"Not supported version field value {_shown(found['version'])}")
    rows = found.get(name) if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise ValueError(f'there is no list "{name}"')
    for row in rows:
        if not isinstance(row, dict):
            raise ValueError(f'"{name}" has {_shown(row)} where an object is allowed')
    return rows


def read_offsets(path: str | Path) -> list[tuple[tuple[str, int], int]]:
    """An offset for each of the "partitions"; -1: the high watermark. Raises as `read_rows` does."""
    return [(partition_of(row), number_of(row, "offset", -1, MAX_INT64)) for row in read_rows(path, "partitions", version=1)]


def topic_of(row: dict[str, Any]) -> str:
    name = row.get("topic")
    if not isinstance(name, str) or not name:
        raise ValueError(f'"topic" is {_shown(name)}; allowed is a name')
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f'"topic" is {name!a}, which is no text') from None
    return name


def partition_of(row: dict[str, Any]) -> tuple[str, int]:
    return topic_of(row), number_of(row, "partition", 0, MAX_INT32)


def number_of(row: dict[str, Any], key: str, least: int, most: int) -> int:
    return _number(row.get(key), key, least, most)


def numbers_of(row: dict[str, Any], key: str) -> list[int]:
    """A list of ids."""
    found = row.get(key)
    if not isinstance(found, list):
        raise ValueError(f'"{key}" is {_shown(found)}; allowed is a list of numbers')
    return [_number(one, key, 0, MAX_INT32) for one in found]


def texts_of(row: dict[str, Any], key: str) -> list[str]:
    """A list of texts; empty where there is none."""
    found = row.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f'"{key}" is {_shown(found)}; allowed is a list of texts')
    return found


def named_twice(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(item for item, count in Counter(partitions).items() if count > 1)


def _number(value: object, key: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f'"{key}" is {_shown(value)}; allowed is a whole number from {least} to {most}')
    return value


def _shown(value: object) -> str:
    """Short, whatever it is."""
    if value is None:
        return "missing"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INT64:
        return "a greater number" if value > 0 else "a smaller number"
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 60 else f"{text[:60]}…"
