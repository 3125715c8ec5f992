"""How long work shares a loop (`runtime/turns`)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kraftlite.runtime.turns import Admission, OffLoop, Turns
from tests.harness.clock import FakeClock
from tests.harness.wire_fakes import LoopTasks


async def test_two_walks_take_turns_and_let_others_in() -> None:
    clock = FakeClock()
    turns, order = Turns(clock, turn_ms=5), []

    async def walk(name: str) -> None:
        async for number in turns.each(range(6)):
            order.append(f"{name}{number}")
            clock.advance(3)

    async def other() -> None:
        for number in range(3):
            order.append(f"-{number}")
            await asyncio.sleep(0)

    await asyncio.gather(walk("a"), walk("b"), other())
    assert [it for it in order if it[0] == "a"] == [f"a{n}" for n in range(6)]
    assert [it for it in order if it[0] == "b"] == [f"b{n}" for n in range(6)]
    longest = max(len(run) for run in "".join(it[0] for it in order).replace("-", " ").replace("b", " ").split())
    assert longest <= 2, "a turn of 5 ms is two pieces of 3 ms"
    assert order.index("-2") < order.index("a5")
    assert order.index("b0") < order.index("a4"), "who waits is served in rotation"


async def test_a_walk_that_is_cancelled_while_it_waits_does_not_keep_its_place() -> None:
    clock = FakeClock()
    turns = Turns(clock, turn_ms=5)

    async def walk(count: int) -> int:
        async for _ in turns.each(range(count)):
            clock.advance(10)
        return count

    first, second = asyncio.ensure_future(walk(50)), asyncio.ensure_future(walk(50))
    for _ in range(5):
        await asyncio.sleep(0)
    first.cancel()
    assert await second == 50
    with pytest.raises(asyncio.CancelledError):
        await first


class Threads(LoopTasks):
    async def run_blocking(self, function):  # type: ignore[no-untyped-def]
        return await asyncio.to_thread(function)


async def test_off_the_loop_one_at_a_time_and_the_cheapest_first() -> None:
    off_loop, order, gate = OffLoop(Threads()), [], threading.Event()

    def work(name: str) -> str:
        gate.wait(10)
        order.append(name)
        return name

    async def ask(cost: int, name: str) -> str:
        return await off_loop.run(cost, lambda: work(name))

    asked = [asyncio.ensure_future(ask(cost, name)) for cost, name in ((5, "first"), (9, "huge"), (1, "small"), (4, "gone"))]
    await asyncio.sleep(0.01)
    asked[3].cancel()
    gate.set()
    assert await asyncio.gather(*asked[:3]) == ["first", "huge", "small"]
    assert order == ["first", "small", "huge"]


async def test_what_fails_off_the_loop_fails_for_who_asked_and_nobody_else() -> None:
    tasks = Threads()
    off_loop = OffLoop(tasks)
    with pytest.raises(ZeroDivisionError):
        await off_loop.run(1, lambda: 1 // 0)
    asking = asyncio.ensure_future(off_loop.run(1, lambda: threading.Event().wait(0.05)))
    await asyncio.sleep(0)
    asking.cancel()
    assert await off_loop.run(1, lambda: 7) == 7, "it waits for the thread of who has gone"
    assert not tasks.failures


async def test_admission_is_bounded_and_in_order() -> None:
    admission, order = Admission(10), []

    async def enter(size: int) -> None:
        place = await admission.enter(size)
        order.append(size)
        await asyncio.sleep(0)
        place.leave()
        place.leave()

    await asyncio.gather(*(enter(size) for size in (6, 5, 99, 1, 2)))
    assert order == [6, 5, 99, 1, 2]
    waiting = [asyncio.ensure_future(enter(size)) for size in (10, 7, 3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert order[5:] == [10, 3]
    assert (await admission.enter(10)) is not None
