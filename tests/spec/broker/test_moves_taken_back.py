"""JB-11: a report that follows one of a move which did not come about says which directory does not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraftlite.broker.assignments import Assignments
from kraftlite.broker.config import LogDirSpec
from kraftlite.broker.log_dirs_state import LogDirState
from kraftlite.broker.log_moves import LogMoves, Move
from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import NullTracer
from tests.spec.broker.test_assignments import ME, T, answer, image

TP = TopicPartition("t", 0)
D1, D2, D3 = (UUID(int=it) for it in (1001, 1002, 1003))


class Moves:
    """The moves of a replica that is in D1; D2 and D3 are others. What is reported becomes a wish."""

    def __init__(self) -> None:
        clock = SimpleNamespace(now_ms=lambda: 0)
        ports = cast(Any, SimpleNamespace(clock=clock, tracer=NullTracer()))
        self.logs = LogMoves(ports, lambda topic: LogConfig(), lambda state, error: None)
        self.told = Assignments(ME, self.logs.taken_back)
        self.logs.report = self.told.wish
        self.dirs = {it: LogDirState(spec=LogDirSpec(path=f"/{it.int}", directory_id=it)) for it in (D1, D2, D3)}

    def complete(self, target: UUID) -> None:
        """A move into `target`, instead of another one, has its copy complete."""
        self.cancel()
        copy = cast(Any, SimpleNamespace(leo=0, close_files=lambda: None))
        self.logs.resume(TP, T, self.dirs[D1], self.dirs[target], copy, said=False)
        move = self.logs.get(TP)
        assert isinstance(move, Move)
        self.logs.say(move)

    def cancel(self) -> None:
        move = self.logs.get(TP)
        if move is not None:
            self.logs.directory_failed(move.target)
            if move.said:
                self.told.wish(T, 0, D1)

    def say(self, now: Any) -> tuple[UUID, UUID | None]:
        """Send what waits, and return the directory that is named, and that which it is named instead of."""
        request = self.told.request(7, now)
        assert request is not None
        (item,) = request.replicas
        self.told.answered(answer(request, ErrorCode.NONE))
        return item.directory_id, item.instead_of


@pytest.fixture
def moves() -> Moves:
    return Moves()


def test_jb_11_the_directory_of_a_move_that_is_taken_back_does_not_count(moves: Moves) -> None:
    moves.complete(D2)
    assert moves.say(image(D1)) == (D2, None)
    moves.cancel()
    assert moves.say(image(D1)) == (D1, D2)


@pytest.mark.parametrize("known", [D1, D2])
def test_jb_11_nor_where_the_next_move_is_reported_before_that(moves: Moves, known: UUID) -> None:
    """Found by a simulated administrator: where D2 had failed meanwhile, the replica was taken for one that had begun anew."""
    moves.complete(D2)
    assert moves.say(image(D1)) == (D2, None)
    moves.complete(D3)
    assert moves.say(image(known)) == (D3, D2)


def test_jb_11_nor_where_another_move_is_taken_back_that_was_never_sent(moves: Moves) -> None:
    moves.complete(D2)
    assert moves.say(image(D1)) == (D2, None)
    moves.complete(D3)
    moves.cancel()
    assert moves.say(image(D2)) == (D1, D2)


def test_jb_11_a_report_that_is_repeated_says_so_again(moves: Moves) -> None:
    moves.complete(D2)
    moves.say(image(D1))
    moves.cancel()
    assert moves.told.request(7, image(D1)) is not None
    moves.told.failed()
    assert moves.say(image(D1)) == (D1, D2)


def test_jb_11_a_directory_that_a_replica_moves_into_after_all_counts(moves: Moves) -> None:
    moves.complete(D2)
    moves.say(image(D1))
    moves.cancel()
    moves.say(image(D2))
    moves.complete(D2)
    assert moves.say(image(D1)) == (D2, None)
    assert moves.logs.taken_back(T, 0) == ()
