"""The driver of `log_moves`: gives each move its turns, flushes a copy before it counts, and waits for metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final

from kraftlite.broker.log_dirs_damage import OPENING_ERRORS
from kraftlite.broker.log_dirs_state import LogDirState
from kraftlite.broker.log_moves import LogMoves, Move
from kraftlite.log.log import Log
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports, Tasks

REST_MS: Final = 20
"""The pause when no move has anything to copy."""


async def open_copies(steps: Generator[Callable[[], Log], Log], tasks: Tasks) -> None:
    """Run `ReplicaMoves.resume`, and open the copies off the loop."""
    try:
        opener = next(steps)
        while True:
            try:
                copy = await tasks.run_blocking(opener)
            except OPENING_ERRORS as error:
                opener = steps.throw(error)
            else:
                opener = steps.send(copy)
    except StopIteration:
        pass


class MoveDriver:
    """Runs until cancelled. `is_assigned(move)`: metadata places the replica in the move's target."""

    def __init__(
        self,
        ports: Ports,
        moves: LogMoves,
        failed: Callable[[LogDirState, OSError], None],
        is_assigned: Callable[[Move], bool],
        home: Callable[[TopicPartition, LogDirState], None],
    ) -> None:
        self._ports = ports
        self._moves = moves
        self._failed = failed
        self._is_assigned = is_assigned
        self._home = home
        self._wakeup: asyncio.Future[None] | None = None
        moves.on_started = self._wake

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> None:
        while True:
            moves = self._moves.all()
            if not moves:
                self._wakeup = asyncio.get_running_loop().create_future()
                try:
                    await self._wakeup
                finally:
                    self._wakeup = None
                continue
            busy = False
            for move in moves:
                busy |= await self._advance(move)
                await self._ports.clock.sleep(0)
            if not busy:
                await self._ports.clock.sleep(REST_MS)

    async def _advance(self, move: Move) -> bool:
        """One turn of a move; returns whether there was something to copy."""
        if self._moves.step(move):
            return True
        if not self._moves.is_complete(move):
            return False
        try:
            await move.copy.flush()
        except OSError as error:
            if move.target.online:
                self._failed(move.target, error)
            return False
        if not self._moves.is_complete(move):
            return True  # written to meanwhile
        if not move.said:
            self._moves.say(move)
        elif self._is_assigned(move):
            self._moves.promote(move, self._home)
        return False
