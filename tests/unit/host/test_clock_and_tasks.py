from __future__ import annotations

import asyncio

import pytest

from kraftlite.host.clock import HostClock
from kraftlite.host.loop import host_entropy, new_event_loop
from kraftlite.host.memory import tune_malloc
from kraftlite.host.tasks import HostTasks


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_timers_never_fire_early(kind: str) -> None:
    async def measure() -> list[int]:
        clock = HostClock()
        early = []
        for delay_ms in (0, 1, 2, 3, 5):
            fired: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            due_ms = clock.now_ms() + delay_ms
            clock.call_later(delay_ms, lambda fired=fired, due_ms=due_ms: fired.set_result(clock.now_ms() - due_ms))  # type: ignore[misc]
            early.append(await fired)
            due_ms = clock.now_ms() + delay_ms
            await clock.sleep(delay_ms)
            early.append(clock.now_ms() - due_ms)
        return early

    loop = new_event_loop(kind)
    try:
        assert min(loop.run_until_complete(measure())) >= 0
    finally:
        loop.close()


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = HostClock()
    fired: list[str] = []
    timer = clock.call_later(0, lambda: fired.append("first"))
    timer.cancel()
    timer.cancel()
    done = asyncio.Event()
    clock.call_later(1, done.set)
    await done.wait()
    assert fired == []


async def test_a_task_that_fails_is_a_fault() -> None:
    faults: list[tuple[BaseException, str]] = []
    seen = asyncio.Event()

    def fault(error: BaseException, where: str) -> None:
        faults.append((error, where))
        seen.set()

    async def fails() -> None:
        raise RuntimeError("broken")

    tasks = HostTasks(fault)
    tasks.spawn(fails(), name="fragile")
    await seen.wait()
    assert [(str(error), where) for error, where in faults] == [("broken", "fragile")]


async def test_cancel_all_awaits_every_task_and_is_no_fault() -> None:
    faults: list[BaseException] = []
    tasks = HostTasks(lambda error, where: faults.append(error))
    cleaned: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    handles = [tasks.spawn(waits(number), name=str(number)) for number in range(3)]
    await asyncio.sleep(0)
    await tasks.cancel_all()
    assert sorted(cleaned) == [0, 1, 2]
    assert all(handle.done() for handle in handles)
    assert faults == []


async def test_blocking_work_runs_off_the_loop_and_its_error_comes_back() -> None:
    tasks = HostTasks(lambda error, where: None)
    assert await tasks.run_blocking(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await tasks.run_blocking(lambda: 1 // 0)
    await tasks.cancel_all()


def test_the_rest() -> None:
    assert isinstance(tune_malloc(), bool)
    assert host_entropy().random() != host_entropy().random()
