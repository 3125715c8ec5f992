"""DQ-21, DQ-40: kraft.version, which the controller decides about and the quorum keeps."""

from __future__ import annotations

import pytest

from kraftlite.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kraftlite.metadata.records import FeatureLevelRecord, NoOpRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World

UP, SAFE, UNSAFE = 1, 2, 3


def update(world: World, *updates: tuple[str, int, int], validate_only: bool = False) -> ErrorCode:
    request = m.UpdateFeaturesRequest(
        updates=tuple(m.FeatureUpdate(name=name, level=level, upgrade_type=kind) for name, level, kind in updates),
        validate_only=validate_only,
        timeout_ms=1_000,
    )
    code = world.submit("update_features", lambda _now: world.state.features.update(request)).code
    assert code is not None
    return code


def test_dq_40_kraft_version_is_raised_by_the_quorum_and_answered_when_that_is_committed() -> None:
    world = World()
    raft, end = world.active.raft, world.quorum.leo
    assert update(world, (KRAFT_VERSION, 1, UP), validate_only=True) is ErrorCode.NONE
    assert update(world, (KRAFT_VERSION, 0, UP)) is ErrorCode.NONE, "as it is"
    assert (raft.kraft_level, world.quorum.leo) == (0, end)
    world.commit_at_once = False
    request = m.UpdateFeaturesRequest(
        updates=(m.FeatureUpdate(name=KRAFT_VERSION, level=1, upgrade_type=UP),), validate_only=False, timeout_ms=1
    )
    waits = world.submit("update", lambda _now: world.state.features.update(request))
    assert raft.kraft_level == 1 and not waits.done
    assert world.quorum.records()[-1:] == [NoOpRecord()] and KRAFT_VERSION not in world.state.features.finalized
    world.commit()
    assert waits.done


@pytest.mark.parametrize(("level", "kind"), [(0, UP), (0, SAFE), (0, UNSAFE), (2, UP), (2, SAFE)])
def test_dq_40_kraft_version_does_not_go_back(level: int, kind: int) -> None:
    world = World()
    assert update(world, (KRAFT_VERSION, 1, UP)) is ErrorCode.NONE
    end = world.quorum.leo
    assert update(world, (KRAFT_VERSION, level, kind)) is ErrorCode.INVALID_UPDATE_VERSION
    assert (world.active.raft.kraft_level, world.quorum.leo) == (1, end)


def test_dq_40_what_the_quorum_refuses_changes_nothing_else() -> None:
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=20),))
    world.active.raft.fail_upgrade = ApiError(ErrorCode.INVALID_UPDATE_VERSION, "not all of the voters support it")
    assert update(world, (METADATA_VERSION, 21, UP), (KRAFT_VERSION, 1, UP)) is ErrorCode.INVALID_UPDATE_VERSION
    assert world.state.features.metadata_version == 20


def test_dq_21_a_record_of_older_software_is_no_level_of_kraft_version() -> None:
    world = World(
        bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=20), FeatureLevelRecord(name=KRAFT_VERSION, level=1))
    )
    assert KRAFT_VERSION not in world.state.features.finalized
