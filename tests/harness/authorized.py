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
from uuid import UUID

import pytest

from kraftlite.client.acls import ALL_ENTRIES
from kraftlite.model.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.principal import ANONYMOUS, Principal, Requester
from kraftlite.protocol.kio_codec import decode_response
from kraftlite.wire.frames import Connection
from tests.harness.api_samples import CONSUMERS, GROUP, TOPIC, TXN, consumer
from tests.harness.wire_fakes import request_bytes

ADDRESSES = {"admin": "127.0.0.1", "alice": "127.0.0.2", "bob": "127.0.0.3"}
STANDARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
QUIET = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.retention.ms": -1,
    "group.consumer.session.timeout.ms": 3_600_000,
    "group.consumer.max.session.timeout.ms": 3_600_000,
}
"""Nothing ends by itself while a slow machine asks: sessions do not, and the old times of the samples make no record expire."""
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
NO_EXTRAS = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
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
        self.name = name
        self._server = server
        self._correlation_id = 0
        self._socket = self._opened()

    def _opened(self) -> socket.socket:
        return self._connected((ADDRESSES[self.name], 0))

    def _connected(self, source: tuple[str, int] | None) -> socket.socket:
        host, _, port = self._server.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=20, source_address=source)

    def reopen(self) -> None:
        self.close()
        self._socket = self._opened()

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


class LoggedIn(User):
    """The same with a password, by PLAIN."""

    def __init__(self, name: str, server: str, password: str) -> None:
        self._token = f"\0{name}\0{password}".encode()
        super().__init__(name, server)

    def _opened(self) -> socket.socket:
        self._socket = self._connected(None)
        assert self.call(17, 1, {"mechanism": "PLAIN"}).error_code.value == 0
        told = self.call(36, 2, {"auth_bytes": self._token})
        assert told.error_code.value == 0, told
        return self._socket


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
    while (found := entries_of(admin)) != wanted:
        assert found <= wanted + len(removed.matching_acls)


def entries_of(admin: User) -> int:
    """The number of entries by which the node that is asked decides."""
    return sum(len(it.acls) for it in admin.call(29, 3, _EVERYTHING).resources)


def create(admin: User, name: str) -> UUID:
    """Make a topic, and wait for its leader. Returns its id."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (made,) = admin.call(19, 7, {"topics": [topic], "timeout": 10_000, "validate_only": False}).topics
    assert made.error_code.value == 0
    while True:
        (seen,) = admin.call(3, 11, {"topics": [{"topic_id": UUID(int=0), "name": name}], **NO_EXTRAS}).topics
        if seen.error_code.value == 0 and seen.partitions and seen.partitions[0].leader_id >= 0:
            return UUID(str(made.topic_id))


def until_loaded(user: User, key: int, version: int, values: Mapping[str, Any]) -> Any:
    """The answer, as soon as coordinators have loaded what they need."""
    while True:
        answer = user.call(key, version, values)
        if not codes(answer) & LOADING:
            assert codes(answer) == {0}, answer
            return answer


def commit_offset(admin: User) -> None:
    """Of the group that samples are about."""
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    offsets = {"topics": [{"name": TOPIC, "partitions": [partition]}], "group_id": GROUP, "member_id": ""}
    until_loaded(admin, 8, 7, {**offsets, "generation_id_or_member_epoch": -1, "group_instance_id": None})


def prepared(admin: User) -> dict[str, Any]:
    """Make the topic, groups and transactional ids that `BROKER_SAMPLES` ask for. Returns the facts of the samples."""
    facts: dict[str, Any] = {"id": create(admin, TOPIC)}
    for kind, key in ((0, GROUP), (1, TXN)):
        until_loaded(admin, 10, 4, {"key_type": kind, "coordinator_keys": [key]})
    commit_offset(admin)
    until_loaded(admin, 68, 0, consumer(CONSUMERS, [TOPIC]))
    for name in (TXN, "txn-open"):
        asked = {"transactional_id": name, "transaction_timeout": 900_000, "producer_id": -1, "producer_epoch": -1}
        producer = until_loaded(admin, 22, 4, asked)
    added = {
        "v3_and_below_transactional_id": "txn-open",
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    }
    until_loaded(admin, 24, 3, added)
    return facts


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
