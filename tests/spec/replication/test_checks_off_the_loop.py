"""Batches that take long to check: checked elsewhere, appended in order, by whoever leads then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from kraftlite.log import codecs
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.validation import CHECK_IN_PLACE
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.replication.api import ProduceEntry, ProduceResult
from kraftlite.replication.produce import BATCHES_PER_TURN, CHECKED_AT_ONCE
from kraftlite.runtime.ports import Tasks
from tests.harness.poison import GOOD, batch_of
from tests.harness.replication_cluster import TP, Node, make_batch
from tests.harness.replication_loop import LoopCluster, LoopTasks


class HeldTasks(LoopTasks):
    """`run_blocking` takes until the test says `work`."""

    def __init__(self, faults: list[tuple[BaseException, str]]) -> None:
        super().__init__(faults)
        self.running: list[asyncio.Future[None]] = []
        self.at_once = 0
        self.bug: Exception | None = None

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.append(held)
        self.at_once = max(self.at_once, len(self.running))
        await held
        if self.bug is not None:
            raise self.bug
        return function()


class Loop(LoopCluster):
    """Broker 1 leads, and what it does off its loop waits for the test."""

    def tasks_for(self, broker_id: NodeId) -> Tasks:
        if broker_id != 1:
            return super().tasks_for(broker_id)
        self.held = self._tasks[broker_id] = HeldTasks(self.faults)
        return self.held

    async def __aenter__(self) -> Loop:
        await super().__aenter__()
        self.create()
        await self.settle()
        return self

    async def work(self, which: int = 0) -> None:
        """One piece of work is done."""
        self.held.running.pop(which).set_result(None)
        await self.settle()

    async def work_all(self) -> None:
        await self.settle()
        while self.held.running:
            await self.work()


class Lease:
    def __init__(self) -> None:
        self.held = 0
        self.released = 0
        self.failures: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.released += 1


def heavy(seq: int = -1) -> bytearray:
    """A small batch that unfolds to more than is checked in place."""
    options: dict[str, int] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": seq} if seq >= 0 else {}
    record = Record(None, bytes(2 * CHECK_IN_PLACE))
    return bytearray(build_batch([record], timestamp_ms=1_700_000_000_000, codec=codecs.ZSTD, **options))  # type: ignore[arg-type]


def ask(node: Node, *batches: bytearray, acks: int = 1, lease: Lease | None = None) -> list[ProduceResult]:
    done: list[ProduceResult] = []
    entries = [ProduceEntry(tp=TP, topic_id=None, records=batch) for batch in batches]
    node.manager.append(entries, acks=acks, timeout_ms=30_000, on_done=done.extend, lease=lease)
    return done


async def test_what_is_short_is_checked_in_place() -> None:
    lease = Lease()
    async with Loop() as c:
        usual = build_batch([Record(b"k", b"v" * 100)] * 1000, timestamp_ms=1_700_000_000_000, codec=codecs.GZIP)
        assert ask(c[1], bytearray(usual), lease=lease)[0].error is ErrorCode.NONE
        assert ask(c[1], make_batch(["x" * 900_000]), lease=lease)[0].error is ErrorCode.NONE
        assert not c.held.running and not lease.held


async def test_what_is_long_is_checked_elsewhere_and_keeps_its_bytes() -> None:
    lease = Lease()
    async with Loop() as c:
        done = ask(c[1], make_batch(["before"]), heavy(), make_batch(["behind"]), lease=lease)
        assert not done and c[1].log().leo == 1, "what came before it is appended"
        await c.settle()
        assert (lease.held, lease.released, len(c.held.running)) == (1, 0, 1)
        await c.work_all()
        assert [it.base_offset for it in done] == [0, 1, 2] and (lease.held, lease.released) == (1, 1)


async def test_refusals_of_it_are_answered_in_their_place() -> None:
    async with Loop() as c:
        body = GOOD + bytes(3 * CHECK_IN_PLACE)
        done = ask(c[1], make_batch(["a"]), batch_of(body, 3, codec=codecs.GZIP, base_timestamp=-1), make_batch(["b"]))
        await c.work_all()
        assert [it.error for it in done] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE] and c[1].log().leo == 2


async def test_sequences_stay_right_across_it() -> None:
    async with Loop() as c:
        done = ask(c[1], heavy(0), heavy(1), heavy(0))
        await c.work_all()
        assert [(it.error, it.base_offset) for it in done] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1), (ErrorCode.NONE, 0)]
        assert c[1].log().leo == 2, "the third was a duplicate"


async def test_who_leads_is_asked_when_it_is_appended() -> None:
    async with Loop() as c:
        done = ask(c[1], heavy(), acks=-1)
        c.controller.set_fenced(NodeId(1), True)
        for node in c.nodes.values():
            node.catch_up()
        await c.work_all()
        assert done[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER and c[1].log().leo == 0


async def test_acknowledgement_of_all_waits_as_ever() -> None:
    async with Loop() as c:
        for follower in ("b2", "b3"):
            c.network.cut(follower, "b1")
        done = ask(c[1], make_batch(["a"]), heavy(), acks=-1)
        await c.work_all()
        assert c[1].log().leo == 2 and not done
        c.network.heal()
        await c.until(lambda: done)
        assert [it.base_offset for it in done] == [0, 1]


async def test_few_are_checked_at_once_and_the_others_in_their_order() -> None:
    async with Loop() as c:
        order: list[int] = []
        for number in range(CHECKED_AT_ONCE + 3):
            entry = ProduceEntry(tp=TP, topic_id=None, records=heavy())
            c[1].manager.append([entry], acks=1, timeout_ms=1, on_done=lambda _, number=number: order.append(number))  # type: ignore[misc]
        await c.settle()
        assert len(c.held.running) == CHECKED_AT_ONCE and not order
        await c.work()
        while len(c.held.running) == CHECKED_AT_ONCE:
            await c.work(1)
        await c.work()
        assert order == [0, 2, 3, 4, 1] and c.held.at_once == CHECKED_AT_ONCE, "the second thread was slow"


async def test_thousands_of_small_batches_are_taken_in_turns() -> None:
    async with Loop() as c:
        small = build_batch([Record(None, b"x")], timestamp_ms=1_700_000_000_000, codec=codecs.LZ4)
        done = ask(c[1], *(bytearray(small) for _ in range(2000)))
        turns = [c[1].log().leo]
        await c.settle()
        while c.held.running:
            await c.work()
            turns.append(c[1].log().leo)
        assert [it.base_offset for it in done] == list(range(2000))
        assert turns[0] < 200 and max(b - a for a, b in pairwise(turns)) <= BATCHES_PER_TURN


async def test_many_plain_batches_are_taken_in_turns_too() -> None:
    async with Loop() as c:
        done = ask(c[1], *(make_batch(["x"]) for _ in range(5000)))
        assert not done and c[1].log().leo < 1000
        await c.work_all()
        assert len(done) == 5000 and c[1].log().leo == 5000


async def test_a_bug_in_a_check_costs_its_request() -> None:
    lease = Lease()
    async with Loop() as c:
        c.held.bug = KeyError("a bug")
        done = ask(c[1], make_batch(["before"]), heavy(), lease=lease)
        await c.work_all()
        assert [type(error) for error in lease.failures] == [KeyError] and (lease.held, lease.released) == (1, 1)
        assert not done and c[1].log().leo == 1
        assert ask(c[1], make_batch(["behind"]))[0].error is ErrorCode.NONE


async def test_rp_09_a_broker_that_stopped_appends_nothing_more() -> None:
    """A check may outlast the time that a broker which stops gives its clients. The log is closed by then."""
    lease = Lease()
    async with Loop() as c:
        done = ask(c[1], make_batch(["before"]), heavy(), make_batch(["behind"]), acks=-1, lease=lease)
        await c.until(lambda: c[1].log().hw == 1)
        assert len(c.held.running) == 1 and not done
        await c[1].manager.stop()
        assert c[1].manager.counts.leaders() == 0 and not c[1].partition().is_leader
        c[1].log().close()
        await c.work_all()
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [it.error for it in done] == [ErrorCode.NONE, refused, refused] and lease.released == 1
        assert [it.error for it in ask(c[1], make_batch(["late"]))] == [refused]
        assert c[1].log().leo == 1, "a log that is closed does not grow"
