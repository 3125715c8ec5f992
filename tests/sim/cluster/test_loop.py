"""The virtual loop: time, order, processes."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.sim.loop import SimulationIdle, VirtualLoop
from kraftlite.simhost.clock import SimHostClock
from kraftlite.simhost.process import OUTSIDE, PID, context_of


def test_time_stands_still_while_something_can_run_and_jumps_to_the_next_timer() -> None:
    loop = VirtualLoop(1)

    async def main() -> list[float]:
        seen = [loop.time()]
        for _ in range(1000):
            await asyncio.sleep(0)
        seen.append(loop.time())
        await asyncio.sleep(3600)
        return [*seen, loop.time()]

    assert loop.run_until_complete(main()) == [0, 0, 3600]
    loop.close()


def test_within_a_process_first_in_first_out_and_between_processes_as_the_seed_says() -> None:
    def order(seed: int) -> list[tuple[int, int]]:
        loop = VirtualLoop(seed)
        seen: list[tuple[int, int]] = []
        for pid in (1, 2, 3):
            for number in range(5):
                loop.call_soon(lambda r=pid, n=number: seen.append((r, n)), context=context_of(pid))
        loop.run_until_complete(_pass(loop, 1))
        loop.close()
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5
    for pid in (1, 2, 3):
        assert [number for r, number in order(4) if r == pid] == [0, 1, 2, 3, 4]


async def _pass(loop: VirtualLoop, us: int) -> None:
    await asyncio.sleep(us / 1_000_000)


def test_a_paused_process_runs_late_and_in_order_and_others_are_not_held_up() -> None:
    loop = VirtualLoop(1)
    seen: list[tuple[str, int]] = []
    held = context_of(7)

    async def main() -> None:
        loop.at_us(10, lambda: seen.append(("held", loop.now_us())), held)
        loop.at_us(20, lambda: seen.append(("held", loop.now_us())), held)
        loop.at_us(20, lambda: seen.append(("free", loop.now_us())), context_of(8))
        loop.pause(7)
        await asyncio.sleep(0.001)
        assert seen == [("free", 20)]
        loop.resume(7)
        await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    assert seen == [("free", 20), ("held", 1000), ("held", 1000)]
    loop.close()


def test_tasks_stay_in_the_process_that_started_them() -> None:
    loop = VirtualLoop(1)
    seen: list[int] = []

    async def inner() -> None:
        await asyncio.sleep(0.001)
        seen.append(PID.get())
        await asyncio.get_running_loop().create_task(leaf())

    async def leaf() -> None:
        seen.append(PID.get())

    async def main() -> None:
        await loop.create_task(inner(), context=context_of(5))
        seen.append(PID.get())

    loop.run_until_complete(main())
    assert seen == [5, 5, OUTSIDE]
    loop.close()


def test_waiting_for_what_cannot_happen_is_an_error() -> None:
    loop = VirtualLoop(1)

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(SimulationIdle):
        loop.run_until_complete(main())
    loop.close()


@pytest.mark.parametrize("rate_ppm", [0, 50_000, -50_000])
def test_a_clock_runs_at_its_own_rate_and_never_fires_early(rate_ppm: int) -> None:
    loop = VirtualLoop(1)

    async def main() -> None:
        await asyncio.sleep(12.345)
        clock = SimHostClock(loop, context_of(1), wall_ms=5_000, rate_ppm=rate_ppm)
        assert (clock.now_ms(), clock.wall_ms()) == (0, 5_000)
        fired: list[int] = []
        clock.call_later(1000, lambda: fired.append(clock.now_ms()))
        before = loop.now_us()
        await clock.sleep(1001)
        assert fired and 1000 <= fired[0] <= 1001
        assert abs((loop.now_us() - before) - 1_001_000 * 1_000_000 // (1_000_000 + rate_ppm)) < 2_000
        clock.jump_wall(-60_000)
        assert clock.wall_ms() == 5_000 - 60_000 + clock.now_ms()

    loop.run_until_complete(main())
    loop.close()
