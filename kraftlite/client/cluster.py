"""Requests of administrators, each sent to the broker that can carry it out: any one, a certain one, a leader, a coordinator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar

from kraftlite.client.connection import code_of
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.routing import Routing, metadata_values
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import DESCRIBE_CLUSTER, METADATA

T = TypeVar("T")
Partition = tuple[str, int]

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Another broker leads the partition, or soon will."""
_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Another broker coordinates the group, or this one soon will."""


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


def check(entity: Any, message: str | None = None) -> Any:
    """The entity itself. RequestRefused when its `error_code` is one, with its own message or else this one."""
    code = code_of(entity)
    if code is not ErrorCode.NONE:
        raise RequestRefused(code, getattr(entity, "error_message", None) or message)
    return entity


class ClusterClient(Routing):
    """A cluster as its brokers describe it. Keeps its connections until it is closed, at the latest when it is forgotten.

    Brokers are looked up once, and again when a leader turns out to be another. Methods raise ClientError when no broker answers
    while the settings' time lasts; what brokers answer is the caller's to `check`. A request is sent again when its connection
    broke before the answer, as Kafka's admin client does: it may have been carried out by then.
    """

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._nodes: dict[int, BrokerNode] | None = None
        self.cluster_id = ""
        self.controller_id = -1

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def call(
        self,
        api_key: int,
        version: int,
        values: Mapping[str, object],
        *,
        broker: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """kio's response to a request made of plain values, by any broker or by this one. `timeout_ms`: how long this call goes
        on trying; None: as the settings say."""
        budget = self._budget("", timeout_ms)
        among = [] if broker is None else [self.broker(broker)]
        addresses = [(node.host, node.port) for node in among]
        return self._ask_anyone(api_key, values, budget, version=version, limit_s=math.inf, among=addresses)

    def brokers(self) -> dict[int, BrokerNode]:
        """Live brokers by id, in order."""
        if self._nodes is None:
            values = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
            found = check(self.call(DESCRIBE_CLUSTER, 1, values))
            self.cluster_id = str(found.cluster_id)
            self.controller_id = int(found.controller_id)
            nodes = [BrokerNode(int(one.broker_id), str(one.host), int(one.port), one.rack) for one in found.brokers]
            self._nodes = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        return self._nodes

    def broker(self, broker_id: int) -> BrokerNode:
        found = self.brokers().get(broker_id)
        if found is None:
            raise ClientError(f"broker {broker_id} is not there; live brokers are {', '.join(map(str, self.brokers()))}")
        return found

    def topics(self, names: list[str] | None = None) -> dict[str, Any]:
        """Metadata of topics, by name in order: of those that exist. None: of all."""
        found = self.call(METADATA, 12, metadata_values(names))
        known = [topic for topic in found.topics if code_of(topic) is ErrorCode.NONE]
        return {str(topic.name): topic for topic in sorted(known, key=lambda topic: str(topic.name))}

    def leaders(self, names: list[str] | None = None) -> dict[Partition, int | None]:
        """(topic, partition) to its leader, None when it has none."""
        return {
            (name, int(part.partition_index)): int(part.leader_id) if part.leader_id >= 0 else None
            for name, topic in self.topics(names).items()
            for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
        }

    def at_leaders(
        self,
        leaders: Mapping[Partition, int | None],
        ask: Callable[[int, list[Partition]], Mapping[Partition, T]],
        code: Callable[[T], ErrorCode],
    ) -> dict[Partition, T]:
        """Collect what `ask` finds about the partitions of each leader; those without a leader are left out. When a leader is
        gone, or says that it leads a partition no more, the next one is asked, while the settings' time lasts. `code`: of a
        finding."""
        budget = self._budget("")
        found: dict[Partition, T] = {}
        left = {partition: leader for partition, leader in leaders.items() if leader is not None}
        while True:
            gone: ClientError | None = None
            again: list[Partition] = []
            for leader in sorted({*left.values()}):
                theirs = [partition for partition, one in left.items() if one == leader]
                try:
                    found.update(ask(leader, theirs))
                except ClientError as error:
                    if error.code is not None:
                        raise
                    gone = error
                    again += theirs
                else:
                    again += [partition for partition in theirs if partition in found and code(found[partition]) in _MOVED]
            if not again:
                return found
            left = {}
            while not left:
                try:
                    budget.pause("")
                except ClientError:
                    if gone is not None:
                        raise gone from None
                    return found
                self._nodes = None
                now = self.leaders(sorted({topic for topic, _index in again}))
                left = {partition: new for partition in again if (new := now.get(partition)) is not None}

    def call_coordinator(
        self, group: str, api_key: int, version: int, values: Mapping[str, object], code: Callable[[Any], ErrorCode]
    ) -> Any:
        """The answer of the group's coordinator, whichever broker that turns out to be while the settings' time lasts. `code`: of
        an answer. Raises ClientError, with Kafka's code, when there is none for such a group."""
        budget = self._budget("")
        while True:
            answer = self._ask_where(group, api_key, values, budget, version)
            if answer is None:
                continue
            if code(answer) not in _ELSEWHERE:
                return answer
            self._coordinators.pop(group, None)
            try:
                budget.pause("")
            except ClientError:
                return answer
