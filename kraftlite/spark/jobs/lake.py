"""A directory of Parquet files that a streaming query writes exactly once, whoever reads it.

Spark's own file sink is exact only for readers that know its `_spark_metadata`; others see the files of batches that were cut
short. Here a batch is written to `_staging/`, then its files are moved to their partition's directory as
`part-BATCH-NUMBER.parquet`. A batch that runs again first removes what is there under its number, so nothing is there twice and
nothing is left over, in any reader's eyes. While a batch is being moved, or after a crash in that moment and before the restart,
a reader may see a part of it.

Small files are merged in steps that a crash cannot break: the merged file is staged, a manifest says what it replaces, the
originals go, the merged one is moved in, the manifest goes. Whoever opens the lake next finishes what a manifest says.

Paths are Hadoop's: local ones, or any that Spark can write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING: Final = "_staging"
MANIFEST: Final = "_compaction.json"
SMALL_BYTES: Final = 32 << 20
"""Files below this are merged, up to `MERGED_BYTES` together."""
MERGED_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    directory: str
    """Relative to the lake: "" or "event_date=2013-01-01"."""
    name: str
    size: int


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
        self._finish_compaction()

    def write(self, batch_id: int, rows: DataFrame | None) -> int:
        """Make `rows` the content of this batch, whatever was there of it; None: nothing. The number of files."""
        staging = f"{self.path}/{STAGING}/{batch_id:08d}"
        self._delete(staging)
        if rows is not None:
            writer = rows.write.mode("overwrite").option("compression", "zstd")
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.parquet(staging)
        prefix = f"part-{batch_id:08d}-"
        for file in self.files():
            if file.name.startswith(prefix):
                self._delete(file.path)
        staged = _files(self, staging) if rows is not None else []
        for number, file in enumerate(staged):
            directory = f"{self.path}/{file.directory}" if file.directory else self.path
            self._fs.mkdirs(self._at(directory))
            self._rename(file.path, f"{directory}/{prefix}{number:05d}.parquet")
        self._delete(staging)
        return len(staged)

    def files(self) -> list[DataFile]:
        """What readers see, by directory and name."""
        return _files(self, self.path)

    def compact(self, committed: int) -> tuple[int, int]:
        """Merge the small files of each directory; (files before, files after). Nothing may be writing.

        Only batches up to `committed` take part: one that may run again must find its files under its own number.
        """
        before = self.files()
        groups: dict[str, list[DataFile]] = {}
        for file in before:
            if file.size < SMALL_BYTES and int(file.name.split("-")[1]) <= committed:
                groups.setdefault(file.directory, []).append(file)
        for directory, files in sorted(groups.items()):
            for group in _grouped(files):
                if len(group) > 1:
                    self._merge(directory, group)
        return len(before), len(self.files())

    def _merge(self, directory: str, files: list[DataFile]) -> None:
        staging = f"{self.path}/{STAGING}/merged"
        self._delete(staging)
        rows = self._spark.read.parquet(*[file.path for file in files])
        rows.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(staging)
        (merged,) = _files(self, staging)
        _, batch, number = files[-1].name.split("-")
        target = f"{directory}/merged-{batch}-{number}".lstrip("/")
        manifest = {"merged": merged.path, "target": target, "replaces": [file.path for file in files]}
        self.write_text(MANIFEST, json.dumps(manifest))
        self._finish_compaction()

    def _finish_compaction(self) -> None:
        path = f"{self.path}/{MANIFEST}"
        text = self.read_text(MANIFEST)
        if text is None:
            return
        try:
            manifest = json.loads(text)
        except json.JSONDecodeError:
            self._delete(path)  # it was being written: nothing of it was done
            return
        for replaced in manifest["replaces"]:
            self._delete(replaced)
        if self._fs.exists(self._at(manifest["merged"])):
            self._rename(manifest["merged"], f"{self.path}/{manifest['target']}")
        self._delete(path)
        self._delete(f"{self.path}/{STAGING}/merged")

    # Hadoop's file system

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _delete(self, path: str) -> None:
        self._fs.delete(self._at(path), True)

    def _rename(self, source: str, target: str) -> None:
        if not self._fs.rename(self._at(source), self._at(target)):
            raise OSError(f"{source} could not be renamed to {target}")

    def write_text(self, name: str, text: str) -> None:
        """A small file beside the data; readers of Parquet do not see it."""
        out = self._fs.create(self._at(f"{self.path}/{name}"), True)
        try:
            out.write(bytearray(text.encode()))
            out.hsync()
        finally:
            out.close()

    def read_text(self, name: str) -> str | None:
        """None when there is no such file."""
        path = self._at(f"{self.path}/{name}")
        if not self._fs.exists(path):
            return None
        found = self._fs.open(path)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(found)
        finally:
            found.close()
        return bytes(data).decode()


def _files(lake: Lake, root: str) -> list[DataFile]:
    found: list[DataFile] = []

    def walk(path: str, relative: str) -> None:
        for status in lake._fs.listStatus(lake._at(path)):
            name = status.getPath().getName()
            if name.startswith(("_", ".")):
                continue
            if status.isDirectory():
                walk(f"{path}/{name}", f"{relative}/{name}".lstrip("/"))
            elif name.endswith(".parquet"):
                found.append(DataFile(f"{path}/{name}", relative, name, status.getLen()))

    walk(root, "")
    return sorted(found, key=lambda file: (file.directory, file.name.split("-")[1:], file.name))


def _grouped(files: list[DataFile]) -> list[list[DataFile]]:
    """Neighbours that together stay below `MERGED_BYTES`."""
    groups: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if groups[-1] and size + file.size > MERGED_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups
