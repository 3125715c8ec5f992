"""Requests that both clusters are sent. A story is a function of a `Side` that returns what is compared: nested plain values."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kraftlite.log.batch import Record, build_batch
from tests.clients import compare_elr, compare_patience, compare_records, compare_transactions, compare_transactions_odd
from tests.clients.compare_sides import NODES, Side

# isort: split
from kio.index import api_key_map

Story = Callable[[Side], Any]
NOW: Final = 1_760_000_000_000
PATIENCE_MS: Final = 20_000
ODD: Final = ("-2", "-1", "0", "1", "13", "1024", "", " 5 ", "abc", "1.5", "true", "2147483648", "9223372036854775808")


def error(answer: Mapping[str, Any]) -> list[Any]:
    """The error of an answer, and its message if it has one."""
    return [answer.get("error_code"), answer.get("error_message")]


def batch(*values: str, ts: int = NOW, key: bytes | None = b"k", step_ms: int = 1000) -> bytes:
    records = [Record(key=key, value=value.encode(), timestamp_delta=n * step_ms) for n, value in enumerate(values)]
    return build_batch(records, timestamp_ms=ts)


def produce(
    side: Side, topic: str, records: bytes, *, version: int = 9, acks: int = -1, partition: int = 0, node: int = 0
) -> Any:
    body = {
        "transactional_id": None,
        "acks": acks,
        "timeout": PATIENCE_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }
    return side.call(0, version, body, node=node or side.leader(topic, partition))


# --- what is offered


def api_versions(side: Side) -> Any:
    answer = side.call(18, 4, {"client_software_name": "compare", "client_software_version": "1"})
    return {
        "apis": {
            api_key_map.get(it["api_key"], it["api_key"]): f"{it['min_version']} to {it['max_version']}"
            for it in answer["api_keys"]
        },
        "supported": {it["name"]: f"{it['min_version']} to {it['max_version']}" for it in answer["supported_features"]},
        "finalized": {it["name"]: it["max_version_level"] for it in answer["finalized_features"]},
        "bad software name": side.call(18, 4, {"client_software_name": "a b", "client_software_version": "1"})["error_code"],
    }


def metadata(side: Side) -> Any:
    side.create("meta", [[1, 2], [2, 3]])
    flags = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}

    def ask(version: int, *topics: Mapping[str, Any], **more: Any) -> Any:
        answer = side.call(3, version, {"topics": list(topics), "allow_auto_topic_creation": False, **flags, **more})
        answer.pop("brokers", None)
        answer.pop("controller_id", None)  # any broker
        answer.pop("cluster_id", None)
        for topic in answer.get("topics", ()):
            for it in topic["partitions"]:
                it.pop("leader_epoch", None)
        return answer

    nothing, other = {"topic_id": None, "name": "nope"}, {"topic_id": None, "name": "bad name!"}
    from uuid import UUID

    return {
        "one": {version: ask(version, {"topic_id": None, "name": "meta"}) for version in (1, 5, 9, 12, 13)},
        "unknown": {version: ask(version, nothing) for version in (4, 9, 12, 13)},
        "bad name": ask(12, other),
        "empty name": ask(12, {"topic_id": None, "name": ""}),
        "unknown id": ask(12, {"topic_id": UUID(int=5), "name": None}),
        "ids before they may be used": {
            version: [
                ask(version, {"topic_id": UUID(int=5), "name": None}),
                ask(version, {"topic_id": UUID(int=5), "name": "meta"}, {"topic_id": None, "name": "nope"}),
                ask(version, {"topic_id": None, "name": None}),
            ]
            for version in (10, 11)
        },
        "neither name nor id": {
            version: [
                ask(version, {"topic_id": None, "name": None}, nothing),
                ask(version, {"topic_id": None, "name": None}, {"topic_id": UUID(int=5), "name": None}),
            ]
            for version in (12, 13)
        },
        "bad name, to be created": ask(12, other, allow_auto_topic_creation=True),
        "operations": ask(
            9, {"name": "meta"}, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        ),
        "pages": [
            _page(side, None),
            _page(side, {"topic_name": "meta", "partition_index": 1}),
            _page(side, None, "nope", "bad name!"),
        ],
    }


def _page(side: Side, cursor: Mapping[str, Any] | None, *names: str) -> Any:
    topics = [{"name": name} for name in names or ("meta",)]
    return side.call(75, 0, {"topics": topics, "response_partition_limit": 1, "cursor": cursor})


def cluster(side: Side) -> Any:
    flags = {"include_cluster_authorized_operations": False, "include_fenced_brokers": True}
    answer = side.call(60, 2, {**flags, "include_cluster_authorized_operations": True, "endpoint_type": 1})
    return {
        "operations": answer["cluster_authorized_operations"],
        "brokers": [{key: it[key] for key in ("broker_id", "rack", "is_fenced")} for it in answer["brokers"]],
        "controllers asked for": error(side.call(60, 2, {**flags, "endpoint_type": 2})),
        "no such kind": error(side.call(60, 2, {**flags, "endpoint_type": 9})),
    }


# --- configs


def _described(side: Side, kind: int, name: str, *, node: int = 1) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (found,) = side.call(32, 4, body, node=node)["results"]
    told = {}
    for it in found["configs"]:
        chain = [f"{one['name']}={one['value']} ({one['source']})" for one in it["synonyms"] if one["source"] != 4]
        static = it["config_source"] == 4  # what its own file says
        told[it["name"]] = [
            "<its file's>" if static else it["value"],
            4 if static else it["config_source"],
            f"type {it['config_type']}",
            *(["read only"] if it["read_only"] else []),
            *(["sensitive"] if it["is_sensitive"] else []),
            chain,
            *([] if it["documentation"] else ["no documentation"]),
        ]
    return {"error": error(found), "configs": told}


def configs(side: Side) -> Any:
    side.create("plain")
    side.create("own", retention_ms="5", cleanup_policy="compact")
    return {
        "topic": _described(side, 2, "plain"),
        "topic with its own": _described(side, 2, "own"),
        "broker": _described(side, 4, "1"),
        "group": _described(side, 32, "g"),
        "client metrics": _described(side, 16, "m"),
        "errors": {
            "unknown topic": _described(side, 2, "nope"),
            "bad topic": _described(side, 2, "bad name!"),
            "other broker": _described(side, 4, "2"),
            "no broker": _described(side, 4, "x"),
            "empty group": _described(side, 32, ""),
            "empty metrics": _described(side, 16, ""),
            "no such kind": _described(side, 77, "x"),
            "empty logger": _described(side, 8, ""),
        },
    }


def topic_config_values(side: Side) -> Any:
    """Every key with odd values: what is taken, and what is said of the rest."""
    side.create("keys")
    keys = sorted(_described(side, 2, "keys")["configs"])
    wanted = [(key, value) for key in keys for value in ODD]
    topics = [
        {
            "name": f"t{n}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value}],
        }
        for n, (key, value) in enumerate(wanted)
    ]
    told: dict[str, Any] = {}
    for at in range(0, len(topics), 100):
        answer = side.call(19, 7, {"topics": topics[at : at + 100], "timeout": PATIENCE_MS, "validate_only": True})
        for it in answer["topics"]:
            key, value = wanted[int(it["name"][1:])]
            told.setdefault(key, {})[repr(value)] = error(it)
    return told


def alter_configs(side: Side) -> Any:
    side.create("alter")

    def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
        changed = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": changed}
        return [error(it) for it in side.call(44, 1, {"resources": [resource], "validate_only": True})["responses"]]

    return {
        "unknown topic": alter(2, "nope", ("retention.ms", 0, "1")),
        "unknown key": alter(2, "alter", ("nope", 0, "1")),
        "delete unknown key": alter(2, "alter", ("nope", 1, None)),
        "append to a number": alter(2, "alter", ("retention.ms", 2, "1")),
        "append": alter(2, "alter", ("cleanup.policy", 2, "compact")),
        "subtract": alter(2, "alter", ("cleanup.policy", 3, "delete")),
        "no such operation": alter(2, "alter", ("retention.ms", 9, "1")),
        "null": alter(2, "alter", ("retention.ms", 0, None)),
        "twice": alter(2, "alter", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")),
        "read only": alter(4, "1", ("node.id", 0, "1"), ("log.dirs", 0, "x")),
        "default level": alter(4, "", ("listeners", 0, "x"), ("advertised.listeners", 0, "y")),
        "bad broker value": alter(4, "1", ("log.retention.ms", 0, "abc")),
        "bad default value": alter(4, "", ("log.retention.ms", 0, "abc")),
        "limit of connections": alter(4, "", ("max.connections", 0, "100000")),
        "rate of connections": alter(4, "", ("max.connection.creation.rate", 0, "100000")),
        "its default": alter(4, "", ("max.connection.creation.rate", 0, "2147483647")),
        "throttle": alter(4, "1", ("leader.replication.throttled.rate", 0, "1000000")),
        "threads": alter(4, "", ("num.io.threads", 0, "3")),
        "unknown broker key": alter(4, "1", ("my.plugin", 0, "x")),
        "other broker": alter(4, "2", ("log.cleaner.threads", 0, "1")),
        "no broker": alter(4, "x", ("log.cleaner.threads", 0, "1")),
        "group, unknown key": alter(32, "g", ("nope", 0, "1")),
        "group, too small": alter(32, "g", ("consumer.session.timeout.ms", 0, "1")),
        "group, too large": alter(32, "g", ("consumer.session.timeout.ms", 0, "90000")),
        "group, no number": alter(32, "g", ("consumer.heartbeat.interval.ms", 0, "x")),
        "group, no name": alter(32, "", ("consumer.session.timeout.ms", 0, "50000")),
        "metrics, unknown key": alter(16, "m", ("nope", 0, "1")),
        "metrics, interval": alter(16, "m", ("interval.ms", 0, "5")),
        "metrics, match": alter(16, "m", ("match", 0, "foo=bar")),
        "metrics, no name": alter(16, "", ("interval.ms", 0, "5000")),
        "no such kind": alter(77, "x", ("a", 0, "1")),
        "logger": alter(8, "1", ("nope", 0, "INFO")),
    }


# --- topics and partitions


def create_topics(side: Side) -> Any:
    side.create("there")
    side.create("dot.ted")

    def create(name: str, **more: Any) -> Any:
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **more}
        answer = side.call(19, 7, {"topics": [wanted], "timeout": PATIENCE_MS, "validate_only": True})
        return [[*error(it), it["num_partitions"], it["replication_factor"], len(it["configs"] or ())] for it in answer["topics"]]

    def assigned(*lists: Sequence[int], first: int = 0) -> Any:
        rows = [{"partition_index": first + n, "broker_ids": tuple(ids)} for n, ids in enumerate(lists)]
        return {"num_partitions": -1, "replication_factor": -1, "assignments": rows}

    return {
        "fine": create("fine"),
        "defaults": create("fine", num_partitions=-1, replication_factor=-1),
        "exists": create("there"),
        "collides": create("dot_ted"),
        "internal": create("__consumer_offsets"),
        "names": {name[:20]: create(name) for name in ("", ".", "..", "a b", "ü", "x" * 250, "__cluster_metadata")},
        "no partitions": create("x", num_partitions=0),
        "negative partitions": create("x", num_partitions=-2),
        "no replicas": create("x", replication_factor=0),
        "negative replicas": create("x", replication_factor=-2),
        "too many replicas": create("x", replication_factor=4),
        "both": create("x", **{**assigned([1]), "num_partitions": 1}),
        "empty list": create("x", **assigned([])),
        "duplicate broker": create("x", **assigned([1, 1])),
        "unknown broker": create("x", **assigned([9])),
        "negative broker": create("x", **assigned([-1])),
        "uneven": create("x", **assigned([1, 2], [1])),
        "not from 0": create("x", **assigned([1], first=1)),
        "null value": create("x", configs=[{"name": "retention.ms", "value": None}]),
        "compaction lags": create(
            "x", configs=[{"name": "min.compaction.lag.ms", "value": "9"}, {"name": "max.compaction.lag.ms", "value": "5"}]
        ),
        "retentions": create("x", configs=[{"name": "retention.ms", "value": "5"}, {"name": "local.retention.ms", "value": "9"}]),
    }


def change_topics(side: Side) -> Any:
    from uuid import UUID

    side.create("grow", [[1, 2], [2, 3]])
    compare_transactions.prepared(side)

    def grow(name: str, count: int, rows: Sequence[Sequence[int]] | None = None) -> Any:
        assignments = None if rows is None else [{"broker_ids": tuple(row)} for row in rows]
        body = {
            "topics": [{"name": name, "count": count, "assignments": assignments}],
            "timeout": PATIENCE_MS,
            "validate_only": True,
        }
        return [error(it) for it in side.call(37, 3, body)["results"]]

    def delete(**topic: Any) -> Any:
        return [error(it) for it in side.call(20, 6, {"topics": [topic], "timeout": PATIENCE_MS})["responses"]]

    def reassign(topic: str, partition: int, replicas: Sequence[int] | None) -> Any:
        rows = [{"partition_index": partition, "replicas": None if replicas is None else tuple(replicas)}]
        answer = side.call(45, 0, {"topics": [{"name": topic, "partitions": rows}], "timeout": PATIENCE_MS})
        return [error(answer), [error(it) for one in answer["responses"] for it in one["partitions"]]]

    def elect(kind: int, topic: str, partition: int) -> Any:
        body = {"election_type": kind, "topic_partitions": [{"topic": topic, "partitions": (partition,)}], "timeout": PATIENCE_MS}
        answer = side.call(43, 2, body)
        return [answer["error_code"], [error(it) for one in answer["replica_election_results"] for it in one["partition_result"]]]

    return {
        "grow": {
            "fewer": grow("grow", 1),
            "same": grow("grow", 2),
            "none": grow("grow", 0),
            "negative": grow("grow", -1),
            "unknown topic": grow("nope", 3),
            "too few rows": grow("grow", 4, [[1, 2]]),
            "uneven row": grow("grow", 3, [[1]]),
            "unknown broker": grow("grow", 3, [[1, 9]]),
            "duplicate broker": grow("grow", 3, [[1, 1]]),
            "fine": grow("grow", 3, [[1, 3]]),
            "of groups": grow("__consumer_offsets", 1000),
            "of transactions": grow("__transaction_state", 1000),
        },
        "delete": {
            "unknown name": delete(name="nope", topic_id=None),
            "unknown id": delete(name=None, topic_id=UUID(int=7)),
            "neither": delete(name=None, topic_id=None),
            "both": delete(name="grow", topic_id=UUID(int=7)),
        },
        "reassign": {
            "unknown topic": reassign("nope", 0, [1]),
            "unknown partition": reassign("grow", 7, [1]),
            "unknown broker": reassign("grow", 0, [9]),
            "negative broker": reassign("grow", 0, [-1]),
            "duplicate broker": reassign("grow", 0, [1, 1]),
            "nobody": reassign("grow", 0, []),
            "cancel nothing": reassign("grow", 0, None),
        },
        "elect": {
            "preferred": elect(0, "grow", 0),
            "unclean": elect(1, "grow", 0),
            "no such kind": elect(7, "grow", 0),
            "unknown topic": elect(0, "nope", 0),
            "unknown partition": elect(0, "grow", 7),
        },
    }


# --- records


def list_offsets(side: Side) -> Any:
    side.create("times", [[1, 2, 3]])
    side.create("no-records", [[1, 2, 3]])
    produce(side, "times", batch("a", "b", "c"))  # NOW, NOW + 1 s, NOW + 2 s
    produce(side, "times", batch("d", "e", ts=NOW + 9000))
    produce(side, "times", batch("f", "g", "h", ts=NOW + 9000, step_ms=500))

    def ask(topic: str, at: int, version: int = 10, partition: int = 0, epoch: int = -1) -> Any:
        row = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": at}
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [row]}],
            "timeout": PATIENCE_MS,
        }
        (it,) = (it for one in side.call(2, version, body)["topics"] for it in one["partitions"])
        return [it["error_code"], it["timestamp"], it["offset"]]

    times = (-1, -2, -3, -4, -5, -6, -7, -99, 0, NOW, NOW + 1, NOW + 2500, NOW + 9000, NOW + 9001, NOW + 10_000, NOW + 10_001)
    return {
        "records": {at - NOW if at > 0 else f"special {at}": ask("times", at) for at in times},
        "empty": {at: ask("no-records", at) for at in (-1, -2, -3, -4, -5, 0, NOW)},
        "old versions": {version: [ask("times", at, version) for at in (-1, -2, -3, NOW)] for version in range(1, 12)},
        "unknown topic": ask("nope", -1),
        "unknown partition": ask("times", -1, partition=7),
        "fenced epoch": ask("times", -1, epoch=99),
    }


def produce_errors(side: Side) -> Any:
    side.create("in", [[1, 2, 3]], max_message_bytes="2000")
    side.create("compacted", [[1, 2, 3]], cleanup_policy="compact")
    side.create("strict", [[1, 2, 3]], min_insync_replicas="4")
    good = batch("a", "b")

    def told(answer: Any) -> Any:
        if "closed" in answer or "responses" not in answer:
            return answer
        (it,) = (it for one in answer["responses"] for it in one["partition_responses"])
        return [*error(it), it["base_offset"], it["log_append_time"], [e["batch_index"] for e in it.get("record_errors", ())]]

    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    magic = bytearray(good)
    magic[16] = 1
    count = bytearray(good)
    count[57:61] = struct.pack(">i", 7)
    hour = 3_600_000
    return {
        "fine": told(produce(side, "in", good)),
        "in version 3": told(produce(side, "in", good, version=3)),
        "unknown topic": told(produce(side, "nope", good, node=1)),
        "unknown partition": told(produce(side, "in", good, partition=7, node=1)),
        "a follower is asked": told(produce(side, "in", good, node=2 if side.leader("in") == 1 else 1)),
        "acks 5": told(produce(side, "in", good, acks=5)),
        "corrupt": told(produce(side, "in", bytes(corrupt))),
        "old magic": told(produce(side, "in", bytes(magic))),
        "wrong count": told(produce(side, "in", bytes(count))),
        "too large": told(produce(side, "in", batch("x" * 3000))),
        "two batches": told(produce(side, "in", good + good)),
        "nothing": told(produce(side, "in", b"")),
        "null key, compacted": told(produce(side, "compacted", batch("a", "b", key=None))),
        "too few replicas": told(produce(side, "strict", good)),
        "too few replicas, acks 1": told(produce(side, "strict", good, acks=1)),
        "from tomorrow": told(produce(side, "in", batch("a", ts=int(time.time() * 1000) + 24 * hour))),
        "from 1970": told(produce(side, "in", batch("a", ts=1000))),
    }


def fetch_errors(side: Side) -> Any:
    side.create("out", [[1, 2, 3]])
    produce(side, "out", batch("a", "b", "c"))

    def ask(topic: str = "out", offset: int = 0, *, partition: int = 0, epoch: int = -1, **more: Any) -> Any:
        row = {
            "partition": partition,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 100_000,
        }
        body = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 100_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [row]}],
            "forgotten_topics_data": [],
            "rack_id": "",
            **more,
        }
        node = side.leader("out")
        answer = side.call(1, 12, body, node=node)
        parts = [
            [it["error_code"], it["high_watermark"], it["last_stable_offset"], it["log_start_offset"], bool(it["records"])]
            for one in answer["responses"]
            for it in one["partitions"]
        ]
        return [answer["error_code"], parts]

    return {
        "fine": ask(),
        "at the end": ask(offset=3),
        "beyond": ask(offset=4),
        "negative": ask(offset=-1),
        "unknown topic": ask("nope"),
        "unknown partition": ask(partition=7),
        "future epoch": ask(epoch=99),
        "no such session": ask(session_id=12345, session_epoch=3),
        "negative epoch of a session": ask(session_id=5, session_epoch=-1),
        "read committed": ask(isolation_level=1),
    }


def other_records(side: Side) -> Any:
    side.create("cut", [[1, 2, 3]])
    produce(side, "cut", batch(*"abcdef"))
    leader = side.leader("cut")

    def delete(topic: str, offset: int, partition: int = 0, node: int = leader) -> Any:
        rows = [{"partition_index": partition, "offset": offset}]
        answer = side.call(21, 2, {"topics": [{"name": topic, "partitions": rows}], "timeout": PATIENCE_MS}, node=node)
        return [[it["error_code"], it["low_watermark"]] for one in answer["topics"] for it in one["partitions"]]

    def epoch_end(epoch: int, current: int = -1, topic: str = "cut") -> Any:
        rows = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]
        answer = side.call(23, 4, {"replica_id": -1, "topics": [{"topic": topic, "partitions": rows}]}, node=leader)
        return [[it["error_code"], it["leader_epoch"], it["end_offset"]] for one in answer["topics"] for it in one["partitions"]]

    def producers(topic: str, partition: int = 0) -> Any:
        answer = side.call(61, 0, {"topics": [{"name": topic, "partition_indexes": (partition,)}]}, node=leader)
        return [[*error(it), len(it["active_producers"])] for one in answer["topics"] for it in one["partitions"]]

    def producer_id(transactional_id: str | None, timeout_ms: int, *, producer: int = -1, epoch: int = -1) -> Any:
        body = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": producer,
            "producer_epoch": epoch,
        }
        deadline = time.monotonic() + 20
        while (answer := side.call(22, 4, body))["error_code"] == "coordinator_load_in_progress" and time.monotonic() < deadline:
            time.sleep(0.1)  # Kafka says so until its first block of ids has arrived
        return [answer["error_code"], answer["producer_epoch"]]

    return {
        "delete": {
            "too far": delete("cut", 99),
            "negative": delete("cut", -5),
            "unknown topic": delete("nope", 0),
            "unknown partition": delete("cut", 0, partition=7),
            "a follower is asked": delete("cut", 1, node=next(it for it in NODES if it != leader)),
            "fine": delete("cut", 2),
            "less": delete("cut", 1),
            "all": delete("cut", -1),
        },
        "epochs": {epoch: epoch_end(epoch) for epoch in (-1, 0, 5)},
        "epochs, other current one": epoch_end(0, current=77),
        "epochs, unknown topic": epoch_end(0, topic="nope"),
        "producers": producers("cut"),
        "producers, unknown topic": producers("nope"),
        "producers, unknown partition": producers("cut", 7),
        "producer id": producer_id(None, 60_000),
        "producer id, bad timeout": producer_id(None, -1),
        "producer id, empty name": producer_id("", 60_000),
    }


# --- groups


def groups(side: Side) -> Any:
    side.create("grouped", [[1, 2, 3]])
    _coordinated(side)

    def find(kind: int, *keys: str) -> Any:
        answer = side.call(10, 6, {"key_type": kind, "coordinator_keys": tuple(keys)})
        return [[it["key"], *error(it), it["node_id"] >= 0] for it in answer["coordinators"]] + [answer.get("error_code")]

    at = _coordinator(side, "g")

    def commit(
        group: str, *, topic: str = "grouped", offset: int = 3, member: str = "", generation: int = -1, **more: Any
    ) -> Any:
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": "", **more}
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        answer = side.call(8, 9, body, node=_coordinator(side, group))
        return [it["error_code"] for one in answer["topics"] for it in one["partitions"]]

    def offsets(group: str, topics: Any = None) -> Any:
        wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        answer = side.call(9, 9, {"groups": [wanted], "require_stable": False}, node=_coordinator(side, group))
        return [
            [it["error_code"], [[p["committed_offset"], p["error_code"]] for t in it["topics"] for p in t["partitions"]]]
            for it in answer["groups"]
        ]

    def join(
        group: str, *, session: int = 30_000, protocol_type: str = "consumer", member: str = "", names: Sequence[str] = ("range",)
    ) -> Any:
        body = {
            "group_id": group,
            "session_timeout": session,
            "rebalance_timeout": 5_000,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": protocol_type,
            "protocols": [{"name": name, "metadata": b"\0\0\0\0\0\0"} for name in names],
            "reason": None,
        }
        answer = side.call(11, 9, body, node=_coordinator(side, group))
        return [
            answer["error_code"],
            answer["generation_id"],
            bool(answer["member_id"]),
            answer["protocol_type"],
            answer["protocol_name"],
        ]

    def describe(key: int, version: int, group: str) -> Any:
        values = {"groups": (group,), "group_ids": (group,), "include_authorized_operations": False}
        answer = side.call(key, version, values, node=_coordinator(side, group))
        found = answer["groups"][0]
        return [*error(found), found["group_state"], found.get("protocol_type"), len(found["members"])]

    members = {"group_id": "g", "generation_id": 3, "member_id": "nobody", "group_instance_id": None}
    told: dict[str, Any] = {
        "find": find(0, "a", "b"),
        "find, empty name": find(0, ""),
        "find, no such kind": find(9, "a"),
        "describe unknown": describe(15, 6, "nope"),
        "describe unknown, consumer": describe(69, 1, "nope"),
        "offsets unknown": offsets("nope", [{"name": "grouped", "partition_indexes": (0, 7)}]),
        "offsets of all": offsets("nope"),
        "heartbeat": side.call(12, 4, members, node=at)["error_code"],
        "sync": side.call(14, 5, {**members, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}, node=at)[
            "error_code"
        ],
        "leave": side.call(
            13, 5, {"group_id": "g", "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}]}, node=at
        ),
        "join, short session": join("g", session=10),
        "join, no name": join(""),
        "join, no protocols": join("g", names=()),
        "join, unknown member": join("g", member="nobody"),
        "join, first": join("g"),
        "commit": commit("simple"),
        "commit, unknown topic": commit("simple", topic="nope"),
        "commit, unknown partition": commit("simple", partition_index=7),
        "commit, long metadata": commit("simple", committed_metadata="x" * 5000),
        "commit, negative": commit("simple", offset=-5),
        "commit, of a generation": commit("simple", generation=4, member="nobody"),
        "commit, no name": commit(""),
        "committed": offsets("simple"),
        "described": describe(15, 6, "simple"),
        "described as consumer group": describe(69, 1, "simple"),
        "delete unknown": [
            it["error_code"] for it in side.call(42, 2, {"groups_names": ("nope",)}, node=_coordinator(side, "nope"))["results"]
        ],
        "consumer heartbeat, unknown member": _consumer_heartbeat(side, "k", "nobody", 5),
        "consumer heartbeat, no name": _consumer_heartbeat(side, "", "a", 0),
        "consumer heartbeat, no subscription": _consumer_heartbeat(side, "k", "a", 0, subscribed_topic_names=None),
        "consumer heartbeat, bad timeout": _consumer_heartbeat(side, "k", "a", 0, rebalance_timeout=-1),
        "consumer heartbeat, bad assignor": _consumer_heartbeat(side, "k", "a", 0, server_assignor="nope"),
        "consumer heartbeat, bad regex": _consumer_heartbeat(
            side, "k", "a", 0, subscribed_topic_regex="[", subscribed_topic_names=()
        ),
        "consumer heartbeat, simple group": _consumer_heartbeat(side, "simple", "a", 0),
        "consumer heartbeat, fine": _consumer_heartbeat(side, "fine", "a", 0),
    }
    return told


def _consumer_heartbeat(side: Side, group: str, member: str, epoch: int, **more: Any) -> Any:
    body = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 5_000,
        "subscribed_topic_names": ("grouped",),
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": (),
        **more,
    }
    answer = side.call(68, 1, body, node=_coordinator(side, group))
    if "error_code" not in answer:
        return answer
    return [
        *error(answer),
        answer["member_id"],
        answer["member_epoch"],
        answer["assignment"] is not None,
    ]


def _coordinated(side: Side) -> None:
    """`__consumer_offsets` is made by the first who asks."""
    deadline = time.monotonic() + 60
    for name in ("g", "simple", "nope", "k", "fine", ""):
        while _find(side, name) < 0 or side.call(
            15, 6, {"groups": (name,), "include_authorized_operations": False}, node=_find(side, name)
        )["groups"][0]["error_code"] in ("not_coordinator", "coordinator_load_in_progress", "coordinator_not_available"):
            assert time.monotonic() < deadline, f"{side.name}: {name} has no coordinator"
            time.sleep(0.1)


def _find(side: Side, group: str) -> int:
    (found,) = side.call(10, 6, {"key_type": 0, "coordinator_keys": (group,)})["coordinators"]
    return int(found["node_id"])


def _coordinator(side: Side, group: str) -> int:
    return max(_find(side, group), 1)


STORIES: Final[Mapping[str, Story]] = {
    "ApiVersions": api_versions,
    "Metadata": metadata,
    "DescribeCluster": cluster,
    "DescribeConfigs": configs,
    "topic configs": topic_config_values,
    "IncrementalAlterConfigs": alter_configs,
    "CreateTopics": create_topics,
    "partitions": change_topics,
    **compare_patience.STORIES,
    "ListOffsets": list_offsets,
    "Produce": produce_errors,
    **compare_records.STORIES,
    "Fetch": fetch_errors,
    "records": other_records,
    "groups": groups,
    **compare_transactions_odd.STORIES,
}
LAST: Final[Mapping[str, Story]] = {"eligible leader replicas": compare_elr.eligible_leaders}
"""Behind everything, tools included: it stops a node. Afterwards others lead and coordinate, and groups that were never written
down are gone, of either side those that its node happened to have."""


def stories(only: Sequence[str], among: Mapping[str, Story] = STORIES) -> Iterator[tuple[str, Story]]:
    for name, story in among.items():
        if not only or any(part.lower() in name.lower() for part in only):
            yield name, story
