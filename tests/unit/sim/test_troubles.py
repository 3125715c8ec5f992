"""The faults that came later: drawn from a stream of their own, printed and parsed, carried out and undone."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from kraftlite.sim import (
    boot_faults,
    elr_scenes,
    fetch_scenes,
    log_dir_faults,
    move_faults,
    quorum_scenes,
    schedule,
    slow_publishers,
    snapshot_faults,
    start_faults,
    swap_faults,
    themes,
    troubles,
)
from kraftlite.sim.fault_plan import (
    ALL_FAULTS,
    AMBUSHES,
    BOOT_FAULTS,
    FETCH_FAULTS,
    LEVEL_FAULTS,
    MOVE_FAULTS,
    ONE_TARGET,
    PLACE_FAULTS,
    PUBLISHER_FAULTS,
    QUORUM_FAULTS,
    SCENE_FAULTS,
    SNAPSHOT_FAULTS,
    START_FAULTS,
    SWAP_FAULTS,
    TROUBLES,
    TWO_TARGETS,
    FaultPlan,
    parse,
)
from kraftlite.sim.injection.catalog import HANDLERS
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED, Shape
from kraftlite.sim.targets import node_ids

SHAPE = NAMED["3+3"]


def _drawn(seed: int, shape: Shape = SHAPE) -> list[FaultPlan]:
    return troubles.draw(random.Random(f"troubles/{seed}"), shape, 15_000)


def test_every_kind_of_fault_has_what_carries_it_out() -> None:
    drawn_apart = {
        *PLACE_FAULTS, *START_FAULTS, *SWAP_FAULTS, *MOVE_FAULTS, *BOOT_FAULTS, *SNAPSHOT_FAULTS,
        *QUORUM_FAULTS, *LEVEL_FAULTS, *FETCH_FAULTS, *PUBLISHER_FAULTS,
    }  # fmt: skip
    assert set(HANDLERS) == {*ALL_FAULTS, *SCENE_FAULTS, *TROUBLES, *AMBUSHES, *drawn_apart}


@pytest.mark.parametrize("kind", sorted(HANDLERS))
def test_every_kind_reads_as_it_is_printed(kind: str) -> None:
    """A failing seed is told as such lines, and kept in regressions.toml."""
    targets = 2 if kind in TWO_TARGETS else 1 if kind in ONE_TARGET else 0
    fault = FaultPlan(at_ms=1, kind=kind, target="2" * (targets > 0), other="3" * (targets > 1), for_ms=3, amount=4)
    assert parse(str(fault)) == fault


def test_every_kind_is_drawn_and_reads_as_it_is_printed() -> None:
    drawn = [fault for seed in range(1500) for fault in _drawn(seed)]
    assert {it.kind for it in drawn} >= set(TROUBLES)
    assert all(parse(str(it)) == it for it in drawn)


def test_they_come_on_top_of_what_a_seed_has_and_with_their_theme_only() -> None:
    for seed in range(40):
        plain = schedule.draw(random.Random(f"faults/{seed}"), SHAPE, 15_000)
        assert [it for it in schedule.draw_all(seed, SHAPE, 15_000) if it in plain] == plain
        plain += elr_scenes.draw(seed, SHAPE, 15_000) + quorum_scenes.draw(seed, SHAPE, 15_000)
        plain += fetch_scenes.draw(seed, SHAPE, 15_000)
        plain.sort(key=lambda it: it.at_ms)
        assert list(schedule.draw_all(seed, SHAPE, 15_000)) == plain
        every = schedule.draw_all(seed, SHAPE, 15_000, themes.TROUBLES)
        assert [it for it in every if it in plain] == plain
        starts = start_faults.draw(seed, SHAPE, 15_000)
        boots = boot_faults.draw(seed) + snapshot_faults.draw(seed, SHAPE, 15_000)
        assert len(every) == len(plain) + len(_drawn(seed)) + len(starts) + len(boots)


@pytest.mark.parametrize("kind", TROUBLES)
def test_a_run_with_a_fault_of_this_kind_holds(kind: str) -> None:
    rng = random.Random(kind)
    faults = [troubles._one(rng, SHAPE, kind, at_ms) for at_ms in (300, 1_500, 2_500)]
    result = run(RunPlan(seed=3, shape=SHAPE, faults=tuple(faults), duration_ms=5_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")
    assert len(result.injected) > 1, "nothing was done"


def test_a_session_is_opened_twice_and_the_first_request_comes_last_and_the_run_holds() -> None:
    assert sum(bool(fetch_scenes.draw(seed, SHAPE, 10_000)) for seed in range(100)) in range(5, 30)
    brokers = node_ids(SHAPE, "broker")
    faults = tuple(
        FaultPlan(at_ms=at_ms, kind="repeat-fetch", target=it, other="leader orders-0", for_ms=1_500)
        for at_ms in (500, 2_500)
        for it in brokers
    )
    result = run(RunPlan(seed=3, shape=SHAPE, faults=faults, duration_ms=5_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")
    assert any("repeat-fetch strikes" in text for _, text in result.injected)


def test_publishers_take_their_turns_late_and_the_run_holds() -> None:
    seeds = [seed for seed in range(100) if slow_publishers.draw(seed, SHAPE, 10_000, themes.GROUPS)]
    assert len(seeds) in range(10, 35) and not slow_publishers.draw(seeds[0], SHAPE, 10_000, themes.PLAIN)
    drawn = {seed: slow_publishers.draw(seed, SHAPE, 5_000, themes.GROUPS) for seed in seeds}
    seed, faults = next(it for it in drawn.items() if {fault.kind for fault in it[1]} == {"slow-publisher", "churn", "kill"})
    shape = slow_publishers.vary(SHAPE, seed, themes.GROUPS)
    result = run(RunPlan(seed=3, shape=shape, faults=tuple(faults), duration_ms=5_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")


def test_power_is_cut_in_the_middle_of_a_swap_once_and_the_run_holds() -> None:
    assert sum(bool(swap_faults.draw(seed, SHAPE, 10_000)) for seed in range(100)) in range(10, 45)
    faults = tuple(
        FaultPlan(at_ms=at_ms, kind="power-mid-swap", target=str(broker), for_ms=1_000, amount=at_ms // 1_000)
        for at_ms in range(2_000, 7_000, 1_000)
        for broker in (2, 3, 4)
    )
    shape = replace(NAMED["1+3"], config={**NAMED["1+3"].config, "log.cleaner.backoff.ms": "50"})
    result = run(RunPlan(seed=0, theme=themes.LOGS, shape=shape, faults=faults, duration_ms=9_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")
    assert any("has its name" in text for _, text in result.injected), "nobody was hit"


def test_power_is_cut_in_the_middle_of_a_move_once_and_the_run_holds() -> None:
    assert sum(bool(move_faults.draw(seed, SHAPE, 10_000)) for seed in range(100)) in range(15, 55)
    faults = tuple(
        FaultPlan(at_ms=at_ms, kind="power-mid-move", target=str(broker), for_ms=2_000, amount=at_ms // 2_000 % 2)
        for at_ms in range(1_000, 9_000, 2_000)
        for broker in (2, 3, 4)
    )
    shape = log_dir_faults.several(NAMED["1+3"], 0)
    result = run(RunPlan(seed=0, theme=themes.DIRECTORIES, shape=shape, faults=faults, duration_ms=10_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")
    assert any("has its name" in text for _, text in result.injected), "nobody was hit"


@pytest.mark.parametrize("scene", troubles.SCENES, ids=lambda it: it.__name__)
def test_a_run_with_this_scene_holds(scene: troubles.Scene) -> None:
    faults = tuple(scene(random.Random(5), SHAPE, 500))
    result = run(RunPlan(seed=5, shape=SHAPE, faults=faults, duration_ms=6_000))
    assert (result.outcome, result.story) == (Outcome.OK, "")


def test_a_node_that_refuses_must_name_the_damaged_file_and_gets_it_back() -> None:
    for seed in range(40):
        result = run(RunPlan(seed=seed, shape=NAMED["1+1"], faults=(parse("500 rot 1 for 100 amount 2"),), duration_ms=2_000))
        assert result.outcome is Outcome.OK, result.story
        told = [text for _, text in result.injected]
        if any("is put back" in text for text in told):
            assert any("ended itself in" in text for text in told)
            return
    raise AssertionError("no damage was refused")


def test_a_failed_directory_comes_back_with_a_restart() -> None:
    result = run(RunPlan(seed=2, shape=SHAPE, faults=(parse("700 dir-read-only 4 for 800 amount 1"),), duration_ms=3_000))
    assert result.outcome is Outcome.OK, result.story
    assert any(f"[Errno {errno.EROFS}]" in text or "Read-only file system" in text for _, text in result.injected)


@pytest.mark.parametrize("later", ["old-files", "rot", "stale"])
def test_files_of_a_node_that_is_down_take_one_kind_of_damage(later: str) -> None:
    """A raised log start is known by the statements alone: no promise covers the loss of both between two starts."""
    begins = ("5500", "10500")
    faults = tuple(map(parse, ("1500 damage 3 for 3000", *(f"{at} {later} 3 for 100 amount 200" for at in begins))))
    result = run(RunPlan(seed=1, shape=NAMED["1+3"], faults=faults, duration_ms=13_000))
    assert result.outcome is Outcome.OK, result.story
    told = [text for _, text in result.injected]
    assert any(text.startswith("damage 3 orders-") for text in told), told
    assert told.count(f"no {later} of node 3, whose files wait with damage") == 1, told
