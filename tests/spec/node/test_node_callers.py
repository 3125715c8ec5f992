"""Calls between nodes are for those who may act as nodes, whatever certificate somebody has (SE-06)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.methods import NODE_STATUS
from kraftlite.model.principal import Principal
from kraftlite.node.authorization import for_nodes
from kraftlite.runtime.caller import CALLER
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.security import AccessDenied
from kraftlite.security.authorizer import Authorizer, super_users
from kraftlite.security.gate import Gate

ALICE, NODE = Principal.parse("User:alice"), Principal.parse("User:node-1")
ENTRY = UUID(int=1)
GRANT = AclBinding(
    resource_type=ResourceType.CLUSTER,
    resource_name=CLUSTER_NAME,
    pattern_type=PatternType.LITERAL,
    principal=str(ALICE),
    host="*",
    operation=Operation.CLUSTER_ACTION,
    permission_type=Permission.ALLOW,
)
OTHERS = replace(GRANT, principal="User:other")


@pytest.fixture(autouse=True)
def nobody_calls() -> Iterator[None]:
    token = CALLER.set(None)
    yield
    CALLER.reset(token)


async def answer(_: Any) -> str:
    return "answered"


async def asked(gate: Gate | None, principal: Principal | None) -> str:
    CALLER.set(principal)
    found: str = await for_nodes({NODE_STATUS: answer}, gate)[NODE_STATUS](None)
    return found


def gate(tracer: ListTracer | None = None) -> Gate:
    return Gate(Authorizer(super_users("User:node-1"), allow_everyone=True), lambda: 0, tracer or ListTracer())


async def test_a_user_with_a_certificate_is_refused_and_the_refusal_is_told() -> None:
    """SE-06, SE-38."""
    tracer = ListTracer()
    closed = gate(tracer)
    closed.authorizer.update({UUID(int=2): OTHERS})
    with pytest.raises(ApiError) as caught:
        await asked(closed, ALICE)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    [denied] = [event for event in tracer.events if isinstance(event, AccessDenied)]
    assert (denied.principal, denied.operation, denied.resource) == (
        "User:alice",
        "CLUSTER_ACTION",
        "Cluster:LITERAL:kafka-cluster",
    )


async def test_nodes_are_super_users_or_have_the_right() -> None:
    """SE-06, SE-34: super users at once, and others when the entries are loaded."""
    closed = gate()
    assert await asked(closed, NODE) == "answered"
    with pytest.raises(ApiError, match="are not loaded yet"):
        await asked(closed, ALICE)
    closed.authorizer.update({ENTRY: GRANT})
    assert await asked(closed, ALICE) == "answered"
    closed.authorizer.update({ENTRY: None, UUID(int=3): OTHERS})
    with pytest.raises(ApiError):
        await asked(closed, ALICE)


async def test_where_nobody_authenticates_or_nothing_authorizes_nodes_are_served_as_ever() -> None:
    assert await asked(gate(), None) == "answered"
    assert await asked(None, ALICE) == "answered"
