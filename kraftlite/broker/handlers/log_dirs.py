"""The log directories of this broker: what lies where, and what shall. Source: CP-14, JB-09, JB-12; KIP-113, KIP-827."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kraftlite.broker.handlers.context import BrokerContext, LogDirsView
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirReplica:
    """`offset_lag`: how far this replica's leo is behind its own hw, which it can be only before it has caught up; of a copy, how
    far it is behind its replica's leo."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    error: ErrorCode
    path: str
    replicas: tuple[LogDirReplica, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    """The space of the file system; -1: not known."""
    is_cordoned: bool = False


async def describe_log_dirs(ctx: BrokerContext, wanted: Collection[TopicPartition] | None) -> list[LogDirDescription]:
    """All replicas for None, of which there may be many: in turns. Every directory is listed; an offline one with
    KAFKA_STORAGE_ERROR and without replicas."""
    view = ctx.log_dirs
    if view is None:
        return []
    by_path: dict[str, list[LogDirReplica]] = {path: [] for path in view.online_directories()}
    logs = [log for log in view.logs() if wanted is None or log.tp in wanted]
    async for log in ctx.turns.each(sorted(logs, key=lambda log: log.tp)):
        path = view.directory_of(log.tp)  # None for one that has gone meanwhile
        if path in by_path:
            by_path[path].append(LogDirReplica(tp=log.tp, size_bytes=log.size_bytes, offset_lag=max(0, log.hw - log.leo)))
    for path, log, lag in view.moves.copies():
        if path in by_path and (wanted is None or log.tp in wanted):
            by_path[path].append(LogDirReplica(tp=log.tp, size_bytes=log.size_bytes, offset_lag=lag, is_copy=True))
    offline = view.offline_directories()  # also one that has failed meanwhile
    found = [_online(view, path, tuple(by_path[path])) for path in sorted(by_path) if path not in offline]
    found += [LogDirDescription(error=ErrorCode.KAFKA_STORAGE_ERROR, path=path) for path in sorted(offline)]
    return found


def _online(view: LogDirsView, path: str, replicas: tuple[LogDirReplica, ...]) -> LogDirDescription:
    try:
        space = view.space_of(path)
    except OSError:
        return LogDirDescription(error=ErrorCode.KAFKA_STORAGE_ERROR, path=path)
    if space is None:
        return LogDirDescription(error=ErrorCode.NONE, path=path, replicas=replicas, is_cordoned=path in view.cordoned)
    return LogDirDescription(
        error=ErrorCode.NONE,
        path=path,
        replicas=replicas,
        total_bytes=space.total,
        usable_bytes=space.usable,
        is_cordoned=path in view.cordoned,
    )


def alter_replica_log_dir(ctx: BrokerContext, tp: TopicPartition, path: str) -> ErrorCode:
    """Have a replica in the directory at `path`, which clients may write with a slash at its end."""
    assert ctx.log_dirs is not None, "the API is offered where there are directories"
    try:
        ctx.log_dirs.moves.alter(tp, path.rstrip("/") or "/")
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
