"""Every API in every version, asked with bodies that are empty, or absurd, or of things that there are, or are not.

The bodies are made from the schemas: a value for each field by its name, or by its type. What matters of an answer are its error
codes and where they stand. `python -m tests.clients.probes` asks a real Apache Kafka and writes tests/clients/versions.json, with
which tests/clients/test_versions.py compares.
"""

from __future__ import annotations

import datetime
import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from tests.clients.raw import Closed, Connection

# isort: split
from kio.index import UnknownEntity, api_key_map, load_request_schema
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional
from kio.serial.errors import OutOfBoundValue

GOLDEN: Final = Path(__file__).parent / "versions.json"
ANSWER_LIMIT_S: Final = 3.0
TOPIC: Final = "known"
NOWHERE: Final = uuid.UUID("d5f1c1a0-0000-4000-8000-00000000feed")
CALM: Final[Mapping[str, Any]] = {
    "validate_only": True,
    "replica_id": -1,
    "session_epoch": -1,
    "acks": 1,
    "max_bytes": 1000,
    "partition_max_bytes": 1000,
    "current_leader_epoch": -1,
    "timestamp": -1,
    "response_partition_limit": 100,
    "client_software_name": "probe",
    "client_software_version": "1",
    "endpoint_type": 1,
    "operation": 0,
    "assignor": "range",
}
"""What these fields are unless a body says something else: nothing is changed by a probe, and nothing waits."""
CREATING: Final = {(3, kind): 4 for kind in ("unknown", "known", "twice", "beyond", "nulls", "blank", "absurd")}
"""By API and kind of body, the first version that does not create topics by asking for them."""
UNASKED: Final = {
    17: "SASL is a conversation of its own",
    36: "SASL is a conversation of its own",
    64: "it unregisters brokers",
}


@dataclass(frozen=True)
class Body:
    """How a body is filled. `count`: how many elements arrays have; `nulls`: whether what may be null is."""

    count: int = 1
    text: str = "nobody"
    topic: str = "nosuch"
    topic_id: uuid.UUID = NOWHERE
    number: int = 0
    nulls: bool = False


KINDS: Final = ("empty", "unknown", "known", "twice", "beyond", "nulls", "blank", "absurd")


def bodies(known: uuid.UUID) -> dict[str, Body]:
    return {
        "empty": Body(count=0),
        "unknown": Body(),
        "known": Body(topic=TOPIC, topic_id=known),
        "twice": Body(count=2, topic=TOPIC, topic_id=known),
        "beyond": Body(topic=TOPIC, topic_id=known, number=5),
        "nulls": Body(topic=TOPIC, topic_id=known, nulls=True),
        "blank": Body(text="", topic="", topic_id=uuid.UUID(int=0)),
        "absurd": Body(text="", topic="no such/name", topic_id=uuid.UUID(int=0), number=-7),
    }


def request_of(key: int, version: int, body: Body) -> Any:
    return _entity(load_request_schema(key, version), body)


def _entity(schema: Any, body: Body) -> Any:
    return schema(**{field.name: field_of(schema, field, body) for field in fields(schema)})


def field_of(schema: Any, field: Any, body: Body) -> Any:
    kind = classify_field(field)
    tagged = get_field_tag(field) is not None
    if tagged and field.name not in ("cluster_id", "replica_state"):
        return field.default if field.default is not MISSING else get_tagged_field_default(field)
    if body.nulls and is_optional(field) and not tagged:
        return None
    nested = isinstance(kind, EntityField | EntityTupleField)
    if nested and not kind.is_array and body.count == 0 and is_optional(field):
        return None
    one = _entity(kind.type_, body) if nested else _value(schema.__name__, field, body)
    return (one,) * body.count if kind.is_array else one


def _value(schema: str, field: Any, body: Body) -> Any:
    name, kind = field.name, field.metadata["kafka_type"]
    if name in ("transactional_id", "instance_id", "group_instance_id", "rack_id", "cluster_id", "reason") and is_optional(field):
        return None
    if kind in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=_time(name, body))
    if name in CALM and body.number >= 0:
        return CALM[name]
    if name == "validate_only":
        return True
    if kind == "uuid":
        return body.topic_id
    if kind == "string":
        return body.topic if ("topic" in schema.lower() and name in ("name", "topic", "topics")) or "topic" in name else body.text
    if kind in ("bytes", "records"):
        return None if is_optional(field) else b""
    return {"bool": False, "float64": 0.0}.get(kind, 0 if kind.startswith("u") else max(body.number, -7))


def _time(name: str, body: Body) -> int:
    if name == "max_wait":
        return 0
    if body.number < 0 and name not in ("timeout", "timeout_ms"):
        return body.number
    return 10_000 if "timeout" in name else 0


# --- answers -------------------------------------------------------------------------------------------------------------


def codes(message: Any) -> str:
    """The error codes of an answer by their paths: `topics.partitions=3`. "ok": there is none, or all are 0."""
    found = [f"{path or 'answer'}={code}" for path, code in _codes(message, "") if code]
    return " ".join(sorted(dict.fromkeys(found))) or "ok"


