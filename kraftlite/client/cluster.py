"""Requests of administrators, each sent to the broker that can carry it out: any one, a certain one, a leader, a coordinator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

from kraftlite.client.connection import code_of
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.routing import FAILURES, RetryBudget, Routing, metadata_values, told
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA

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
_SILENT_COORDINATOR_S: Final = 10.0
"""For a coordinator that takes connections and answers nothing: a little longer than a session, after which there is another."""


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


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates some groups. `call`: send it a request (API key, version, plain values)."""

    node: BrokerNode
    call: Callable[[int, int, Mapping[str, Any]], Any]


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

    ENDPOINT_TYPE: ClassVar = 1
    """The kind of nodes that it asks DescribeCluster for: brokers."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._nodes: dict[int, BrokerNode] | None = None
        self._coordinating: dict[str, BrokerNode] = {}
        """The known coordinators of groups."""
        self._of_transactions: dict[str, BrokerNode] = {}
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
            values = {"include_cluster_authorized_operations": False, "endpoint_type": self.ENDPOINT_TYPE}
            found = check(self.call(DESCRIBE_CLUSTER, 1, values))
            self.cluster_id = str(found.cluster_id)
            self.controller_id = int(found.controller_id)
            self._nodes = _by_id(BrokerNode(int(one.broker_id), str(one.host), int(one.port), one.rack) for one in found.brokers)
        return self._nodes

    def look_again(self) -> None:
        """Forget which brokers are live, for a caller that has found one silent."""
        self._nodes = None

    def broker(self, broker_id: int) -> BrokerNode:
        found = self.brokers().get(broker_id)
        if found is None:
            raise ClientError(f"broker {broker_id} is not there; live brokers are {', '.join(map(str, self.brokers()))}")
        return found

    def topics(self, names: list[str] | None = None) -> dict[str, Any]:
        """Metadata of topics, by name in order: of those that exist. None: of all that the user may see. Raises RequestRefused
        where one that is named may not be seen."""
        found = self.call(METADATA, 12, metadata_values(names))
        if self._nodes is None:
            self._nodes = _by_id(BrokerNode(int(one.node_id), str(one.host), int(one.port), one.rack) for one in found.brokers)
            self.cluster_id, self.controller_id = str(found.cluster_id), int(found.controller_id)
        for topic in found.topics:
            if names is not None and code_of(topic) is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise RequestRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"this user may not see topic {topic.name}")
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

    def at_brokers(self, api_key: int, version: int, values: Mapping[str, Any], again: Collection[ErrorCode]) -> list[Any]:
        """The answer of each live broker, which is asked again while its error is one of `again` and the settings' time lasts."""
        budget = self._budget("")
        answers = []
        for broker in self.brokers():
            while True:
                answer = self.call(api_key, version, values, broker=broker)
                if code_of(answer) not in again:
                    break
                try:
                    budget.pause("")
                except ClientError:
                    break
            answers.append(answer)
        return answers

    def at_coordinators(
        self,
        groups: Iterable[str],
        ask: Callable[[Coordinator, list[str]], Mapping[str, T | ClientError]],
        again: Collection[ErrorCode] = (),
        *,
        transactions: bool = False,
    ) -> dict[str, T | ClientError]:
        """Collect what `ask` finds about the groups of each coordinator, in the order of `groups`. With `transactions` they are
        transactional ids.

        A finding that is a ClientError says why there is no other: the coordinator refused, cannot be found, or does not answer.
        Coordinators are found in one request for all groups (KIP-699). When one is gone, or the group has moved from it or is
        being loaded, the next one is asked, while the settings' time lasts; so it is for a refusal with one of `again`. Then the
        last finding counts.
        """
        budget = self._budget("")
        wanted = list(dict.fromkeys(groups))
        known = self._of_transactions if transactions else self._coordinating
        found: dict[str, T | ClientError] = {}
        left = wanted
        while left:
            unknown = [group for group in left if group not in known]
            found.update(self._find_coordinators(unknown, known, budget, key_type=int(transactions)))
            by_node: dict[BrokerNode, list[str]] = {}
            for group in left:
                if group in known:
                    by_node.setdefault(known[group], []).append(group)
            for node, theirs in by_node.items():
                found.update(self._at_coordinator(node, theirs, ask, budget))
            left = [group for group in left if _is_to_be_asked_again(found[group], again)]
            for group in left:
                known.pop(group, None)
            try:
                if left:
                    budget.pause("")
            except ClientError:
                break
        return {group: found[group] for group in wanted}

    def _find_coordinators(
        self, groups: list[str], known: dict[str, BrokerNode], budget: RetryBudget, *, key_type: int
    ) -> dict[str, ClientError]:
        """Learn who coordinates these groups, into `known`; return why nobody does, for the others."""
        if not groups:
            return {}
        values = {"key_type": key_type, "coordinator_keys": groups}
        answer = self._ask_anyone(FIND_COORDINATOR, values, budget, version=4)
        problems: dict[str, ClientError] = {}
        for one in answer.coordinators:
            code = code_of(one)
            if code is ErrorCode.NONE:
                known[str(one.key)] = BrokerNode(int(one.node_id), str(one.host), int(one.port), None)
            else:
                problems[str(one.key)] = RequestRefused(code, one.error_message)
        unnamed = [group for group in groups if group not in known and group not in problems]
        return problems | dict.fromkeys(unnamed, ClientError("no broker named its coordinator"))

    def _at_coordinator(
        self,
        node: BrokerNode,
        groups: list[str],
        ask: Callable[[Coordinator, list[str]], Mapping[str, T | ClientError]],
        budget: RetryBudget,
    ) -> dict[str, T | ClientError]:
        address = (node.host, node.port)
        deadline = budget.deadline(_SILENT_COORDINATOR_S)

        def call(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
            return self._connect(address, deadline).ask(api_key, values, deadline, version=version)

        try:
            answers = ask(Coordinator(node, call), groups)
        except FAILURES as error:
            self._lost(address)
            return dict.fromkeys(groups, ClientError(f"no broker answered ({told(address, error)})"))
        unnamed = ClientError(f"its coordinator {node.address} did not answer for it")
        return {group: answers.get(group, unnamed) for group in groups}


def _by_id(nodes: Iterable[BrokerNode]) -> dict[int, BrokerNode]:
    return {node.id: node for node in sorted(nodes, key=lambda node: node.id)}


def _is_to_be_asked_again(finding: object, again: Collection[ErrorCode]) -> bool:
    if not isinstance(finding, ClientError):
        return False
    return finding.code is None or finding.code in _ELSEWHERE or finding.code in again
