"""The loop of an embedded cluster: processes that stand still, and time that does not run away."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.simhost.process import OUTSIDE, context_of
from kraftlite.simhost.real_time_loop import MAX_TURN_S, RealTimeLoop


@pytest.fixture
def loop() -> Iterator[RealTimeLoop]:
    loop = RealTimeLoop()
    yield loop
    loop.close()


def run(loop: RealTimeLoop, main: Callable[[], Any]) -> None:
    loop.run_until_complete(asyncio.wait_for(main(), 10))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_paused_process_stands_still_and_catches_up_in_order(loop: RealTimeLoop) -> None:
    seen: list[str] = []
    one, two = context_of(1), context_of(2)

    async def main() -> None:
        loop.call_soon(seen.append, "1 ready before the pause", context=one)
        loop.pause(1)
        loop.call_soon(seen.append, "1 ready during the pause", context=one)
        loop.call_later(0.002, seen.append, "1 timer b", context=one)
        loop.call_later(0.001, seen.append, "1 timer a", context=one)
        cancelled = loop.call_soon(seen.append, "never", context=one)
        loop.call_soon(seen.append, "2", context=two)
        await asyncio.sleep(0.01)
        assert seen == ["2"]
        cancelled.cancel()
        loop.resume(1)
        await turns()

    run(loop, main)
    assert seen == ["2", "1 ready before the pause", "1 ready during the pause", "1 timer a", "1 timer b"]


def test_a_process_that_pauses_itself_runs_no_further_callback_of_the_same_turn(loop: RealTimeLoop) -> None:
    seen: list[str] = []
    context = context_of(1)

    async def main() -> None:
        loop.call_soon(lambda: (seen.append("pauses"), loop.pause(1)), context=context)
        loop.call_soon(seen.append, "too late", context=context)
        await turns()
        assert seen == ["pauses"]
        loop.pause(1)  # twice is as once
        loop.resume(1)
        loop.resume(1)
        await turns()

    run(loop, main)
    assert seen == ["pauses", "too late"]


def test_tasks_of_a_paused_process_wait_and_those_of_others_do_not(loop: RealTimeLoop) -> None:
    steps = {1: 0, 2: 0}

    async def count(pid: int) -> None:
        while steps[pid] < 1000:
            steps[pid] += 1
            await asyncio.sleep(0)

    async def main() -> None:
        tasks = [loop.create_task(count(pid), context=context_of(pid)) for pid in steps]
        await turns()
        loop.pause(1)
        before = dict(steps)
        await tasks[1]
        assert steps == {1: before[1], 2: 1000}
        loop.resume(1)
        await tasks[0]

    run(loop, main)
    assert steps == {1: 1000, 2: 1000}


@pytest.mark.usefixtures("uncollected")
def test_sockets_of_a_paused_process_are_read_after_it_and_do_not_keep_the_loop_busy(loop: RealTimeLoop) -> None:
    ours, theirs = socket.socketpair()
    seen: list[bytes] = []
    with ours, theirs:
        ours.setblocking(False)

        async def main() -> None:
            context = context_of(1)
            context.run(loop.add_reader, ours, lambda: seen.append(ours.recv(10)))
            loop.pause(1)
            theirs.sendall(b"ping")
            loop.call_soon(seen.append, b"held", context=context)
            loop.call_later(0.001, seen.append, b"timer", context=context)
            busy_from = time.thread_time()
            await asyncio.sleep(1)
            assert time.thread_time() - busy_from < 0.5, "the loop polled a socket that nobody reads"
            assert seen == []
            loop.resume(1)
            await turns()
            assert seen == [b"held", b"ping", b"timer"], "as in a process that goes on: what was ready, sockets, timers"
            loop.remove_reader(ours)

        run(loop, main)


def test_time_stands_still_while_the_loop_does_not_run(loop: RealTimeLoop) -> None:
    """Starvation must not look like silence: of a second in one turn, the nodes' clocks see a hundredth."""

    async def main() -> None:
        before = loop.time()
        time.sleep(0.3)  # noqa: ASYNC251 that is the point
        assert loop.time() - before < MAX_TURN_S * 1.5
        await asyncio.sleep(0)
        assert loop.time() - before < MAX_TURN_S * 3

    run(loop, main)


def test_time_runs_as_elsewhere_while_the_loop_waits(loop: RealTimeLoop) -> None:
    async def main() -> None:
        before, real = loop.time(), time.monotonic()
        await asyncio.sleep(0.05)
        assert 0.05 <= loop.time() - before <= time.monotonic() - real + 0.001

    run(loop, main)


def test_a_timer_never_finds_that_it_came_too_early(loop: RealTimeLoop) -> None:
    early: list[int] = []

    async def main() -> None:
        done = loop.create_future()
        left = 200

        def due(when_us: int) -> None:
            nonlocal left
            left -= 1
            if loop.now_us() < when_us:
                early.append(when_us)
            if not left:
                done.set_result(None)

        start = loop.now_us()
        for at in range(200):
            when_us = start + at * 317
            loop.at_us(when_us, lambda it=when_us: due(it), context_of(OUTSIDE))
        await done

    run(loop, main)
    assert early == []


def test_what_is_due_now_keeps_its_order_and_can_be_cancelled(loop: RealTimeLoop) -> None:
    seen: list[int] = []

    async def main() -> None:
        handles = [loop.at_us(0, lambda it=it: seen.append(it), contextvars.Context()) for it in range(20)]
        handles[7].cancel()
        await turns()

    run(loop, main)
    assert seen == [it for it in range(20) if it != 7]


def test_other_threads_reach_the_loop_while_a_process_is_paused(loop: RealTimeLoop) -> None:
    called = asyncio.Event()

    async def main() -> None:
        loop.pause(1)
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(called.set))
        thread.start()
        await called.wait()
        thread.join()
        loop.resume(1)

    run(loop, main)