def _codes(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _codes(one, path)
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name.endswith("error_code"):
                yield path, int(inner)
            elif not isinstance(inner, IntEnum):
                yield from _codes(inner, f"{path}.{field.name}" if path else field.name)


def ask(address: str, key: int, version: int, request: Any) -> str:
    """The codes of the answer; "closed" or "silent" if there is none."""
    connection = Connection(address, timeout_s=ANSWER_LIMIT_S)
    try:
        connection.send_request(request)
        raw = connection.receive()
        try:
            return codes(connection.read(raw, key, version))
        except OutOfBoundValue:  # kio has no times before 1970, with which Kafka says that there is none
            at = 5 if request.__flexible__ else 4
            return f"answer={int.from_bytes(raw[at : at + 2], 'big', signed=True)}"
    except Closed:
        return "closed"
    except TimeoutError:
        return "silent"
    finally:
        connection.close()


def topic_id(address: str) -> uuid.UUID:
    """Of the topic that there is. AssertionError: there is none."""
    from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

    wanted: Any = MetadataRequestTopic(topic_id=None, name=TOPIC)  # type: ignore[arg-type]
    connection = Connection(address)
    try:
        answer = connection.ask(
            MetadataRequest(topics=(wanted,), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        )
    finally:
        connection.close()
    (found,) = answer.topics
    assert int(found.error_code) == 0, found
    assert all(int(it.leader_id) >= 0 for it in found.partitions), found
    return uuid.UUID(str(found.topic_id))


def offered(address: str) -> dict[int, tuple[int, int]]:
    connection = Connection(address)
    try:
        return connection.offered()
    finally:
        connection.close()


def name_of(key: int) -> str:
    return api_key_map[key]


def asked(address: str, ranges: Mapping[int, tuple[int, int]]) -> dict[str, dict[str, dict[int, str]]]:
    """By API and kind of body: the codes of every version that is offered and that the schemas know."""
    known = topic_id(address)
    found: dict[str, dict[str, dict[int, str]]] = {}
    for key, (lowest, highest) in ranges.items():
        if key in UNASKED or key not in api_key_map:
            continue
        for kind, body in bodies(known).items():
            for version in range(lowest, highest + 1):
                if (key, kind) in CREATING and version < CREATING[(key, kind)]:
                    continue
                try:
                    request = request_of(key, version, body)
                except UnknownEntity:
                    continue
                found.setdefault(name_of(key), {}).setdefault(kind, {})[version] = ask(address, key, version, request)
    return found


# --- the golden file -----------------------------------------------------------------------------------------------------


def packed(answers: Mapping[str, Mapping[str, Mapping[int, str]]]) -> dict[str, dict[str, dict[str, str]]]:
    """Neighbouring versions with the same answer in one entry: "4-12"."""
    return {api: {kind: _packed(of) for kind, of in kinds.items()} for api, kinds in answers.items()}


def _packed(of: Mapping[int, str]) -> dict[str, str]:
    runs: list[tuple[int, int, str]] = []
    for version, told in sorted(of.items()):
        if runs and runs[-1][2] == told and runs[-1][1] == version - 1:
            runs[-1] = (runs[-1][0], version, told)
        else:
            runs.append((version, version, told))
    return {f"{first}-{last}": told for first, last, told in runs}


def unpacked(of: Mapping[str, str]) -> dict[int, str]:
    found = {}
    for span, told in of.items():
        first, last = span.split("-")
        found.update(dict.fromkeys(range(int(first), int(last) + 1), told))
    return found


def main() -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    from tests.clients import orders
    from tests.clients.java.apache import ApacheKafka, apache_kafka
    from tests.clients.java.tools import kafka_version
    from tests.clients.orders_transactions import STORIES_OF_TRANSACTIONS
    from tests.harness.local import wait_for

    def fresh(kafka: ApacheKafka) -> str:
        address = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        prepare(address)
        wait_for("a leader", lambda: topic_id(address))
        return address

    with apache_kafka(nodes=1, dynamic=True) as kafka:
        address = fresh(kafka)
        answers = asked(address, offered(address))
    with apache_kafka(nodes=1, dynamic=True) as kafka:
        address = fresh(kafka)
        told = (*orders.STORIES, *STORIES_OF_TRANSACTIONS)
        stories = {story.__name__: orders.told(address, story) for story in told}
    golden = {"kafka": kafka_version(), "answers": packed(answers), "stories": stories}
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
    print(f"{GOLDEN}: {sum(len(of) for kinds in answers.values() for of in kinds.values())} answers", file=sys.stderr)


def prepare(address: str) -> None:
    """Until there are a group coordinator and producer ids."""
    from kio.schema.offset_fetch.v7.request import OffsetFetchRequest

    from tests.harness.local import wait_for

    request: Any = OffsetFetchRequest(group_id="nobody", topics=(), require_stable=False)  # type: ignore[arg-type]
    find = request_of(10, 3, Body(count=0))

    def there() -> bool:
        ask(address, 10, 3, find)
        return ask(address, 9, 7, request) == "ok" and ask(address, 22, 4, request_of(22, 4, Body(count=0))) == "ok"

    wait_for("a group coordinator and producer ids", there)


if __name__ == "__main__":
    main()
