"""Metadata records to the values of metadata log records and back.

A value is: unsigned varint frame version (1), unsigned varint record type, unsigned varint record version (0), protobuf message.
Types carry Kafka's numbers. Source: KIP-631 "Record Format Changes"; ML-13, ML-16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlite._pb import records_pb2
from kraftlite.metadata import records
from kraftlite.metadata.pbmap import mapper
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import Fault
from kraftlite.raft.client import RecordSerde

FRAME_VERSION: Final = 1
RECORD_VERSION: Final = 0

RECORD_TYPES: Final[Mapping[int, type[Any]]] = {
    0: records.RegisterBrokerRecord,
    1: records.UnregisterBrokerRecord,
    2: records.TopicRecord,
    3: records.PartitionRecord,
    4: records.ConfigRecord,
    5: records.PartitionChangeRecord,
    9: records.RemoveTopicRecord,
    11: records.UserScramCredentialRecord,
    12: records.FeatureLevelRecord,
    14: records.ClientQuotaRecord,
    15: records.ProducerIdsRecord,
    17: records.BrokerRegistrationChangeRecord,
    20: records.NoOpRecord,
    22: records.RemoveUserScramCredentialRecord,
    23: records.BeginTransactionRecord,
    24: records.EndTransactionRecord,
    25: records.AbortTransactionRecord,
    27: records.RegisterControllerRecord,
    28: records.ClearElrRecord,
}
_MAX_TYPE: Final = 127  # one byte of varint; a larger type needs a longer prefix
_PREFIX_BYTES: Final = 3


class MetadataSerde(RecordSerde):
    """Stateless but for the compiled mappers. `decode` raises Fault for what this software can not read."""

    def __init__(self) -> None:
        self._encoders: dict[type[Any], tuple[bytes, Callable[[Any], Any]]] = {}
        self._decoders: dict[bytes, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}
        for type_id, cls in RECORD_TYPES.items():
            assert type_id <= _MAX_TYPE
            found = mapper(cls, getattr(records_pb2, cls.__name__))
            prefix = bytes((FRAME_VERSION, type_id, RECORD_VERSION))
            self._encoders[cls] = (prefix, found.to_pb)
            self._decoders[prefix] = (found.pb, found.from_pb)

    def encode(self, record: MetadataRecord) -> bytes:
        prefix, to_pb = self._encoders[type(record)]
        data: bytes = prefix + to_pb(record).SerializeToString()
        return data

    def decode(self, data: bytes | memoryview) -> MetadataRecord:
        found = self._decoders.get(bytes(data[:_PREFIX_BYTES]))
        if found is None:
            raise Fault(_unknown(bytes(data[:16])))
        new, from_pb = found
        message = new()
        try:
            message.MergeFromString(data[_PREFIX_BYTES:])
            record: MetadataRecord = from_pb(message)
        except Exception as error:
            # protobuf raises its own type; uuids raise ValueError
            raise Fault(f"a metadata record of type {data[1]} can not be read: {error}") from error
        return record


def _unknown(data: bytes) -> str:
    numbers = []
    position = 0
    for _ in range(3):
        number = shift = 0
        while position < len(data):
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(number)
    frame, type_id, version = numbers
    known = ", ".join(str(number) for number in RECORD_TYPES)
    return (
        f"a metadata record has frame version {frame}, type {type_id}, version {version}; this software reads frame version "
        f"{FRAME_VERSION}, types {known}, version {RECORD_VERSION}. It was written by newer software, or is not a metadata record"
    )
