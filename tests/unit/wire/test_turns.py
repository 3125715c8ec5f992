"""Turns of connections, on a clock that moves only with their work."""

from __future__ import annotations

import asyncio

from kraftlite.wire.turns import MS, NEWCOMER_TURN_NS, SHARE_NS, TURN_NS, WINDOW_NS, Turns


class World:
    def __init__(self) -> None:
        self.ns = 1_000 * MS
        self.turns = Turns(lambda: self.ns)
        self.order: list[str] = []


class Connection:
    """`requests` of `cost_ns` each."""

    def __init__(self, world: World, name: str, requests: int, cost_ns: int) -> None:
        self.world = world
        self.name = name
        self.requests = requests
        self.cost_ns = cost_ns
        self.used_ns = self.window_ns = 0
        self.queued = False

    def wants_much(self) -> bool:
        return self.requests > 1

    def work(self, until_ns: int) -> bool:
        while self.requests:
            self.requests -= 1
            self.world.ns += self.cost_ns
            self.world.order.append(self.name)
            if self.world.ns >= until_ns:
                break
        return self.requests > 0


async def turn() -> None:
    await asyncio.sleep(0)


async def test_one_that_asks_for_one_thing_is_served_at_once() -> None:
    world = World()
    world.turns.serve(Connection(world, "good", 1, MS // 10))
    assert world.order == ["good"] and world.turns.deferred == 0


async def test_a_pipeline_does_not_hold_up_others() -> None:
    """CP-68. Worked off in one go, as it was, this takes 50 s before the good client's turn."""
    world = World()
    for at in range(500):
        world.turns.serve(Connection(world, f"greedy-{at}", 100, MS))
    assert world.ns <= 1_000 * MS + 2 * TURN_NS, "the loop has its turn"
    for _ in range(50):
        await turn()
        begin = world.ns
        good = Connection(world, "good", 1, MS // 10)
        world.turns.serve(good)
        if good.requests:
            await turn()
        assert not good.requests and world.ns - begin <= 2 * TURN_NS
    served = [world.order.count(f"greedy-{at}") for at in range(500)]
    assert max(served) <= min(served) + 2, "each gets about as much"


async def test_a_turn_of_the_loop_is_bounded_whoever_comes() -> None:
    """CP-68."""
    world = World()
    light = [Connection(world, f"light-{at}", 1, MS // 2) for at in range(200)]
    for it in light:
        world.turns.serve(it)
    before = world.ns
    assert before - 1_000 * MS <= TURN_NS + MS
    while world.turns.deferred:
        before = world.ns
        await turn()
        assert world.ns - before <= TURN_NS + 2 * MS
    assert world.order == [it.name for it in light], "first come, first served"


async def test_the_slow_queue_is_not_starved() -> None:
    world = World()
    greedy = Connection(world, "greedy", 1_000, MS)
    world.turns.serve(greedy)
    for round_ in range(20):
        before = greedy.requests
        for at in range(100):
            world.turns.serve(Connection(world, f"light-{round_}-{at}", 1, MS))
        await turn()
        assert greedy.requests < before


async def test_who_has_used_more_than_its_share_waits_behind_the_others_until_the_window_is_over() -> None:
    world = World()
    dear = Connection(world, "dear", 1, SHARE_NS + MS)
    world.turns.serve(dear)
    await turn()
    blocker = Connection(world, "blocker", 3, MS)
    world.turns.serve(blocker)
    dear.requests, cheap = 1, Connection(world, "cheap", 1, MS // 10)
    world.turns.serve(dear)
    world.turns.serve(cheap)
    assert world.order[-1] == "cheap" and dear.queued
    while world.turns.deferred:
        await turn()
    world.ns += WINDOW_NS
    world.turns.serve(Connection(world, "blocker", 3, MS))
    dear.requests = 1
    world.turns.serve(dear)
    assert world.order[-1] == "dear"


async def test_a_turn_in_which_a_connection_came_is_short() -> None:
    """CP-68. The loop accepts one connection in a turn: behind five hundred with much to do, the last waited for five seconds."""
    world = World()
    for at in range(500):
        world.turns.serve(Connection(world, f"greedy-{at}", 100, MS // 4))
    begin = world.ns
    for _ in range(500):
        world.turns.welcome()
        await turn()
    assert world.ns - begin <= 500 * 2 * NEWCOMER_TURN_NS
    assert len(world.order) > 500, "those who wait go on meanwhile"
    begin = world.ns
    await turn()
    await turn()
    assert world.ns - begin > TURN_NS, "nobody comes any more"
