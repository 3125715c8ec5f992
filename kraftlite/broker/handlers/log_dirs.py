"""DescribeLogDirs: what lies in which directory of this broker. Source: CP-14; KIP-113, KIP-827."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kraftlite.broker.handlers.context import BrokerContext, LogDirsView
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirReplica:
    """`offset_lag`: how far this replica's leo is behind its own hw, which it can be only before it has caught up."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    error: ErrorCode
    path: str
    replicas: tuple[LogDirReplica, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    """The space of the file system; -1: not known."""


def describe_log_dirs(ctx: BrokerContext, wanted: Collection[TopicPartition] | None) -> list[LogDirDescription]:
    """All replicas for None. Every directory is listed; an offline one with KAFKA_STORAGE_ERROR and without replicas."""
    view = ctx.log_dirs
    if view is None:
        return []
    by_path: dict[str, list[LogDirReplica]] = {path: [] for path in view.online_directories()}
    for log in sorted(view.logs(), key=lambda log: log.tp):
        if wanted is not None and log.tp not in wanted:
            continue
        path = view.directory_of(log.tp)
        if path in by_path:
            by_path[path].append(LogDirReplica(tp=log.tp, size_bytes=log.size_bytes, offset_lag=max(0, log.hw - log.leo)))
    found = [_online(view, path, tuple(by_path[path])) for path in sorted(by_path)]
    found += [LogDirDescription(error=ErrorCode.KAFKA_STORAGE_ERROR, path=path) for path in sorted(view.offline_directories())]
    return found


def _online(view: LogDirsView, path: str, replicas: tuple[LogDirReplica, ...]) -> LogDirDescription:
    try:
        space = view.space_of(path)
    except OSError:
        return LogDirDescription(error=ErrorCode.KAFKA_STORAGE_ERROR, path=path)
    if space is None:
        return LogDirDescription(error=ErrorCode.NONE, path=path, replicas=replicas)
    return LogDirDescription(
        error=ErrorCode.NONE, path=path, replicas=replicas, total_bytes=space.total, usable_bytes=space.usable
    )
