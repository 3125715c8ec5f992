"""The same requests to the controllers of an Apache Kafka and of kraftlite: `python -m tests.clients.compare_controllers`.

Both have three nodes that are controller and broker. Every request goes to the active controller and to a standby. The error
codes must be the same, wherever they are in the answer, and so must the versions that are offered. Ends with 1 when there is a
difference that is not in `KNOWN`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from kraftlite.protocol.kio_codec import build_entity, decode_response
from tests.clients.compare_sides import SHARED, plain
from tests.clients.java.apache import apache_kafka
from tests.clients.raw import Closed, Connection
from tests.harness.local import running, wait_for

# isort: split
from kio.index import load_request_schema

Asked = tuple[str, int, int, Mapping[str, Any]]
BETWEEN_NODES: Final = frozenset({1, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
"""What Apache Kafka's nodes ask its controllers; nodes talk gRPC here."""
NOT_ANSWERED: Final = frozenset({41, 50})
"""Advertised by Apache Kafka's controllers, which then know no such request (CB-01)."""
UNREADABLE: Final = frozenset({38, 39, 40, 55})
"""APIs whose answers may have a time of -1, which kio does not read."""
_VALUE: Final = "Kafka's controllers store any value of a broker's key; here it is refused, as by a broker"
_DELETED: Final = "a standby does not know whether a topic is there, and sends the client to the active controller"
KNOWN: Final[Mapping[str, str]] = {
    "nonsense for 4 ''": _VALUE,
    "nonsense for 4 '2'": _VALUE,
    "only nonsense for 4 '2'": _VALUE,
    "a topic that is not there": _DELETED,
    "an id that is not there": _DELETED,
    "no features": "a standby has nothing to refuse where nothing is asked for",
}
"""By the name of a request: why its answers differ."""
_NO_ID: Final = UUID(int=0)


