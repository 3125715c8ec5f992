"""Feature levels: who must have a level, what a change of it may lose, and what each level switches on (KIP-584, KIP-1022)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

import kraftlite
from kraftlite.metadata import features
from kraftlite.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    TRANSACTION_VERSION,
)
from kraftlite.metadata.records import BeginTransactionRecord, ConfigRecord, FeatureLevelRecord
from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from tests.harness.controller_world import World

UP, SAFE, UNSAFE = 1, 2, 3
ELR = ELIGIBLE_LEADER_REPLICAS_VERSION


def at(level: int, *more: tuple[str, int], **config: object) -> World:
    levels = ((METADATA_VERSION, level), *more)
    return World(bootstrap=tuple(FeatureLevelRecord(name=name, level=it) for name, it in levels), **config)  # type: ignore[arg-type]


def update(world: World, *updates: tuple[str, int, int], validate_only: bool = False) -> tuple[ErrorCode | None, str]:
    request = m.UpdateFeaturesRequest(
        updates=tuple(m.FeatureUpdate(name=name, level=level, upgrade_type=kind) for name, level, kind in updates),
        validate_only=validate_only,
        timeout_ms=1_000,
    )
    answer = world.submit("update_features", lambda _now: world.state.features.update(request))
    return answer.code, "" if answer.error is None else str(answer.error.message)


def register_controller(world: World, controller_id: int, ranges: Iterable[m.FeatureRange]) -> ErrorCode | None:
    request = m.ControllerRegistrationRequest(
        cluster_id=world.active.core.config.cluster_id,
        controller_id=NodeId(controller_id),
        incarnation_id=UUID(int=controller_id),
        listeners=(),
        features=tuple(ranges),
    )
    return world.submit("register_controller", lambda _now: world.state.cluster.register_controller(request)).code


def test_fv_01_each_level_of_metadata_version_has_its_features() -> None:
    found = {
        level: {name: features.default_level(name, level) for name in (TRANSACTION_VERSION, GROUP_VERSION, ELR)}
        for level in METADATA_VERSIONS
    }
    for level, levels in found.items():
        assert levels == {
            TRANSACTION_VERSION: 2 if level >= 24 else 0,
            GROUP_VERSION: int(level >= 22),
            ELR: int(level >= 26),
        }
    assert features.default_level(KRAFT_VERSION, 30) <= features.supported_range(KRAFT_VERSION).max_level  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_fv_02_a_downgrade_never_crosses_a_level_that_changes_metadata(kind: int) -> None:
    changing = {7, 8, 11, 13, 14, 15, 17, 23, 30}
    assert {level for level, it in METADATA_VERSIONS.items() if it.changes_metadata} == changing
    for current in METADATA_VERSIONS:
        for level in range(7, current):
            lost = any(level < it <= current for it in changing)
            code, words = update(at(current), (METADATA_VERSION, level, kind))
            assert code is (ErrorCode.INVALID_UPDATE_VERSION if lost else ErrorCode.NONE), (current, level)
            why = "it might delete metadata information" if kind == SAFE else "Unsafe metadata downgrade is not supported"
            assert (why in words) is lost


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ((METADATA_VERSION, 20, 9), "The controller does not support the given upgrade type."),
        ((METADATA_VERSION, -1, UP), "A feature version cannot be less than 0."),
        ((METADATA_VERSION, 0, SAFE), "Local controller 100 only supports versions 7-30"),
        ((METADATA_VERSION, 31, UP), "Local controller 100 only supports versions 7-30"),
        (("nope", 1, UP), "Local controller 100 does not support this feature."),
        (("nope", 0, SAFE), "Feature nope not found."),
        ((KRAFT_VERSION, 9, UP), "Local controller 100"),
        ((METADATA_VERSION, 19, UP), "Can't downgrade the version of this feature without setting the upgrade type to"),
        ((METADATA_VERSION, 21, UNSAFE), "Can't downgrade to a newer version."),
    ],
)
def test_fv_03_a_refusal_says_what_kafkas_says(wanted: tuple[str, int, int], words: str) -> None:
    code, told = update(at(20), wanted)
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert told.startswith(f"Invalid update version {wanted[1]} for feature {wanted[0]}. {words}")


def test_fv_03_every_node_must_have_the_level_and_the_first_that_has_not_is_named() -> None:
    voters = (NodeId(100), NodeId(101))
    narrow = (m.FeatureRange(name=METADATA_VERSION, min_level=7, max_level=20),)
    wide = (m.FeatureRange(name=METADATA_VERSION, min_level=7, max_level=30),)
    world = at(20, quorum_voters=voters)
    assert world.register(1, features=narrow).code is ErrorCode.NONE
    assert update(world, (METADATA_VERSION, 21, UP))[1].endswith("Broker 1 only supports versions 7-20")
    assert update(world, (GROUP_VERSION, 1, UP))[1].endswith("Broker 1 does not support this feature.")

    world = at(20, quorum_voters=voters)
    missing = "controller 101 has not registered, and may not support this feature"
    assert update(world, (METADATA_VERSION, 21, UP))[1].endswith(missing), "the active one need not have registered"
    assert register_controller(world, 101, narrow) is ErrorCode.NONE
    assert update(world, (METADATA_VERSION, 21, UP))[1].endswith("Controller 101 only supports versions 7-20")
    assert register_controller(world, 101, wide) is ErrorCode.NONE
    assert update(world, (METADATA_VERSION, 21, UP))[0] is ErrorCode.NONE


def test_fv_03_the_same_level_again_writes_its_record_and_nothing_else() -> None:
    world = at(30, (ELR, 1))
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    world.fence(2)
    assert world.partition("t").elr == (2,)
    end = len(world.quorum.records())
    assert update(world, (ELR, 1, UP))[0] is ErrorCode.NONE
    assert world.quorum.records()[end:] == [FeatureLevelRecord(name=ELR, level=1)]
    assert world.partition("t").elr == (2,)
    assert update(world, (ELR, 0, SAFE))[0] is ErrorCode.NONE
    assert world.partition("t").elr == ()
    end = len(world.quorum.records())
    assert update(world, (ELR, 0, SAFE))[0] is ErrorCode.NONE
    assert world.quorum.records()[end:] == [FeatureLevelRecord(name=ELR, level=0)]
    assert not world.state.features.elr_enabled


def test_fv_04_dependencies_hold_after_the_whole_request_in_both_directions() -> None:
    world = at(22)
    needs = "could not be set to 1 because it depends on metadata.version level 23"
    assert needs in update(world, (ELR, 1, UP))[1]
    assert update(world, (ELR, 1, UP), (METADATA_VERSION, 23, UP), validate_only=True)[0] is ErrorCode.NONE
    assert update(world, (ELR, 1, UP), (METADATA_VERSION, 23, UP))[0] is ErrorCode.NONE
    assert world.state.features.elr_enabled
    assert any(isinstance(it, ConfigRecord) and it.name == "min.insync.replicas" for it in world.quorum.records())
    world.active.core.state.features.replay(FeatureLevelRecord(name=METADATA_VERSION, level=25))
    assert update(world, (METADATA_VERSION, 23, SAFE))[0] is ErrorCode.NONE


def test_fv_05_a_broker_that_lacks_a_finalized_level_is_refused() -> None:
    mine = m.FeatureRange(name=METADATA_VERSION, min_level=7, max_level=30)
    group = m.FeatureRange(name=GROUP_VERSION, min_level=0, max_level=1)
    world = at(30, (GROUP_VERSION, 1))
    assert world.register(1, features=(mine,)).code is ErrorCode.UNSUPPORTED_VERSION
    assert world.register(1, features=(mine, group)).code is ErrorCode.NONE
    assert update(world, (GROUP_VERSION, 0, SAFE))[0] is ErrorCode.NONE
    assert world.register(2, features=(mine,)).code is ErrorCode.NONE


def test_fv_05_a_controller_stops_at_a_level_that_it_does_not_have() -> None:
    older = tuple(
        m.FeatureRange(name=it.name, min_level=it.min_level, max_level=min(it.max_level, 29))
        for it in features.SUPPORTED_FEATURES
    )
    with pytest.raises(Fault, match=r"metadata.version is finalized at level 30, but this software supports levels 7-29"):
        World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=30),), supported_features=older)


def test_fv_08_every_gate_has_a_caller() -> None:
    """A gate that nobody asks is a level that switches nothing on."""
    gates = [
        name
        for name, it in inspect.getmembers(features, inspect.isfunction)
        if list(inspect.signature(it).parameters) == ["level"]
    ]
    assert len(gates) >= 6
    source = "\n".join(path.read_text() for path in Path(kraftlite.__file__).parent.rglob("*.py") if path.name != "features.py")
    assert [gate for gate in gates if not re.search(rf"\b{gate}\(", source)] == []


@pytest.mark.parametrize("level", METADATA_VERSIONS)
def test_fv_08_what_a_level_switches_on(level: int) -> None:
    world = at(level)
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    records = world.quorum.records()
    assert any(isinstance(it, BeginTransactionRecord) for it in records) is (level >= 13)
    wanted = ErrorCode.NONE if level >= 15 else ErrorCode.UNSUPPORTED_VERSION
    assert register_controller(world, 100, features.SUPPORTED_FEATURES) is wanted
    assert bool(world.state.cluster.brokers[NodeId(1)].log_dirs) is (level >= 17)
    assert bool(world.partition("t").directories) is (level >= 17)
    epoch = world.partition("t").leader_epoch
    world.fence(2)
    assert world.partition("t").leader_epoch - epoch == (0 if level >= 12 else 1)
    assert (update(world, (ELR, 1, UP))[0] is ErrorCode.NONE) is (level >= 23)
    (cordoned,) = world.set_config(ConfigResourceType.BROKER, "1", (CORDONED_DIRS, AlterConfigOp.DELETE, None)).value.resources
    assert (cordoned.error is ErrorCode.NONE) is (level >= 30)


def test_fv_08_the_refusal_of_a_registration_names_the_level() -> None:
    world = at(14)
    with pytest.raises(ApiError, match=r"metadata.version 14 is too old to support controller registrations"):
        _ = world.submit(
            "x",
            lambda _now: world.state.cluster.register_controller(
                m.ControllerRegistrationRequest(
                    cluster_id=world.active.core.config.cluster_id,
                    controller_id=NodeId(100),
                    incarnation_id=UUID(int=1),
                    listeners=(),
                    features=(),
                )
            ),
        ).value
