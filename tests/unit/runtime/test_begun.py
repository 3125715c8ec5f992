from __future__ import annotations

import asyncio

import pytest

from kraftlite.host.loop import new_event_loop
from kraftlite.runtime.begun import begin
from tests.harness.wire_fakes import LoopTasks


async def test_what_need_not_wait_is_done_in_the_call() -> None:
    done: list[str] = []
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ready.set_result("ready")

    async def work() -> None:
        done.append(await ready)

    assert begin(LoopTasks(), work(), name="work") is None
    assert done == ["ready"]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_the_rest_is_a_task(kind: str) -> None:
    async def check() -> list[object]:
        done: list[object] = []
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            done.append("begun")
            done.append(await first)
            await asyncio.sleep(0)
            try:
                await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.001)
            except TimeoutError:
                done.append("late")
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            done.append(asyncio.current_task() is task)
            return "ended"

        task = begin(LoopTasks(), work(), name="work")
        assert done == ["begun"]
        assert task is not None
        first.set_result("first")
        assert done == ["begun"]
        done.append(await task)
        return done

    loop = new_event_loop(kind)
    try:
        assert loop.run_until_complete(check()) == ["begun", "first", "late", True, "ended"]
    finally:
        loop.close()


@pytest.mark.parametrize("passes", [0, 1, 3], ids=["before its first turn", "in its first turn", "later"])
async def test_a_wait_is_cancelled_whenever_it_is(passes: int) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            done.append("cancelled")
            raise
        finally:
            done.append("finally")

    task = begin(LoopTasks(), work(), name="work")
    assert task is not None
    for _ in range(passes):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["cancelled", "finally"]


@pytest.mark.parametrize("wait", [False, True], ids=["at once", "later"])
async def test_what_fails_ends_a_task(wait: bool) -> None:
    tasks = LoopTasks()

    async def work() -> None:
        if wait:
            await asyncio.sleep(0)
        raise ValueError("no")

    task = begin(tasks, work(), name="work")
    assert task is not None
    with pytest.raises(ValueError, match="no"):
        await task
    await asyncio.sleep(0)
    assert [type(it) for it in tasks.failures] == [ValueError]


async def test_who_waits_for_what_was_given_up_has_ended() -> None:
    given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    given_up.cancel()

    async def work() -> None:
        await given_up

    assert begin(LoopTasks(), work(), name="work") is None


async def test_the_first_part_is_in_no_task() -> None:
    """A timeout there would else be that of whoever began it."""
    seen: list[object] = []

    async def work() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    task = begin(LoopTasks(), work(), name="work")
    me = asyncio.current_task()
    assert me is not None
    assert task is not None
    await task
    assert seen == [None, task]
    assert asyncio.current_task() is me
