"""The groups of the simulator: who has them, how their leaders assign, and that a run with them does what it should."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from kraftlite.coordinator.api import JoinedMember
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import Subscription, build_subscription
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.themes import GROUPS
from kraftlite.sim.workloads import group_settings
from kraftlite.sim.workloads.group_assignors import by_topic, deal
from kraftlite.sim.workloads.group_classic import ClassicMember
from kraftlite.sim.workloads.group_client import SimGroup
from kraftlite.sim.workloads.groups import restart_unled

SEED = 3


def member(name: str, *topics: str, owned: tuple[TopicPartition, ...] = ()) -> JoinedMember:
    return JoinedMember(name, None, build_subscription(Subscription(1, topics, by_topic(owned))))


def test_groups_have_a_valid_configuration() -> None:
    for seed in range(30):
        values = group_settings.settings(seed, 3)
        assert values == group_settings.settings(seed, 3)
        GroupConfig.from_values(values)
        for key, value in values.items():
            BROKER_CONFIGS[key].parse(value)


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_leader_deals_every_wanted_partition_out_once(seed: int, *, cooperative: bool) -> None:
    """Cooperative: but for those that others have to give up first, which the next round deals out."""
    rng = random.Random(seed)
    sizes = {"t": rng.randint(1, 5), "u": rng.randint(1, 5)}
    topics = {f"m{index}": rng.choice((("t",), ("u",), ("t", "u"))) for index in range(rng.randint(1, 4))}
    wanted = {TopicPartition(it, index) for several in topics.values() for it in several for index in range(sizes[it])}
    owned: dict[str, tuple[TopicPartition, ...]] = {"m0": tuple(sorted(it for it in wanted if it.topic in topics["m0"]))}
    for _ in range(4):
        members = [member(name, *several, owned=owned.get(name, ())) for name, several in topics.items()]
        dealt = deal(members, sizes, cooperative=cooperative)
        found = [tp for mine in dealt.values() for tp in mine]
        assert len(found) == len(set(found))
        assert all(tp.topic in topics[name] for name, mine in dealt.items() for tp in mine)
        for name, mine in dealt.items():
            others = {tp for other, had in owned.items() if other != name for tp in had}
            assert not cooperative or not others & set(mine), "nobody gets what another has yet"
        if set(found) == wanted:
            return
        owned = {name: tuple(mine) for name, mine in dealt.items()}
    raise AssertionError(f"{sorted(wanted - set(found))} go to nobody")


@pytest.mark.parametrize(
    ("leads", "owned", "wanted", "instance", "again"),
    [
        (False, "t", ("t",), None, True),
        (True, "t", ("t",), None, False),
        (True, "other", ("t",), None, True),
        (True, "t", ("t", "lacking"), "i", True),
        (True, "t", ("t", "lacking"), None, False),
        (True, "t", ("t", "not there"), "i", False),
    ],
)
def test_members_join_again_when_nobody_else_makes_them(
    *, leads: bool, owned: str, wanted: tuple[str, ...], instance: str | None, again: bool
) -> None:
    """A static leader that came back before JoinGroup 9 does not know that it leads, and minds no topic any more. A static member
    that came back with another subscription has what its former self had, which no leader is told."""
    group = SimGroup(name="g", topics=("t",), cooperative=False, session_ms=1_000, rebalance_ms=1_000)
    for index in range(2):
        one = object.__new__(ClassicMember)
        one.alive, one.epoch, one.leads = True, 7, leads and index == 1
        one.instance_id = instance if index == 0 else None
        one.topics, one.regex, one.owned = wanted, None, {TopicPartition(owned, index): None}
        group.members.append(one)
    restart_unled(group, {"t", "other", "lacking"})
    assert [it.epoch for it in group.members] == ([-1, -1] if again else [7, 7])


def test_a_seed_with_groups_repeats_in_another_process() -> None:
    code = (
        f"from kraftlite.sim.run import RunPlan, run\nprint(run(RunPlan(seed={SEED}, theme='groups', duration_ms=2_000)).trace)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert found.stdout.strip() == run(RunPlan(seed=SEED, theme=GROUPS, duration_ms=2_000)).trace


def test_a_run_with_groups_settles_and_commits() -> None:
    seen: list[str] = []
    result = run(
        RunPlan(seed=SEED, theme=GROUPS, faults=(), duration_ms=4_000), sink=lambda _now, _node, event: seen.append(event.event)
    )
    assert result.outcome is Outcome.OK, result.story
    assert "group.loaded" in seen
    assert "group.state_changed" in seen