class Side:
    """The controllers of one cluster, by node id."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses

    def ask(self, node: int, key: int, version: int, values: Mapping[str, Any]) -> Any:
        connection = Connection(self._addresses[node], timeout_s=40)
        try:
            connection.send_request(build_entity(load_request_schema(key, version), values))
            if key in UNREADABLE:
                return plain(decode_response(key, version, memoryview(connection.receive())))
            return plain(connection.answer(key, version))
        except Closed:
            return {"closed": True}
        finally:
            connection.close()

    def offered(self) -> dict[int, tuple[int, int]]:
        connection = Connection(self._addresses[1])
        found = connection.offered()
        connection.close()
        return {key: versions for key, versions in found.items() if key not in BETWEEN_NODES | NOT_ANSWERED}

    def roles(self) -> dict[str, int]:
        """The active controller and a standby."""

        def found() -> int:
            values = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
            told = {str(self.ask(node, 60, 1, values).get("controller_id", -1)) for node in self._addresses}
            return int(told.pop()) if len(told) == 1 else -1

        active: int = wait_for("all agree on the active controller", lambda: max(found(), 0))
        return {"active": active, "standby": next(node for node in self._addresses if node != active)}


def codes(answer: Any) -> list[str]:
    """Every error code in an answer, with where it is; lists of results are a set."""
    if isinstance(answer, Mapping):
        own = [f"{key}={value}" for key, value in answer.items() if key in ("error_code", "closed")]
        return own + [f"{key}.{one}" for key, value in answer.items() for one in codes(value)]
    if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
        return sorted(one for item in answer for one in codes(item))
    return []


def requests() -> Iterator[Asked]:
    """In this order: the later ones use what the earlier ones have made."""

    def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
        made = {"name": name, "num_partitions": partitions, "replication_factor": replicas, "assignments": [], "configs": []}
        return {**made, **more}

    def create(*topics: Mapping[str, Any], only_check: bool = False) -> Mapping[str, Any]:
        return {"topics": topics, "timeout": 10_000, "validate_only": only_check}

    yield "a topic", 19, 7, create(topic("one", 2, 3))
    yield "a topic twice", 19, 7, create(topic("two"), topic("two"))
    yield "a topic that is there", 19, 7, create(topic("one"))
    yield "a topic without partitions", 19, 7, create(topic("none", 0))
    yield "too many replicas", 19, 7, create(topic("many", 1, 9))
    yield "a bad name", 19, 7, create(topic("bad name"))
    yield "the metadata topic", 19, 7, create(topic("__cluster_metadata"))
    yield "a bad config", 19, 7, create(topic("bad", configs=[{"name": "nope", "value": "1"}]))
    yield "only checked", 19, 7, create(topic("checked"), only_check=True)
    yield "no topics", 19, 7, create()
    yield "more partitions", 37, 3, {"topics": [{"name": "one", "count": 3, "assignments": None}], **_TIMED}
    yield "fewer partitions", 37, 3, {"topics": [{"name": "one", "count": 1, "assignments": None}], **_TIMED}
    yield "partitions of nothing", 37, 3, {"topics": [{"name": "nope", "count": 1, "assignments": None}], **_TIMED}
    yield from _configs()
    moved = {"name": "one", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}
    nowhere = {"name": "one", "partitions": [{"partition_index": 0, "replicas": [77]}]}
    resized = {"timeout": 10_000, "allow_replication_factor_change": True}
    yield "a move", 45, 1, {**resized, "topics": [moved]}
    yield "a move to nobody", 45, 1, {**resized, "topics": [nowhere]}
    yield "moves", 46, 0, {"timeout": 10_000, "topics": None}
    quota = {"entity": [{"entity_type": "user", "entity_name": "ann"}]}
    rate = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    yield "a quota", 49, 1, {"entries": [{**quota, "ops": [rate]}], "validate_only": False}
    yield "a bad quota", 49, 1, {"entries": [{**quota, "ops": [{**rate, "key": "nope"}]}], "validate_only": False}
    credential = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    yield "a credential", 51, 0, {"deletions": [], "upsertions": [credential]}
    yield "a bad credential", 51, 0, {"deletions": [], "upsertions": [{**credential, "mechanism": 9}]}
    yield "no credential to delete", 51, 0, {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []}
    chosen = [{"topic": "one", "partitions": [9]}]
    yield "an election", 43, 2, {"election_type": 0, "topic_partitions": chosen, "timeout": 10_000}
    yield "an odd election", 43, 2, {"election_type": 7, "topic_partitions": chosen, "timeout": 10_000}
    yield "no election", 43, 2, {"election_type": 0, "topic_partitions": [], "timeout": 10_000}
    for name, update in (
        ("an unknown feature", {"feature": "nope", "max_version_level": 1, "upgrade_type": 1}),
        ("a feature too high", {"feature": "metadata.version", "max_version_level": 999, "upgrade_type": 1}),
    ):
        yield name, 57, 2, {"timeout": 10_000, "feature_updates": [update], "validate_only": True}
    yield "no features", 57, 2, {"timeout": 10_000, "feature_updates": [], "validate_only": True}
    yield "an unknown broker", 64, 0, {"broker_id": 99}
    yield from _quorum_and_security()
    yield "a topic that goes", 20, 6, {"topics": [{"name": "one", "topic_id": None}], "timeout": 10_000}
    yield "a topic that is not there", 20, 6, {"topics": [{"name": "nope", "topic_id": None}], "timeout": 10_000}
    yield "an id that is not there", 20, 6, {"topics": [{"name": None, "topic_id": UUID(int=5555)}], "timeout": 10_000}


_TIMED: Final = {"timeout": 10_000, "validate_only": False}


def _configs() -> Iterator[Asked]:
    for kind, name in ((2, "one"), (2, "nope"), (4, ""), (4, "2"), (4, "x"), (8, "1"), (8, "x"), (16, "m"), (32, "g"), (3, "o")):
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        what = f"{kind} {name!r}"
        if (kind, name) != (4, "2"):  # which of the nodes is asked differs
            described = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
            yield f"configs of {what}", 32, 4, described
        key = {2: "retention.ms", 4: "log.retention.ms", 16: "interval.ms", 32: "consumer.session.timeout.ms"}.get(kind, "x")
        for value in ("60000", "nonsense"):
            one = {"resource_type": kind, "resource_name": name}
            changed = {**one, "configs": [{"name": key, "config_operation": 0, "value": value}]}
            yield f"{value} for {what}", 44, 1, {"resources": [changed], "validate_only": False}
            legacy = {**one, "configs": [{"name": key, "value": value}]}
            yield f"only {value} for {what}", 33, 2, {"resources": [legacy], "validate_only": False}
        yield f"{what} twice", 44, 1, {"resources": [changed, changed], "validate_only": False}


def _quorum_and_security() -> Iterator[Asked]:
    for kind in (1, 2, 3):
        values = {"include_cluster_authorized_operations": True, "endpoint_type": kind, "include_fenced_brokers": False}
        yield f"nodes of kind {kind}", 60, 2, values
    yield "nodes by an old client", 60, 0, {"include_cluster_authorized_operations": True}
    quorum = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    yield "the quorum", 55, 2, {"topics": [quorum]}
    yield "another quorum", 55, 2, {"topics": [{**quorum, "topic_name": "other"}]}
    of_any = {"principal_filter": None, "host_filter": None, "operation": 2, "permission_type": 3}
    acl = {"resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 3, **of_any}
    yield "ACLs", 29, 3, acl
    yield "ACLs that go", 31, 3, {"filters": [acl]}
    owner = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": 1000}
    yield "a token", 38, 3, owner
    yield "a renewed token", 39, 2, {"hmac": b"x", "renew_period": 1}
    yield "an expired token", 40, 2, {"hmac": b"x", "expiry_time_period": 1}
    yield "SASL", 17, 1, {"mechanism": "PLAIN"}
    yield "SASL's second step", 36, 2, {"auth_bytes": b"x"}
    voter = {"cluster_id": None, "timeout": 1000, "voter_id": 9, "voter_directory_id": UUID(int=77)}
    listener = {"name": "CONTROLLER", "host": "localhost", "port": 9}
    yield "a further voter", 80, 1, {**voter, "listeners": [listener], "ack_when_committed": True}
    yield "a voter less", 81, 0, voter


@contextmanager
def both() -> Iterator[tuple[Side, Side]]:
    """Apache Kafka's first. Both without eligible leader replicas, which change what may be configured."""
    with apache_kafka(nodes=3, config=SHARED) as kafka, running(controllers=3, combined=True, config=SHARED) as ours:
        theirs = {}
        for node in (1, 2, 3):
            text = (kafka.folder / f"node-{node}.properties").read_text()
            found = re.search(r"CONTROLLER://([\d.:]+)", text)
            assert found is not None
            theirs[node] = found[1]
        yield Side(theirs), Side({node: str(ours.node(node).controller) for node in (1, 2, 3)})


def main() -> int:
    differing = explained = same = 0
    with both() as (theirs, ours):
        if theirs.offered() != ours.offered():
            differing += 1
            print(f"offered: {sorted(set(theirs.offered().items()) ^ set(ours.offered().items()))}", flush=True)
        for name, key, version, values in requests():
            roles = theirs.roles(), ours.roles()
            for role in ("standby", "active"):
                found = [codes(side.ask(at[role], key, version, values)) for side, at in zip((theirs, ours), roles, strict=True)]
                if found[0] == found[1]:
                    same += 1
                elif name in KNOWN:
                    explained += 1
                else:
                    differing += 1
                    print(f"{name} ({key}) at the {role} controller: Kafka {found[0]}, kraftlite {found[1]}", flush=True)
    print(f"{same} answers are the same, {differing} differ, {explained} differ for a known reason")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
