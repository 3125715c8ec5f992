"""Requests in odd orders, as a client library's own tests send them: each function is a story on one broker, and what it tells
are the error codes in order. `python -m tests.clients.probes` asks Apache Kafka the same.
"""

from __future__ import annotations

import contextlib
import datetime
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Final

from crc32c import crc32c

from kraftlite.log.batch import Record, build_batch
from tests.clients.probes import TOPIC, Body, codes, field_of, topic_id
from tests.clients.raw import Closed, Connection

# isort: split
from kio.index import load_request_schema

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, OFFSETS = 0, 1, 2, 3, 8, 9
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, CREATE, DELETE, RECORDS, PID = 11, 12, 13, 14, 15, 19, 20, 21, 22
ELECT, REASSIGN, REASSIGNMENTS, FEATURES = 43, 45, 46, 57
PARTITIONS, DELETE_GROUPS, CONFIGS, OFFSET_DELETE, HEARTBEAT_848, DESCRIBE_848 = 37, 42, 44, 47, 68, 69


class Story:
    def __init__(self, connection: Connection, known: uuid.UUID) -> None:
        self.connection = connection
        self.known = known
        self.told: list[str] = []

    def ask(self, key: int, version: int, **values: Any) -> Any:
        """Fields that are not named are 0, empty, or what changes nothing."""
        request = filled(load_request_schema(key, version), values)
        try:
            answer = self.connection.ask(request)
        except Closed:
            self.told.append("closed")
            raise
        self.told.append(codes(answer))
        return answer


_PLAIN: Final = Body(count=0, text="", topic="")


