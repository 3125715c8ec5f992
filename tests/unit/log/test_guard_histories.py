"""TP-04, TP-05, TP-06, TP-10: random questions, answers, markers and changes of leader: a batch begins a transaction in a log
only behind a question that nothing has overtaken, and the others are told a code that they can go on with."""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.log.batch import parse_header
from kraftlite.log.guards import Guard, TransactionTerms
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.log_support import NOW, batch, end_txn, open_log

PRODUCER = 1


class Asked(NamedTuple):
    """A question whose answer has not come yet. `at`: how many events there had been."""

    epoch: int
    sequence: int
    leader_epoch: int
    adds: bool
    guard: Guard
    at: int


class World:
    """One producer of many epochs at one log, and the events that end questions: its appends and markers, in order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: Log = open_log()
        self.asked: list[Asked] = []
        self.ending: list[tuple[int, int | None]] = []
        """(number of the event, epoch of a marker; None: a batch)."""
        self.events = self.leader_epoch = 0
        self.newest = 0

    def known(self) -> tuple[int, int, bool]:
        """Epoch, last sequence, and whether a transaction is open."""
        found = self.log.active_producers()
        if not found:
            return -1, -1, False
        return found[0].producer_epoch, found[0].last_sequence, found[0].txn_start_offset is not None

    def ask(self) -> None:
        latest, last, is_open = self.known()
        epoch = max(0, latest + self.rng.randint(-1, 1))
        sequence = last + 1 if epoch == latest else 0
        adds = self.rng.random() < 0.5
        header = parse_header(batch("x", pid=PRODUCER, pepoch=epoch, seq=sequence, txn=True))
        try:
            guard = self.log.begin_verification(header, leader_epoch=self.leader_epoch, wall_ms=NOW, adds=adds)
        except ApiError as error:
            assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH and epoch < max(latest, self.newest)
            return
        assert epoch >= latest and (guard is None) == (is_open and epoch == latest)
        self.newest = max(self.newest, epoch)
        if guard is not None:
            self.asked.append(Asked(epoch, sequence, self.leader_epoch, guard.adds, guard, self.events))

    def answer(self) -> None:
        """The coordinator took the batch: may it still be appended?"""
        if not self.asked:
            return
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        latest, _, is_open = self.known()
        if is_open and asked.epoch == latest:
            return  # the transaction has begun meanwhile
        terms = TransactionTerms(asked.guard)
        leo = self.log.leo
        overtaken = any(at >= asked.at and not (asked.adds and epoch == asked.epoch) for at, epoch in self.ending)
        try:
            made = batch("x", pid=PRODUCER, pepoch=asked.epoch, seq=asked.sequence, txn=True)
            info = self.log.append_as_leader(
                made, leader_epoch=self.leader_epoch, wall_ms=NOW, origin=AppendOrigin.CLIENT, terms=terms
            )
            if info.duplicate:
                return
        except ApiError as error:
            assert self.log.leo == leo
            if asked.epoch < latest:
                assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH, error
            elif error.code is ErrorCode.INVALID_TXN_STATE:
                assert (overtaken or self.newest > asked.epoch) and asked.leader_epoch == self.leader_epoch
            elif error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                assert asked.leader_epoch != self.leader_epoch
            elif error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                assert self.newest > asked.epoch
            else:
                assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and asked.sequence != 0
            return
        assert not overtaken and asked.leader_epoch == self.leader_epoch and asked.epoch >= latest
        self.ending.append((self.events, None))
        self.events += 1

    def mark(self) -> None:
        latest, _, is_open = self.known()
        version = self.rng.choice((0, 2))
        epoch = max(0, latest) + (1 if version == 2 and is_open else self.rng.randint(0, 1))
        end_txn(self.log, PRODUCER, commit=True, pepoch=epoch, version=version, epoch=self.leader_epoch)
        self.ending.append((self.events, epoch))
        self.events += 1

    def elect(self) -> None:
        self.leader_epoch += 1
        self.log.drop_guards()


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_tp_04_a_batch_gets_in_only_behind_a_question_that_nothing_overtook(seed: int, length: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    steps = [world.ask] * 5 + [world.answer] * 4 + [world.mark] * 2 + [world.elect]
    for _ in range(length):
        rng.choice(steps)()
