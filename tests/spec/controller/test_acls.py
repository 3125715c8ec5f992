"""Access control entries at the controller. Source: SE-30, SE-35; KAFKA-13892, KAFKA-14962."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.client.acls import ALL_ENTRIES
from kraftlite.metadata import records as r
from kraftlite.model.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.acls import CreateAclsRequest, DeleteAclsRequest
from tests.harness.controller_world import World

READ = AclBinding(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:alice",
    host="*",
    operation=Operation.READ,
    permission_type=Permission.ALLOW,
)
WRITE = replace(READ, operation=Operation.WRITE)


@pytest.fixture
def world() -> World:
    return World(has_authorizer=True)


def created(world: World, *bindings: AclBinding) -> list[ErrorCode]:
    request = CreateAclsRequest(creations=bindings, timeout_ms=1_000)
    answer = world.submit("test", lambda _now: world.state.acls.create(request))
    return [one.error for one in answer.value.results]


def entries(world: World) -> list[AclBinding]:
    return [record.binding for record in world.state.acls.entries.values()]


def test_an_equal_entry_is_there_once(world: World) -> None:
    """Source: SE-30."""
    assert created(world, READ, READ, WRITE) == [ErrorCode.NONE] * 3
    assert created(world, READ) == [ErrorCode.NONE]
    assert sorted(entries(world), key=lambda it: it.operation) == [READ, WRITE]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(READ, resource_type=ResourceType.ANY),
        replace(READ, resource_type=99),
        replace(READ, pattern_type=PatternType.MATCH),
        replace(READ, operation=Operation.ANY),
        replace(READ, permission_type=Permission.ANY),
        replace(READ, resource_name=""),
        replace(READ, principal="alice"),
        replace(READ, resource_type=ResourceType.CLUSTER, resource_name="other"),
    ],
)
def test_what_could_decide_nothing_is_refused_by_itself(world: World, wrong: AclBinding) -> None:
    """Source: SE-35."""
    assert created(world, wrong, READ) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert entries(world) == [READ]


@pytest.mark.parametrize(
    "odd",
    [
        replace(READ, principal="User:alice "),
        replace(READ, principal=" User:alice"),
        replace(READ, principal="User:"),
        replace(READ, principal=":alice"),
        replace(READ, host=""),
        replace(READ, host="a host"),
    ],
)
def test_se_35_whoever_and_wherever_somebody_is_may_be_named(world: World, odd: AclBinding) -> None:
    """As Kafka takes them: somebody may log in under a name with blanks at its ends, and has to be told apart."""
    assert created(world, odd) == [ErrorCode.NONE]
    assert entries(world) == [odd]


def test_an_entry_that_two_filters_match_is_removed_by_one_record(world: World) -> None:
    """Source: SE-30."""
    created(world, READ, WRITE)
    before = world.active.raft.log_end_offset()
    filters = (replace(ALL_ENTRIES, resource_name="t"), replace(ALL_ENTRIES, operation=Operation.READ))
    request = DeleteAclsRequest(filters=filters, timeout_ms=1_000)
    answer = world.submit("test", lambda _now: world.state.acls.delete(request))
    both, one = answer.value.results
    assert set(both.removed) == {READ, WRITE} and one.removed == (READ,)
    assert entries(world) == [] and world.active.raft.log_end_offset() - before == 2


def test_a_removal_of_what_is_not_there_is_fatal(world: World) -> None:
    """Source: SE-30."""
    created(world, READ)
    (key,) = world.state.acls.entries
    world.state.replay(r.RemoveAccessControlEntryRecord(id=key), 100)
    with pytest.raises(ValueError, match="no access control entry"):
        world.state.replay(r.RemoveAccessControlEntryRecord(id=key), 101)


def test_without_an_authorizer_there_are_none() -> None:
    world = World()
    answer = world.submit("test", lambda _now: world.state.acls.create(CreateAclsRequest(creations=(READ,), timeout_ms=1_000)))
    assert answer.code is ErrorCode.SECURITY_DISABLED
