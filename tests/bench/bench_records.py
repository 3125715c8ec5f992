"""Record batches to Arrow and back, beside what reads them in pure Python: CPU time of one core, the best of several runs.

Records have a key of 16 bytes and a value of 40 to 128, so that no two of their neighbours are alike in length.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from kraftlite.log.batch import Record, build_batch

NOW_MS: Final = 1_700_000_000_000
BATCH_BYTES: Final = {"1 KB": 1_000, "16 KB": 16_000, "1 MB": 1_000_000}
TOTAL_BYTES: Final = 4_000_000
"""Of the data that is parsed in one call: a fetch."""
REPETITIONS: Final = 7
ROWS: Final = 10_000
"""Encoded in one call: what Spark hands to a writer."""


class _TP(NamedTuple):
    topic: str
    partition: int


def log_of(batch_bytes: int, headers: int = 0, codec: int = 0) -> tuple[bytes, int]:
    """(bytes, records) of batches of about `batch_bytes` each, before compression."""
    rng = random.Random(batch_bytes)
    parts: list[bytes] = []
    offset = used = 0
    pool = rng.randbytes(1 << 16)
    while used < TOTAL_BYTES:
        found: list[Record] = []
        size = 61
        while size < batch_bytes:
            at, length = rng.randrange(1 << 15), rng.randrange(40, 129)
            extra = tuple((f"name-{index}", b"content") for index in range(headers))
            found.append(Record(rng.randbytes(16), pool[at : at + length], extra, timestamp_delta=len(found) // 3))
            size += length + 24 + 16 * headers
        parts.append(build_batch(found, base_offset=offset, timestamp_ms=NOW_MS, codec=codec))
        offset += len(found)
        used += size
    return b"".join(parts), offset


def best_s(action: Callable[[], Any], repetitions: int = REPETITIONS) -> float:
    """CPU seconds."""
    times = []
    for _ in range(repetitions):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)


def records() -> dict[str, Any]:
    from kraftlite.columns.records import COLUMNS, parse_records
    from kraftlite.columns.scan import scan_batches

    def parse(data: bytes, count: int, columns: tuple[str, ...] = COLUMNS[:7], parser: str = "numpy") -> None:
        parsed = parse_records(memoryview(data), tp=_TP("bench", 0), start=0, end=1 << 60, columns=columns, parser=parser)
        if sum(batch.num_rows for batch in parsed.batches) != count:
            raise RuntimeError("records are missing")

    figures: dict[str, Any] = {}
    for name, size in BATCH_BYTES.items():
        data, count = log_of(size)
        took = best_s(lambda data=data, count=count: parse(data, count))  # type: ignore[misc]
        figures[f"records: parse batches of {name}, MB/s per core"] = round(len(data) / took / 1e6)
        if find_spec("numba"):
            compiled = best_s(lambda data=data, count=count: parse(data, count, parser="numba"))  # type: ignore[misc]
            figures[f"records: parse batches of {name} with numba, MB/s per core"] = round(len(data) / compiled / 1e6)
        scanned = best_s(lambda data=data: scan_batches(data))  # type: ignore[misc]
        figures[f"records: scan batches of {name}, MB/s per core"] = round(len(data) / scanned / 1e6)
        if size == BATCH_BYTES["16 KB"]:
            for peer, read in (("kafka-python", _kafka_python), ("kio", _kio)):
                theirs = best_s(lambda read=read, data=data, count=count: read(data, count), 3)  # type: ignore[misc]
                figures[f"records: parse batches of {name}, times {peer}"] = round(theirs / took, 1)
    data, count = log_of(BATCH_BYTES["16 KB"], headers=2)
    took = best_s(lambda: parse(data, count, COLUMNS))
    figures["records: parse with 2 headers each, MB/s per core"] = round(len(data) / took / 1e6)
    for codec, name in ((3, "lz4"), (4, "zstd")):
        data, count = log_of(BATCH_BYTES["16 KB"], codec=codec)
        took = best_s(lambda data=data, count=count: parse(data, count))  # type: ignore[misc]
        figures[f"records: parse {name}, M records/s per core"] = round(count / took / 1e6, 2)
    return figures | _encode()


def _encode() -> dict[str, Any]:
    import pyarrow as pa

    from kraftlite.columns.encode import encode_records

    rng = random.Random(1)
    table = pa.table(
        {
            "key": [rng.randbytes(16) for _ in range(ROWS)],
            "value": [rng.randbytes(rng.randrange(40, 129)) for _ in range(ROWS)],
            "timestamp": pa.array([NOW_MS + row // 3 for row in range(ROWS)], pa.int64()),
        }
    )
    stamp = "batch", f"{1:029}", pa.array([b"1"] * ROWS)
    figures = {}
    for name, size in (("16 KB", 16_384), ("1 MB", 1 << 20)):
        took = best_s(lambda size=size: encode_records(table, timestamp_ms=NOW_MS, max_batch_bytes=size))  # type: ignore[misc]
        figures[f"records: encode batches of {name}, M records/s per core"] = round(ROWS / took / 1e6, 2)
    took = best_s(lambda: encode_records(table, timestamp_ms=NOW_MS, max_batch_bytes=1 << 20, stamp=stamp))
    figures["records: encode with one header each, M records/s per core"] = round(ROWS / took / 1e6, 2)
    return figures


def _kafka_python(data: bytes, count: int) -> None:
    from kafka.record import MemoryRecords

    found = 0
    log = MemoryRecords(data)
    while (batch := log.next_batch()) is not None:
        if not batch.validate_crc():
            raise RuntimeError("bad CRC")
        found += sum(1 for _ in batch)
    if found != count:
        raise RuntimeError("records are missing")


def _kio(data: bytes, count: int) -> None:
    from kio.records.readers import read_batch

    found = position = 0
    while position < len(data):
        batch, size = read_batch(data, position)
        found += len(batch.records)
        position += size
    if found != count:
        raise RuntimeError("records are missing")
