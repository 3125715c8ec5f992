"""Log directories that a broker's handlers ask, without a disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import DiskSpace


@dataclass(kw_only=True)
class FakeLog:
    tp: TopicPartition
    size_bytes: int
    hw: int
    leo: int


class FakeLogDirs:
    """Directories of this broker, and which log lies where."""

    cordoned: frozenset[str] = frozenset()

    @property
    def moves(self) -> FakeLogDirs:
        return self

    def alter(self, tp: TopicPartition, path: str) -> None:
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, path)

    def copies(self) -> list[Any]:
        return []

    def __init__(self) -> None:
        self.online: dict[str, list[FakeLog]] = {"/data/1": []}
        self.offline: list[str] = []
        self.space: dict[str, DiskSpace] = {}

    def logs(self) -> Any:
        return [log for found in self.online.values() for log in found]

    def directory_of(self, tp: TopicPartition) -> str | None:
        return next((path for path, found in self.online.items() if any(log.tp == tp for log in found)), None)

    def online_directories(self) -> Sequence[str]:
        return list(self.online)

    def offline_directories(self) -> Sequence[str]:
        return self.offline

    def space_of(self, path: str) -> DiskSpace | None:
        return self.space.get(path)
