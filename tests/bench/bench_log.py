"""What a log costs: appending, reading, checking what clients send: `python -m tests.bench.bench_log [--json] [--mib 64]`.

Real files below a temporary directory, page cache only. CPU time, because wall time is the neighbours' business.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kraftlite.log import codecs, scan
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, Log, OpenLog
from kraftlite.log.validation import BatchCheck
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import DirLock, FileStat
from kraftlite.runtime.trace import NullTracer

NOW_MS = 1_700_000_000_000


class _File:
    def __init__(self, path: str, create: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
        self.path = path

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        return os.pwritev(self._fd, buffers, offset)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    async def flush(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class _Disk:
    """As little as the log needs, straight to the system."""

    def open(self, path: str, *, create: bool = False) -> _File:
        return _File(path, create)

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path)  # noqa: PTH116
        except FileNotFoundError:
            return None
        return FileStat(size=found.st_size, mtime_ms=int(found.st_mtime * 1000), is_dir=Path(path).is_dir())

    def listdir(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir())

    def makedirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def mkdir(self, path: str) -> None:
        Path(path).mkdir()

    def rename(self, source: str, target: str) -> None:
        Path(source).rename(target)

    def link(self, source: str, target: str) -> None:
        Path(target).hardlink_to(source)

    def unlink(self, path: str) -> None:
        Path(path).unlink()

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        return None

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write_file_atomically(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)

    def lock(self, path: str) -> DirLock | None:
        raise NotImplementedError


def _log(directory: str, config: LogConfig | None = None, *, clean: bool = False) -> Log:
    return Log(
        OpenLog(
            disk=_Disk(),
            directory=f"{directory}/bench-0",
            tp=TopicPartition("bench", 0),
            topic_id=None,
            config=config or LogConfig(),
            log_start_offset=0,
            recovery_point=0,
            clean=clean,
            wall_ms=NOW_MS,
            tracer=NullTracer(),
        )
    )


def _measure(action: Callable[[], int], size: int) -> dict[str, float]:
    cpu = time.process_time()
    count = action()
    cpu = max(time.process_time() - cpu, 1e-9)
    return {"us_per_batch": cpu / count * 1e6, "mb_per_cpu_s": count * size / cpu / 1e6}


def run(mib: int) -> list[dict[str, object]]:
    return [row for size in (1024, 16 * 1024, 1024 * 1024) for row in run_size(size, max(8, min(20_000, (mib << 20) // size)))]


def run_size(size: int, count: int) -> list[dict[str, object]]:
    """`count` batches of about `size` bytes; pages are warmed first, on this machine cold ones cost 2 ms per MB."""
    rows: list[dict[str, object]] = []
    record = Record(None, b"x" * (size - 80))
    plain = bytearray(build_batch([record], timestamp_ms=NOW_MS))
    sequence = [0]

    def measure(what: str, action: Callable[[], int]) -> None:
        rows.append({"what": what, "bytes": size, **_measure(action, size)})

    with tempfile.TemporaryDirectory() as directory:
        log = _log(directory)

        def write(batch: bytearray, times: int) -> int:
            for _ in range(times):
                batch[0:8] = bytes(8)
                log.append_as_leader(batch, leader_epoch=0, wall_ms=NOW_MS, origin=AppendOrigin.CLIENT)
            return times

        def write_idempotent(batches: Sequence[bytearray]) -> int:
            for batch in batches:
                write(batch, 1)
            return len(batches)

        def numbered(times: int) -> list[bytearray]:
            made = []
            for _ in range(times):
                header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence[0]}
                made.append(bytearray(build_batch([record], timestamp_ms=NOW_MS, **header)))
                sequence[0] += 1
            return made

        def sweep() -> int:
            offset = 0
            while offset < count:
                offset += max(1, len(log.read(offset, 1 << 20, up_to=log.leo)) // size)
            return count

        def follow() -> int:
            copy = _log(directory + "/copy")
            copy.truncate_fully_and_start_at(0)
            while copy.leo < count:
                copy.append_as_follower(log.read(copy.leo, 1 << 20, up_to=count), leader_epoch=0)
            return count

        write(plain, count)
        log.truncate_to(0, allow_below_hw=True)
        measure("append", lambda: write(plain, count))
        log.truncate_to(0, allow_below_hw=True)
        batches = numbered(min(count, 2000))
        measure("append idempotent", lambda: write_idempotent(batches))
        write(plain, count - len(batches))
        measure("read 1 MiB", sweep)
        measure("replicate (cold pages)", follow)
        log.close()
        measure("clean start", lambda: min(count, _log(directory, clean=True).leo))
        measure("recover", lambda: min(count, _log(directory).leo))
    return rows


def run_checks() -> list[dict[str, object]]:
    """What checking a client's batch of 100-byte records costs, by codec, with each scanner there is."""
    rows: list[dict[str, object]] = []
    words = [bytes(f"{at * 7919 % 10007:08d}", "ascii") for at in range(500)]  # text of middling compressibility
    config = LogConfig(max_message_bytes=10 << 20)
    scanners = {kind.__module__: kind for kind in (scan.Scanner, scan.PythonScanner)}
    for records in (150, 10_000):
        made = [Record(None, b"".join(words[(at * 31 + n * n) % 500] for n in range(12)), (), at) for at in range(records)]
        for codec, name in enumerate(codecs.CODEC_NAMES):
            batch = build_batch(made, timestamp_ms=NOW_MS, codec=codec)
            for module, kind in scanners.items():
                times = max(5, (200_000 if kind is scan.PythonScanner else 2_000_000) // records // 10)

                def check(times: int = times, batch: bytes = batch, kind: type[scan.RecordScanner] = kind) -> int:
                    for _ in range(times):
                        assert BatchCheck(batch, config, NOW_MS, scanner=kind).finish().refusal is None
                    return times

                what = f"check {name}, {'C' if module.endswith('_scan') else 'Python'}"
                rows.append({"what": what, "bytes": records * 105, **_measure(check, records * 105)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mib", type=int, default=64)
    options = parser.parse_args()
    rows = [*run(options.mib), *run_checks()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'what':24}{'batch bytes':>12}{'us/batch':>12}{'MB/cpu-s':>12}")
    for row in rows:
        print(f"{row['what']:24}{row['bytes']:>12}{row['us_per_batch']:>12.2f}{row['mb_per_cpu_s']:>12.0f}")


if __name__ == "__main__":
    main()
