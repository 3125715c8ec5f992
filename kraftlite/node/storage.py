"""The storage of a node: formatting, describing and verifying its directories.

What formatting writes: `meta.properties` in every directory; on a controller, before it, `bootstrap.checkpoint` with the first
records of the cluster, which begin with the `metadata.version`, and the bootstrap snapshot
`__cluster_metadata-0/00000000000000000000-0000000000.checkpoint`. That has the voters where they are in the log, and else the
records once more: a directory without a log or a snapshot waits for others, and Apache Kafka reads the first file alone.
Source: KIP-631, KIP-853, KIP-858; BL-14, TO-01 to TO-06, DQ-22, DQ-23.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final
from uuid import UUID

from kraftlite.broker.log_dirs_damage import fails_directory
from kraftlite.config.server import ServerConfig
from kraftlite.host.clock import HostClock
from kraftlite.host.loop import host_entropy
from kraftlite.log.batch import check_crc, iter_batches, iter_records
from kraftlite.log.checkpoints import MAX_SMALL_FILE_BYTES, read_bounded
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.features import (
    DEFAULT_LEVELS,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SUPPORTED_FEATURES,
    MetadataVersion,
    default_level,
    metadata_version_from_name,
    missing_dependency,
    supported_range,
    supports_scram,
)
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.ids import METADATA_TOPIC, random_uuid
from kraftlite.node.add_scram import scram_records
from kraftlite.node.forming import Formation
from kraftlite.node.meta_properties import (
    MAX_CLUSTER_ID_LENGTH,
    MetaProperties,
    is_cluster_id,
    path_in,
    read_meta_properties,
)
from kraftlite.raft.snapshots import (
    BOOTSTRAP_SNAPSHOT_ID,
    SnapshotBatches,
    read_snapshot_file,
    snapshot_name,
    write_snapshot_file,
)
from kraftlite.runtime.ports import Disk

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"


class StorageError(Exception):
    """A user's mistake or a damaged directory: one clear line, nothing was changed (but for directories already reported)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Formatted directories that belong together: what a node may start with."""

    cluster_id: str
    directory_ids: Mapping[str, UUID]
    """The ids by path, the metadata directory included."""
    metadata_log_dir: str
    """The directory with `__cluster_metadata-0`."""
    bootstrap: tuple[MetadataRecord, ...] | None
    """The first records of a new cluster; None on a node without the controller role."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """The log directories that cannot be read, and why: a broker goes on with the others (JB-02)."""
    is_formed: bool = True
    """The metadata directory has a bootstrap snapshot or a log: it was not formatted to wait for others (DQ-23)."""

    @property
    def metadata_dir(self) -> str:
        return metadata_partition_dir(self.metadata_log_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageInfo:
    """The facts that `storage info` prints (TO-06)."""

    directories: tuple[str, ...]
    metadata: Mapping[str, str]
    problems: tuple[str, ...]


def metadata_partition_dir(metadata_log_dir: str) -> str:
    return f"{metadata_log_dir}/{METADATA_TOPIC}-0"


# --- format -----------------------------------------------------------------------------------------------------------


def format_directories(
    disk: Disk,
    config: ServerConfig,
    cluster_id: str,
    *,
    release_version: str | None = None,
    features: Mapping[str, int] | None = None,
    ignore_formatted: bool = False,
    forming: Formation | None = None,
    add_scram: Sequence[str] = (),
    entropy: random.Random | None = None,
    wall_ms: int | None = None,
) -> list[str]:
    """Format this node's directories; returns the lines to print (TO-02, TO-03, TO-05). Raises StorageError or OSError.

    `add_scram`: credentials with which the cluster begins, as `scram_records` reads them.
    `forming`: how a quorum begins whose voters are in the log; None: they are those of the configuration.
    All checks come before the first write. With `ignore_formatted`, directories formatted for this cluster and node are skipped.
    """
    if not is_cluster_id(cluster_id):
        raise StorageError(
            f"cluster id {cluster_id[:80]!r}: allowed is a non-empty id of at most {MAX_CLUSTER_ID_LENGTH} characters without "
            "spaces, such as random-uuid prints"
        )
    level = _release(release_version, features or {})
    records = (*bootstrap_records(level, features or {}), *_credentials(level, add_scram))
    empty, broken = _unformatted(disk, config, cluster_id, ignore_formatted)
    told = [f"I/O error trying to read log directory {it}. Ignoring..." for it in broken]
    if not empty:
        return [*told, "All of the log directories are already formatted."]
    rng = host_entropy() if entropy is None else entropy
    now_ms = HostClock().wall_ms() if wall_ms is None else wall_ms
    absent = [path for directory in empty for path in _not_there(disk, directory)]
    try:
        if config.metadata_log_dir in empty:
            _write_metadata_directory(disk, config, records, forming, now_ms)
        for directory in empty:
            disk.makedirs(directory)
            directory_id = random_uuid(rng)
            if forming is not None and forming.directory_id is not None and directory == config.metadata_log_dir:
                directory_id = forming.directory_id
            properties = MetaProperties(cluster_id=cluster_id, node_id=config.node_id, directory_id=directory_id)
            # Last: a directory without it counts as not formatted, so that a torn format is simply repeated.
            disk.write_file_atomically(path_in(directory), properties.encode())
    except OSError as error:
        left = _remove(disk, absent)
        kept = f", but {', '.join(left)} could not be removed" if left else ""
        where = error.filename or ", ".join(empty)
        raise StorageError(f"{where}: {error.strerror or error}. Nothing is formatted{kept}") from None
    metadata = "metadata"
    if forming is not None and forming.voters is not None:
        metadata = "dynamic metadata" if forming.directory_id is None else "dynamic metadata voter"
    kinds = {directory: metadata if directory == config.metadata_log_dir else "data" for directory in empty}
    return [*told, *(f"Formatting {kinds[it]} directory {it} with {METADATA_VERSION} {level.name}." for it in sorted(empty))]


def _not_there(disk: Disk, directory: str) -> list[str]:
    """List what formatting may make of this directory and is not there now, the outermost first: a format that fails removes
    it."""
    home = metadata_partition_dir(directory)
    snapshot = f"{home}/{snapshot_name(BOOTSTRAP_SNAPSHOT_ID)}"
    properties = path_in(directory)
    parents = [str(parent) for parent in reversed(PurePath(directory).parents)]
    bootstrap = f"{directory}/{BOOTSTRAP_FILE}"
    paths = (
        *parents, directory, home, snapshot, f"{snapshot}.part", bootstrap, f"{bootstrap}.tmp", properties, f"{properties}.tmp",
    )  # fmt: skip
    return [path for path in paths if disk.stat(path) is None]


def _remove(disk: Disk, paths: Sequence[str]) -> list[str]:
    """Remove those that exist; returns those that could not be removed."""
    left = []
    for path in paths:
        try:
            found = disk.stat(path)
            if found is not None:
                disk.rmtree(path) if found.is_dir else disk.unlink(path)
        except OSError:
            left.append(path)
    return left


def _release(release_version: str | None, features: Mapping[str, int]) -> MetadataVersion:
    if METADATA_VERSION in features:
        if release_version is not None:
            raise StorageError(f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity.")
        release_version = str(features[METADATA_VERSION])
    if release_version is None:
        return METADATA_VERSIONS[LATEST_METADATA_VERSION]
    try:
        return metadata_version_from_name(release_version)
    except ValueError as error:
        raise StorageError(str(error)) from None


def bootstrap_records(level: MetadataVersion, features: Mapping[str, int]) -> tuple[MetadataRecord, ...]:
    """The records a new cluster begins with, `metadata.version` first. Raises StorageError for an unsupported feature."""
    records: list[MetadataRecord] = [FeatureLevelRecord(name=METADATA_VERSION, level=level.level)]
    defaults = {name: default_level(name, level.level) for name in DEFAULT_LEVELS if name != KRAFT_VERSION}
    features = {**defaults, **features}
    missing = missing_dependency({**features, METADATA_VERSION: level.level})
    if missing is not None:
        raise StorageError("{} could not be set to {} because it depends on {} level {}".format(*missing))
    for name in sorted(features):
        wanted = features[name]
        supported = supported_range(name)
        if supported is None:
            known = ", ".join(feature.name for feature in SUPPORTED_FEATURES)
            raise StorageError(f"Unsupported feature: {name}. Supported features are: {known}")
        if name != METADATA_VERSION and not supported.min_level <= wanted <= supported.max_level:
            raise StorageError(f"{name}={wanted}: allowed is a level from {supported.min_level} to {supported.max_level}")
        if name == KRAFT_VERSION and wanted > 0:
            raise StorageError(f"{name}={wanted}: the level is 1 where the voters are in the log, and else 0")
        if name not in (METADATA_VERSION, KRAFT_VERSION) and wanted > 0:
            records.append(FeatureLevelRecord(name=name, level=wanted))
    return tuple(records)


def _credentials(level: MetadataVersion, add_scram: Sequence[str]) -> list[UserScramCredentialRecord]:
    if add_scram and not supports_scram(level.level):
        raise StorageError(f"SCRAM is only supported in {METADATA_VERSION} 3.5-IV2 or later.")
    try:
        return scram_records(add_scram, secrets.token_bytes)
    except ValueError as error:
        raise StorageError(f"--add-scram: {error}") from None


def _unformatted(disk: Disk, config: ServerConfig, cluster_id: str, ignore_formatted: bool) -> tuple[list[str], list[str]]:
    """The directories to format, and those that cannot be read, without which a broker starts: that of the metadata log is none
    of them. Raises StorageError for one that is formatted, or belongs to somebody else."""
    empty: list[str] = []
    broken: list[str] = []
    seen: dict[UUID, str] = {}
    for directory in config.all_log_dirs:
        problem = _unreadable(disk, directory)
        if problem is not None:
            if directory == config.metadata_log_dir:
                raise StorageError(problem)
            broken.append(directory)
            continue
        found = _read(disk, directory)
        if found is None:
            empty.append(directory)
            continue
        _check_own(directory, found.directory_id, seen)
        if found.cluster_id != cluster_id:
            raise StorageError(f"Log directory {directory} belongs to cluster {found.cluster_id}, not to {cluster_id}")
        if found.node_id != config.node_id:
            raise StorageError(f"Log directory {directory} belongs to node {found.node_id}, not to {config.node_id}")
        if not ignore_formatted:
            raise StorageError(
                f"Log directory {directory} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
    return empty, sorted(broken)


def _unreadable(disk: Disk, directory: str) -> str | None:
    """Say why it cannot be told whether a directory is formatted; None when it can, also where there is none."""
    try:
        stat = disk.stat(directory)
        if stat is not None and not stat.is_dir:
            return f"{directory} is not a directory"
        read_meta_properties(disk, directory)
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror or error}"
    except ValueError:
        return None
    return None


def _check_own(directory: str, directory_id: UUID, seen: dict[UUID, str]) -> None:
    """Check that no directory that was seen has this id, and note it. Raises StorageError."""
    if directory_id in seen:
        raise StorageError(f"{directory} and {seen[directory_id]} have the same directory.id; one is a copy of the other")
    seen[directory_id] = directory


def _read(disk: Disk, directory: str) -> MetaProperties | None:
    try:
        return read_meta_properties(disk, directory)
    except ValueError as error:
        raise StorageError(str(error)) from None
    except OSError as error:
        raise StorageError(f"{error.filename or directory}: {error.strerror or error}") from None


def _write_metadata_directory(
    disk: Disk, config: ServerConfig, records: Sequence[MetadataRecord], forming: Formation | None, wall_ms: int
) -> None:
    directory = config.metadata_log_dir
    home = metadata_partition_dir(directory)
    if forming is None:
        if config.is_controller:
            _write_bootstrap(disk, directory, records, wall_ms)
            write_snapshot_file(disk, home, BOOTSTRAP_SNAPSHOT_ID, [records], MetadataSerde(), wall_ms)
        return
    disk.makedirs(directory)
    if config.is_controller:
        _write_bootstrap(disk, directory, records, wall_ms)
    controls = forming.controls()
    if controls:
        disk.makedirs(home)
        write_snapshot_file(disk, home, BOOTSTRAP_SNAPSHOT_ID, [], MetadataSerde(), wall_ms, controls)


def _write_bootstrap(disk: Disk, directory: str, records: Sequence[MetadataRecord], wall_ms: int) -> None:
    """Write the first records of the cluster, where Apache Kafka reads them, too, and make the directory of the log."""
    disk.makedirs(directory)
    batches = SnapshotBatches(BOOTSTRAP_SNAPSHOT_ID, MetadataSerde(), wall_ms)
    content = b"".join((batches.header(), *batches.add(records), *batches.finish()))
    disk.write_file_atomically(f"{directory}/{BOOTSTRAP_FILE}", content)
    disk.makedirs(metadata_partition_dir(directory))


# --- info -------------------------------------------------------------------------------------------------------------


def info(disk: Disk, config: ServerConfig) -> StorageInfo:
    """Tell what is there and what is wrong with it (TO-06)."""
    found: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for directory in sorted(config.all_log_dirs):
        stat = disk.stat(directory)
        if stat is None:
            problems.append(f"{directory} does not exist")
            continue
        if not stat.is_dir:
            problems.append(f"{directory} is not a directory")
            continue
        found.append(directory)
        try:
            properties = _read(disk, directory)
        except StorageError as error:
            problems.append(f"Error loading {error}")
            continue
        if properties is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = properties
        elif properties.cluster_id != first.cluster_id:
            problems.append(f"Mismatched cluster IDs between storage directories: {first.cluster_id}, {properties.cluster_id}.")
        elif properties.node_id != first.node_id:
            problems.append(f"Mismatched node IDs between storage directories: {first.node_id}, {properties.node_id}.")
    return StorageInfo(directories=tuple(found), metadata={} if first is None else first.to_map(), problems=tuple(problems))


# --- start ------------------------------------------------------------------------------------------------------------


def verify(disk: Disk, config: ServerConfig) -> Layout:
    """Check that every directory is formatted, for this node and one cluster (BL-14). Raises StorageError naming the culprit.

    A broker starts without a directory that is not there or cannot be read, as long as it has another one; not without that of
    the metadata log. Departs: Kafka refuses to start when a directory is not there at all, and starts when it cannot be read.
    """
    ids: dict[str, UUID] = {}
    problems: dict[str, str] = {}
    seen: dict[UUID, str] = {}
    cluster_id = config.cluster_id
    said_by = "CLUSTER_ID"
    for directory in config.all_log_dirs:
        problem = _unusable(disk, directory)
        if problem is not None and directory != config.metadata_log_dir:
            problems[directory] = problem
            continue
        if problem is not None and disk.stat(directory) is not None:
            raise StorageError(problem)
        properties = _read(disk, directory)
        if properties is None:
            raise StorageError(
                f"{directory} is not formatted: there is no {path_in(directory)}. "
                "Format it first: kraftlite format --config FILE --cluster-id ID"
            )
        if properties.node_id != config.node_id:
            raise StorageError(f"{path_in(directory)}: node.id={properties.node_id}, but this node has node.id={config.node_id}")
        if cluster_id is None:
            cluster_id, said_by = properties.cluster_id, path_in(directory)
        elif properties.cluster_id != cluster_id:
            raise StorageError(f"{path_in(directory)}: cluster.id={properties.cluster_id}, but {said_by} says {cluster_id}")
        _check_own(directory, properties.directory_id, seen)
        ids[directory] = properties.directory_id
    assert cluster_id is not None, "a node has at least one directory"
    check_some_usable(config, problems)
    _check_metadata_home(disk, config, problems)
    home = metadata_partition_dir(config.metadata_log_dir)
    if config.is_controller and disk.stat(home) is None:
        raise StorageError(
            f"{config.metadata_log_dir} is formatted, but its metadata log {home} is gone: restore it; where other controllers "
            "have the metadata, remove meta.properties and format the directory anew; and where Apache Kafka's kafka-storage has "
            "formatted it, and the node has never run, make that directory"
        )
    bootstrap = read_bootstrap(disk, config.metadata_log_dir) if config.is_controller else None
    return Layout(
        cluster_id=cluster_id,
        directory_ids=ids,
        metadata_log_dir=config.metadata_log_dir,
        bootstrap=bootstrap,
        problems=problems,
        is_formed=_is_formed(disk, home),
    )


def _is_formed(disk: Disk, home: str) -> bool:
    if disk.stat(home) is None:
        return False
    names = disk.listdir(home)
    logs = [disk.stat(f"{home}/{name}") for name in names if name.endswith(".log")]
    return any(name.endswith(".checkpoint") for name in names) or any(stat is not None and stat.size > 0 for stat in logs)


def _unusable(disk: Disk, directory: str) -> str | None:
    """Say why nothing can be read from a directory; None when something can."""
    try:
        stat = disk.stat(directory)
        if stat is None:
            return f"{directory} does not exist"
        if not stat.is_dir:
            return f"{directory} is not a directory"
        disk.listdir(directory)
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror or error}"
    try:
        read_meta_properties(disk, directory)
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror or error}" if fails_directory(error) else None
    except ValueError:
        return None
    return None


def check_some_usable(config: ServerConfig, problems: Mapping[str, str]) -> None:
    """Raises StorageError when there is no log directory without a problem."""
    if config.log_dirs and all(directory in problems for directory in config.log_dirs):
        raise StorageError(f"no log directory can be used: {'; '.join(problems.values())}")


def _check_metadata_home(disk: Disk, config: ServerConfig, problems: Mapping[str, str]) -> None:
    for directory in config.log_dirs:
        path = metadata_partition_dir(directory)
        if directory not in problems and directory != config.metadata_log_dir and disk.stat(path) is not None:
            raise StorageError(f"{path} exists, but the metadata log belongs in metadata.log.dir={config.metadata_log_dir}")


def read_bootstrap(disk: Disk, metadata_log_dir: str) -> tuple[MetadataRecord, ...]:
    """The bootstrap records of a controller; of a directory without any, those of the latest version. Raises StorageError."""
    partition_dir = metadata_partition_dir(metadata_log_dir)
    candidates = (f"{partition_dir}/{snapshot_name(BOOTSTRAP_SNAPSHOT_ID)}", f"{metadata_log_dir}/{BOOTSTRAP_FILE}")
    paths = [candidate for candidate in candidates if disk.stat(candidate) is not None]
    if not paths:
        return bootstrap_records(METADATA_VERSIONS[LATEST_METADATA_VERSION], {})
    path = paths[0]
    try:
        records = _snapshot_records(disk, path)
        if not records and len(paths) > 1:  # it has the voters
            path = paths[1]
            records = _snapshot_records(disk, path)
    except (Fault, ApiError, ValueError) as error:
        what = str(error).removeprefix(f"{path} is damaged: ").partition(". ")[0]
        raise StorageError(
            f"{path} is damaged, or was written by Apache Kafka, whose directories cannot be taken over: {what}. The file says "
            "how the cluster begins: remove it if this controller has run before, or format the directory anew"
        ) from None
    first = records[0] if records else None
    if not isinstance(first, FeatureLevelRecord) or first.name != METADATA_VERSION:
        raise StorageError(f"{path}: the first record must be the level of {METADATA_VERSION}")
    for record in records:
        known = supported_range(record.name) if isinstance(record, FeatureLevelRecord) else None
        if isinstance(record, FeatureLevelRecord) and record.level > (0 if known is None else known.max_level):
            raise StorageError(
                f"{path}: the cluster is to begin with {record.name}={record.level}, which this software does not have: remove "
                f"meta.properties and format the directory with kraftlite, or with a lower level of {record.name}"
            )
    return records


def _snapshot_records(disk: Disk, path: str) -> tuple[MetadataRecord, ...]:
    """Read the records of a snapshot by its usual name or by the name that it had in older formats."""
    serde = MetadataSerde()
    if not path.endswith(BOOTSTRAP_FILE):
        return tuple(record for batch in read_snapshot_file(disk, path, serde).batches() for record in batch)
    records: list[MetadataRecord] = []
    for header, batch in iter_batches(read_bounded(disk, path, MAX_SMALL_FILE_BYTES)):
        if not check_crc(batch, header):
            raise ValueError(f"the batch at offset {header.base_offset} is damaged")
        if not header.is_control:
            records.extend(serde.decode(record.value) for record in iter_records(batch) if record.value is not None)
    return tuple(records)
