"""Users without a password: the address that a client binds says who it is, so that ACLs can be tested by themselves.

`users_by_address` sets what authentication would set, the principal of a connection, in this process alone.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from kraftlite.client.acls import ALL_ENTRIES
from kraftlite.model.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.principal import ANONYMOUS, Principal, Requester
from kraftlite.protocol.kio_codec import decode_response
from kraftlite.wire.frames import Connection
from tests.harness.wire_fakes import request_bytes

ADDRESSES = {"admin": "127.0.0.1", "alice": "127.0.0.2", "bob": "127.0.0.3"}
STANDARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@contextmanager
def users_by_address() -> Iterator[None]:
    users = {address: Principal("User", name) for name, address in ADDRESSES.items()}
    original = Connection.connection_made

    def connection_made(self: Connection, transport: asyncio.BaseTransport) -> None:
        original(self, transport)
        self.principal = users.get(self.peer_host, ANONYMOUS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "connection_made", connection_made)
        yield


class User:
    """A connection of one user to one node."""

    def __init__(self, name: str, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20, source_address=(ADDRESSES[name], 0))
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
        """The frame that answers."""
        self._correlation_id += 1
        frame = request_bytes(api_key, version, values, self._correlation_id, "test")
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        return decode_response(api_key, version, memoryview(self.send(api_key, version, values)))

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            if not more:
                raise ConnectionError("the node closed the connection")
            found += more
        return found


def entry(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


_EVERYTHING = {
    "resource_type_filter": ALL_ENTRIES.resource_type,
    "resource_name_filter": None,
    "pattern_type_filter": ALL_ENTRIES.pattern_type,
    "principal_filter": None,
    "host_filter": None,
    "operation": ALL_ENTRIES.operation,
    "permission_type": ALL_ENTRIES.permission_type,
}


def grant_only(admin: User, entries: list[AclBinding]) -> None:
    """Replace all entries, and wait until the node that is asked decides by them."""
    (removed,) = admin.call(31, 3, {"filters": [_EVERYTHING]}).filter_results
    assert removed.error_code.value == 0, removed
    creations = [
        {
            "resource_type": one.resource_type,
            "resource_name": one.resource_name,
            "resource_pattern_type": one.pattern_type,
            "principal": one.principal,
            "host": one.host,
            "operation": one.operation,
            "permission_type": one.permission_type,
        }
        for one in entries
    ]
    for result in admin.call(30, 3, {"creations": creations}).results:
        assert result.error_code.value == 0, result
    wanted = len(set(entries))
    while (found := len([acl for it in admin.call(29, 3, _EVERYTHING).resources for acl in it.acls])) != wanted:
        assert found <= wanted + len(removed.matching_acls)


def codes(value: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    if isinstance(value, list | tuple):
        for one in value:
            found |= codes(one)
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name.endswith("error_code") and field.name != "topic_config_error_code":
                found.add(int(getattr(inner, "value", inner)))
            else:
                found |= codes(inner)
    return found


def for_nobody(request: Any) -> Any:
    """The same request without the client on whose behalf it is made, who must be the one of `RawClient`."""
    assert request.requester.requester() == Requester(ANONYMOUS, "127.0.0.1", "raw")
    return replace(request, requester=None)
