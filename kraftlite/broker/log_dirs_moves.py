"""The wishes of administrators for the directories of replicas, and what a former run has left of them.

Source: Kafka's ReplicaManager.alterReplicaLogDirs; KIP-113, KIP-1066; JB-09, JB-11.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from uuid import UUID

from kraftlite.broker.log_dirs_damage import OPENING_ERRORS, fails_directory, remove
from kraftlite.broker.log_dirs_placement import Placement
from kraftlite.broker.log_dirs_state import FUTURE_SUFFIX, MAX_DIRECTORY_NAME, LogDirState
from kraftlite.broker.log_moves import LogMoves
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk

Home = dict[TopicPartition, LogDirState]
_UNIQUE = 32


class ReplicaMoves:
    """`dirs`: all directories of the broker. `home`: the directory of each replica that has a log."""

    def __init__(
        self,
        dirs: Sequence[LogDirState],
        home: Home,
        placement: Placement,
        moves: LogMoves,
        failed: Callable[[LogDirState, OSError], None],
    ) -> None:
        self._dirs = dirs
        self._home = home
        self._placement = placement
        self._moves = moves
        self._failed = failed

    def alter(self, tp: TopicPartition, path: str) -> None:
        """Have the replica in the directory at `path`. Raises ApiError (JB-09): NOT_LEADER_OR_FOLLOWER where it is not here yet,
        and then it will be made there."""
        target = next((state for state in self._dirs if state.path == path), None)
        if target is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's log.dirs")
        if len(f"{tp}.{FUTURE_SUFFIX}") + _UNIQUE > MAX_DIRECTORY_NAME:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {tp} is too long for the directory of a copy")
        if not target.online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        source = self._home.get(tp)
        if source is None:
            self._check_cordoned(target)
            self._placement.pin(tp, path)
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no replica here; it would be made in {path}")
        if not source.online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is in {source.path}, which is offline")
        move = self._moves.get(tp)
        if move is not None and move.target is target:
            return
        if source is not target:
            self._check_cordoned(target)
            if not all(state.online for state in self._dirs):
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not moved while a log directory of this broker is offline"
                )
        if move is not None:
            self._moves.cancel(tp, f"{path} was asked for instead")
        if source is not target:
            self._start(tp, source, target)

    def _check_cordoned(self, target: LogDirState) -> None:
        if target.path in self._placement.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{target.path} is cordoned")

    def _start(self, tp: TopicPartition, source: LogDirState, target: LogDirState) -> None:
        topic_id = source.logs[tp].topic_id
        assert topic_id is not None, f"{tp} has no topic id"
        try:
            self._moves.start(tp, topic_id, source, target)
        except OSError as error:
            if fails_directory(error):
                self._failed(target, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"a copy of {tp} cannot be made in {target.path}: {error}") from error

    def copies(self) -> Iterator[tuple[str, Log, int]]:
        """Each copy: the path of its directory, its log, and how many offsets it is behind its replica."""
        for move in self._moves.all():
            current = move.source.logs[move.tp]
            yield move.target.path, move.copy, current.leo - move.copy.leo

    def resume(self, disk: Disk, assigned: Callable[[TopicPartition], UUID | None]) -> Generator[Callable[[], Log], Log]:
        """Go on with the copies that were found when the logs were loaded. One whose replica is in a directory that is offline
        stays where it is: it may be all that is left. Yields what opens each copy, which may take long, and is sent the log."""
        for target in self._dirs:
            found, target.copies_found = target.copies_found, {}
            for tp, (topic_id, path) in sorted(found.items()):
                source = self._home.get(tp)
                if not target.online or source is None:
                    continue
                try:
                    if source is target or source.logs[tp].topic_id != topic_id or self._moves.get(tp) is not None:
                        remove(disk, path)
                        continue
                    said = assigned(tp) == target.directory_id
                    copy = yield self._moves.opener(tp, topic_id, target, path)
                    if not (target.online and source.online):  # one has failed meanwhile: the copy stays where it is
                        copy.close_files()
                        continue
                    self._moves.resume(tp, topic_id, source, target, copy, said=said)
                    move = self._moves.get(tp)
                    if said and move is not None and move.copy.leo >= source.logs[tp].leo:
                        # It was complete, and durable, when the controller was told: a power cut may have cost the replica more.
                        self._moves.promote(move, self._home.__setitem__)
                except OSError as error:
                    self._failed(target, error)
                except OPENING_ERRORS:
                    remove(disk, path)  # a copy that cannot be read is worth nothing: the replica is whole