def filled(schema: Any, values: dict[str, Any]) -> Any:
    """Values that this version does not have are left out."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field

    found = {}
    for field in fields(schema):
        name = field.name
        kind = classify_field(field)
        if name not in values:
            found[name] = field_of(schema, field, _PLAIN)
        elif isinstance(kind, EntityField | EntityTupleField) and values[name] is not None:
            nested = values[name]
            one = [filled(kind.type_, it) for it in nested] if kind.is_array else filled(kind.type_, nested)
            found[name] = tuple(one) if kind.is_array else one
        elif isinstance(values[name], list):
            found[name] = tuple(values[name])
        else:
            found[name] = values[name]
    return schema(**found)


# --- fetch ---------------------------------------------------------------------------------------------------------------


def _fetch(story: Story, session: int, epoch: int, *, version: int = 12, topics: Any = None, **more: Any) -> Any:
    partition = {"partition": 0, "fetch_offset": more.pop("offset", 0), "log_start_offset": -1, "partition_max_bytes": 1000}
    partition |= {"current_leader_epoch": more.pop("leader_epoch", -1), "partition": more.pop("partition", 0)}
    if version >= 12:
        partition["last_fetched_epoch"] = -1
    name = {"topic": more.pop("topic", TOPIC)} if version < 13 else {"topic_id": more.pop("topic_id", story.known)}
    wanted = [{**name, "partitions": [partition]}] if topics is None else topics
    values = {"session_id": session, "session_epoch": epoch, "max_bytes": 10_000, "topics": wanted, **more}
    if version < 15:
        values["replica_id"] = -1
    return story.ask(FETCH, version, **values)


def fetch_sessions(story: Story) -> None:
    session = int(_fetch(story, 0, 0).session_id)
    _fetch(story, session, 1, topics=[])
    _fetch(story, session, 1, topics=[])  # again: the epoch has moved on
    _fetch(story, session, 7)
    _fetch(story, session, 2, topics=[])
    _fetch(story, session + 1, 3)
    _fetch(story, 0, 5)
    _fetch(story, session, 3, version=13)  # names before, ids now
    _fetch(story, session, 3, version=11)
    forget = [{"topic": TOPIC, "partitions": [0]}]
    _fetch(story, session, 4, version=12, topics=[], forgotten_topics_data=forget)
    _fetch(story, session, 5, version=12, topic="nosuch")
    _fetch(story, session, -1, topics=[])
    _fetch(story, session, 6, topics=[])
    _fetch(story, session, -1)
    _fetch(story, session, 0)
    _fetch(story, -5, 0)
    _fetch(story, 0, -7)


def fetch_positions(story: Story) -> None:
    for offset in (-1, -2, 99, 1 << 40):
        _fetch(story, 0, -1, offset=offset)
    for epoch in (0, 1, 99, -7):
        _fetch(story, 0, -1, leader_epoch=epoch)
    _fetch(story, 0, -1, partition=9)
    _fetch(story, 0, -1, partition=-1)
    _fetch(story, 0, -1, topic="")
    for version in (7, 11, 13, 17):
        _fetch(story, 0, -1, version=version)
    _fetch(story, 0, -1, version=13, topic_id=uuid.UUID(int=0))
    _fetch(story, 0, -1, version=17, topic_id=uuid.UUID(int=77))
    _fetch(story, 0, -1, isolation_level=1)
    _fetch(story, 0, -1, isolation_level=9)
    _fetch(story, 0, -1, max_bytes=-1)
    _fetch(story, 0, -1, min_bytes=-1)


# --- produce -------------------------------------------------------------------------------------------------------------


def batch(*, values: tuple[bytes, ...] = (b"v",), timestamp: int | None = None, **more: Any) -> bytearray:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return bytearray(build_batch([Record(None, value) for value in values], timestamp_ms=now, **more))


def resealed(raw: bytearray, at: int, layout: str, *values: Any) -> bytes:
    """With other bytes in its header and the CRC that fits them."""
    struct.pack_into(layout, raw, at, *values)
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return bytes(raw)


def _produce(story: Story, records: bytes | None, *, version: int = 9, acks: int = -1, **more: Any) -> Any:
    partition = {"index": more.pop("index", 0), "records": records}
    topic = {"name": more.pop("topic", TOPIC)} if version < 13 else {"topic_id": more.pop("topic_id", story.known)}
    data = [{**topic, "partition_data": [partition]}]
    return story.ask(PRODUCE, version, acks=acks, topic_data=data, **more)


def produce_batches(story: Story) -> None:
    plain = bytes(batch())
    for version in (3, 7, 9, 12, 13):
        _produce(story, plain, version=version)
    for acks in (2, -2, 5):
        _produce(story, plain, acks=acks)
    _produce(story, plain, index=7)
    _produce(story, plain, index=-1)
    _produce(story, plain, topic="nosuch-here")
    _produce(story, plain, version=13, topic_id=uuid.UUID(int=77))
    _produce(story, plain + plain)
    _produce(story, plain[:-1] + b"\xff")
    _produce(story, plain[:-3])
    _produce(story, plain[:30])
    _produce(story, b"")
    for magic in (0, 1, 3, 127):
        _produce(story, plain[:16] + bytes([magic]) + plain[17:])
    _produce(story, struct.pack(">q", 500) + plain[8:])  # a base offset is the broker's to give
    _produce(story, resealed(batch(), 57, ">i", 7))  # more records than there are
    _produce(story, resealed(batch(values=(b"a", b"b")), 57, ">i", 1))
    _produce(story, resealed(batch(values=(b"a", b"b")), 23, ">i", 9))
    _produce(story, resealed(batch(), 57, ">i", 0))
    _produce(story, resealed(batch(), 57, ">i", -1))
    for attributes in (5, 7, 0x20, 0x10, 0x40, 0x80):
        _produce(story, resealed(batch(), 21, ">h", attributes))
    _produce(story, bytes(batch(timestamp=1 << 50)))
    _produce(story, bytes(batch(timestamp=-5)))
    _produce(story, bytes(batch(values=(b"x" * 2_000_000,))))


def produce_sequences(story: Story) -> None:
    answer = story.ask(PID, 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
    pid, epoch = int(answer.producer_id), int(answer.producer_epoch)

    def send(sequence: int, *, producer: int = pid, in_epoch: int = epoch) -> None:
        found = _produce(story, bytes(batch(producer_id=producer, producer_epoch=in_epoch, base_sequence=sequence)), version=9)
        told = [int(it.base_offset) >= 0 for one in found.responses for it in one.partition_responses]
        story.told[-1] += f" offset={told}"

    send(0)
    send(0)
    send(1)
    send(5)
    send(2, in_epoch=epoch + 1)
    send(0, in_epoch=epoch + 1)
    send(1, in_epoch=epoch)
    send(7, producer=pid + 1000)
    send(0, producer=pid + 1000)
    send(-1)
    send(0, in_epoch=-1)


STORIES_OF_RECORDS = (fetch_positions, fetch_sessions, produce_batches, produce_sequences)


# --- groups --------------------------------------------------------------------------------------------------------------


def _join(
    story: Story, group: str, member: str, *, version: int = 5, protocols: tuple[str, ...] = ("range",), **more: Any
) -> Any:
    timeout = datetime.timedelta(milliseconds=more.pop("session_ms", 10_000))
    values: dict[str, Any] = {"group_id": group, "session_timeout": timeout, "member_id": member, "protocol_type": "consumer"}
    values["protocols"] = [{"name": name, "metadata": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} for name in protocols]
    values["rebalance_timeout"] = datetime.timedelta(milliseconds=10_000)
    return story.ask(JOIN, 5, **{**values, **more})


def _commit(story: Story, group: str, member: str, generation: int, *, version: int = 7, **more: Any) -> Any:
    partition = {"partition_index": more.pop("index", 0), "committed_offset": more.pop("offset", 1)}
    partition |= {"committed_leader_epoch": -1, "committed_metadata": more.pop("metadata", "")}
    topics = [{"name": more.pop("topic", TOPIC), "partitions": [partition]}]
    return story.ask(
        COMMIT, version, group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics, **more
    )


def group_membership(story: Story) -> None:
    for session_ms in (1, 10_000_000, -1):
        _join(story, "g1", "", session_ms=session_ms)
    _join(story, "", "")
    _join(story, "g1", "", protocols=())
    _join(story, "g1", "", protocol_type="")
    _join(story, "g1", "stranger")
    member = str(_join(story, "g1", "").member_id)
    story.ask(SYNC, 3, group_id="g1", generation_id=0, member_id=member)
    story.ask(HEARTBEAT, 3, group_id="g1", generation_id=0, member_id=member)
    generation = int(_join(story, "g1", member).generation_id)
    story.ask(HEARTBEAT, 3, group_id="g1", generation_id=generation, member_id=member)
    story.ask(SYNC, 3, group_id="g1", generation_id=generation + 1, member_id=member)
    story.ask(SYNC, 3, group_id="g1", generation_id=generation, member_id="stranger")
    _commit(story, "g1", member, generation)
    wanted = [{"member_id": member, "assignment": b"mine"}]
    story.ask(SYNC, 3, group_id="g1", generation_id=generation, member_id=member, assignments=wanted)
    story.ask(SYNC, 3, group_id="g1", generation_id=generation, member_id=member)
    for wrong in (generation - 1, generation + 1, -1):
        story.ask(HEARTBEAT, 3, group_id="g1", generation_id=wrong, member_id=member)
    story.ask(HEARTBEAT, 3, group_id="g1", generation_id=generation, member_id=member, group_instance_id="unknown")
    _join(story, "g1", "", protocols=("other",))
    _join(story, "g1", "", protocol_type="connect")
    _join(story, "g1", member, protocols=("other",))
    story.ask(DELETE_GROUPS, 1, groups_names=["g1", "g2", ""])
    story.ask(LEAVE, 1, group_id="g1", member_id="stranger")
    story.ask(LEAVE, 1, group_id="g1", member_id=member)
    story.ask(LEAVE, 1, group_id="g1", member_id=member)
    story.ask(DELETE_GROUPS, 1, groups_names=["g1", "g1"])
    story.ask(DESCRIBE, 5, groups=["g1", "g2", ""])


def group_offsets(story: Story) -> None:
    _commit(story, "g3", "", -1)
    _commit(story, "g3", "", -1, offset=-1)
    _commit(story, "g3", "", -1, offset=-5)
    _commit(story, "g3", "", -1, index=9)
    _commit(story, "g3", "", -1, index=-1)
    _commit(story, "g3", "", -1, topic="nosuch-here")
    _commit(story, "g3", "", -1, metadata="m" * 5000)
    _commit(story, "g3", "", -1, metadata="m" * 4096)
    _commit(story, "g3", "", 0)
    _commit(story, "g3", "stranger", -1)
    _commit(story, "g3", "stranger", 3)
    _commit(story, "", "", -1)
    _commit(story, "g4", "", 0)
    for version in (6, 9):
        _commit(story, "g3", "", -1, version=version)
    topics = [{"name": TOPIC, "partition_indexes": [0, 9, -1]}, {"name": "nosuch-here", "partition_indexes": [0]}]
    story.ask(OFFSETS, 7, group_id="g3", topics=topics)
    story.ask(OFFSETS, 7, group_id="", topics=topics)
    story.ask(OFFSETS, 7, group_id="never", topics=topics)
    story.ask(OFFSETS, 7, group_id="g3", topics=None)
    story.ask(OFFSETS, 9, groups=[{"group_id": "g3", "member_id": "stranger", "member_epoch": 1, "topics": topics}])
    gone = [{"name": TOPIC, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
    story.ask(OFFSET_DELETE, 0, group_id="g3", topics=gone)
    story.ask(OFFSET_DELETE, 0, group_id="never", topics=gone)
    story.ask(OFFSET_DELETE, 0, group_id="g3", topics=[{"name": "nosuch-here", "partitions": [{"partition_index": 0}]}])


def static_members(story: Story) -> None:
    first = _join(story, "g5", "", group_instance_id="one")
    story.ask(
        SYNC, 3, group_id="g5", generation_id=first.generation_id, member_id=first.member_id, group_instance_id="one",
        assignments=[{"member_id": str(first.member_id), "assignment": b"a"}],
    )  # fmt: skip
    second = _join(story, "g5", "", group_instance_id="one")  # a restart: the id of the first is void
    now = int(second.generation_id)
    for member in (first, second):
        story.ask(HEARTBEAT, 3, group_id="g5", generation_id=now, member_id=member.member_id, group_instance_id="one")
        _commit(story, "g5", str(member.member_id), now, group_instance_id="one")
        story.ask(SYNC, 3, group_id="g5", generation_id=now, member_id=member.member_id, group_instance_id="one")
    _join(story, "g5", str(first.member_id), group_instance_id="one")
    members = [{"member_id": "", "group_instance_id": "one"}, {"member_id": "", "group_instance_id": "two"}]
    story.ask(LEAVE, 3, group_id="g5", members=[{"member_id": str(first.member_id), "group_instance_id": "one"}])
    story.ask(LEAVE, 3, group_id="g5", members=members)
    story.ask(LEAVE, 3, group_id="g5", members=members)


def _beat(story: Story, group: str, member: str, epoch: int, *, version: int = 1, **more: Any) -> Any:
    timeout = datetime.timedelta(milliseconds=more.pop("rebalance_ms", -1))
    values = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout": timeout,
        "topic_partitions": None,
    }
    return story.ask(HEARTBEAT_848, version, **{**values, "subscribed_topic_names": None, "server_assignor": None, **more})


def consumer_protocol(story: Story) -> None:
    """KIP-848."""
    full: dict[str, Any] = {"rebalance_ms": 10_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    _beat(story, "g6", "m1", 1)
    _beat(story, "g6", "m1", -1)
    _beat(story, "g6", "m1", 0)
    _beat(story, "g6", "m1", 0, rebalance_ms=10_000, subscribed_topic_names=[TOPIC])
    _beat(story, "g6", "m1", 0, rebalance_ms=10_000, topic_partitions=[])
    _beat(story, "g6", "m1", 0, **{**full, "subscribed_topic_names": []})
    _beat(story, "g6", "m1", 0, **{**full, "rebalance_ms": 0})
    _beat(story, "g6", "m1", 0, **full, server_assignor="nobody")
    _beat(story, "g6", "", 0, **full)
    _beat(story, "", "m1", 0, **full)
    _beat(story, "g6", "m1", -3, **full)
    _beat(story, "g6", "m1", 0, **full, instance_id="")
    _beat(story, "g6", "m1", 0, **full, rack_id="")
    epoch = int(_beat(story, "g6", "m1", 0, **full).member_epoch)
    _beat(story, "g6", "m1", 0, **full)  # the answer was lost
    _beat(story, "g6", "m1", epoch)
    _beat(story, "g6", "m1", epoch - 1)
    _beat(story, "g6", "m1", epoch + 1)
    _beat(story, "g6", "m2", epoch)
    elsewhere = [{"topic_id": uuid.UUID(int=9), "partitions": [0]}]
    _beat(story, "g6", "m1", epoch, topic_partitions=elsewhere)
    mine = [{"topic_id": story.known, "partitions": [0]}]
    _beat(story, "g6", "m1", epoch, topic_partitions=mine)
    _beat(story, "g6", "m1", epoch, subscribed_topic_regex="(")
    _beat(story, "g6", "m1", epoch, version=0)
    for wrong in (epoch, epoch - 1, epoch + 1, -1):
        _commit(story, "g6", "m1", wrong, version=9)
    for member, version in (("m1", 7), ("m1", 8), ("m2", 9), ("", 9)):
        _commit(story, "g6", member, epoch, version=version)
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    for member, wrong in (("m1", epoch), ("m1", epoch + 1), ("m2", epoch), (None, -1)):
        story.ask(OFFSETS, 9, groups=[{"group_id": "g6", "member_id": member, "member_epoch": wrong, "topics": topics}])
    _join(story, "g6", "")
    _join(story, "g6", "m1")
    story.ask(HEARTBEAT, 3, group_id="g6", generation_id=epoch, member_id="m1")
    story.ask(LEAVE, 1, group_id="g6", member_id="m1")
    story.ask(DESCRIBE, 6, groups=["g6"])
    story.ask(DESCRIBE_848, 1, group_ids=["g6", "never", ""])
    story.ask(DELETE_GROUPS, 1, groups_names=["g6"])
    gone = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    story.ask(OFFSET_DELETE, 0, group_id="g6", topics=gone)
    _beat(story, "g6", "s1", 0, **full, instance_id="one")
    _beat(story, "g6", "s2", 0, **full, instance_id="one")
    _beat(story, "g6", "s1", -2, instance_id="one")
    _beat(story, "g6", "s2", 0, **full, instance_id="one")
    _beat(story, "g6", "s1", epoch + 1, instance_id="one")
    _beat(story, "g6", "s2", -1, instance_id="two")
    _beat(story, "g6", "s2", -1, instance_id="one")
    _beat(story, "g6", "m1", -1)
    _beat(story, "g6", "m1", -1)
    _join(story, "g6", "")
    story.ask(DELETE_GROUPS, 1, groups_names=["g6"])
    story.ask(DESCRIBE_848, 1, group_ids=["g6"])


STORIES_OF_GROUPS = (group_membership, group_offsets, static_members, consumer_protocol)


# --- administration ------------------------------------------------------------------------------------------------------


def _topic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **more}


def topics(story: Story) -> None:
    def create(*wanted: dict[str, Any], validate_only: bool = False) -> None:
        timeout = datetime.timedelta(milliseconds=10_000)
        story.ask(CREATE, 5, topics=list(wanted), timeout=timeout, validate_only=validate_only)

    create(_topic("made"))
    create(_topic("made"))
    create(_topic("made"), validate_only=True)
    create(_topic("a"), _topic("a"), _topic("b", num_partitions=0))
    for name in ("", ".", "..", "a/b", "x" * 250, "__consumer_offsets", "__cluster_metadata", "ma.de", "ma_de", "ü"):
        create(_topic(name), validate_only=True)
    for wanted in (
        {"num_partitions": 0},
        {"num_partitions": -1, "replication_factor": -1},
        {"num_partitions": -2},
        {"num_partitions": 10_001},
        {"replication_factor": 0},
        {"replication_factor": 9},
        {"replication_factor": -2},
        {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
    ):
        create(_topic("c", **wanted), validate_only=True)
    for placed in ([(0, [99])], [(1, [1])], [(0, [])], [(0, [1, 1])], [(0, [1]), (0, [1])], [(0, [1]), (2, [1])]):
        assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in placed]
        create(_topic("c", num_partitions=-1, replication_factor=-1, assignments=assignments), validate_only=True)
    for name, value in (
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", None),
        ("cleanup.policy", "nothing"),
        ("no.such.config", "1"),
        ("compression.type", "zip"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", "1e3"),
        ("segment.bytes", "1"),
        ("message.timestamp.type", "createtime"),
    ):
        create(_topic("c", configs=[{"name": name, "value": value}]), validate_only=True)
    timeout = datetime.timedelta(milliseconds=10_000)

    def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> None:
        placed = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
        wanted = [{"name": name, "count": count, "assignments": placed}]
        story.ask(PARTITIONS, 2, topics=wanted, timeout=timeout, validate_only=True)

    for count in (-1, 0, 1, 2, 10_001):
        grow("made", count)
    for some in ([], [[1]], [[99]], [[1], [1]], [[]], [[1, 1]]):
        grow("made", 2, some)
    grow("nosuch-here", 2)

    def configure(name: str, operation: int, value: str | None, *, kind: int = 2, of: str = "made") -> None:
        resource = {"resource_type": kind, "resource_name": of}
        resource["configs"] = [{"name": name, "config_operation": operation, "value": value}]
        story.ask(CONFIGS, 1, resources=[resource], validate_only=True)

    for operation in (0, 1, 2, 3, 4, -1):
        configure("retention.ms", operation, "5")
        configure("cleanup.policy", operation, "compact")
    configure("retention.ms", 0, None)
    configure("retention.ms", 0, "")
    configure("retention.ms", 0, "5", of="nosuch-here")
    configure("retention.ms", 0, "5", of="")
    configure("log.retention.ms", 0, "5", kind=4, of="")
    configure("log.retention.ms", 0, "5", kind=4, of="99")
    configure("log.retention.ms", 0, "5", kind=4, of="one")
    configure("process.roles", 0, "broker", kind=4, of="")
    configure("retention.ms", 0, "5", kind=77)

    def remove(offset: int, *, name: str = "made", index: int = 0) -> None:
        wanted = [{"name": name, "partitions": [{"partition_index": index, "offset": offset}]}]
        story.ask(RECORDS, 1, topics=wanted, timeout=timeout)

    for offset in (0, -1, -2, 1):
        remove(offset)
    remove(0, index=3)
    remove(0, name="__consumer_offsets")
    story.ask(DELETE, 5, topic_names=["made", "made"], timeout=timeout)
    story.ask(DELETE, 6, topics=[{"name": "made", "topic_id": uuid.UUID(int=5)}], timeout=timeout)
    story.ask(DELETE, 6, topics=[{"name": None, "topic_id": uuid.UUID(int=5)}], timeout=timeout)
    story.ask(DELETE, 5, topic_names=["made"], timeout=timeout)
    story.ask(DELETE, 5, topic_names=["made"], timeout=timeout)


def impatient(story: Story) -> None:
    """A timeout of 0, or less, in every administrative request that has one: which of them look at it?"""
    patient = datetime.timedelta(milliseconds=10_000)
    story.ask(CREATE, 5, topics=[_topic("slow")], timeout=patient, validate_only=False)
    _settled(story, "slow")
    for timeout in (datetime.timedelta(milliseconds=it) for it in (0, -1)):
        for validate_only in (True, False):
            story.ask(CREATE, 5, topics=[_topic("hasty")], timeout=timeout, validate_only=validate_only)
            grown = {"name": "slow", "count": 2, "assignments": None}
            story.ask(PARTITIONS, 3, topics=[grown], timeout=timeout, validate_only=validate_only)
        story.ask(RECORDS, 2, topics=[{"name": "slow", "partitions": [{"partition_index": 0, "offset": 0}]}], timeout=timeout)
        placed = {"name": "slow", "partitions": [{"partition_index": it, "replicas": [1]} for it in range(2)]}
        story.ask(REASSIGN, 0, topics=[placed], timeout=timeout)
        story.ask(REASSIGNMENTS, 0, topics=None, timeout=timeout)
        story.ask(ELECT, 2, election_type=0, topic_partitions=[{"topic": "slow", "partitions": [0]}], timeout=timeout)
        story.ask(FEATURES, 1, timeout=timeout, feature_updates=[], validate_only=True)
        story.ask(DELETE, 6, topics=[{"name": "slow", "topic_id": None}], timeout=timeout)


def _settled(story: Story, name: str) -> None:
    """Until this broker leads the only partition of a topic."""
    deadline = time.monotonic() + 20
    topics = [{"topic_id": uuid.UUID(int=0), "name": name}]
    asked = filled(load_request_schema(METADATA, 12), {"topics": topics, "allow_auto_topic_creation": False})
    while [it.leader_id for it in story.connection.ask(asked).topics[0].partitions] != [1]:
        assert time.monotonic() < deadline, f"{name} is not led"
        time.sleep(0.02)


STORIES: Final[tuple[Callable[[Story], None], ...]] = (*STORIES_OF_RECORDS, *STORIES_OF_GROUPS, topics, impatient)


def told(address: str, story: Callable[[Story], None]) -> list[str]:
    """What each request of it was answered; "closed" ends it."""
    with _connected(address) as connection:
        one = Story(connection, topic_id(address))
        with contextlib.suppress(Closed):
            story(one)
        return one.told


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Connection]:
    connection = Connection(address, timeout_s=20)
    try:
        yield connection
    finally:
        connection.close()
