"""Metadata by hand: the request, and a response whose topics are encoded once per image and then copied.

Cross-checked with kio and kafka-python in tests/unit/wire, for every version.
Source: docs/PERFORMANCE.md, "Codecs"; CP-08 to CP-11.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.broker.handlers.metadata import TopicQuery
from kraftlite.broker.metadata_cache import BrokerEndpoint, PartitionMetadata, TopicMetadata
from kraftlite.model.ids import ZERO_UUID
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    int32_array,
    nullable_string,
    read_array_length,
    read_nullable_string,
    read_uuid,
    response_head,
    skip_tags,
    string,
)
from kraftlite.wire.operations import OPERATIONS_NOT_ASKED

METADATA_MIN: Final = 0
METADATA_MAX: Final = 13
METADATA_FLEXIBLE: Final = 9
METADATA_TOPIC_IDS: Final = 10

_PARTITION_V0 = struct.Struct(">hii")
_PARTITION_V7 = struct.Struct(">hiii")


class MetadataRequest(NamedTuple):
    """A Metadata request. Before v4 a request always allows creation."""

    topics: list[TopicQuery] | None
    """None: all."""
    allow_auto_topic_creation: bool
    cluster_operations: bool
    """True when the client asks what it may do with the cluster, and with each topic."""
    topic_operations: bool


@guarded
def parse_metadata(view: memoryview, pos: int, version: int) -> MetadataRequest:
    flexible = version >= METADATA_FLEXIBLE
    count, pos = read_array_length(view, pos, flexible)
    topics: list[TopicQuery] | None = None
    if count is not None and not (count == 0 and version == 0):
        topics = []
        for _ in range(count):
            topic_id: UUID | None = None
            if version >= METADATA_TOPIC_IDS:
                topic_id, pos = read_uuid(view, pos)
                topic_id = None if topic_id == ZERO_UUID else topic_id
            name, pos = read_nullable_string(view, pos, flexible)
            if flexible:
                pos = skip_tags(view, pos)
            if name is None and version < METADATA_TOPIC_IDS:
                raise ProtocolViolation("null where a topic name must be")
            topics.append(TopicQuery(name, topic_id))
    elif count is None and version == 0:
        raise ProtocolViolation("null where the topics must be")
    allow = True
    if version >= 4:
        allow = view[pos] != 0
        pos += 1
    cluster_operations = topic_operations = False
    if 8 <= version <= 10:
        cluster_operations = view[pos] != 0
        pos += 1
    if version >= 8:
        topic_operations = view[pos] != 0
        pos += 1
    if flexible:
        skip_tags(view, pos)
    return MetadataRequest(topics, allow, cluster_operations, topic_operations)


def encode_topic(topic: TopicMetadata, version: int, operations: int = OPERATIONS_NOT_ASKED) -> bytes:
    """One entry of the topics array."""
    flexible = version >= METADATA_FLEXIBLE
    parts = [struct.pack(">h", topic.error)]
    if version >= 12:
        parts.append(nullable_string(topic.name, flexible))
    else:
        parts.append(string(topic.name or "", flexible))
    if version >= METADATA_TOPIC_IDS:
        parts.append(topic.topic_id.bytes)
    if version >= 1:
        parts.append(b"\x01" if topic.is_internal else b"\x00")
    parts.append(array_length(len(topic.partitions), flexible))
    parts.extend(_encode_partition(partition, version, flexible) for partition in topic.partitions)
    if version >= 8:
        parts.append(INT32.pack(operations))
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _encode_partition(partition: PartitionMetadata, version: int, flexible: bool) -> bytes:
    leader = -1 if partition.leader is None else partition.leader
    if version >= 7:
        head = _PARTITION_V7.pack(partition.error, partition.partition, leader, partition.leader_epoch)
    else:
        head = _PARTITION_V0.pack(partition.error, partition.partition, leader)
    out = head + int32_array(partition.replicas, flexible) + int32_array(partition.isr, flexible)
    if version >= 5:
        out += int32_array(partition.offline_replicas, flexible)
    return out + NO_TAGS if flexible else out


def encode_brokers(brokers: Sequence[BrokerEndpoint], version: int) -> bytes:
    """The brokers array."""
    flexible = version >= METADATA_FLEXIBLE
    parts = [array_length(len(brokers), flexible)]
    for broker in brokers:
        parts.append(INT32.pack(broker.broker_id) + string(broker.host, flexible) + INT32.pack(broker.port))
        if version >= 1:
            parts.append(nullable_string(broker.rack, flexible))
        if flexible:
            parts.append(NO_TAGS)
    return b"".join(parts)


def encode_metadata(
    correlation_id: int,
    version: int,
    *,
    brokers: bytes,
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[bytes],
    operations: int = OPERATIONS_NOT_ASKED,
    error: int = 0,
) -> bytes:
    """A whole response frame from parts made by `encode_brokers` and `encode_topic` for the same version."""
    flexible = version >= METADATA_FLEXIBLE
    parts: list[bytes] = []
    if version >= 3:
        parts.append(b"\x00\x00\x00\x00")  # throttle time
    parts.append(brokers)
    if version >= 2:
        parts.append(nullable_string(cluster_id, flexible))
    if version >= 1:
        parts.append(INT32.pack(controller_id))
    parts.append(array_length(len(topics), flexible))
    parts.extend(topics)
    if 8 <= version <= 10:
        parts.append(INT32.pack(operations))
    if version >= 13:
        parts.append(struct.pack(">h", error))
    if flexible:
        parts.append(NO_TAGS)
    body = b"".join(parts)
    return response_head(correlation_id, len(body), flexible) + body
