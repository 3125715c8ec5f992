"""Requests of the command line for which librdkafka's Python client has no call, routed to the right broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import kraftlite.protocol.kio_import  # noqa: F401
from kraftlite.local.client import ClientError, ask
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.kio_codec import build_entity

from kio.index import load_request_schema, load_response_schema  # isort: skip  # after kio_import


class RequestRefused(ClientError):
    """A broker refused the request. `code` is Kafka's."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.reason = message or code.name


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker. `address`: host:port."""

    id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def call(address: str, api_key: int, version: int, values: Mapping[str, Any], *, timeout_s: float = 30.0) -> Any:
    """One request (`values` as `build_entity` takes them) to the first broker of `address` that answers. Raises ClientError."""
    request = build_entity(cast("type[Any]", load_request_schema(api_key, version)), values)
    return ask(address, request, cast("type[Any]", load_response_schema(api_key, version)), timeout_s)


def code_of(entity: Any) -> ErrorCode:
    """The `error_code` of a response or of a part of one."""
    return ErrorCode(int(entity.error_code.value))


def check(entity: Any, message: str | None = None) -> Any:
    """The entity itself, or RequestRefused."""
    code = code_of(entity)
    if code is not ErrorCode.NONE:
        raise RequestRefused(code, getattr(entity, "error_message", None) or message)
    return entity


class ClusterClient:
    """A cluster as its brokers describe it. Brokers are looked up once; each request is a connection of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._brokers: dict[int, BrokerNode] | None = None
        self.cluster_id = ""
        self.controller_id = -1

    def call(self, api_key: int, version: int, values: Mapping[str, Any], *, broker: int | None = None) -> Any:
        address = self.bootstrap if broker is None else self.broker(broker).address
        return call(address, api_key, version, values)

    def brokers(self) -> dict[int, BrokerNode]:
        """Live brokers by id, in order."""
        if self._brokers is None:
            values = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
            found = check(call(self.bootstrap, 60, 1, values))
            self.cluster_id = str(found.cluster_id)
            self.controller_id = int(found.controller_id)
            nodes = [BrokerNode(int(one.broker_id), str(one.host), int(one.port), one.rack) for one in found.brokers]
            self._brokers = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        return self._brokers

    def broker(self, broker_id: int) -> BrokerNode:
        found = self.brokers().get(broker_id)
        if found is None:
            raise ClientError(f"broker {broker_id} is not there; live brokers are {', '.join(map(str, self.brokers()))}")
        return found

    def topics(self, names: list[str] | None = None) -> dict[str, Any]:
        """Metadata of topics, by name in order: of those that exist. None: of all."""
        wanted = None if names is None else [{"topic_id": None, "name": name} for name in names]
        values = {"topics": wanted, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        found = call(self.bootstrap, 3, 12, values)
        known = [topic for topic in found.topics if code_of(topic) is ErrorCode.NONE]
        return {str(topic.name): topic for topic in sorted(known, key=lambda topic: str(topic.name))}

    def leaders(self, names: list[str] | None = None) -> dict[tuple[str, int], int | None]:
        """(topic, partition) to its leader, None when it has none."""
        return {
            (name, int(part.partition_index)): int(part.leader_id) if part.leader_id >= 0 else None
            for name, topic in self.topics(names).items()
            for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
        }
