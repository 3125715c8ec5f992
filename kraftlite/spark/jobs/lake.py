"""A directory of Parquet files that a streaming query writes exactly once, whoever reads it.

Spark's own file sink is exact only for readers that know its `_spark_metadata`; others see the files of batches that were cut
short. Here a batch is written to `_staging/`, then its files are moved to their partition's directory as
`part-BATCH-NUMBER.parquet`. A batch that runs again first removes what is there under its number, so nothing is there twice and
nothing is left over, in any reader's eyes. While a batch is being moved, or after a crash in that moment and before the restart,
a reader may see a part of it.

Small files are merged in steps that a crash cannot break: the merged ones are staged, a manifest says what they replace, the
originals go, the merged ones are moved in, the manifest goes. Whoever opens the lake next finishes what a manifest says.

Paths are Hadoop's: local ones, or any that Spark can write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING: Final = "_staging"
MANIFEST: Final = "_compaction.json"
SMALL_BYTES: Final = 32 << 20
"""Files below this are merged."""
MAX_ROWS: Final = 10_000_000
"""The largest number of rows that one merged file has."""
MAX_MERGED: Final = 10_000
"""The largest number of files that one compaction takes; the next one takes others."""
MAX_TEXT_BYTES: Final = 64 << 20
"""The size of a small file beside the data; a manifest of `MAX_MERGED` files with paths of some kilobytes has less."""


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    directory: str
    """Relative to the lake: "" or "event_date=2013-01-01"."""
    name: str
    size: int

    @property
    def batch(self) -> int:
        return int(self.name.split("-")[1])


class Lake:
    """One directory. Only one query writes to it at a time; batches are numbered by that query."""

    def __init__(self, spark: SparkSession, path: str, *, partition_by: Sequence[str] = ()) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self.path = path.rstrip("/")
        self.partition_by = tuple(partition_by)
        root = self._at(self.path)
        self._fs: Any = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self._fs.mkdirs(root)
        self._written = False
        self._made: set[str] = set()
        self._finish_compaction()

    def write(self, batch_id: int, rows: DataFrame | None) -> int:
        """Make `rows` the content of this batch, whatever was there of it; None: nothing. The number of files."""
        staging = f"{self.path}/{STAGING}/{batch_id:08d}"
        self._delete(staging)
        if rows is not None:
            self._write(rows, staging)
        prefix = f"part-{batch_id:08d}-"
        if not self._written:  # only the first batch of a run may be one that ran before
            for file in self.files():
                if file.name.startswith(prefix):
                    self._delete(file.path)
        self._written = True
        staged = _files(self, staging) if rows is not None else []
        for number, file in enumerate(staged):
            self._move(file.path, file.directory, f"{prefix}{number:05d}.parquet")
        self._delete(staging)
        return len(staged)

    def _write(self, rows: DataFrame, staging: str) -> None:
        """One file for each directory, if they are as many rows as one task can take."""
        writer = rows.repartition(*self.partition_by).write if self.partition_by else rows.write
        writer = writer.mode("overwrite").option("compression", "zstd").option("maxRecordsPerFile", MAX_ROWS)
        (writer.partitionBy(*self.partition_by) if self.partition_by else writer).parquet(staging)

    def files(self) -> list[DataFile]:
        """Return the files that readers see, by directory and name."""
        return _files(self, self.path)

    def compact(self, committed: int) -> tuple[int, int]:
        """Merge the small files of each directory; (files before, files after). Nothing may be writing.

        Only batches up to `committed` take part: one that may run again must find its files under its own number.
        """
        before = self.files()
        groups: dict[str, list[DataFile]] = {}
        for file in before:
            if file.size < SMALL_BYTES and file.batch <= committed:
                groups.setdefault(file.directory, []).append(file)
        small: dict[str, list[DataFile]] = {}
        room = MAX_MERGED
        for directory, files in groups.items():
            some = _whole_batches(files, room)
            if len(some) > 1:
                small[directory] = some
                room -= len(some)
        if small:
            self._merge(small)
        return len(before), len(self.files())

    def _merge(self, groups: Mapping[str, Sequence[DataFile]]) -> None:
        """All of them with one job of Spark. What a merged file is called comes from the newest that is in it."""
        staging = f"{self.path}/{STAGING}/merged"
        self._delete(staging)
        files = [file.path for group in groups.values() for file in group]
        rows = self._spark.read.option("basePath", self.path).parquet(*files)
        self._write(rows if self.partition_by else rows.coalesce(1), staging)
        moves = []
        for number, merged in enumerate(_files(self, staging)):
            _, batch, _ = groups[merged.directory][-1].name.split("-")
            moves.append((merged.path, merged.directory, f"merged-{batch}-{number:05d}.parquet"))
        self.write_text(MANIFEST, json.dumps({"replaces": files, "moves": moves}))
        self._finish_compaction()

    def _finish_compaction(self) -> None:
        text = self.read_text(MANIFEST)
        if text is None:
            return
        try:
            manifest = json.loads(text)
        except json.JSONDecodeError:
            manifest = {"replaces": [], "moves": []}  # it was being written: nothing of it was done
        targets = [f"{self.path}/{directory}/{name}" for _, directory, name in manifest["moves"]]
        moved = {self._fs.makeQualified(self._at(target)).toString() for target in targets}
        for replaced in manifest["replaces"]:
            if replaced not in moved:  # or what has been moved in is deleted, when it has the name of one that it replaces
                self._delete(replaced)
        for source, directory, name in manifest["moves"]:
            if self._fs.exists(self._at(source)):
                self._delete(f"{self.path}/{directory}/{name}")
                self._move(source, directory, name)
        self._delete(f"{self.path}/{MANIFEST}")
        self._delete(f"{self.path}/{STAGING}/merged")

    # Hadoop's file system

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _delete(self, path: str) -> None:
        self._fs.delete(self._at(path), True)

    def _move(self, source: str, directory: str, name: str) -> None:
        """Into a directory of the lake."""
        there = f"{self.path}/{directory}".rstrip("/")
        if there not in self._made:
            self._fs.mkdirs(self._at(there))
            self._made.add(there)
        if not self._fs.rename(self._at(source), self._at(f"{there}/{name}")):
            raise OSError(f"{source} could not be moved to {there}/{name}")

    def write_text(self, name: str, text: str) -> None:
        """Write a small file beside the data; readers of Parquet do not see it. Raises ValueError for a text that could not be
        read again."""
        data = text.encode()
        self._check_size(name, len(data))
        out = self._fs.create(self._at(f"{self.path}/{name}"), True)
        try:
            out.write(bytearray(data))
            out.hsync()
        finally:
            out.close()

    def read_text(self, name: str) -> str | None:
        """Read a small file beside the data; None when there is none. Raises ValueError for one that is too large."""
        path = self._at(f"{self.path}/{name}")
        if not self._fs.exists(path):
            return None
        self._check_size(name, int(self._fs.getFileStatus(path).getLen()))
        found = self._fs.open(path)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(found)
        finally:
            found.close()
        return bytes(data).decode()

    def _check_size(self, name: str, size: int) -> None:
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"{self.path}/{name} has {size} bytes; allowed are at most {MAX_TEXT_BYTES}")


def _whole_batches(files: list[DataFile], room: int) -> list[DataFile]:
    """Return the first files, at most `room`, and all or none of a batch: the merged file gets the name of its last batch."""
    if len(files) <= room:
        return files
    return [it for it in files[:room] if it.batch != files[room].batch]


def _files(lake: Lake, root: str) -> list[DataFile]:
    """In order of directory, batch and number."""
    found: list[DataFile] = []
    at = lake._at(root)
    above = len(lake._fs.makeQualified(at).toString().rstrip("/")) + 1
    listed = lake._fs.listFiles(at, True)
    while listed.hasNext():
        status = listed.next()
        path = status.getPath().toString()
        *directories, name = path[above:].split("/")
        if name.endswith(".parquet") and not any(it.startswith(("_", ".")) for it in (*directories, name)):
            found.append(DataFile(path, "/".join(directories), name, status.getLen()))
    return sorted(found, key=lambda file: (file.directory, file.name.split("-")[1:], file.name))
