"""Timeline collections against a list of copied dictionaries, on random histories."""

from __future__ import annotations

import random

import pytest

from kraftlite.timeline.collections import TimelineMap, TimelineSet, TimelineValue
from kraftlite.timeline.registry import TimelineRegistry


class Model:
    """What the collections must agree with: a full copy per epoch."""

    def __init__(self) -> None:
        self.live: tuple[dict[int, int], set[int], int] = ({}, set(), 0)
        self.at: dict[int, tuple[dict[int, int], set[int], int]] = {}

    def copy(self) -> tuple[dict[int, int], set[int], int]:
        return dict(self.live[0]), set(self.live[1]), self.live[2]


@pytest.mark.parametrize("seed", range(25))
def test_collections_agree_with_copied_dicts(seed: int) -> None:
    rng = random.Random(seed)
    registry = TimelineRegistry()
    mapping: TimelineMap[int, int] = TimelineMap(registry)
    members: TimelineSet[int] = TimelineSet(registry)
    value: TimelineValue[int] = TimelineValue(registry, 0)
    model = Model()
    epoch = 0
    for _ in range(400):
        action = rng.random()
        key = rng.randrange(12)
        if action < 0.3:
            mapping[key] = rng.randrange(100)
            model.live[0][key] = mapping[key]
        elif action < 0.45:
            mapping.pop(key)
            model.live[0].pop(key, None)
        elif action < 0.55:
            members.add(key)
            model.live[1].add(key)
        elif action < 0.62:
            members.discard(key)
            model.live[1].discard(key)
        elif action < 0.7:
            value.set(key)
            model.live = (model.live[0], model.live[1], key)
        elif action < 0.84:
            epoch += rng.randrange(1, 4)
            registry.get_or_create_snapshot(epoch)
            model.at[epoch] = model.copy()
        elif action < 0.89 and model.at:
            chosen = rng.choice(sorted(model.at))
            registry.revert_to(chosen)
            model.live = (dict(model.at[chosen][0]), set(model.at[chosen][1]), model.at[chosen][2])
            model.at = {at: state for at, state in model.at.items() if at <= chosen}
            epoch = chosen
        elif action < 0.93 and model.at:
            chosen = rng.choice(sorted(model.at))
            registry.delete_snapshots_up_to(chosen)
            model.at = {at: state for at, state in model.at.items() if at >= chosen}
        elif action < 0.96 and model.at:
            chosen = rng.choice(sorted(model.at))
            registry.delete_snapshot(chosen)
            del model.at[chosen]
        elif action < 0.99 and model.at:
            chosen = rng.choice(sorted(model.at))
            registry.restore(chosen)
            model.live = (dict(model.at[chosen][0]), set(model.at[chosen][1]), model.at[chosen][2])
        else:
            registry.reset()
            model, epoch = Model(), 0
        assert dict(mapping.items()) == model.live[0]
        assert set(members) == model.live[1]
        assert value.get() == model.live[2]
        assert list(registry.epochs) == sorted(model.at)
        for at, (expected, _members, expected_value) in model.at.items():
            assert dict(mapping.items(at)) == expected
            assert all(mapping.get(k, at) == expected.get(k) for k in range(12))
            assert value.get(at) == expected_value


def test_a_restore_can_itself_be_reverted() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[str, int] = TimelineMap(registry)
    mapping["a"] = 1
    registry.get_or_create_snapshot(1)
    mapping["a"], mapping["b"] = 2, 2
    registry.get_or_create_snapshot(2)
    registry.restore(1)
    assert dict(mapping.items()) == {"a": 1}
    registry.revert_to(2)
    assert dict(mapping.items()) == {"a": 2, "b": 2}
